//! Follows work that managers do step by step, such as a rollout or a batch.

use crate::client::Client;
use crate::output::answer;
use serde::de::DeserializeOwned;
use std::time::Duration;

/// The interval between two looks.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Reads what is at `path` until it is over, and prints the sentence about it whenever that changes. The sentence about `it`
/// has been printed.
///
/// # Errors
/// As [`Client::read`].
pub(super) async fn follow<T: DeserializeOwned>(
    client: &Client,
    path: &str,
    mut it: T,
    (told, is_over): (impl Fn(&T) -> String, impl Fn(&T) -> bool),
) -> anyhow::Result<T> {
    let mut shown = told(&it);
    while !is_over(&it) {
        tokio::time::sleep(LOOK_EVERY).await;
        it = client.read(path).await?;
        let now = told(&it);
        if now != shown {
            answer(&now);
            shown = now;
        }
    }
    Ok(it)
}
