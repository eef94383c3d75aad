//! Tells a live view when to load its data again.

use crate::client::Client;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};

/// Without the stream, and for what no event tells, such as heartbeats.
pub(crate) const LOOK_EVERY: Duration = Duration::from_secs(2);
/// Events that come together are looked at together.
pub(crate) const GATHER: Duration = Duration::from_millis(250);
/// The manager says something every 15 s.
pub(crate) const SILENT_MAX: Duration = Duration::from_secs(40);

/// Notifies at every event, as long as the manager streams them; connects again for ever.
pub(crate) async fn events(client: &Client, changed: &Notify) {
    loop {
        if let Ok(Ok(mut stream)) = timeout(SILENT_MAX, client.follow("/v1/events", None)).await {
            changed.notify_one();
            while let Ok(Ok(Some(chunk))) = timeout(SILENT_MAX, stream.chunk()).await {
                if !chunk.starts_with(b":") {
                    changed.notify_one();
                }
            }
            changed.notify_one();
        }
        sleep(LOOK_EVERY).await;
    }
}
