//! Waits for a condition instead of sleeping, and panics with the last observed state after a time limit.

use std::future::Future;
use std::time::{Duration, Instant};

/// The pause between two checks.
const LOOK_EVERY: Duration = Duration::from_millis(25);

/// Waits until `look` succeeds; after a minute it panics with what it last saw.
pub async fn wait_for<T, F: Future<Output = Result<T, String>>>(what: &str, look: impl Fn() -> F) -> T {
    wait_within(Duration::from_secs(60), what, look).await
}

/// Waits until `look` succeeds; after `limit` it panics with what it last saw.
pub async fn wait_within<T, F: Future<Output = Result<T, String>>>(
    limit: Duration,
    what: &str,
    look: impl Fn() -> F,
) -> T {
    let begun = Instant::now();
    let mut ticks = tokio::time::interval(LOOK_EVERY);
    loop {
        ticks.tick().await;
        match look().await {
            Ok(seen) => return seen,
            Err(seen) => assert!(begun.elapsed() < limit, "waited {limit:?} for {what}; saw {seen}"),
        }
    }
}

/// Checks repeatedly for `time` that a condition holds; panics with the observed state if it does not.
pub async fn throughout<F: Future<Output = Result<(), String>>>(time: Duration, still: impl Fn() -> F) {
    let begun = Instant::now();
    let mut ticks = tokio::time::interval(LOOK_EVERY * 2);
    while begun.elapsed() < time {
        ticks.tick().await;
        still().await.unwrap_or_else(|seen| panic!("{seen}"));
    }
}
