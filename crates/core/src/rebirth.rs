//! How a service comes back that has lost its session with the broker.

use std::time::Duration;

/// A session that lived so long was not in vain: the next loss is a first one.
const WORTH: Duration = Duration::from_secs(10);
/// After a session shorter than this the next may be as short: whoever else has room is served before it.
pub const STEADY: Duration = Duration::from_secs(60);
/// The pause after a first loss, and the longest: while all services wait, nothing runs.
const FIRST: Duration = Duration::from_secs(2);
const LONGEST: Duration = Duration::from_secs(8);

/// The losses of one process.
///
/// Naively, the pause doubles with every loss that follows soon, so that a service which loses one session after
/// the other does not take observers down with it each time. But a broker or a network that fails three times in
/// two minutes fails for all services, and then none of them came back for a minute. So they come back soon, and
/// those that may be sick take only what nobody else has room for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Losses {
    pause: Duration,
}

/// How to come back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Return {
    pub pause: Duration,
    /// For [`STEADY`] the queue serves it after all others.
    pub comes_last: bool,
}

impl Losses {
    pub const NONE: Self = Self { pause: FIRST };

    /// One more, of a session that lived so long; `chance` (0..1) keeps services apart that lost theirs together.
    pub fn on_lost(&mut self, lived: Duration, chance: f64) -> Return {
        if lived >= WORTH {
            self.pause = FIRST;
        }
        let pause = self.pause.mul_f64(0.25 + 0.75 * chance.clamp(0.0, 1.0));
        self.pause = (self.pause * 2).min(LONGEST);
        Return { pause, comes_last: lived < STEADY }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lived(losses: &mut Losses, secs: u64, chance: f64) -> (u128, bool) {
        let back = losses.on_lost(Duration::from_secs(secs), chance);
        (back.pause.as_millis(), back.comes_last)
    }

    #[test]
    fn whoever_was_steady_comes_back_soon_and_as_before() {
        let mut losses = Losses::NONE;
        assert_eq!(lived(&mut losses, 3600, 1.0), (2000, false));
        assert_eq!(lived(&mut losses, 60, 0.0), (500, false), "apart from others");
    }

    #[test]
    fn a_loss_every_twenty_seconds_makes_nobody_wait_longer() {
        let mut losses = Losses::NONE;
        for _ in 0..20 {
            assert_eq!(lived(&mut losses, 20, 1.0), (2000, true));
        }
    }

    #[test]
    fn sessions_in_vain_come_ever_more_slowly_up_to_a_limit() {
        let mut losses = Losses::NONE;
        let pauses = [0; 4].map(|secs| lived(&mut losses, secs, 1.0).0);
        assert_eq!(pauses, [2000, 4000, 8000, 8000]);
        assert_eq!(lived(&mut losses, 10, 1.0), (2000, true), "one that was not in vain");
    }
}
