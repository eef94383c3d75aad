//! Whether code does what its kind promises: it is ready in time, and it gives signs of life.

use crate::clock::show;
use std::fmt;
use std::time::Duration;

/// What a kind promises of its code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Vigil {
    /// It announces that it is ready within this time after its start, whatever other signs of life it gives.
    pub ready_within: Option<Duration>,
    /// Once it is ready, its signs of life are at most this far apart.
    pub alive_within: Option<Duration>,
}

/// What code has shown of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Signs {
    pub is_ready: bool,
    pub since_start: Duration,
    /// Since its start, its readiness or its newest other sign of life.
    pub since_alive: Duration,
}

/// A promise that code has not kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    NotReady(Duration),
    Silent(Duration),
}

impl Vigil {
    /// Whether the kind promises nothing.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self == Self::default()
    }

    /// The promise that code has broken.
    #[must_use]
    pub fn fault(self, signs: Signs) -> Option<Fault> {
        match (self.ready_within, self.alive_within) {
            (Some(within), _) if !signs.is_ready => {
                (signs.since_start > within).then_some(Fault::NotReady(within))
            }
            (_, Some(within)) => (signs.since_alive > within).then_some(Fault::Silent(within)),
            (_, None) => None,
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotReady(within) => write!(f, "was not ready within {}", show(*within)),
            Self::Silent(within) => write!(f, "gave no sign of life for {}", show(*within)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The fault of code that started and gave its newest sign of life this many seconds ago.
    fn fault(vigil: Vigil, is_ready: bool, start: u64, alive: u64) -> Option<Fault> {
        vigil.fault(Signs { is_ready, since_start: secs(start), since_alive: secs(alive) })
    }
    const fn secs(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn code_that_promises_nothing_is_never_at_fault() {
        assert_eq!(fault(Vigil::default(), false, 1_000_000, 1_000_000), None);
    }

    #[test]
    fn code_that_is_not_ready_in_time_is_at_fault_whatever_signs_of_life_it_gives() {
        let vigil = Vigil { ready_within: Some(secs(30)), alive_within: Some(secs(5)) };
        assert_eq!(fault(vigil, false, 30, 30), None);
        assert_eq!(fault(vigil, false, 31, 31), Some(Fault::NotReady(secs(30))));
        assert_eq!(fault(vigil, false, 31, 0), Some(Fault::NotReady(secs(30))));
    }

    #[test]
    fn silent_code_is_at_fault_once_it_is_ready_or_promises_no_readiness() {
        let vigil = Vigil { ready_within: Some(secs(30)), alive_within: Some(secs(5)) };
        assert_eq!(fault(vigil, true, 100, 5), None);
        assert_eq!(fault(vigil, true, 100, 6), Some(Fault::Silent(secs(5))));
        let vigil = Vigil { ready_within: None, alive_within: Some(secs(5)) };
        assert_eq!(fault(vigil, false, 100, 6), Some(Fault::Silent(secs(5))));
    }
}
