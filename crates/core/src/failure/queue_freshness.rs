//! How current a manager's view of its queues is, and whether it may draw conclusions from silence.

use crate::clock::Timestamp;
use std::time::Duration;

/// The send times of the latest watermarks read from the queues, and the state of the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct QueueFreshness {
    /// `None` if it is not connected.
    pub connected_at: Option<Timestamp>,
    pub state_watermark: Option<Timestamp>,
    pub heartbeats_watermark: Option<Timestamp>,
    pub store_answers: bool,
}

impl QueueFreshness {
    /// Whether the manager has applied everything that was in the state queue when it connected.
    #[must_use]
    pub fn has_caught_up(&self) -> bool {
        self.connected_at.is_some_and(|connected_at| self.state_watermark >= Some(connected_at))
    }

    /// Whether the latest watermark of both queues is at most this old.
    #[must_use]
    pub fn is_within(&self, age: Duration, now: Timestamp) -> bool {
        let since = Some(now.minus(age));
        self.state_watermark >= since && self.heartbeats_watermark >= since
    }

    /// Whether silence of a service counts. It does so only after this manager has listened for as long as a service
    /// may be silent, because heartbeats sent while no manager ran are gone.
    #[must_use]
    pub fn may_conclude(&self, now: Timestamp, lost_after: Duration, heartbeat: Duration) -> bool {
        let Some(connected_at) = self.connected_at else { return false };
        self.store_answers
            && self.has_caught_up()
            && now.since(connected_at) >= lost_after
            && self.is_within(heartbeat * 2, now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOST_AFTER: Duration = Duration::from_secs(15);
    const HEARTBEAT: Duration = Duration::from_secs(5);

    #[test]
    fn silence_counts_only_for_a_manager_that_has_listened_long_enough() {
        let at = |secs: i64| Timestamp(secs * 1000);
        let listens = QueueFreshness {
            connected_at: Some(at(100)),
            state_watermark: Some(at(112)),
            heartbeats_watermark: Some(at(110)),
            store_answers: true,
        };
        let concludes = |it: QueueFreshness, secs| it.may_conclude(at(secs), LOST_AFTER, HEARTBEAT);
        assert!(!concludes(listens, 114) && concludes(listens, 115) && concludes(listens, 120));
        assert!(!concludes(listens, 121), "the heartbeats queue is no longer read");
        assert!(!concludes(QueueFreshness { store_answers: false, ..listens }, 116));
        assert!(!concludes(QueueFreshness { connected_at: None, ..listens }, 116));
        let behind = QueueFreshness { state_watermark: Some(at(99)), ..listens };
        assert!(!behind.has_caught_up() && listens.has_caught_up());
        assert!(!QueueFreshness { connected_at: None, ..listens }.has_caught_up());
    }
}
