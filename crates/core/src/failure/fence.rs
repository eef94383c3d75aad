//! When a service can no longer prove that it holds its messages. This module uses no clock and no broker: its inputs
//! are the send times of the proofs of life, and the current time.

use std::ops::RangeInclusive;
use std::time::Duration;

/// The AMQP heartbeats that can be configured, in whole seconds.
pub const BROKER_HEARTBEATS: RangeInclusive<Duration> = Duration::from_secs(3)..=Duration::from_secs(14);

/// The *send* times of the latest answered proofs of life. The time of an answer proves nothing, because the answer may
/// have waited on a link that has been cut since.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Proofs {
    /// A round trip on the connection that holds the messages.
    pub answered: Duration,
    /// A confirmed publish.
    pub confirmed: Duration,
}

/// The proof of life that has been unanswered for too long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Silence {
    Answer,
    Confirm,
}

impl Proofs {
    /// Both proofs count as given when a session starts.
    #[must_use]
    pub fn given(now: Duration) -> Self {
        Self { answered: now, confirmed: now }
    }

    /// The proof that has been silent for longer than `fence_after`: every run must end now.
    #[must_use]
    pub fn silence(&self, now: Duration, fence_after: Duration) -> Option<Silence> {
        let over = |sent: Duration| now.saturating_sub(sent) > fence_after;
        if over(self.answered) {
            Some(Silence::Answer)
        } else {
            over(self.confirmed).then_some(Silence::Confirm)
        }
    }

    /// Whether this service certainly still holds its messages: only then may a run start, or its end be reported.
    /// Otherwise the service must fence at once: after a freeze, the first input may be a delivery that the broker
    /// has since redelivered to another service.
    #[must_use]
    pub fn are_fresh(&self, now: Duration, fence_after: Duration) -> bool {
        now.saturating_sub(self.answered) < fence_after
    }
}

/// The silence after which a service fences, and the time that code has to end after that: as configured, or shorter if
/// the broker requires a shorter heartbeat. The broker considers a silent service dead after two negotiated heartbeat
/// intervals, so the sum of the two stays below that.
#[must_use]
pub fn limits(
    (fence_after, fence_grace): (Duration, Duration),
    heartbeat: Option<Duration>,
) -> (Duration, Duration) {
    match heartbeat {
        Some(heartbeat) if heartbeat < fence_after => (heartbeat, fence_grace.min(heartbeat / 2)),
        _ => (fence_after, fence_grace),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AFTER: Duration = Duration::from_secs(5);

    fn at(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn silence_counts_from_the_send_time_of_the_last_answered_proof() {
        let mut proofs = Proofs::given(at(1000));
        assert_eq!(proofs.silence(at(6000), AFTER), None);
        assert_eq!(proofs.silence(at(6001), AFTER), Some(Silence::Answer));
        proofs.answered = at(2000);
        assert_eq!(proofs.silence(at(6001), AFTER), Some(Silence::Confirm));
    }

    #[test]
    fn a_shorter_broker_heartbeat_fences_earlier_and_a_longer_one_has_no_effect() {
        let configured = (AFTER, at(2000));
        assert_eq!(limits(configured, None), configured, "a broker without heartbeats redelivers nothing");
        assert_eq!(limits(configured, Some(at(60_000))), configured);
        assert_eq!(limits(configured, Some(at(4000))), (at(4000), at(2000)));
        assert_eq!(limits(configured, Some(at(3000))), (at(3000), at(1500)));
    }

    #[test]
    fn no_run_starts_or_settles_once_the_fence_is_possible() {
        let proofs = Proofs::given(at(0));
        assert!(proofs.are_fresh(at(4999), AFTER));
        assert!(!proofs.are_fresh(at(5000), AFTER));
    }
}
