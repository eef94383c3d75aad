//! How a service reconnects after it has lost its session with the broker.

use std::time::Duration;

/// After a session of at least this length, the next loss counts as the first.
const WORTH: Duration = Duration::from_secs(10);
/// After a shorter session the next one may be short as well, so the queue serves other services first.
pub const STEADY: Duration = Duration::from_secs(60);
/// The pause after the first loss, and the longest pause: while all services wait, nothing runs.
const FIRST: Duration = Duration::from_secs(2);
const LONGEST: Duration = Duration::from_secs(8);

/// The lost sessions of one process.
///
/// The obvious backoff doubles the pause with each loss, so that a service that loses session after session does not
/// take observers down each time. But a broker or a network that fails three times in two minutes fails for all
/// services, and then no service comes back for a minute. Instead, services come back soon, and a service that may be
/// unhealthy takes only observers that no other service has room for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReconnectBackoff {
    pause: Duration,
}

/// When and with which priority to reconnect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReconnectPlan {
    pub pause: Duration,
    /// For [`STEADY`], the queue serves this service after all others.
    pub comes_last: bool,
}

impl ReconnectBackoff {
    pub const NONE: Self = Self { pause: FIRST };

    /// Records the loss of a session with this lifetime; `chance` (0..1) spreads simultaneous reconnects.
    pub fn on_lost(&mut self, lived: Duration, chance: f64) -> ReconnectPlan {
        if lived >= WORTH {
            self.pause = FIRST;
        }
        let pause = self.pause.mul_f64(0.25 + 0.75 * chance.clamp(0.0, 1.0));
        self.pause = (self.pause * 2).min(LONGEST);
        ReconnectPlan { pause, comes_last: lived < STEADY }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lived(losses: &mut ReconnectBackoff, secs: u64, chance: f64) -> (u128, bool) {
        let back = losses.on_lost(Duration::from_secs(secs), chance);
        (back.pause.as_millis(), back.comes_last)
    }

    #[test]
    fn a_steady_service_reconnects_soon_with_its_old_priority() {
        let mut losses = ReconnectBackoff::NONE;
        assert_eq!(lived(&mut losses, 3600, 1.0), (2000, false));
        assert_eq!(lived(&mut losses, 60, 0.0), (500, false), "apart from others");
    }

    #[test]
    fn a_loss_every_twenty_seconds_does_not_lengthen_the_pause() {
        let mut losses = ReconnectBackoff::NONE;
        for _ in 0..20 {
            assert_eq!(lived(&mut losses, 20, 1.0), (2000, true));
        }
    }

    #[test]
    fn short_sessions_lengthen_the_pause_up_to_a_limit() {
        let mut losses = ReconnectBackoff::NONE;
        let pauses = [0; 4].map(|secs| lived(&mut losses, secs, 1.0).0);
        assert_eq!(pauses, [2000, 4000, 8000, 8000]);
        assert_eq!(lived(&mut losses, 10, 1.0), (2000, true), "a session that was long enough");
    }
}
