//! A service process: one incarnation after another, each carrying out what `core::slots` decides.
//! It mirrors `session`, `reporter` and `runtime` of the SDK; the fence is in `fencing`, code in `code`.

use crate::broker::{Consume, Delivery, QueueId};
use crate::code::Unit;
use crate::history::ServiceSetup;
use crate::net::Lane;
use crate::taking::Taking;
use crate::world::{World, duration};
use everwatch_core::blocks::block_sizes;
use everwatch_core::fence::Proofs;
use everwatch_core::id::{ObserverId, Pool, ServiceId};
use everwatch_core::message::{
    Beat, BeatMessage, Birth, Cause, Command, Intent, KindInfo, ListChunk, Predecessor, Report, RunEvent,
    Welcome, decode, encode,
};
use everwatch_core::rebirth::{Losses, STEADY};
use everwatch_core::slots::{Effect, Input, Now, Pace, SlotPolicy, Slots};
use serde_json::Value;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use uuid::Uuid;

/// How long a newborn waits for its welcome.
const WELCOME: u64 = 1000;
const BEAT: u64 = 5000;
const LIST: u64 = 60_000;
/// The time of an orderly stop before code is aborted, and from there to the end.
const DRAIN: u64 = 16_000;
const DRAIN_FORCED: u64 = 2_000;
pub(crate) const FENCE_AFTER: u64 = 5000;
pub(crate) const FENCE_GRACE: u64 = 500;

/// What is told, and who waits for its confirm.
#[derive(Debug, Clone)]
pub(crate) enum Say {
    Tell(Report),
    Settle(everwatch_core::message::RunReport),
    Born,
    Gone,
    /// It has made the work queue.
    Made,
}

/// Where an incarnation stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    Connecting,
    Living,
    Draining,
    /// The goodbye is on its way.
    Leaving,
    /// The fence has fallen.
    Fenced,
}

pub(crate) struct Service {
    pub(crate) setup: ServiceSetup,
    pub(crate) id: ServiceId,
    /// Counts the incarnations: what belongs to an older one is void.
    pub(crate) incarnation: u64,
    pub(crate) stage: Stage,
    pub(crate) conns: [usize; 2],
    pub(crate) slots: Slots<u64>,
    pub(crate) units: BTreeMap<ObserverId, Unit>,
    pub(crate) proofs: Proofs,
    pub(crate) said: VecDeque<Say>,
    pub(crate) saying: bool,
    pub(crate) seq: u64,
    pub(crate) began: u64,
    pub(crate) taking: Taking,
    pub(crate) welcomed: bool,
    beats: u64,
    lists: u64,
    wakes_at: Option<u64>,
    predecessor: Option<Predecessor>,
    losses: Losses,
    comes_last: bool,
}

impl Service {
    pub(crate) fn new(setup: &ServiceSetup) -> Self {
        Self {
            id: ServiceId(Uuid::nil()),
            incarnation: 0,
            stage: Stage::Connecting,
            conns: [0; 2],
            slots: Slots::new(policy(setup)).with_pace(Pace::new(setup.start_rate, &BTreeMap::new())),
            units: BTreeMap::new(),
            proofs: Proofs::given(duration(0)),
            said: VecDeque::new(),
            saying: false,
            seq: 0,
            began: 0,
            taking: Taking::new(setup.capacity),
            welcomed: false,
            beats: 0,
            lists: 0,
            wakes_at: None,
            predecessor: None,
            losses: Losses::NONE,
            comes_last: false,
            setup: setup.clone(),
        }
    }
    pub(crate) fn conn(&self, lane: Lane) -> usize {
        self.conns[lane as usize]
    }
    fn birth(&self) -> Birth {
        let kinds = self.setup.kinds.iter();
        Birth {
            name: self.setup.name.clone(),
            pool: Pool::default(),
            capacity: self.setup.capacity,
            kinds: kinds.map(|kind| KindInfo { name: kind.clone(), schema: Value::Null }).collect(),
            version: "sim".to_owned(),
            host: String::new(),
            labels: BTreeMap::new(),
            predecessor: self.predecessor.clone(),
        }
    }
}

fn policy(setup: &ServiceSetup) -> SlotPolicy {
    SlotPolicy {
        kinds: setup.kinds.iter().cloned().collect(),
        fence_grace: duration(FENCE_GRACE),
        consumers: u32::try_from(block_sizes(setup.capacity).len()).unwrap(),
        refuse_first: duration(1000),
        refuse_max: duration(60_000),
    }
}

impl World {
    pub(crate) fn service_boots(&mut self, s: usize) {
        let setup = self.services[s].setup.clone();
        let incarnation = self.services[s].incarnation;
        self.services[s] = Service { incarnation, ..Service::new(&setup) };
        self.connect(s, 500);
    }

    pub(crate) fn service_dies(&mut self, s: usize) {
        self.services[s].units.clear();
        self.observe_executions();
    }

    /// Something that this incarnation does later.
    pub(crate) fn soon(&mut self, s: usize, delay: u64, act: impl FnOnce(&mut Self) + 'static) {
        let incarnation = self.services[s].incarnation;
        self.after(delay, s, move |world| {
            if world.services[s].incarnation == incarnation {
                act(world);
            }
        });
    }

    fn connect(&mut self, s: usize, pause: u64) {
        let latency = self.roll(5, 50);
        self.after(latency, s, move |world| match world.open_session(s) {
            Some(conns) => world.begin(s, conns),
            None => {
                let jittered = world.roll(pause / 4, pause);
                world.after(jittered, s, move |world| world.connect(s, (pause * 2).min(4000)));
            }
        });
    }

    fn begin(&mut self, s: usize, conns: [usize; 2]) {
        let (now, id) = (self.now, ServiceId(self.new_uuid()));
        let it = &mut self.services[s];
        let (fresh, comes_last) = (Service::new(&it.setup), it.comes_last);
        *it = Service {
            id,
            incarnation: it.incarnation + 1,
            stage: Stage::Living,
            conns,
            proofs: Proofs::given(duration(now)),
            began: now,
            predecessor: it.predecessor.take(),
            losses: it.losses,
            ..fresh
        };
        if comes_last {
            it.taking.blocks.come_last(STEADY);
        }
        self.tell(|world| format!("{} is born as {}", world.name(s), short(id.0)));
        let incarnation = self.services[s].incarnation;
        self.ask(
            conns[0],
            move |world| {
                world.declare_commands(conns[0], id);
                let queue = QueueId::Commands(id);
                let commands = Consume { conn: conns[0], queue, prefetch: 100, priority: 0, block: 0 };
                world.consume(commands, move |world, delivery| {
                    if world.services[s].incarnation == incarnation {
                        world.on_command(s, &delivery);
                    }
                });
                world.declare_work()
            },
            move |world, made| {
                if made.is_some() && world.services[s].incarnation == incarnation {
                    world.watch(s);
                    if made == Some(true) {
                        world.say(s, Say::Made);
                    }
                    world.say(s, Say::Born);
                }
            },
        );
    }

    /// The broker has confirmed the birth.
    pub(crate) fn on_born(&mut self, s: usize) {
        self.beat_loop(s);
        self.soon(s, LIST, move |world| world.list(s));
        self.soon(s, WELCOME, move |world| world.welcomed(s));
        self.progress(s);
    }

    fn welcomed(&mut self, s: usize) {
        self.services[s].welcomed = true;
        self.turn(s);
    }

    fn on_command(&mut self, s: usize, delivery: &Delivery) {
        match decode::<Command>(&delivery.body) {
            Ok(Command::Floors(floors)) => {
                self.on_floors(s, &floors);
                self.step(s, Input::Floors(floors));
            }
            Ok(Command::Welcome(welcome)) => self.on_welcome(s, *welcome),
            Ok(Command::Suspect(ids)) => self.step(s, Input::Suspects(ids)),
            Ok(Command::Terms { service, terms }) if service == self.services[s].id => self.follow(s, terms),
            Ok(Command::HandOver(asked)) if asked.service == self.services[s].id => {
                self.on_hand_over(s, asked);
            }
            Ok(_) | Err(_) => {}
        }
        self.turn(s);
        let (conn, receipt) = (self.services[s].conn(Lane::Consume), delivery.receipt);
        let queue = QueueId::Commands(self.services[s].id);
        self.up(conn, move |world| world.ack(conn, queue, receipt));
    }

    fn on_welcome(&mut self, s: usize, welcome: Welcome) {
        self.step(s, Input::Suspects(welcome.suspects));
        self.on_floors(s, &welcome.floors);
        self.step(s, Input::Floors(welcome.floors));
        if welcome.service != self.services[s].id || self.services[s].welcomed {
            return;
        }
        self.services[s].welcomed = true;
        if let Some(terms) = welcome.terms {
            self.follow(s, terms);
        }
        if welcome.returning {
            self.comes_first(s);
        }
    }

    pub(crate) fn step(&mut self, s: usize, input: Input<u64>) {
        self.step_slots(s, input);
        self.turn(s);
        let it = &mut self.services[s];
        if it.stage == Stage::Draining && it.slots.held() == 0 {
            self.leave(s);
        }
    }

    /// Answers how many begin to be given away.
    pub(crate) fn step_slots(&mut self, s: usize, input: Input<u64>) -> usize {
        let mut goes = 0;
        if !matches!(self.services[s].stage, Stage::Living | Stage::Draining | Stage::Leaving) {
            return goes;
        }
        let (mono, wall, chance) = (self.age(s), self.wall(s), self.fraction());
        let now = Now { mono, wall, chance };
        for effect in self.rules.step((s, &mut self.services[s].slots), input, now) {
            if matches!(effect, Effect::Start { .. } | Effect::Settle(_)) && !self.stands(s) {
                self.fall(s, "the broker has not answered in time");
                return goes;
            }
            goes += usize::from(matches!(effect, Effect::Cancel { .. } | Effect::Requeue(_)));
            self.carry_out(s, effect);
        }
        goes
    }

    fn carry_out(&mut self, s: usize, effect: Effect<u64>) {
        let conn = self.services[s].conn(Lane::Consume);
        match effect {
            Effect::Start { epoch, attempt, work } => self.start_code(s, &work, epoch, attempt),
            Effect::Cancel { id } => self.cancel_code(s, id),
            Effect::Abort { id } => self.abort_code(s, id),
            Effect::Report(report) => {
                if matches!(report.event, RunEvent::HandedOverFor { cause: Cause::Move }) {
                    self.on_moving(s, report.id);
                }
                self.say(s, Say::Tell(Report::Run(report)));
            }
            Effect::Settle(report) | Effect::Announce(report) => self.say(s, Say::Settle(report)),
            Effect::Ack(receipt) => {
                self.services[s].taking.freed(receipt);
                self.up(conn, move |world| world.ack(conn, QueueId::Work, receipt));
            }
            Effect::Requeue(receipt) => {
                self.services[s].taking.freed(receipt);
                self.up(conn, move |world| world.requeue(conn, QueueId::Work, receipt));
            }
            Effect::Lost { .. } => self.fall(s, "a message that is held was handed out again"),
        }
    }

    pub(crate) fn set_wake(&mut self, s: usize) {
        let age = self.age(s);
        let it = &mut self.services[s];
        if !matches!(it.stage, Stage::Living | Stage::Draining | Stage::Leaving) {
            return;
        }
        let times = [it.slots.next_deadline(), it.taking.blocks.next_deadline(age)];
        let Some(at) = times.into_iter().flatten().min() else { return };
        let at = (it.began + u64::try_from(at.as_nanos().div_ceil(1_000_000)).unwrap()).max(self.now);
        if it.wakes_at.is_none_or(|known| at < known || known < self.now) {
            it.wakes_at = Some(at);
            self.soon(s, at - self.now, move |world| {
                if world.services[s].wakes_at == Some(at) {
                    world.services[s].wakes_at = None;
                }
                world.step(s, Input::Wake);
            });
        }
    }

    fn beat_loop(&mut self, s: usize) {
        if self.services[s].stage == Stage::Living {
            let intent = self.services[s].taking.intent();
            self.beat(s, intent);
            self.soon(s, BEAT, move |world| world.beat_loop(s));
        }
    }

    pub(crate) fn beat(&mut self, s: usize, state: Intent) {
        let it = &mut self.services[s];
        it.beats += 1;
        let (held, capacity) = (it.taking.blocks.held(), it.taking.blocks.capacity());
        it.taking.told_held = held;
        let (service, seq) = (it.id, it.beats);
        let beat = Beat { service, seq, state, capacity, held, loop_lag_ms: 0, rss_bytes: 0, sent_at: None };
        let body: Rc<[u8]> = encode(&BeatMessage::Beat(beat)).unwrap().into();
        let conn = it.conn(Lane::Publish);
        self.up(conn, move |world| {
            world.enqueue(QueueId::Beats, body);
        });
    }

    fn list(&mut self, s: usize) {
        if self.services[s].stage != Stage::Living {
            return;
        }
        let (began, wall) = (self.services[s].began, self.wall(s));
        let it = &mut self.services[s];
        it.lists += 1;
        let entries = it.slots.list(Now { mono: duration(self.now - began), wall, chance: 0.0 });
        if !entries.is_empty() {
            let list = ListChunk { list: it.lists, chunk: 0, chunks: 1, entries, range: None };
            self.say(s, Say::Tell(Report::List(list)));
        }
        self.soon(s, LIST, move |world| world.list(s));
    }

    /// An orderly stop: hand everything over, say goodbye, end.
    pub(crate) fn drain(&mut self, s: usize) {
        if self.services[s].stage != Stage::Living {
            return;
        }
        // From here on nobody looks at what it takes: its consumers may not have heard yet.
        self.on_cancelling(s);
        self.services[s].stage = Stage::Draining;
        let conn = self.services[s].conn(Lane::Consume);
        self.up(conn, move |world| world.cancel_consumers(conn, QueueId::Work));
        self.beat(s, Intent::Draining);
        self.soon(s, DRAIN, move |world| world.step(s, Input::AbortAll));
        self.soon(s, DRAIN + DRAIN_FORCED, move |world| world.leave(s));
        self.step(s, Input::Drain);
    }

    fn leave(&mut self, s: usize) {
        if self.services[s].stage == Stage::Draining {
            self.services[s].stage = Stage::Leaving;
            self.say(s, Say::Gone);
            self.soon(s, 2000, move |world| world.exit(s));
        }
    }

    pub(crate) fn exit(&mut self, s: usize) {
        if self.services[s].stage == Stage::Leaving {
            self.tell(|world| format!("{} has stopped in order", world.name(s)));
            self.kill(s, crate::net::Ending::Killed);
        }
    }

    /// All code has let go after a fence: the session ends, a new incarnation follows.
    pub(crate) fn reborn(&mut self, s: usize, reason: String) {
        for conn in self.services[s].conns {
            self.host_closes(conn);
        }
        let it = &mut self.services[s];
        it.incarnation += 1;
        it.stage = Stage::Connecting;
        it.predecessor = Some(Predecessor { service: it.id, ended: reason });
        let lived = duration(self.now - it.began);
        let chance = f64::from(u32::try_from(self.roll(0, 1000)).unwrap()) / 1000.0;
        let it = &mut self.services[s];
        let back = it.losses.on_lost(lived, chance);
        it.comes_last = back.comes_last;
        self.after(u64::try_from(back.pause.as_millis()).unwrap(), s, move |world| world.connect(s, 500));
    }

    /// Whether its process may be about to end.
    pub(crate) fn is_stopping(&self, s: usize) -> bool {
        matches!(self.services[s].stage, Stage::Draining | Stage::Leaving | Stage::Fenced)
    }

    pub(crate) fn has_said_goodbye(&self, s: usize) -> bool {
        self.services[s].stage == Stage::Leaving
    }

    pub(crate) fn birth_of(&self, s: usize) -> Report {
        Report::ServiceBorn(Box::new(self.services[s].birth()))
    }
}

/// The first digits of an id.
pub(crate) fn short(id: Uuid) -> String {
    id.simple().to_string()[..6].to_owned()
}
