//! Whether code does what its kind promises: it is ready in time, and it gives signs of life.

use crate::clock::show;
use std::fmt;
use std::time::Duration;

/// What a kind promises of its code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Vigil {
    /// It announces that it is ready within this time after its start.
    pub ready_within: Option<Duration>,
    /// Once it is ready, its signs of life are at most this far apart.
    pub alive_within: Option<Duration>,
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

    /// The promise that code has broken. `since`: the time since its start or its newest sign of life.
    #[must_use]
    pub fn fault(self, is_ready: bool, since: Duration) -> Option<Fault> {
        match (self.ready_within, self.alive_within) {
            (Some(within), _) if !is_ready => (since > within).then_some(Fault::NotReady(within)),
            (_, Some(within)) => (since > within).then_some(Fault::Silent(within)),
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

    const fn secs(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn code_that_promises_nothing_is_never_at_fault() {
        assert_eq!(Vigil::default().fault(false, secs(1_000_000)), None);
    }

    #[test]
    fn readiness_comes_before_signs_of_life() {
        let vigil = Vigil { ready_within: Some(secs(30)), alive_within: Some(secs(5)) };
        assert_eq!(vigil.fault(false, secs(30)), None);
        assert_eq!(vigil.fault(false, secs(31)), Some(Fault::NotReady(secs(30))));
        assert_eq!(vigil.fault(true, secs(5)), None);
        assert_eq!(vigil.fault(true, secs(6)), Some(Fault::Silent(secs(5))));
        let vigil = Vigil { ready_within: None, alive_within: Some(secs(5)) };
        assert_eq!(vigil.fault(false, secs(6)), Some(Fault::Silent(secs(5))));
    }
}
