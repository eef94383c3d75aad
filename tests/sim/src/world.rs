//! Hosts, each with a runtime of its own, and a queue of events in simulated time. The world runs a host until it
//! would wait, learns for how long, and moves time to the next moment at which anything happens. It carries the
//! frames between the hosts. It knows nothing of what the hosts do.

use crate::actors::{self, Role};
use crate::broker::{self, Faults, Node};
use crate::database::Database;
use crate::history::{History, Setup};
use crate::judge::{self, Judge};
use crate::machine;
use crate::network::{AtBroker, ConnId, Down, Frame, Lane, Network, Opening, Payload, Up};
use crate::people::People;
use crate::record::{self, Fact, Loss, note};
use everwatch_broker::MemoryBroker;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;
use std::task::{Poll, Waker};
use tokio::runtime::Runtime;
use tokio::sync::mpsc::UnboundedSender;

/// The heartbeat that brokers and clients agree on, in ms; both send one twice as often on an idle connection.
const HEARTBEAT: u64 = 5000;
/// The broker gives a silent client up after between two and three heartbeats, a client the broker after two.
const BROKER_PATIENCE: u64 = HEARTBEAT * 5 / 2;
const CLIENT_PATIENCE: u64 = HEARTBEAT * 2;

pub(crate) type Act = Box<dyn FnOnce(&mut World)>;

/// What a link does not carry at the moment, and how much longer it takes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Link {
    pub(crate) cut_up: bool,
    pub(crate) cut_down: bool,
    /// Added to the latency, in ms.
    pub(crate) delay: u64,
}

pub(crate) struct Host {
    pub(crate) name: String,
    pub(crate) role: Role,
    runtime: Option<Runtime>,
    /// Counts the processes on it.
    pub(crate) life: u32,
    pub(crate) frozen: bool,
    /// How far its wall clock is off, in ms.
    pub(crate) skew: i64,
    /// Something may have come for it.
    stirred: bool,
    /// When it has something to do by itself.
    wakes: Option<u64>,
    /// By lane.
    pub(crate) links: [Link; 2],
    /// Frames that a cut holds up: they arrive after it, as TCP's retransmissions do.
    held_up: Vec<Frame>,
}

impl Host {
    /// Something may have come for it.
    pub(crate) fn stir(&mut self) {
        self.stirred = true;
    }
    pub(crate) fn is_up(&self) -> bool {
        self.runtime.is_some()
    }
    pub(crate) fn runs(&self) -> bool {
        self.is_up() && !self.frozen
    }
}

/// One lane of a session, as both kernels see it.
struct LaneState {
    to_broker: UnboundedSender<AtBroker>,
    /// When the newest frame up and down arrives: frames do not overtake each other.
    arrives: [u64; 2],
    sent_at: [u64; 2],
    heard_by_broker: u64,
    heard_by_client: u64,
    open_at_broker: bool,
}

struct Conn {
    host: usize,
    life: u32,
    to_client: UnboundedSender<Down>,
    lanes: [LaneState; 2],
    open_at_client: bool,
}

pub(crate) struct World {
    /// Milliseconds since the beginning.
    pub(crate) now: u64,
    pub(crate) setup: Setup,
    pub(crate) hosts: Vec<Host>,
    pub(crate) network: Network,
    pub(crate) broker: MemoryBroker,
    pub(crate) broker_faults: Arc<Faults>,
    pub(crate) broker_up: bool,
    pub(crate) database: Arc<Database>,
    pub(crate) people: People,
    pub(crate) judge: Judge,
    pub(crate) tells: bool,
    conns: Vec<Conn>,
    events: BTreeMap<(u64, u64), Act>,
    numbered: u64,
    digest: DefaultHasher,
    pub(crate) frames: u64,
    pub(crate) steps: u64,
}

thread_local! {
    static WAITING: RefCell<Option<Waker>> = const { RefCell::new(None) };
}

fn runtime() -> Runtime {
    let waits = || {
        if let Some(waker) = WAITING.take() {
            waker.wake();
        }
    };
    let built = tokio::runtime::Builder::new_current_thread().enable_all().on_thread_unpark(waits).build();
    built.unwrap()
}

/// Ends when the runtime wants to wait.
async fn until_it_waits() {
    let mut began = false;
    std::future::poll_fn(|context| {
        if std::mem::replace(&mut began, true) {
            return Poll::Ready(());
        }
        WAITING.set(Some(context.waker().clone()));
        Poll::Pending
    })
    .await;
}

/// The host that carries the broker.
pub(crate) const BROKER: usize = 0;

impl World {
    pub(crate) fn new(history: &History, tells: bool) -> Self {
        let (setup, database) = (history.setup.clone(), Arc::<Database>::default());
        let hosts = Role::all(&setup).map(|role| Host {
            name: role.name(&setup),
            skew: role.skew(&setup),
            role,
            runtime: None,
            life: 0,
            frozen: false,
            stirred: false,
            wakes: None,
            links: [Link::default(); 2],
            held_up: Vec::new(),
        });
        Self {
            now: 0,
            hosts: hosts.collect(),
            network: Network::default(),
            broker: MemoryBroker::new(),
            broker_faults: Arc::default(),
            broker_up: true,
            people: People::new(&setup),
            judge: Judge::new(history, Arc::clone(&database)),
            database,
            tells,
            conns: Vec::new(),
            events: BTreeMap::new(),
            numbered: 0,
            digest: DefaultHasher::new(),
            frames: 0,
            steps: 0,
            setup,
        }
    }

    /// Something that happens whatever becomes of any host.
    pub(crate) fn later(&mut self, delay: u64, act: impl FnOnce(&mut Self) + 'static) {
        self.numbered += 1;
        self.events.insert((self.now + delay, self.numbered), Box::new(act));
    }

    /// Both ends included.
    pub(crate) fn roll(&mut self, low: u64, high: u64) -> u64 {
        low + machine::chance() % (high.max(low) - low + 1)
    }

    pub(crate) fn tell(&self, line: impl FnOnce(&Self) -> String) {
        if self.tells {
            eprintln!("{}  {}", crate::story::moment(self.now), line(self));
        }
    }

    pub(crate) fn digest(&self) -> u64 {
        self.digest.finish()
    }

    /// Starts a process on a host that has none.
    pub(crate) fn boot(&mut self, at: usize) {
        if self.hosts[at].is_up() {
            return;
        }
        let host = &mut self.hosts[at];
        host.life += 1;
        let runtime = runtime();
        machine::set_skew(host.skew);
        machine::set_host(at);
        host.role.start(&self.setup, &runtime, (at, host.life), (&self.network, &self.database));
        host.runtime = Some(runtime);
        (host.stirred, host.frozen) = (true, false);
        note(Fact::Booted { host: at });
        self.tell(|world| format!("{} starts", world.hosts[at].name));
    }

    /// Ends a process at once. `Power::Off`: nobody tells the broker.
    pub(crate) fn kill(&mut self, at: usize, power: Power) {
        let Some(runtime) = self.hosts[at].runtime.take() else { return };
        self.tell(|world| format!("{} is killed, power {power:?}", world.hosts[at].name));
        self.collect();
        note(Fact::Died { host: at });
        self.judge_facts();
        machine::set_host(at);
        drop(runtime);
        let host = &mut self.hosts[at];
        (host.frozen, host.stirred, host.wakes) = (false, false, None);
        // What destructors have said was never sent.
        drop(self.network.take());
        self.people.manager_died(at);
        let life = self.hosts[at].life;
        for conn in 0..self.conns.len() {
            let it = &mut self.conns[conn];
            if it.host == at
                && it.life == life
                && std::mem::take(&mut it.open_at_client)
                && power == Power::On
            {
                for lane in Lane::BOTH {
                    self.transmit(Frame { conn, lane, payload: Payload::Up(Up::Close) });
                }
            }
        }
    }

    pub(crate) fn freeze(&mut self, at: usize) {
        if self.hosts[at].is_up() && !std::mem::replace(&mut self.hosts[at].frozen, true) {
            note(Fact::Frozen { host: at });
        }
    }

    pub(crate) fn thaw(&mut self, at: usize) {
        if std::mem::take(&mut self.hosts[at].frozen) {
            self.hosts[at].stirred = true;
            note(Fact::Thawed { host: at });
        }
    }

    pub(crate) fn set_link(&mut self, at: usize, lane: Lane, link: Link) {
        self.hosts[at].links[lane as usize] = link;
        for frame in std::mem::take(&mut self.hosts[at].held_up) {
            self.transmit(frame);
        }
    }

    /// Runs a task on a host, now.
    pub(crate) fn spawn(&mut self, at: usize, task: impl Future<Output = ()> + Send + 'static) {
        if let Some(runtime) = &self.hosts[at].runtime {
            drop(runtime.spawn(task));
            self.hosts[at].stirred = true;
        }
    }

    /// Runs until `until`, or until a rule is broken.
    pub(crate) fn run_until(&mut self, until: u64) {
        while self.judge.breach.is_none() {
            self.settle();
            let wakes = self.hosts.iter().filter(|it| !it.frozen).filter_map(|it| it.wakes);
            let event = self.events.keys().next().map(|(at, _)| *at);
            let Some(next) = wakes.chain(event).min().filter(|at| *at <= until) else { break };
            self.now = next.max(self.now);
            machine::set_now(self.now);
            while let Some(first) = self.events.first_entry().filter(|it| it.key().0 <= self.now) {
                first.remove()(self);
            }
            for host in &mut self.hosts {
                host.stirred |= host.wakes.is_some_and(|at| at <= self.now);
            }
        }
        self.now = self.now.max(until);
        machine::set_now(self.now);
        self.judge_facts();
    }

    /// Once every look of the judge.
    pub(crate) fn tick(&mut self) {
        self.later(judge::LOOK, Self::tick);
        self.judge.tick(self.now);
    }

    pub(crate) fn has_orders(&self) -> bool {
        self.judge.has_orders()
    }

    /// Runs all hosts until none has anything to do at this moment.
    fn settle(&mut self) {
        while let Some(at) = self.hosts.iter().position(|it| it.stirred && !it.frozen && it.is_up()) {
            let host = &mut self.hosts[at];
            host.stirred = false;
            machine::set_skew(host.skew);
            machine::set_host(at);
            if let Some(runtime) = &host.runtime {
                loop {
                    self.steps += 1;
                    runtime.block_on(until_it_waits());
                    let spun = machine::now() - self.now;
                    if spun > 0 {
                        let text = format!("{} keeps its processor busy for {spun} ms", host.name);
                        return self.judge.fail("busy", text);
                    }
                    if machine::waits() != Some(0) {
                        break;
                    }
                }
            }
            host.wakes = machine::waits().map(|wait| self.now + wait);
            machine::set_skew(0);
            for exited in machine::take_exits() {
                self.kill(exited, Power::On);
                let pause = self.roll(200, 3000);
                self.later(pause, move |world| world.boot(exited));
            }
            for stopped in actors::take_stopped() {
                self.kill(stopped, Power::On);
            }
            self.collect();
            self.take_answers();
        }
        self.judge_facts();
    }

    /// Takes what hosts have sent.
    fn collect(&mut self) {
        let (openings, frames) = self.network.take();
        for opening in openings {
            self.open(opening);
        }
        for frame in frames {
            self.transmit(frame);
        }
    }

    fn judge_facts(&mut self) {
        for fact in record::take() {
            if self.tells {
                self.tell_fact(&fact);
            }
            if let Fact::Saved { request, before, after } = &fact {
                self.people.on_saved(*request, before.as_deref(), after);
            }
            self.judge.hear(self.now, &fact);
        }
        if let Some(panicked) = machine::take_panic() {
            self.judge.fail("panics", panicked);
        }
    }

    fn open(&mut self, Opening { conn, host, life, client, broker }: Opening) {
        let node = Node {
            memory: self.broker.clone(),
            network: self.network.clone(),
            faults: Arc::clone(&self.broker_faults),
        };
        let now = self.now;
        let lanes = broker.map(|(to_broker, arrivals)| (to_broker, Some(arrivals)));
        let mut at = Lane::BOTH.into_iter();
        let lanes = lanes.map(|(to_broker, arrivals)| {
            if let (Some(lane), Some(arrivals), true) = (at.next(), arrivals, self.broker_up) {
                self.spawn(BROKER, broker::serve(node.clone(), (host, conn, lane), arrivals));
            }
            LaneState {
                to_broker,
                arrives: [0, 0],
                sent_at: [now, now],
                heard_by_broker: now,
                heard_by_client: now,
                open_at_broker: self.broker_up,
            }
        });
        let open = self.broker_up;
        self.conns.push(Conn { host, life, to_client: client, lanes, open_at_client: true });
        if !open {
            let refused = Down::Lost("connection refused".to_owned());
            self.transmit(Frame { conn, lane: Lane::Consume, payload: Payload::Down(refused) });
        }
    }

    pub(crate) fn transmit(&mut self, frame: Frame) {
        let up = matches!(frame.payload, Payload::Up(_));
        let it = &mut self.conns[frame.conn];
        if let Payload::Up(Up::Close) = frame.payload {
            it.open_at_client = false;
        }
        let lane = frame.lane as usize;
        if let Payload::Down(Down::Lost(_)) = frame.payload {
            it.lanes[lane].open_at_broker = false;
        }
        let host = &mut self.hosts[it.host];
        let link = host.links[lane];
        if (up && link.cut_up) || (!up && link.cut_down) {
            host.held_up.push(frame);
            return;
        }
        let latency = 1 + machine::chance() % 3 + link.delay;
        let state = &mut it.lanes[lane];
        let way = usize::from(!up);
        state.sent_at[way] = self.now;
        state.arrives[way] = state.arrives[way].max(self.now + latency);
        let delay = state.arrives[way] - self.now;
        self.later(delay, move |world| world.arrive(frame));
    }

    fn arrive(&mut self, Frame { conn, lane, payload }: Frame) {
        self.frames += 1;
        (self.now, conn, lane).hash(&mut self.digest);
        let it = &mut self.conns[conn];
        let state = &mut it.lanes[lane as usize];
        match payload {
            Payload::Up(up) => {
                state.heard_by_broker = self.now;
                if matches!(up, Up::Close) {
                    state.open_at_broker = false;
                }
                if !matches!(up, Up::Heartbeat) {
                    let _closed = state.to_broker.send(AtBroker::Arrived(up));
                    self.hosts[BROKER].stirred = true;
                }
            }
            Payload::Down(down) => {
                state.heard_by_client = self.now;
                if !matches!(down, Down::Heartbeat) {
                    let _gone = it.to_client.send(down);
                    let host = it.host;
                    self.hosts[host].stirred = true;
                }
            }
        }
    }

    /// Once every half heartbeat: both ends say that they are there, and give up those that are silent.
    pub(crate) fn heartbeats(&mut self) {
        self.later(HEARTBEAT / 2, Self::heartbeats);
        for conn in 0..self.conns.len() {
            for lane in Lane::BOTH {
                self.heartbeat(conn, lane);
            }
        }
    }

    fn heartbeat(&mut self, conn: ConnId, lane: Lane) {
        let (now, it) = (self.now, &self.conns[conn]);
        let state = &it.lanes[lane as usize];
        let host = &self.hosts[it.host];
        let client_runs = it.open_at_client && host.runs() && host.life == it.life;
        let idle = |way: usize| now - state.sent_at[way] >= HEARTBEAT / 2;
        let (from_client, from_broker) = (client_runs && idle(0), state.open_at_broker && idle(1));
        let deaf = client_runs && now - state.heard_by_client > CLIENT_PATIENCE;
        let broker_runs = self.broker_up && self.hosts[BROKER].runs();
        let silent = state.open_at_broker && broker_runs && now - state.heard_by_broker > BROKER_PATIENCE;
        if from_client {
            self.transmit(Frame { conn, lane, payload: Payload::Up(Up::Heartbeat) });
        }
        if from_broker && broker_runs {
            self.transmit(Frame { conn, lane, payload: Payload::Down(Down::Heartbeat) });
        }
        if silent {
            self.at_broker((conn, lane), AtBroker::Close(Loss::Silent));
        }
        if deaf {
            let lost = Down::Lost("missed heartbeats from the broker".to_owned());
            let (host, client) = (self.conns[conn].host, &self.conns[conn].to_client);
            let _gone = client.send(lost);
            self.hosts[host].stirred = true;
        }
    }

    /// Tells the broker's end of a lane.
    pub(crate) fn at_broker(&mut self, (conn, lane): (ConnId, Lane), order: AtBroker) {
        let state = &mut self.conns[conn].lanes[lane as usize];
        if matches!(order, AtBroker::Close(_) | AtBroker::Abandon(_)) {
            state.open_at_broker = false;
        }
        let _closed = state.to_broker.send(order);
        self.hosts[BROKER].stirred = true;
    }

    /// The newest session of a host that is open at the broker.
    pub(crate) fn session_of(&self, host: usize, lane: Lane) -> Option<ConnId> {
        let open = |conn: &ConnId| {
            let it = &self.conns[*conn];
            it.host == host && it.lanes[lane as usize].open_at_broker
        };
        (0..self.conns.len()).rev().find(open)
    }

    pub(crate) fn open_lanes(&self) -> Vec<(ConnId, Lane)> {
        let all = (0..self.conns.len()).flat_map(|conn| Lane::BOTH.map(|lane| (conn, lane)));
        all.filter(|(conn, lane)| self.conns[*conn].lanes[*lane as usize].open_at_broker).collect()
    }

    pub(crate) fn send_down(&mut self, (conn, lane): (ConnId, Lane), down: Down) {
        self.transmit(Frame { conn, lane, payload: Payload::Down(down) });
    }
}

/// Whether the machine under a process lives on when the process ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) enum Power {
    On,
    Off,
}
