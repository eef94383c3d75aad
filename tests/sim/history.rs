//! What a history is made of, from one seed: who takes part, what people ask, what goes wrong and when.

use crate::code::{Code, Does};
use crate::net::{Cut, Ending, Lane};
use crate::users::Ask;
use everwatch_core::id::{Kind, Name};
use everwatch_core::observer::Overlap;
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};

/// Faults happen until then.
pub(crate) const CALM: u64 = 60_000;

#[derive(Debug, Clone)]
pub(crate) struct ServiceSetup {
    pub(crate) name: Name,
    pub(crate) capacity: u32,
    pub(crate) kinds: Vec<Kind>,
}

#[derive(Debug, Clone)]
pub(crate) struct ObserverSetup {
    pub(crate) kind: Kind,
    pub(crate) code: Code,
    pub(crate) overlap: Overlap,
    pub(crate) attempts: u32,
}

#[derive(Debug, Clone)]
pub(crate) struct Setup {
    pub(crate) seed: u64,
    pub(crate) services: Vec<ServiceSetup>,
    pub(crate) managers: usize,
    pub(crate) observers: Vec<ObserverSetup>,
    /// Of all hosts, services first.
    pub(crate) skews: Vec<i64>,
    /// No manager lives for some time after the last fault.
    pub(crate) alone: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Action {
    Person(usize, Ask),
    Fault(Fault),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Fault {
    Crash {
        host: usize,
        ending: Ending,
        back_in: u64,
    },
    Freeze {
        host: usize,
        for_ms: u64,
    },
    Cut {
        host: usize,
        lanes: Vec<Lane>,
        cut: Cut,
        for_ms: u64,
    },
    /// The broker drops a connection; the other end hears of it, or not.
    Reset {
        host: usize,
        lane: Lane,
        told: bool,
    },
    BreakAfterPublish {
        host: usize,
    },
    LoseAnswers {
        count: u32,
    },
    DatabaseDown {
        for_ms: u64,
    },
    Blocked {
        for_ms: u64,
    },
    BrokerRestart {
        down_ms: u64,
    },
    RejectWork {
        count: u32,
    },
    Drain {
        service: usize,
        back_in: u64,
    },
}

#[derive(Debug, Clone)]
pub(crate) struct History {
    pub(crate) setup: Setup,
    /// In order of time.
    pub(crate) actions: Vec<(u64, Action)>,
}

impl History {
    pub(crate) fn of(seed: u64) -> Self {
        let mut dice = Dice(StdRng::seed_from_u64(seed));
        let setup = dice.setup(seed);
        let mut actions = dice.people(setup.observers.len());
        let faults = if dice.one_in(10) { 0 } else { dice.up_to(1, 12) };
        for _ in 0..faults {
            let at = dice.up_to(2000, CALM - 5000);
            actions.push((at, Action::Fault(dice.fault(&setup, CALM - at))));
        }
        actions.sort_by_key(|(at, _)| *at);
        Self { setup, actions }
    }

    /// Nothing goes wrong in it.
    pub(crate) fn is_healthy(&self) -> bool {
        !self.setup.alone && self.actions.iter().all(|(_, action)| matches!(action, Action::Person(..)))
    }
}

struct Dice(StdRng);

impl Dice {
    fn up_to(&mut self, low: u64, high: u64) -> u64 {
        self.0.random_range(low..=high.max(low))
    }
    fn below(&mut self, count: usize) -> usize {
        self.0.random_range(0..count)
    }
    fn one_in(&mut self, count: u32) -> bool {
        self.0.random_range(0..count) == 0
    }

    fn setup(&mut self, seed: u64) -> Setup {
        let (services, managers) = (self.up_to(2, 3), self.below(3).max(1));
        let rare = self.one_in(8);
        let tight = !rare && self.one_in(6);
        let kind = |name: &str| Kind::new(name).unwrap();
        let services = (0..services).map(|number| ServiceSetup {
            name: Name::new(&format!("s{number}")).unwrap(),
            capacity: if tight { 1 } else { u32::try_from(self.up_to(4, 8)).unwrap() },
            kinds: if rare && number == 0 {
                vec![kind("common")]
            } else {
                vec![kind("common"), kind("rare")]
            },
        });
        let services: Vec<_> = services.collect();
        let count = self.up_to(2, 6);
        let observers = (0..count).map(|_| ObserverSetup {
            kind: if rare && self.one_in(3) { kind("rare") } else { kind("common") },
            code: self.code(),
            overlap: if self.one_in(3) { Overlap::Forbid } else { Overlap::Allow },
            attempts: u32::try_from(self.up_to(2, 4)).unwrap(),
        });
        let observers: Vec<_> = observers.collect();
        let skews = (0..services.len() + managers).map(|_| self.0.random_range(-10_000..=10_000));
        let skews: Vec<_> = skews.collect();
        Setup { seed, services, managers, observers, skews, alone: self.one_in(6) }
    }

    fn code(&mut self) -> Code {
        let after = self.up_to(100, 30_000);
        let does = match self.below(10) {
            0 => Does::CompletesAfter(after),
            1 => Does::FailsAfter(after),
            2 | 3 => Does::Errs { times: u32::try_from(self.up_to(1, 4)).unwrap(), after: after / 10 },
            _ => Does::RunsForEver,
        };
        let stops_in = if self.one_in(3) { self.up_to(200, 8000) } else { self.up_to(0, 40) };
        Code { does, stops_in }
    }

    fn people(&mut self, observers: usize) -> Vec<(u64, Action)> {
        let mut actions = Vec::new();
        for observer in 0..observers {
            let created = if self.one_in(2) { self.up_to(0, 3000) } else { self.up_to(0, CALM) };
            actions.push((created, Action::Person(observer, Ask::Create)));
            for _ in 0..self.below(4) {
                let asks = [Ask::Retry, Ask::Pause, Ask::Resume, Ask::Restart];
                let ask = asks[self.below(asks.len())];
                actions.push((self.up_to(created, CALM), Action::Person(observer, ask)));
            }
            if self.one_in(2) {
                let soon = if self.one_in(3) { created + 500 } else { CALM };
                actions.push((self.up_to(created, soon), Action::Person(observer, Ask::Delete)));
            }
        }
        actions
    }

    fn fault(&mut self, setup: &Setup, left: u64) -> Fault {
        let services = setup.services.len();
        let host = if self.one_in(3) { services + self.below(setup.managers) } else { self.below(services) };
        let long = if self.one_in(2) { self.up_to(100, 4000) } else { self.up_to(4000, 40_000) };
        let for_ms = long.min(left);
        match self.below(20) {
            0..=2 => {
                let ending = if self.one_in(3) { Ending::PoweredOff } else { Ending::Killed };
                Fault::Crash { host, ending, back_in: for_ms }
            }
            3..=5 => Fault::Freeze { host, for_ms },
            6..=8 => Fault::Cut { host, lanes: self.lanes(), cut: self.cut(), for_ms },
            9..=11 => {
                let lane = if self.one_in(4) { Lane::Publish } else { Lane::Consume };
                Fault::Reset { host, lane, told: self.one_in(2) }
            }
            12 | 13 => Fault::BreakAfterPublish { host },
            14 => Fault::LoseAnswers { count: u32::try_from(self.up_to(1, 3)).unwrap() },
            15 => Fault::DatabaseDown { for_ms },
            16 => Fault::Blocked { for_ms },
            17 => Fault::BrokerRestart { down_ms: self.up_to(200, 8000).min(left) },
            18 => Fault::RejectWork { count: u32::try_from(self.up_to(1, 3)).unwrap() },
            _ => Fault::Drain { service: self.below(services), back_in: self.up_to(1000, 5000) },
        }
    }

    fn lanes(&mut self) -> Vec<Lane> {
        match self.below(4) {
            0 => vec![Lane::Consume],
            1 => vec![Lane::Publish],
            _ => vec![Lane::Consume, Lane::Publish],
        }
    }

    fn cut(&mut self) -> Cut {
        match self.below(4) {
            0 => Cut { up: true, down: false },
            1 => Cut { up: false, down: true },
            _ => Cut { up: true, down: true },
        }
    }
}
