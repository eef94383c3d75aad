//! Rolls a history: who takes part, what people ask, what goes wrong. It decides only what is likely.

use crate::code::{Code, Does};
use crate::history::{Action, CALM, Fault, History, ObserverSetup, ServiceSetup, Setup};
use crate::net::{Cut, Ending, Lane};
use crate::operators::Order;
use crate::users::Ask;
use everwatch_core::id::{Kind, Name};
use everwatch_core::observer::Overlap;
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};

type Actions = Vec<(u64, Action)>;

pub(crate) struct Dice(StdRng);

/// What kind of history it is to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Theme {
    Healthy,
    Faulty,
    /// Besides, the broker forgets or mislays messages.
    Forgetful,
    /// The work queue is lost, and nothing else happens near it.
    Refill,
    /// One observer takes its services down.
    Poison,
    /// Sessions are cut again and again, and no process dies.
    Flaps,
}

impl Dice {
    pub(crate) fn of(seed: u64) -> Self {
        Self(StdRng::seed_from_u64(seed))
    }

    fn up_to(&mut self, low: u64, high: u64) -> u64 {
        self.0.random_range(low..=high.max(low))
    }
    fn below(&mut self, count: usize) -> usize {
        self.0.random_range(0..count)
    }
    fn one_in(&mut self, count: u32) -> bool {
        self.0.random_range(0..count) == 0
    }
    fn few(&mut self, most: u64) -> u32 {
        u32::try_from(self.up_to(1, most)).unwrap()
    }

    pub(crate) fn history(mut self, seed: u64) -> History {
        let theme = match self.below(30) {
            0..=2 => Theme::Healthy,
            3..=6 => Theme::Forgetful,
            7 => Theme::Refill,
            8 | 9 => Theme::Poison,
            10 => Theme::Flaps,
            _ => Theme::Faulty,
        };
        let mut setup = self.setup(seed, theme);
        let mut actions = match theme {
            Theme::Refill => self.refill(setup.observers.len()),
            Theme::Flaps => self.flaps(&setup),
            _ => self.people(setup.observers.len()),
        };
        let faults = match theme {
            Theme::Faulty => self.up_to(1, 12),
            Theme::Forgetful => self.up_to(0, 6),
            Theme::Poison => self.up_to(0, 3),
            Theme::Healthy | Theme::Refill | Theme::Flaps => 0,
        };
        for _ in 0..faults {
            let at = self.up_to(2000, CALM - 5000);
            actions.push((at, Action::Fault(self.fault(&setup, CALM - at))));
        }
        if theme == Theme::Forgetful {
            for _ in 0..self.up_to(1, 3) {
                let at = self.up_to(2000, CALM - 5000);
                actions.push((at, Action::Fault(self.forgetful(&setup, CALM - at))));
            }
        }
        if matches!(theme, Theme::Forgetful | Theme::Poison) && self.one_in(2) {
            let at = self.up_to(1000, CALM / 2);
            actions.push((at, Action::Fault(Fault::Hold { for_ms: self.up_to(30_000, 200_000) })));
        }
        if !matches!(theme, Theme::Refill | Theme::Poison) && self.one_in(2) {
            actions.extend(self.operators(&setup));
        }
        if theme != Theme::Poison && self.one_in(4) {
            let service = self.below(setup.services.len());
            setup.services[service].start_rate = f64::from(self.few(5)) / 2.0;
        }
        actions.sort_by_key(|(at, _)| *at);
        History { setup, actions }
    }

    fn setup(&mut self, seed: u64, theme: Theme) -> Setup {
        let (services, managers) = (self.up_to(2, 3), self.below(3).max(1));
        let roomy = matches!(theme, Theme::Forgetful | Theme::Refill | Theme::Poison);
        let rare = self.one_in(8);
        let tight = !rare && !roomy && self.one_in(6);
        let kind = |name: &str| Kind::new(name).unwrap();
        let services = (0..services).map(|number| ServiceSetup {
            name: Name::new(&format!("s{number}")).unwrap(),
            capacity: if tight { 1 } else { u32::try_from(self.up_to(4, 8)).unwrap() },
            kinds: if rare && number == 0 {
                vec![kind("common")]
            } else {
                vec![kind("common"), kind("rare")]
            },
            start_rate: 0.0,
        });
        let services: Vec<_> = services.collect();
        let count = self.up_to(2, 6);
        let observers = (0..count).map(|number| ObserverSetup {
            kind: if rare && self.one_in(3) { kind("rare") } else { kind("common") },
            code: if theme == Theme::Poison && number == 0 { self.poison() } else { self.code() },
            overlap: if self.one_in(3) { Overlap::Forbid } else { Overlap::Allow },
            attempts: self.few(3) + 1,
            paused: theme != Theme::Poison && self.one_in(10),
        });
        let observers: Vec<_> = observers.collect();
        // Whether a message was in a queue that is lost is judged by clocks; rule 4 mends what they hide.
        // And who died soon after which start, by those of managers and services.
        let skew = match theme {
            Theme::Refill => 0,
            Theme::Poison => 2000,
            Theme::Healthy | Theme::Faulty | Theme::Forgetful | Theme::Flaps => 10_000,
        };
        let skews = (0..services.len() + managers).map(|_| self.0.random_range(-skew..=skew));
        let skews: Vec<_> = skews.collect();
        let alone = !roomy && theme != Theme::Healthy && self.one_in(6);
        // Where nothing is mislaid the rest of the protocol does without that repair.
        let misses_orphans = match theme {
            Theme::Healthy | Theme::Forgetful => true,
            Theme::Refill => false,
            Theme::Faulty | Theme::Poison | Theme::Flaps => self.one_in(4),
        };
        Setup { seed, services, managers, observers, skews, alone, misses_orphans }
    }

    fn code(&mut self) -> Code {
        let after = self.up_to(100, 30_000);
        let does = match self.below(10) {
            0 => Does::CompletesAfter(after),
            1 => Does::FailsAfter(after),
            2 | 3 => Does::Errs { times: self.few(4), after: after / 10 },
            _ => Does::RunsForEver,
        };
        let stops_in = if self.one_in(3) { self.up_to(200, 8000) } else { self.up_to(0, 40) };
        Code { does, stops_in, edition: 0 }
    }

    fn poison(&mut self) -> Code {
        let after = if self.one_in(2) { self.up_to(10, 2000) } else { self.up_to(2000, 20_000) };
        Code { does: Does::EndsItsService(after), stops_in: 10, edition: 0 }
    }

    fn ask(&mut self) -> Ask {
        match self.below(9) {
            0 => Ask::Retry,
            1 | 2 => Ask::Pause,
            3 | 4 => Ask::Resume,
            5 => Ask::Restart,
            6 | 7 => Ask::Update,
            _ => Ask::Put { paused: self.one_in(2) },
        }
    }

    fn people(&mut self, observers: usize) -> Actions {
        let mut actions = Vec::new();
        for observer in 0..observers {
            let created = if self.one_in(2) { self.up_to(0, 3000) } else { self.up_to(0, CALM) };
            actions.push((created, Action::Person(observer, Ask::Create)));
            let asks = self.below(5);
            let near = self.one_in(4);
            for _ in 0..asks {
                let until = if near { created + 3000 } else { CALM };
                actions.push((self.up_to(created, until), Action::Person(observer, self.ask())));
            }
            if self.one_in(2) {
                let soon = if self.one_in(3) { created + 500 } else { CALM };
                actions.push((self.up_to(created, soon), Action::Person(observer, Ask::Delete)));
            }
        }
        actions
    }

    /// What was published a moment before the loss may pass for younger than the new queue: so nothing is.
    fn refill(&mut self, observers: usize) -> Actions {
        let mut actions = Vec::new();
        let lost = self.up_to(15_000, 20_000);
        actions.push((lost, Action::Fault(Fault::LoseWork { down_ms: self.up_to(200, 8000) })));
        for observer in 0..observers {
            actions.push((self.up_to(0, 3000), Action::Person(observer, Ask::Create)));
            if self.one_in(2) {
                let ask = if self.one_in(3) { Ask::Delete } else { self.ask() };
                let early = self.one_in(2);
                let at = if early { self.up_to(4000, lost - 5000) } else { self.up_to(lost + 1, CALM) };
                actions.push((at, Action::Person(observer, ask)));
            }
        }
        actions
    }

    fn flaps(&mut self, setup: &Setup) -> Actions {
        let mut actions: Actions = (0..setup.observers.len())
            .map(|observer| (self.up_to(0, 3000), Action::Person(observer, Ask::Create)))
            .collect();
        for service in 0..setup.services.len() {
            let times = u32::try_from(self.up_to(0, 9)).unwrap();
            let at = self.up_to(4000, 10_000);
            actions.push((at, Action::Fault(Fault::Flaps { service, times })));
        }
        actions
    }

    fn operators(&mut self, setup: &Setup) -> Actions {
        let (from, until) = match self.below(3) {
            0 => (1000, CALM),
            1 => (CALM / 2, CALM),
            _ => {
                let from = self.up_to(1000, CALM - 6000);
                (from, from + 6000)
            }
        };
        let orders = self.up_to(1, 8);
        (0..orders).map(|_| (self.up_to(from, until), Action::Operator(self.order(setup)))).collect()
    }

    fn order(&mut self, setup: &Setup) -> Order {
        let service = self.below(setup.services.len());
        match self.below(12) {
            0 | 1 => Order::Cordon(service),
            2 | 3 => Order::Uncordon(service),
            4..=6 => {
                let within = self.one_in(3).then(|| self.up_to(0, 20_000));
                Order::Drain { service, per_second: self.few(4), within, force: self.one_in(3) }
            }
            7 | 8 => {
                let capacity = (!self.one_in(4)).then(|| self.few(9));
                Order::Resize { service, capacity }
            }
            9 => Order::Rebalance { moves: self.few(6) },
            _ => Order::Move(self.below(setup.observers.len())),
        }
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
            14 => Fault::LoseAnswers { count: self.few(3) },
            15 if self.one_in(2) => Fault::DatabaseDown { for_ms },
            15 => Fault::DiskFull { for_ms },
            16 => Fault::Blocked { for_ms },
            17 => Fault::BrokerRestart { down_ms: self.up_to(200, 8000).min(left) },
            18 => Fault::RejectWork { count: self.few(3) },
            _ => Fault::Drain { service: self.below(services), back_in: self.up_to(1000, 5000) },
        }
    }

    fn forgetful(&mut self, setup: &Setup, left: u64) -> Fault {
        let service = self.below(setup.services.len());
        match self.below(5) {
            0 | 1 => Fault::Orphan { service, count: self.up_to(1, 3).try_into().unwrap() },
            2 => Fault::LoseDeliveries { count: self.few(2) },
            3 => Fault::LoseWork { down_ms: self.up_to(200, 8000).min(left) },
            _ => Fault::TurnBackWork { in_ms: self.up_to(500, 40_000).min(left) },
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
