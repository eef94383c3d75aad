//! Notifies a live view when it should reload its data. The modules below follow streams and reconnect.

pub(crate) mod events;
pub(crate) mod logs;
mod stream;

use crate::client::{Client, Failure};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};

/// The reload interval while there is no event stream, and for changes without events, such as heartbeats.
pub(crate) const LOOK_EVERY: Duration = Duration::from_secs(2);
/// The reload interval in the seconds after a change that moves observers.
pub(crate) const LOOK_SOON: Duration = Duration::from_millis(500);
/// Events within this time cause only one reload.
pub(crate) const GATHER: Duration = Duration::from_millis(250);
/// The stream counts as lost after this silence. The manager sends at least a keep-alive every 15 s.
pub(crate) const SILENT_MAX: Duration = Duration::from_secs(40);

/// Whether the same request can succeed later: the manager does not answer, or its answer is an error of its own.
pub(crate) fn is_passing(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(Failure::Unreachable(_) | Failure::Failed(_)))
}

/// Notifies at every event of the manager's stream. Reconnects for as long as it runs.
pub(crate) async fn notify(client: &Client, changed: &Notify) {
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
