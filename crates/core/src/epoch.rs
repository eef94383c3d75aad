//! The fencing token: a number that is strictly greater for each later run of the same observer.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;

/// `generation << 32 | acquisitions`. Managers raise the generation in the database before each publish; the
/// acquisitions are the broker's own count of earlier deliveries of that message.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize, JsonSchema)]
#[serde(from = "u64", into = "u64")]
pub struct Epoch(u64);

impl Epoch {
    /// The epoch of one run.
    #[must_use]
    pub fn new(generation: u32, acquisitions: u32) -> Self {
        Self(u64::from(generation) << 32 | u64::from(acquisitions))
    }
    /// The first epoch of a generation: as a revocation it ends every run of the generations before.
    #[must_use]
    pub const fn first_of(generation: u32) -> Self {
        Self((generation as u64) << 32)
    }
    /// The first epoch of the generation after this one's.
    #[must_use]
    pub fn after_generation(generation: u32) -> Self {
        Self(u64::from(generation).saturating_add(1) << 32)
    }
    /// The number of times that the observer was published.
    #[must_use]
    pub fn generation(self) -> u32 {
        (self.0 >> 32) as u32
    }
    /// How often the broker delivered this generation's message before this run.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "the lower half is what is wanted")]
    pub fn acquisitions(self) -> u32 {
        self.0 as u32
    }
}

impl From<u64> for Epoch {
    fn from(number: u64) -> Self {
        Self(number)
    }
}
impl From<Epoch> for u64 {
    fn from(epoch: Epoch) -> u64 {
        epoch.0
    }
}
/// Displayed as `3.2`.
impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.generation(), self.acquisitions())
    }
}
impl fmt::Debug for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_later_run_has_a_higher_epoch() {
        let runs = [(1, 0), (1, 1), (1, u32::MAX), (2, 0), (2, 7), (u32::MAX, 0)];
        let epochs = runs.map(|(generation, acquisitions)| Epoch::new(generation, acquisitions));
        assert!(epochs.windows(2).all(|pair| pair[0] < pair[1]));
        assert!(Epoch::after_generation(2) > Epoch::new(2, u32::MAX));
        assert_eq!((epochs[4].generation(), epochs[4].acquisitions()), (2, 7));
        assert_eq!(epochs[4].to_string(), "2.7");
    }
}
