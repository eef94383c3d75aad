//! The world of one history: a queue of events in simulated time, hosts that are up, frozen or down,
//! chance from one seed. It knows nothing of what the hosts do.

use crate::broker::Broker;
use crate::check::Check;
use crate::database::Database;
use crate::history::{History, Setup};
use crate::manager::Manager;
use crate::net::{Ending, Net};
use crate::rules::Rules;
use crate::service::Service;
use crate::users::Users;
use everwatch_core::clock::Timestamp;
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

/// The wall clock of the world at its beginning.
pub(crate) const EPOCH_MS: i64 = 1_700_000_000_000;

pub(crate) type Act = Box<dyn FnOnce(&mut World)>;

/// One life of the process on a host: what belongs to it ends with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Owner {
    pub(crate) host: usize,
    pub(crate) life: u32,
}

pub(crate) struct Host {
    pub(crate) life: u32,
    pub(crate) up: bool,
    pub(crate) frozen: bool,
    pub(crate) thawed_at: Option<u64>,
    /// How far its wall clock is off, in ms.
    pub(crate) skew: i64,
    deferred: Vec<Act>,
}

struct Event {
    at: u64,
    number: u64,
    owner: Option<Owner>,
    act: Act,
}

impl PartialEq for Event {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}
impl Eq for Event {}
impl PartialOrd for Event {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Event {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.number).cmp(&(other.at, other.number))
    }
}

pub(crate) struct World {
    /// Milliseconds since the beginning.
    pub(crate) now: u64,
    pub(crate) setup: Setup,
    pub(crate) hosts: Vec<Host>,
    pub(crate) services: Vec<Service>,
    pub(crate) managers: Vec<Manager>,
    pub(crate) net: Net,
    pub(crate) broker: Broker,
    pub(crate) db: Database,
    pub(crate) users: Users,
    pub(crate) check: Check,
    pub(crate) rules: Rules,
    /// What happened, for people; only kept when somebody will read it.
    pub(crate) story: Option<Vec<String>>,
    chance: StdRng,
    events: BinaryHeap<Reverse<Event>>,
    numbered: u64,
}

impl World {
    pub(crate) fn new(history: &History, rules: Rules, tell: Tell) -> Self {
        let setup = history.setup.clone();
        let host = |skew: &i64| Host {
            life: 0,
            up: false,
            frozen: false,
            thawed_at: None,
            skew: *skew,
            deferred: Vec::new(),
        };
        Self {
            now: 0,
            hosts: setup.skews.iter().map(host).collect(),
            services: setup.services.iter().map(Service::new).collect(),
            managers: (0..setup.managers).map(|_| Manager::default()).collect(),
            net: Net::new(setup.skews.len()),
            broker: Broker::default(),
            db: Database::new(),
            users: Users::new(setup.observers.len()),
            check: Check::new(history),
            rules,
            story: match tell {
                Tell::Nothing => None,
                Tell::All => Some(Vec::new()),
            },
            chance: StdRng::seed_from_u64(setup.seed ^ 0x5EED),
            events: BinaryHeap::new(),
            numbered: 0,
            setup,
        }
    }

    /// Runs until `until`, or until a breach is found.
    pub(crate) fn run_until(&mut self, until: u64) {
        while self.check.breach.is_none()
            && self.events.peek().is_some_and(|Reverse(event)| event.at <= until)
        {
            let Some(Reverse(event)) = self.events.pop() else { break };
            self.now = event.at;
            self.happen(event.owner, event.act);
        }
        self.now = self.now.max(until);
    }

    fn happen(&mut self, owner: Option<Owner>, act: Act) {
        let Some(owner) = owner else { return act(self) };
        let host = &mut self.hosts[owner.host];
        if !host.up || host.life != owner.life {
        } else if host.frozen {
            host.deferred.push(act);
        } else {
            act(self);
        }
    }

    /// Something that happens whatever becomes of any host.
    pub(crate) fn later(&mut self, delay: u64, act: impl FnOnce(&mut Self) + 'static) {
        self.push(self.now + delay, None, Box::new(act));
    }

    /// Something that the present process of a host does.
    pub(crate) fn after(&mut self, delay: u64, host: usize, act: impl FnOnce(&mut Self) + 'static) {
        let owner = Owner { host, life: self.hosts[host].life };
        self.push(self.now + delay, Some(owner), Box::new(act));
    }

    pub(crate) fn push(&mut self, at: u64, owner: Option<Owner>, act: Act) {
        self.numbered += 1;
        self.events.push(Reverse(Event { at, number: self.numbered, owner, act }));
    }

    /// Both ends included.
    pub(crate) fn roll(&mut self, low: u64, high: u64) -> u64 {
        self.chance.random_range(low..=high)
    }
    pub(crate) fn fraction(&mut self) -> f64 {
        self.chance.random()
    }

    pub(crate) fn tell(&mut self, line: impl FnOnce(&Self) -> String) {
        if self.story.is_some() {
            let line = format!("{:>9.3}  {}", seconds(self.now), line(self));
            if let Some(story) = &mut self.story {
                story.push(line);
            }
        }
    }

    /// A new process on a host that has none.
    pub(crate) fn boot(&mut self, host: usize) {
        let it = &mut self.hosts[host];
        if it.up {
            return;
        }
        it.up = true;
        it.life += 1;
        self.tell(|world| format!("{} starts", world.name(host)));
        if host < self.services.len() { self.service_boots(host) } else { self.manager_boots(host) }
    }

    /// The process ends at once, whatever it was doing. What it had sent is on its way.
    pub(crate) fn kill(&mut self, host: usize, ending: Ending) {
        let it = &mut self.hosts[host];
        if !it.up {
            return;
        }
        it.up = false;
        it.frozen = false;
        it.deferred.clear();
        for conn in 0..self.net.conns.len() {
            if self.net.conns[conn].owner.host == host && self.net.is_open(conn) {
                self.host_dies(conn, ending);
            }
        }
        if host < self.services.len() {
            // A host that is powered off is a death like any other; one that said goodbye is none.
            self.check.deaths += u32::from(!self.has_said_goodbye(host));
            self.service_dies(host);
        }
    }

    pub(crate) fn freeze(&mut self, host: usize) {
        if self.hosts[host].up && !self.hosts[host].frozen {
            self.hosts[host].frozen = true;
            self.observe_executions();
        }
    }

    pub(crate) fn thaw(&mut self, host: usize) {
        if self.hosts[host].up && self.hosts[host].frozen {
            self.hosts[host].frozen = false;
            self.hosts[host].thawed_at = Some(self.now);
            if host >= self.services.len() {
                self.manager_thaws();
            }
            self.observe_executions();
            let owner = Owner { host, life: self.hosts[host].life };
            for act in std::mem::take(&mut self.hosts[host].deferred) {
                self.push(self.now, Some(owner), act);
            }
        }
    }

    /// The wall clock of a host.
    pub(crate) fn wall(&self, host: usize) -> Timestamp {
        Timestamp(EPOCH_MS + millis(self.now) + self.hosts[host].skew)
    }

    pub(crate) fn name(&self, host: usize) -> String {
        match host.checked_sub(self.services.len()) {
            None => format!("service {}", (b'a' + u8::try_from(host).unwrap()) as char),
            Some(manager) => format!("manager {}", manager + 1),
        }
    }
}

/// Whether a history is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tell {
    Nothing,
    All,
}

pub(crate) fn millis(time: u64) -> i64 {
    i64::try_from(time).unwrap()
}
pub(crate) fn duration(time: u64) -> Duration {
    Duration::from_millis(time)
}
pub(crate) fn seconds(time: u64) -> f64 {
    Duration::from_millis(time).as_secs_f64()
}
