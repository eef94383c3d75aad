//! Intake: what services report becomes rows, and is acknowledged only once it is committed. Each
//! batch may be applied twice (by this manager or another) and changes nothing the second time.

mod checkpoints;
pub(crate) mod heartbeats;
mod inventories;
pub(crate) mod parked;
pub(crate) mod rates;
mod refused_messages;
pub(crate) mod registrations;
mod runs;
pub(crate) mod state;
mod unknown;

use everwatch_store::StoreError;
use std::future::Future;
use std::time::Duration;
use tokio_util::sync::CancellationToken;
use tracing::warn;

const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// Tries until the store takes it; `None` if `over` comes first. Nothing is acknowledged meanwhile.
pub(crate) async fn insist<T, F>(over: &CancellationToken, mut attempt: impl FnMut() -> F) -> Option<T>
where
    F: Future<Output = Result<T, StoreError>>,
{
    let mut pause = FIRST_PAUSE;
    loop {
        match attempt().await {
            Ok(done) => return Some(done),
            Err(error) => {
                warn!(%error, again_in_ms = pause.as_millis(), "cannot store incoming messages; retrying");
            }
        }
        tokio::select! {
            () = over.cancelled() => return None,
            () = tokio::time::sleep(pause) => {}
        }
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}
