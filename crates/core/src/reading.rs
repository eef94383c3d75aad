//! How well a manager reads its queues, and what it may therefore conclude from silence.

use crate::clock::Timestamp;
use std::time::Duration;

/// The send times of the newest marks that came out of the queues, and what else there is to listen with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Reading {
    /// `None`: it is not connected.
    pub connected_at: Option<Timestamp>,
    pub state_tick: Option<Timestamp>,
    pub beats_tick: Option<Timestamp>,
    pub store_answers: bool,
}

impl Reading {
    /// Whether everything that stood in the state queue when it connected is applied.
    #[must_use]
    pub fn has_caught_up(&self) -> bool {
        self.connected_at.is_some_and(|connected_at| self.state_tick >= Some(connected_at))
    }

    /// Whether the newest mark of both queues is at most this old.
    #[must_use]
    pub fn is_within(&self, age: Duration, now: Timestamp) -> bool {
        let since = Some(now.minus(age));
        self.state_tick >= since && self.beats_tick >= since
    }

    /// Whether the silence of a service may be held against it. Not before this manager has listened for as
    /// long as a service may be silent: the beats of a time without managers are gone.
    #[must_use]
    pub fn may_conclude(&self, now: Timestamp, lost_after: Duration, beat: Duration) -> bool {
        let Some(connected_at) = self.connected_at else { return false };
        self.store_answers
            && self.has_caught_up()
            && now.since(connected_at) >= lost_after
            && self.is_within(beat * 2, now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOST_AFTER: Duration = Duration::from_secs(15);
    const BEAT: Duration = Duration::from_secs(5);

    #[test]
    fn silence_counts_only_for_whoever_has_listened_and_still_does() {
        let at = |secs: i64| Timestamp(secs * 1000);
        let listens = Reading {
            connected_at: Some(at(100)),
            state_tick: Some(at(112)),
            beats_tick: Some(at(110)),
            store_answers: true,
        };
        let concludes = |it: Reading, secs| it.may_conclude(at(secs), LOST_AFTER, BEAT);
        assert!(!concludes(listens, 114) && concludes(listens, 115) && concludes(listens, 120));
        assert!(!concludes(listens, 121), "the beats queue is no longer read");
        assert!(!concludes(Reading { store_answers: false, ..listens }, 116));
        assert!(!concludes(Reading { connected_at: None, ..listens }, 116));
        let behind = Reading { state_tick: Some(at(99)), ..listens };
        assert!(!behind.has_caught_up() && listens.has_caught_up());
        assert!(!Reading { connected_at: None, ..listens }.has_caught_up());
    }
}
