//! Pauses between connections.

use crate::tasks::context::Context;
use std::time::Duration;

/// The pauses of code that connects again and again by itself: they grow from `first` to `max` while connections are
/// short, and start over after a connection of at least `healthy_after`. Each pause is a random part, between a quarter
/// and the whole, so that observers that lost the same server do not come back at the same moment.
///
/// ```no_run
/// # async fn connect() -> Result<(), everwatch::Error> { Ok(()) }
/// # async fn run(ctx: everwatch::Context) {
/// use everwatch::Reconnect;
/// use std::time::{Duration, Instant};
///
/// let mut reconnect = Reconnect::new();
/// loop {
///     let begun = Instant::now();
///     if let Err(error) = connect().await {
///         ctx.log(&format!("disconnected: {error}"));
///     }
///     if !reconnect.pause(&ctx, begun.elapsed()).await {
///         break; // The code must stop.
///     }
/// }
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Reconnect {
    first: Duration,
    max: Duration,
    healthy_after: Duration,
    next: Duration,
}

impl Default for Reconnect {
    fn default() -> Self {
        Self::new()
    }
}

impl Reconnect {
    /// Pauses from 1 s to 1 min; a connection of 1 min is healthy.
    #[must_use]
    pub fn new() -> Self {
        let (first, minute) = (Duration::from_secs(1), Duration::from_secs(60));
        Self { first, max: minute, healthy_after: minute, next: first }
    }
    /// The longest pause after a healthy connection.
    #[must_use]
    pub fn first(self, first: Duration) -> Self {
        Self { first, next: first, ..self }
    }
    /// The longest pause.
    #[must_use]
    pub fn max(self, max: Duration) -> Self {
        Self { max, ..self }
    }
    /// A connection of at least this length is healthy.
    #[must_use]
    pub fn healthy_after(self, healthy_after: Duration) -> Self {
        Self { healthy_after, ..self }
    }
    /// The pause after a connection that lived for this long.
    pub fn next_pause(&mut self, lived_for: Duration) -> Duration {
        if lived_for >= self.healthy_after {
            self.next = self.first;
        }
        let pause = self.next.min(self.max);
        self.next = self.next.saturating_mul(2).min(self.max);
        pause.mul_f64(rand::random_range(0.25..1.0))
    }
    /// Waits for the next pause; `false` if the code must stop.
    pub async fn pause(&mut self, ctx: &Context, lived_for: Duration) -> bool {
        ctx.until_cancelled(tokio::time::sleep(self.next_pause(lived_for))).await.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn secs(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn pauses_grow_to_a_limit_and_start_over_after_a_healthy_connection() {
        let mut reconnect = Reconnect::new().first(secs(4)).max(secs(10)).healthy_after(secs(30));
        let mut within = |lived: u64, most: u64| {
            let pause = reconnect.next_pause(secs(lived));
            assert!(pause >= secs(most) / 4 && pause <= secs(most), "{pause:?} of {most} s");
        };
        within(0, 4);
        within(0, 8);
        within(29, 10);
        within(0, 10);
        within(30, 4);
        within(0, 8);
    }
}
