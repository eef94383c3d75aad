//! When the code of a kind is ready.

use std::time::Duration;

/// When the code of a kind is ready: [`crate::Observer::READINESS`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Readiness {
    /// As soon as it has started.
    AtStart,
    /// When it calls [`crate::Context::ready`], for example because it is connected. The code itself decides how long
    /// that may take.
    Announced,
    /// The same, at most this long after its start. Code that is not ready in time is aborted, at most a second late,
    /// and starts again as the retry policy says.
    AnnouncedWithin(Duration),
}

impl Readiness {
    pub(crate) fn is_announced(self) -> bool {
        self != Self::AtStart
    }
    pub(crate) fn within(self) -> Option<Duration> {
        match self {
            Self::AtStart | Self::Announced => None,
            Self::AnnouncedWithin(within) => Some(within),
        }
    }
}
