//! A manager process: its session, its clock, how well it reads its queues, what it says.
//! It mirrors `link`, `shared` and `telling` of the manager; the loops are in files of their own.

use crate::broker::{Consume, Delivery, QueueId};
use crate::database::Access;
use crate::orphans::LOOK as ORPHAN_LOOK;
use crate::outbox::{How, LEASE_LOOK, Lease};
use crate::quarantine::QUARANTINE_AFTER;
use crate::world::{EPOCH_MS, World, millis};
use everwatch_core::clock::Timestamp;
use everwatch_core::id::{ManagerId, ObserverId, ServiceId};
use everwatch_core::message::{BeatMessage, Command, Floor, StateMessage, Tick, Welcome, encode};
use everwatch_core::missing::Quiet;
use everwatch_core::reading::Reading;
use serde::Serialize;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::time::Duration;
use uuid::Uuid;

pub(crate) const LOST_AFTER: Duration = Duration::from_secs(15);
const BEAT: Duration = Duration::from_secs(5);
const PREFETCH: usize = 200;
const HEARTBEAT: u64 = 2500;
pub(crate) const PASS: u64 = 1000;
pub(crate) const SWEEP: u64 = 5000;

#[derive(Default)]
pub(crate) struct Manager {
    pub(crate) conns: Option<[usize; 2]>,
    /// The database's clock, as an offset from this machine's, in ms.
    pub(crate) offset: i64,
    pub(crate) state: VecDeque<Delivery>,
    pub(crate) beats: VecDeque<Delivery>,
    pub(crate) reads_state: bool,
    pub(crate) reads_beats: bool,
    pub(crate) passes: bool,
    /// Confirms that wait to be written down.
    pub(crate) confirms: BTreeMap<ObserverId, (u32, How)>,
    /// The publishes that are under way.
    pub(crate) leases: BTreeMap<ObserverId, Lease>,
    pub(crate) confirming: bool,
    pub(crate) swept_at: Option<u64>,
    pub(crate) reading: Reading,
    pub(crate) quiet: Quiet,
    ticked_at: Option<u64>,
    pause: u64,
}

/// One of the queues in which managers leave their marks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Marked {
    State,
    Beats,
}

impl Manager {
    pub(crate) fn on_tick(&mut self, queue: Marked, sent_at: Timestamp) {
        let tick = match queue {
            Marked::State => &mut self.reading.state_tick,
            Marked::Beats => &mut self.reading.beats_tick,
        };
        *tick = (*tick).max(Some(sent_at));
    }

    /// Whether the silence of a service may be held against it.
    pub(crate) fn may_conclude(&self, now: Timestamp) -> bool {
        self.reading.may_conclude(now, LOST_AFTER, BEAT)
    }
}

impl World {
    pub(crate) fn host_of(&self, m: usize) -> usize {
        self.services.len() + m
    }

    pub(crate) fn manager_boots(&mut self, host: usize) {
        let m = host - self.services.len();
        self.managers[m] = Manager { pause: 500, ..Manager::default() };
        // Its first word is with the database, whose clock it goes by.
        self.query(host, Access::Read, Self::database_clock, move |world, clock| {
            if let Some(clock) = clock {
                world.managers[m].offset = clock - world.wall(host).0;
            }
            world.link(m);
        });
        let first = self.roll(0, PASS);
        self.after(first, host, move |world| world.pass(m));
        let first = self.roll(1, SWEEP);
        self.after(first, host, move |world| world.sweep(m));
        self.after(LEASE_LOOK, host, move |world| world.look_at_leases(m));
        self.after(ORPHAN_LOOK, host, move |world| world.look_for_orphans(m));
    }

    pub(crate) fn database_clock(&mut self) -> i64 {
        EPOCH_MS + millis(self.now)
    }

    /// The database's time, as this manager knows it.
    pub(crate) fn manager_now(&self, m: usize) -> Timestamp {
        Timestamp(self.wall(self.host_of(m)).0 + self.managers[m].offset)
    }

    fn link(&mut self, m: usize) {
        let (host, latency) = (self.host_of(m), self.roll(5, 50));
        self.after(latency, host, move |world| match world.open_session(host) {
            Some(conns) => world.linked(m, conns),
            None => {
                let pause = world.managers[m].pause;
                world.managers[m].pause = (pause * 2).min(30_000);
                let jittered = world.roll(pause / 2, pause);
                world.after(jittered, host, move |world| world.link(m));
            }
        });
    }

    fn linked(&mut self, m: usize, conns: [usize; 2]) {
        let clock = self.manager_now(m);
        let it = &mut self.managers[m];
        it.conns = Some(conns);
        it.reading.connected_at = Some(clock);
        it.pause = 500;
        it.state.clear();
        it.beats.clear();
        it.reads_state = false;
        it.reads_beats = false;
        self.manager_declares(m, conns[0]);
        for queue in [QueueId::State, QueueId::Beats] {
            self.up(conns[0], move |world| {
                let consume = Consume { conn: conns[0], queue, prefetch: PREFETCH, priority: 0, block: 0 };
                world.consume(consume, move |world, delivery| {
                    world.on_delivery(m, conns[0], (queue, delivery));
                });
            });
        }
        for conn in conns {
            self.manager_heartbeat(m, conn);
        }
    }

    fn manager_declares(&mut self, m: usize, conn: usize) {
        let host = self.host_of(m);
        self.ask(conn, Self::declare_work, move |world, made| {
            if made == Some(true) {
                let now = world.manager_now(m);
                world.query(host, Access::Write, move |world| world.note_new_queue(now), |_, _| ());
            }
        });
    }

    fn on_delivery(&mut self, m: usize, conn: usize, (queue, delivery): (QueueId, Delivery)) {
        if self.managers[m].conns.is_none_or(|conns| conns[0] != conn) {
            return;
        }
        if queue == QueueId::State {
            self.managers[m].state.push_back(delivery);
            self.read_state(m);
        } else {
            self.managers[m].beats.push_back(delivery);
            self.read_beats(m);
        }
    }

    fn manager_heartbeat(&mut self, m: usize, conn: usize) {
        if self.managers[m].conns.is_none_or(|conns| !conns.contains(&conn)) {
            return;
        }
        if self.is_deaf(conn) {
            return self.manager_loses(self.host_of(m), conn);
        }
        self.up(conn, |_| ());
        let host = self.host_of(m);
        self.after(HEARTBEAT, host, move |world| world.manager_heartbeat(m, conn));
    }

    pub(crate) fn manager_loses(&mut self, host: usize, conn: usize) {
        let m = host - self.services.len();
        let Some(conns) = self.managers[m].conns.filter(|conns| conns.contains(&conn)) else { return };
        self.tell(|world| format!("{} loses its session", world.name(host)));
        let it = &mut self.managers[m];
        it.conns = None;
        it.reading.connected_at = None;
        for conn in conns {
            self.host_closes(conn);
        }
        let jittered = self.roll(250, 500);
        self.after(jittered, host, move |world| world.link(m));
    }

    /// The connection on which this manager may publish now.
    pub(crate) fn mouth(&self, m: usize) -> Option<usize> {
        let conn = self.managers[m].conns?[1];
        (!self.net.conns[conn].blocked && self.net.is_open(conn)).then_some(conn)
    }

    /// Says something without waiting.
    pub(crate) fn mention<T: Serialize>(&mut self, m: usize, queue: Option<QueueId>, what: &T) {
        let Some(conn) = self.mouth(m) else { return };
        let body: Rc<[u8]> = encode(what).unwrap().into();
        self.up(conn, move |world| match queue {
            Some(queue) => {
                world.enqueue(queue, body);
            }
            None => world.fan_out(&body),
        });
    }

    pub(crate) fn tick(&mut self, m: usize) {
        let now = self.manager_now(m);
        let (it, beat) = (&self.managers[m], u64::try_from(BEAT.as_millis()).unwrap());
        let due = it.ticked_at.is_none_or(|at| self.now - at >= beat);
        if !due && it.reading.is_within(BEAT * 2, now) {
            return;
        }
        self.managers[m].ticked_at = Some(self.now);
        let tick = Tick { manager: ManagerId(Uuid::from_u128(m as u128)), sent_at: now };
        self.mention(m, Some(QueueId::State), &StateMessage::Tick(tick.clone()));
        self.mention(m, Some(QueueId::Beats), &BeatMessage::Tick(tick));
    }

    pub(crate) fn floors_later(&mut self, m: usize, mut floors: Vec<Floor>) {
        if !floors.is_empty() {
            floors.sort_unstable_by_key(|floor| (floor.id, std::cmp::Reverse(floor.below)));
            floors.dedup_by_key(|floor| floor.id);
            self.mention(m, None, &Command::Floors(floors));
        }
    }

    pub(crate) fn welcome(&mut self, m: usize, service: ServiceId) {
        let since = self.manager_now(m).minus(Duration::from_secs(600));
        let now = self.manager_now(m);
        let question = move |world: &mut Self| {
            let mut docket = world.db.docket.clone();
            docket.forget(now);
            (world.db.commanded_since(since), docket.suspects(QUARANTINE_AFTER), world.welcome_of(service))
        };
        self.query(self.host_of(m), Access::Read, question, move |world, answer| {
            if let Some((rows, suspects, (terms, returning))) = answer {
                let floors = rows.iter().map(everwatch_core::row::Row::floor).collect();
                let terms = world.rules.welcomed_with(terms);
                let welcome = Welcome { suspects, terms, returning, ..Welcome::new(service, floors) };
                world.mention(m, None, &Command::Welcome(Box::new(welcome)));
            }
        });
    }

    pub(crate) fn suspects_later(&mut self, m: usize, suspects: Vec<ObserverId>) {
        self.mention(m, None, &Command::Suspect(suspects));
    }

    /// Sends floors and goes on when they are out, or after 5 s.
    pub(crate) fn floors(&mut self, m: usize, floors: Vec<Floor>, then: impl FnOnce(&mut Self) + 'static) {
        let mouth = self.mouth(m).filter(|_| !floors.is_empty());
        let Some(conn) = mouth else { return then(self) };
        let body: Rc<[u8]> = encode(&Command::Floors(floors)).unwrap().into();
        self.ask_within(m, (conn, 5000), move |world| world.fan_out(&body), move |world, _| then(world));
    }

    /// Asks the broker, and gives up after some time.
    pub(crate) fn ask_within<T: 'static>(
        &mut self,
        m: usize,
        (conn, within): (usize, u64),
        question: impl FnOnce(&mut Self) -> T + 'static,
        then: impl FnOnce(&mut Self, Option<T>) + 'static,
    ) {
        let first = Rc::new(std::cell::RefCell::new(Some(then)));
        let late = Rc::clone(&first);
        let host = self.host_of(m);
        self.after(within, host, move |world| {
            let then = late.borrow_mut().take();
            if let Some(then) = then {
                then(world, None);
            }
        });
        self.ask(conn, question, move |world, answer| {
            let then = first.borrow_mut().take();
            if let Some(then) = then {
                then(world, answer);
            }
        });
    }

    /// Whether this manager can be reached and work.
    pub(crate) fn manager_serves(&self, m: usize) -> bool {
        let host = &self.hosts[self.host_of(m)];
        host.up && !host.frozen
    }
}
