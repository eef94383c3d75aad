//! Generates a history from a seed. The generator affects only which histories are likely; the rules are in
//! `judge`.

mod by_seed;

use crate::code::{Code, Does, Stops};
use crate::history::{Action, Ask, Fault, History, ObserverSetup, Order, Runs, ServiceSetup, Setup, Theme};
use crate::network::Lane;
use crate::world::Power;
use by_seed::{
    breaks_at_ends, limits_of, preempt_after_of, schedule_of, state_queues_of, time_of, weight_max_of,
    weight_of, windows_of,
};
use everwatch_core::id::{Name, Pool};
use everwatch_core::observer::definition::Overlap;
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};

type Actions = Vec<(u64, Action)>;

pub(crate) struct Dice {
    rng: StdRng,
    calm_at: u64,
}

/// Most executions end before the last time of the schedule. If `limited`, most observers with limits end while others wait
/// for their places.
fn let_code_end(observers: &mut [ObserverSetup], limited: bool) {
    for (observer, number) in observers.iter_mut().zip(1..).filter(|(_, number)| number % 4 != 0) {
        if observer.schedule.is_some() {
            observer.code.does = Does::CompletesAfter(number * number * 600);
        }
        if limited {
            observer.code.does = Does::CompletesAfter(2000 + number * 3700);
        }
    }
}

/// Whether services have room for all observers, even if some die.
fn is_roomy(theme: Theme) -> bool {
    matches!(
        theme,
        Theme::Forgetful | Theme::Refill | Theme::Deadly | Theme::Restored | Theme::Outage | Theme::GivenAway
    )
}

/// How far the clocks of a history may differ, in ms.
///
/// Managers use clocks to decide whether a message was in a lost queue, and which death soon followed which start. Some
/// themes therefore need small clock skew.
fn skew_of(theme: Theme) -> i64 {
    match theme {
        Theme::Refill => 0,
        Theme::Deadly => 2000,
        Theme::Skewed => 600_000,
        _ => 10_000,
    }
}

impl Dice {
    pub(crate) fn history(seed: u64) -> History {
        let mut dice = Self { rng: StdRng::seed_from_u64(seed), calm_at: 60_000 };
        let theme = match dice.below(40) {
            0..=3 => Theme::Healthy,
            4..=7 => Theme::Forgetful,
            8 => Theme::Refill,
            9..=11 => Theme::Deadly,
            12 => Theme::Flaps,
            13 | 14 => Theme::Outage,
            15 | 16 => Theme::Restored,
            17 | 18 => Theme::Skewed,
            19..=23 => Theme::Operated,
            _ => Theme::Faulty,
        };
        // These themes are chosen by seed number, not by more random values, so that every other seed keeps
        // its history.
        let theme = match seed % 50 {
            46 => Theme::Interrupted,
            47 => Theme::Rivals,
            48 => Theme::GivenAway,
            _ => theme,
        };
        dice.roll(seed, theme)
    }

    fn up_to(&mut self, low: u64, high: u64) -> u64 {
        self.rng.random_range(low..=high.max(low))
    }
    fn below(&mut self, count: usize) -> usize {
        self.rng.random_range(0..count)
    }
    fn one_in(&mut self, count: u32) -> bool {
        self.rng.random_range(0..count) == 0
    }
    fn few(&mut self, most: u64) -> u32 {
        u32::try_from(self.up_to(1, most)).unwrap()
    }

    fn roll(mut self, seed: u64, theme: Theme) -> History {
        if theme == Theme::Outage {
            self.calm_at = 110_000;
        }
        let mut setup = self.setup(seed, theme);
        let mut actions = match theme {
            Theme::Refill => self.refill(setup.observers.len()),
            Theme::Flaps => self.flaps(&setup),
            Theme::Outage => self.outage(&setup),
            Theme::Restored => self.restored(&setup),
            Theme::GivenAway => self.given_away(&setup),
            Theme::Interrupted => self.interrupted(&setup),
            Theme::Rivals => self.rivals(&mut setup),
            Theme::Healthy
            | Theme::Faulty
            | Theme::Forgetful
            | Theme::Deadly
            | Theme::Skewed
            | Theme::Operated => self.users(setup.observers.len()),
        };
        let faults = match theme {
            Theme::Faulty => self.up_to(1, 12),
            Theme::Forgetful | Theme::Skewed => self.up_to(0, 6),
            Theme::Deadly | Theme::Operated => self.up_to(0, 3),
            Theme::Healthy | Theme::Refill | Theme::Flaps | Theme::Outage => 0,
            Theme::Restored | Theme::GivenAway | Theme::Interrupted | Theme::Rivals => 0,
        };
        for _ in 0..faults {
            let at = self.up_to(2000, self.calm_at - 5000);
            actions.push((at, Action::Fault(self.fault(&setup, self.calm_at - at))));
        }
        self.themed(theme, &setup, &mut actions);
        if breaks_at_ends(setup.seed, theme) {
            for (at, number) in (4000..self.calm_at - 5000).step_by(1500).zip(0..) {
                let host = number % setup.services.len() + 1;
                actions.push((at, Action::Fault(Fault::BreakAfterSettlement { host })));
            }
        }
        if theme != Theme::Deadly && self.one_in(4) {
            let service = self.below(setup.services.len());
            setup.services[service].start_rate = f64::from(self.few(5)) / 2.0;
        }
        actions.sort_by_key(|(at, _)| *at);
        History { setup, calm_at: self.calm_at, actions }
    }

    fn themed(&mut self, theme: Theme, setup: &Setup, actions: &mut Actions) {
        if theme == Theme::Forgetful {
            for _ in 0..self.up_to(1, 3) {
                let at = self.up_to(2000, self.calm_at - 5000);
                actions.push((at, Action::Fault(self.forgetful(setup, self.calm_at - at))));
            }
        }
        if theme == Theme::Skewed {
            for _ in 0..self.up_to(0, 2) {
                let host = 1 + self.below(setup.skews.len());
                let by_ms = self.rng.random_range(-600_000..=600_000);
                let at = self.up_to(2000, self.calm_at - 5000);
                actions.push((at, Action::Fault(Fault::ClockStep { host, by_ms })));
            }
        }
        if matches!(theme, Theme::Forgetful | Theme::Deadly) && self.one_in(2) {
            let at = self.up_to(1000, self.calm_at / 2);
            actions.push((at, Action::Operator(Order::SafeMode { on: true })));
            let until = at + self.up_to(30_000, 200_000);
            actions.push((until, Action::Operator(Order::SafeMode { on: false })));
        }
        let operated = match theme {
            Theme::Operated => true,
            Theme::Refill
            | Theme::Deadly
            | Theme::Restored
            | Theme::GivenAway
            | Theme::Interrupted
            | Theme::Rivals => false,
            Theme::Healthy
            | Theme::Faulty
            | Theme::Forgetful
            | Theme::Flaps
            | Theme::Outage
            | Theme::Skewed => self.one_in(2),
        };
        if operated {
            actions.extend(self.operators(setup, if theme == Theme::Operated { 14 } else { 8 }));
        }
    }

    fn setup(&mut self, seed: u64, theme: Theme) -> Setup {
        let (count, managers) = (self.up_to(2, 4), self.below(3).max(1));
        let roomy = is_roomy(theme);
        let (rare, two_pools) = (self.one_in(6), count > 2 && self.one_in(4));
        let tight = !rare && !roomy && self.one_in(6);
        let other = Pool::new("gpu").unwrap();
        let services: Vec<ServiceSetup> = (0..count)
            .map(|number| ServiceSetup {
                name: Name::new(&format!("service-{}", number + 1)).unwrap(),
                pool: if two_pools && number + 1 == count { other.clone() } else { Pool::default() },
                capacity: if tight || preempt_after_of(seed).is_some() {
                    1
                } else {
                    u32::try_from(self.up_to(4, 8)).unwrap()
                },
                runs: match (rare && number == 0, seed % 4 == 3) {
                    (false, _) => Runs::All,
                    (true, false) => Runs::Common,
                    (true, true) => Runs::Nothing,
                },
                start_rate: 0.0,
                weight_max: 1,
            })
            .map(|it| ServiceSetup { weight_max: weight_max_of(seed, it.capacity), ..it })
            .collect();
        let heaviest = services.iter().map(|it| it.weight_max).min().unwrap_or(1);
        // Chosen by seed number, as some themes are.
        let may_have_times = !matches!(theme, Theme::Skewed | Theme::Restored | Theme::Deadly);
        let has_times = seed % 4 == 1 && may_have_times;
        let has_exact_clocks = has_times || windows_of(seed, 0).is_some() && may_have_times;
        let observers = (0..self.up_to(2, 7)).map(|number| ObserverSetup {
            is_rare: rare && self.one_in(3),
            pool: if two_pools && self.one_in(3) { other.clone() } else { Pool::default() },
            code: if theme == Theme::Deadly && number == 0 { self.deadly() } else { self.code() },
            overlap: if self.one_in(3) { Overlap::Forbid } else { Overlap::Allow },
            attempts: self.few(3) + 1,
            paused: theme != Theme::Deadly && self.one_in(10),
            start_ms: has_times.then(|| time_of(seed, number, 2, 5_000..30_000)).flatten(),
            finish_ms: has_times.then(|| time_of(seed, number, 1, 10_000..55_000)).flatten(),
            windows: windows_of(seed, number).filter(|_| may_have_times),
            limits: limits_of(seed, number),
            weight: weight_of(number, heaviest),
            schedule: schedule_of(seed, number).filter(|_| may_have_times),
        });
        let mut observers: Vec<_> = observers.collect();
        let_code_end(&mut observers, breaks_at_ends(seed, theme));
        // Chosen by seed number, as some themes are.
        if matches!(seed % 50, 12 | 31 | 46) {
            for (observer, every) in observers.iter_mut().zip((1..).map(|number| number * 700)) {
                observer.code.saves_every = Some(every);
            }
        }
        let skews = self.skews(theme, services.len() + managers, has_exact_clocks);
        Setup {
            seed,
            theme,
            managers,
            state_queues: state_queues_of(seed),
            preempt_after_ms: preempt_after_of(seed),
            observers,
            skews,
            pools_are_configured: self.one_in(2),
            managers_leave: !roomy && theme != Theme::Healthy && self.one_in(6),
            quiet_minutes: if self.one_in(50) { 60 } else { self.up_to(0, 2) },
            services,
        }
    }

    fn skews(&mut self, theme: Theme, count: usize, has_exact_clocks: bool) -> Vec<i64> {
        let skew = skew_of(theme);
        let skews = (0..count).map(|_| self.rng.random_range(-skew..=skew));
        // A service that no manager has answered goes by its own clock; the rule of times does not know which one.
        skews.map(|skew| if has_exact_clocks { 0 } else { skew }).collect()
    }

    fn code(&mut self) -> Code {
        let after = self.up_to(100, 30_000);
        let does = match self.below(11) {
            0 => Does::CompletesAfter(after),
            1 => Does::FailsAfter(after),
            2 | 3 => Does::Errs { times: self.few(4), after: after / 10 },
            4 => Does::Panics { times: self.few(2), after: after / 10 },
            _ => Does::RunsForEver,
        };
        let stops = match self.below(12) {
            0 => Stops::Never,
            1..=4 => Stops::After(self.up_to(200, 8000)),
            _ => Stops::After(self.up_to(0, 40)),
        };
        Code { does, stops, edition: 0, saves_every: None }
    }

    fn deadly(&mut self) -> Code {
        let after = if self.one_in(2) { self.up_to(10, 2000) } else { self.up_to(2000, 20_000) };
        Code { does: Does::EndsItsService(after), stops: Stops::After(10), edition: 0, saves_every: None }
    }

    fn ask(&mut self) -> Ask {
        match self.below(10) {
            0 => Ask::Retry,
            1 | 2 => Ask::Pause,
            3 | 4 => Ask::Resume,
            5 => Ask::Restart,
            6 | 7 => Ask::Update,
            8 => Ask::Move,
            _ => Ask::Put { paused: self.one_in(2) },
        }
    }

    fn users(&mut self, observers: usize) -> Actions {
        let mut actions = Vec::new();
        let batch = self.one_in(4).then(|| self.up_to(0, 3000));
        for observer in 0..observers {
            let created = match batch {
                Some(at) => at,
                None if self.one_in(2) => self.up_to(0, 3000),
                None => self.up_to(0, self.calm_at),
            };
            let create = if batch.is_some() { Ask::CreateInBatch } else { Ask::Create };
            actions.push((created, Action::User(observer, create)));
            let near = self.one_in(4);
            for _ in 0..self.below(5) {
                let until = if near { created + 3000 } else { self.calm_at };
                actions.push((self.up_to(created, until), Action::User(observer, self.ask())));
            }
            if self.one_in(2) {
                let until = if self.one_in(3) { created + 500 } else { self.calm_at };
                actions.push((self.up_to(created, until), Action::User(observer, Ask::Delete)));
            }
        }
        actions
    }

    fn creates(&mut self, observers: usize) -> Actions {
        (0..observers).map(|observer| (self.up_to(0, 3000), Action::User(observer, Ask::Create))).collect()
    }

    /// Generates no publish just before the loss: a manager could take such a message for younger than the
    /// new queue.
    fn refill(&mut self, observers: usize) -> Actions {
        let mut actions = self.creates(observers);
        let lost = self.up_to(15_000, 20_000);
        actions.push((lost, Action::Fault(Fault::LoseWork { down_ms: self.up_to(200, 8000) })));
        for observer in 0..observers {
            if self.one_in(2) {
                let ask = if self.one_in(3) { Ask::Delete } else { self.ask() };
                let early = self.one_in(2);
                let at =
                    if early { self.up_to(4000, lost - 5000) } else { self.up_to(lost + 1, self.calm_at) };
                actions.push((at, Action::User(observer, ask)));
            }
        }
        actions
    }

    fn flaps(&mut self, setup: &Setup) -> Actions {
        let mut actions = self.creates(setup.observers.len());
        for service in 0..setup.services.len() {
            let times = u32::try_from(self.up_to(0, 9)).unwrap();
            actions.push((self.up_to(4000, 10_000), Action::Fault(Fault::Flaps { service, times })));
        }
        actions
    }

    fn outage(&mut self, setup: &Setup) -> Actions {
        let mut actions = self.creates(setup.observers.len());
        let (at, for_ms) = (self.up_to(2000, 10_000), self.up_to(31_000, 80_000));
        actions.push((at, Action::Fault(Fault::DatabaseAway { for_ms })));
        for _ in 0..self.below(4) {
            let at = self.up_to(at, at + for_ms);
            let ask = self.ask();
            actions.push((at, Action::User(self.below(setup.observers.len()), ask)));
        }
        if self.one_in(2) {
            let at = self.up_to(at, at + for_ms);
            actions.push((at, Action::Fault(self.fault(setup, self.calm_at - at))));
        }
        actions
    }

    fn restored(&mut self, setup: &Setup) -> Actions {
        let mut actions = self.users(setup.observers.len());
        let backup_at = self.up_to(2000, 30_000);
        let at = self.up_to(backup_at + 1000, self.calm_at - 10_000);
        actions.retain(|(asked, _)| *asked + 6000 < at);
        actions.push((at, Action::Fault(Fault::DatabaseRestored { backup_at })));
        actions
    }

    fn given_away(&mut self, setup: &Setup) -> Actions {
        let mut actions = self.creates(setup.observers.len());
        for _ in 0..self.up_to(1, 4) {
            let (service, count) = (self.below(setup.services.len()), self.below(3) + 1);
            actions.push((self.up_to(6000, 50_000), Action::Fault(Fault::GiveAway { service, count })));
        }
        actions
    }

    fn interrupted(&mut self, setup: &Setup) -> Actions {
        let mut actions = self.users(setup.observers.len());
        for _ in 0..self.up_to(6, 16) {
            let host = self.below(setup.services.len()) + 1;
            let at = self.up_to(2000, self.calm_at - 5000);
            actions.push((at, Action::Fault(Fault::BreakAfterPublish { host })));
        }
        actions
    }

    fn rivals(&mut self, setup: &mut Setup) -> Actions {
        let skew = setup.skews[0];
        setup.skews.resize(setup.services.len() + 2, skew);
        setup.managers = 2;
        let mut actions = self.creates(setup.observers.len());
        for _ in 0..self.up_to(4, 16) {
            let (service, at) = (self.below(setup.services.len()), self.up_to(4000, self.calm_at));
            let capacity = (!self.one_in(4)).then(|| self.few(9));
            let order = if self.one_in(2) { Order::Cordon(service) } else { Order::Uncordon(service) };
            for order in [Order::Resize { service, capacity }, order] {
                actions.push((at + self.up_to(0, 8), Action::Operator(order)));
            }
        }
        actions
    }

    fn operators(&mut self, setup: &Setup, most: u64) -> Actions {
        let (from, until) = match self.below(3) {
            0 => (1000, self.calm_at),
            1 => (self.calm_at / 2, self.calm_at),
            _ => {
                let from = self.up_to(1000, self.calm_at - 6000);
                (from, from + 6000)
            }
        };
        let orders = self.up_to(1, most);
        (0..orders).map(|_| (self.up_to(from, until), Action::Operator(self.order(setup)))).collect()
    }

    fn order(&mut self, setup: &Setup) -> Order {
        let service = self.below(setup.services.len());
        match self.below(12) {
            0 | 1 => Order::Cordon(service),
            2 | 3 => Order::Uncordon(service),
            4..=6 => {
                let within_ms = self.one_in(3).then(|| self.up_to(1, 20) * 1000);
                Order::Drain { service, per_second: self.few(4), within_ms, force: self.one_in(3) }
            }
            7 | 8 => {
                let capacity = (!self.one_in(4)).then(|| self.few(9));
                Order::Resize { service, capacity }
            }
            _ => Order::Rebalance,
        }
    }

    fn fault(&mut self, setup: &Setup, left: u64) -> Fault {
        let services = setup.services.len();
        let manager = self.one_in(3);
        let host = 1 + if manager { services + self.below(setup.managers) } else { self.below(services) };
        let long = if self.one_in(2) { self.up_to(100, 4000) } else { self.up_to(4000, 40_000) };
        let for_ms = long.min(left);
        match self.below(24) {
            0..=2 => {
                let power = if self.one_in(3) { Power::Off } else { Power::On };
                Fault::Crash { host, power, back_in: for_ms }
            }
            3..=5 => Fault::Freeze { host, for_ms },
            6..=8 => self.cut(host, for_ms),
            9..=11 => Fault::Reset { host, lane: self.lane(), told: self.one_in(2) },
            12 | 13 => Fault::BreakAfterPublish { host },
            14 => Fault::LoseAnswers { count: self.few(3) },
            15 if self.one_in(2) => Fault::DatabaseAway { for_ms },
            15 => Fault::DatabaseFull { for_ms },
            16 => Fault::Blocked { for_ms },
            17 => Fault::BrokerRestart { down_ms: self.up_to(200, 8000).min(left) },
            18 => Fault::RejectWork { count: self.few(3) },
            19 => Fault::BrokerPauses { for_ms: self.up_to(100, 4000).min(left) },
            20 => Fault::CloseChannel { host: 1 + self.below(services) },
            21 => Fault::Slow { host, lane: self.lane(), delay: self.up_to(20, 900), for_ms },
            22 => Fault::DatabaseSlow { delay: self.up_to(50, 1500), for_ms },
            _ => Fault::Stop { service: self.below(services), back_in: self.up_to(1000, 5000) },
        }
    }

    fn cut(&mut self, host: usize, for_ms: u64) -> Fault {
        let lanes = match self.below(4) {
            0 => vec![Lane::Consume],
            1 => vec![Lane::Publish],
            _ => Lane::BOTH.to_vec(),
        };
        let (up, down) = [(true, false), (false, true), (true, true), (true, true)][self.below(4)];
        Fault::Cut { host, lanes, up, down, for_ms }
    }

    fn lane(&mut self) -> Lane {
        if self.one_in(4) { Lane::Publish } else { Lane::Consume }
    }

    fn forgetful(&mut self, setup: &Setup, left: u64) -> Fault {
        let service = self.below(setup.services.len());
        match self.below(5) {
            0 | 1 => Fault::Abandon { service, count: self.up_to(1, 3).try_into().unwrap() },
            2 => Fault::LoseDeliveries { count: self.few(2) },
            3 => Fault::LoseWork { down_ms: self.up_to(200, 8000).min(left) },
            _ => Fault::RewindWork { in_ms: self.up_to(500, 40_000).min(left) },
        }
    }
}
