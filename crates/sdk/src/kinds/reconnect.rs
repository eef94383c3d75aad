//! How long to wait before the next connection: twice as long after each short-lived one, with jitter.

use std::time::Duration;

/// The pauses between the connections of one observer.
#[derive(Debug, Clone)]
pub(super) struct Reconnect {
    first: Duration,
    max: Duration,
    healthy_after: Duration,
    /// The pause before jitter after the latest short-lived connection.
    last: Option<Duration>,
}

impl Reconnect {
    /// From 500 ms to 30 s; a connection that lived for a minute resets the pause.
    pub(super) fn new() -> Self {
        let seconds = Duration::from_secs;
        Self { first: Duration::from_millis(500), max: seconds(30), healthy_after: seconds(60), last: None }
    }
    /// The pause after the first loss.
    pub(super) fn first(self, first: Duration) -> Self {
        Self { first, ..self }
    }
    /// The longest pause.
    pub(super) fn max(self, max: Duration) -> Self {
        Self { max, ..self }
    }
    /// How long a connection must live for the next pause to be the first again.
    pub(super) fn healthy_after(self, healthy_after: Duration) -> Self {
        Self { healthy_after, ..self }
    }
    /// The pause after a connection that lived this long, zero if it was never made. Half of it is random, so that
    /// clients that lost one server do not return to it at the same moment.
    pub(super) fn next_pause(&mut self, lived_for: Duration) -> Duration {
        let last = self.last.filter(|_| lived_for < self.healthy_after);
        let pause = last.map_or(self.first, |last| last.saturating_mul(2)).min(self.max);
        self.last = Some(pause);
        pause.mul_f64(rand::random_range(0.5..=1.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_a_limit_and_start_over_after_a_healthy_connection() {
        let ms = Duration::from_millis;
        let mut reconnect = Reconnect::new().first(ms(100)).max(ms(350)).healthy_after(ms(1000));
        for longest in [100, 200, 350, 350] {
            let pause = reconnect.next_pause(ms(999));
            assert!(pause >= ms(longest) / 2 && pause <= ms(longest), "{pause:?} of {longest} ms");
        }
        assert!(reconnect.next_pause(ms(1000)) <= ms(100));
        assert!(reconnect.next_pause(ms(0)) > ms(99));
    }
}
