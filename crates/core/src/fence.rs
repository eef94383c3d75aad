//! When a service may no longer believe that its messages are its own.
//! It knows no clock and no broker: when proofs of life were sent, and what time it is.

use std::time::Duration;

/// When the newest proofs of life that came back were *sent*. The moment of the answer proves nothing:
/// an answer may have waited on a link that was cut meanwhile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Proofs {
    /// A round trip on the connection that holds the messages.
    pub answered: Duration,
    /// A confirmed publish.
    pub confirmed: Duration,
}

/// What has not come back for too long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Silence {
    Answer,
    Confirm,
}

impl Proofs {
    /// Both count as given at the birth of a session.
    #[must_use]
    pub fn given(now: Duration) -> Self {
        Self { answered: now, confirmed: now }
    }

    /// What is silent for longer than `fence_after`: everything must end now.
    #[must_use]
    pub fn silence(&self, now: Duration, fence_after: Duration) -> Option<Silence> {
        let over = |sent: Duration| now.saturating_sub(sent) > fence_after;
        if over(self.answered) {
            Some(Silence::Answer)
        } else {
            over(self.confirmed).then_some(Silence::Confirm)
        }
    }

    /// Whether what is held is surely still ours: only then may a run start, or its end be told. If not,
    /// the fence is to fall at once: after a freeze, what comes first may be a delivery that the broker
    /// has given to somebody else since.
    #[must_use]
    pub fn are_fresh(&self, now: Duration, fence_after: Duration) -> bool {
        now.saturating_sub(self.answered) < fence_after
    }
}

/// The silence that fences, and the time that code has to end after it: as configured, or shorter if the broker
/// has asked for a shorter heartbeat. The broker takes a silent service for dead after two of the heartbeats that
/// both sides agreed on, so the two together stay below that.
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
    fn silence_counts_from_the_sending_of_the_last_proof_that_came_back() {
        let mut proofs = Proofs::given(at(1000));
        assert_eq!(proofs.silence(at(6000), AFTER), None);
        assert_eq!(proofs.silence(at(6001), AFTER), Some(Silence::Answer));
        proofs.answered = at(2000);
        assert_eq!(proofs.silence(at(6001), AFTER), Some(Silence::Confirm));
    }

    #[test]
    fn a_shorter_heartbeat_of_the_broker_fences_earlier_and_a_longer_one_changes_nothing() {
        let configured = (AFTER, at(2000));
        assert_eq!(limits(configured, None), configured, "a broker without heartbeats gives nothing away");
        assert_eq!(limits(configured, Some(at(60_000))), configured);
        assert_eq!(limits(configured, Some(at(4000))), (at(4000), at(2000)));
        assert_eq!(limits(configured, Some(at(3000))), (at(3000), at(1500)));
    }

    #[test]
    fn nothing_starts_or_settles_from_the_moment_on_when_the_fence_might_fall() {
        let proofs = Proofs::given(at(0));
        assert!(proofs.are_fresh(at(4999), AFTER));
        assert!(!proofs.are_fresh(at(5000), AFTER));
    }
}
