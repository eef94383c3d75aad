//! How current a manager's view of its queues is, and whether it may draw conclusions from silence.

use crate::clock::Timestamp;
use std::time::Duration;

/// The send times of the latest watermarks read from the queues, and the state of the connection.
///
/// There may be several state queues. The obvious rule takes the newest watermark of any of them. But an observer whose
/// end waits in a slow queue would then look as if it had no holder. Instead, the slowest queue counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct QueueFreshness {
    /// `None` if it is not connected.
    pub connected_at: Option<Timestamp>,
    /// The oldest over all state queues; `None` until a watermark was read from each.
    pub state_watermark: Option<Timestamp>,
    pub heartbeats_watermark: Option<Timestamp>,
    pub store_answers: bool,
}

/// What a manager has read from each of its state queues, as one watermark.
#[must_use]
pub fn slowest(watermarks: impl IntoIterator<Item = Option<Timestamp>>) -> Option<Timestamp> {
    // `None` is less than every time.
    watermarks.into_iter().min().flatten()
}

impl QueueFreshness {
    /// Whether the manager has applied everything that was in the state queues when it connected.
    #[must_use]
    pub fn has_caught_up(&self) -> bool {
        self.connected_at.is_some_and(|connected_at| self.state_watermark >= Some(connected_at))
    }

    /// Whether the latest watermark of every queue is at most this old.
    #[must_use]
    pub fn is_within(&self, age: Duration, now: Timestamp) -> bool {
        self.state_is_within(age, now) && self.heartbeats_watermark >= Some(now.minus(age))
    }

    /// Whether the latest watermark of every state queue is at most this old.
    #[must_use]
    pub fn state_is_within(&self, age: Duration, now: Timestamp) -> bool {
        self.state_watermark >= Some(now.minus(age))
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
        assert!(
            !behind.state_is_within(HEARTBEAT * 2, at(112)) && listens.state_is_within(HEARTBEAT, at(115))
        );
        assert!(!QueueFreshness { connected_at: None, ..listens }.has_caught_up());
    }

    #[test]
    fn the_slowest_state_queue_counts() {
        let at = |secs: i64| Some(Timestamp(secs * 1000));
        assert_eq!(slowest([at(112)]), at(112));
        assert_eq!(slowest([at(112), at(99), at(115)]), at(99));
        assert_eq!(slowest([at(112), None]), None, "nothing is known about the second queue");
        assert_eq!(slowest([]), None);
    }
}
