//! The start rate of code: some remote systems cannot cope with a storm of reconnects.

use crate::id::Kind;
use std::collections::BTreeMap;
use std::time::Duration;

/// The pause between two starts, and the jitter of each start as a fraction of that pause.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Rhythm {
    every: Duration,
    next: Duration,
}

const JITTER: f64 = 0.5;

impl Rhythm {
    fn new(per_second: f64) -> Option<Self> {
        let every = Duration::try_from_secs_f64(1.0 / per_second).ok().filter(|every| !every.is_zero())?;
        Some(Self { every, next: Duration::ZERO })
    }
}

/// The limits on the starts of one service. Without limits everything starts at once, and failover is as fast as the
/// broker.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Pace {
    all: Option<Rhythm>,
    kinds: BTreeMap<Kind, Rhythm>,
}

impl Pace {
    /// Starts per second, for all kinds together and for individual kinds. A value that is not a positive number is no
    /// limit.
    #[must_use]
    pub fn new(all: f64, kinds: &BTreeMap<Kind, f64>) -> Self {
        let kind = |(kind, rate): (&Kind, &f64)| Some((kind.clone(), Rhythm::new(*rate)?));
        Self { all: Rhythm::new(all), kinds: kinds.iter().filter_map(kind).collect() }
    }

    /// The turn of another start, at `earliest` or later; `chance` (0..1) spreads it within its turn.
    pub(super) fn turn(&mut self, kind: &Kind, earliest: Duration, chance: f64) -> Duration {
        let mut limits: Vec<&mut Rhythm> = self.all.iter_mut().chain(self.kinds.get_mut(kind)).collect();
        let free = limits.iter().map(|rhythm| rhythm.next).max().unwrap_or(Duration::ZERO);
        let at = earliest.max(free);
        let every = limits.iter().map(|rhythm| rhythm.every).max().unwrap_or(Duration::ZERO);
        for rhythm in &mut limits {
            rhythm.next = at + rhythm.every;
        }
        // The first start after a pause does not wait.
        if at > earliest { at + every.mul_f64(JITTER * chance.clamp(0.0, 1.0)) } else { at }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(name: &str) -> Kind {
        Kind::new(name).unwrap()
    }
    fn seconds(pace: &mut Pace, name: &str, earliest: u64) -> f64 {
        pace.turn(&kind(name), Duration::from_secs(earliest), 0.0).as_secs_f64()
    }

    #[test]
    fn without_limits_everything_starts_at_once() {
        let mut pace = Pace::default();
        assert_eq!([seconds(&mut pace, "a", 3), seconds(&mut pace, "a", 3)], [3.0, 3.0]);
        assert_eq!(Pace::new(0.0, &[(kind("a"), f64::NAN)].into()), Pace::default());
    }

    #[test]
    fn starts_follow_the_rate_and_idle_time_is_not_saved_up() {
        let mut pace = Pace::new(2.0, &BTreeMap::new());
        let starts = [0, 0, 0, 10, 10].map(|earliest| seconds(&mut pace, "a", earliest));
        assert_eq!(starts, [0.0, 0.5, 1.0, 10.0, 10.5]);
    }

    #[test]
    fn a_kind_may_be_slower_than_the_service() {
        let mut pace = Pace::new(10.0, &[(kind("slow"), 1.0)].into());
        let starts = ["slow", "slow", "a"].map(|name| seconds(&mut pace, name, 0));
        assert_eq!(starts, [0.0, 1.0, 1.1]);
    }

    #[test]
    fn jitter_stays_within_the_turn() {
        let mut pace = Pace::new(1.0, &BTreeMap::new());
        let starts: Vec<_> =
            (0..3).map(|_| pace.turn(&kind("a"), Duration::ZERO, 1.0).as_secs_f64()).collect();
        assert_eq!(starts, [0.0, 1.5, 2.5]);
    }
}
