//! The hosts, each with its own runtime, and a queue of events in simulated time. The world runs each host
//! until the host would wait, records for how long, and moves time to the next event. It does not depend on
//! what the hosts do.

mod links;

pub(crate) use links::Link;

use crate::actors::{self, Role};
use crate::broker::Faults;
use crate::database::Database;
use crate::history::{History, Setup};
use crate::judge::{self, Judge};
use crate::machine;
use crate::network::{Frame, Lane, Network, Payload, Up};
use crate::record::{self, Fact, Loss, note};
use crate::users::Users;
use everwatch_broker::MemoryBroker;
use links::Conn;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hasher as _};
use std::sync::Arc;
use std::task::{Poll, Waker};
use tokio::runtime::Runtime;

pub(crate) type Act = Box<dyn FnOnce(&mut World)>;

pub(crate) struct Host {
    pub(crate) name: String,
    pub(crate) role: Role,
    runtime: Option<Runtime>,
    /// The number of processes that have run on this host.
    pub(crate) life: u32,
    pub(crate) frozen: bool,
    /// How far its wall clock is off, in ms.
    pub(crate) skew: i64,
    /// Whether something may have arrived for this host.
    stirred: bool,
    /// When the host has something to do without input.
    wakes: Option<u64>,
    /// By lane.
    pub(crate) links: [Link; 2],
    /// Frames that a cut holds up: they arrive after it, as TCP's retransmissions do.
    held_up: Vec<Frame>,
}

impl Host {
    /// Marks that something may have arrived for this host.
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
    pub(crate) users: Users,
    pub(crate) judge: Judge,
    pub(crate) tells: bool,
    conns: Vec<Conn>,
    events: BTreeMap<(u64, u64), Act>,
    numbered: u64,
    digest: DefaultHasher,
    pub(crate) frames: u64,
    pub(crate) steps: u64,
    /// What hosts publish, if that is counted.
    pub(crate) sent: Option<crate::count::Sent>,
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
            users: Users::new(&setup),
            judge: Judge::new(history, Arc::clone(&database)),
            database,
            tells,
            conns: Vec::new(),
            events: BTreeMap::new(),
            numbered: 0,
            digest: DefaultHasher::new(),
            frames: 0,
            steps: 0,
            sent: None,
            setup,
        }
    }

    /// Schedules an action that is independent of the state of all hosts.
    pub(crate) fn later(&mut self, delay: u64, act: impl FnOnce(&mut Self) + 'static) {
        self.numbered += 1;
        self.events.insert((self.now + delay, self.numbered), Box::new(act));
    }

    /// A random number from `low` to `high`, both included.
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

    /// Ends a process at once. With `Power::Off` the broker is not told.
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
        // Discards what destructors have sent: a killed process sends nothing.
        drop(self.network.take());
        self.users.manager_died(at);
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

    /// Runs the periodic checks of the judge.
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

    fn judge_facts(&mut self) {
        for mut fact in record::take() {
            if let Fact::TakenBack { conn, loss, .. } = &mut fact
                && *loss == Loss::Told
                && !self.hears(*conn)
            {
                *loss = Loss::Untold;
            }
            if self.tells {
                self.tell_fact(&fact);
            }
            if let Fact::Saved { request, before, after } = &fact {
                self.users.on_saved(*request, before.as_deref(), after);
            }
            self.judge.hear(self.now, &fact);
        }
        if let Some(panicked) = machine::take_panic() {
            self.judge.fail("panics", panicked);
        }
    }
}

/// Whether the machine keeps running when its process ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) enum Power {
    On,
    Off,
}
