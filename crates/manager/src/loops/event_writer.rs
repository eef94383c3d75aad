//! Writes events to the database, many at a time, in the order in which they came.

use super::gather::gather;
use crate::RunError;
use crate::context::Manager;
use everwatch_store::Event;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tracing::warn;

const BATCH: usize = 500;
const GATHER: Duration = Duration::from_millis(20);
const AGAIN_AFTER: Duration = Duration::from_secs(1);

pub(crate) async fn run(manager: Arc<Manager>, mut events: mpsc::Receiver<Event>) -> Result<(), RunError> {
    while let Some(first) = manager.stop.run_until_cancelled(events.recv()).await.flatten() {
        let batch = gather(first, &mut events, BATCH, GATHER).await;
        while let Err(error) = manager.records.store.record(&batch).await {
            warn!(%error, "cannot store events; retrying");
            let pause = tokio::time::sleep(AGAIN_AFTER);
            if manager.stop.run_until_cancelled(pause).await.is_none() {
                return Ok(());
            }
        }
        manager.records.events.written.send_modify(|count| *count = count.wrapping_add(1));
    }
    // The last words, once.
    let mut rest = Vec::new();
    while let Ok(event) = events.try_recv() {
        rest.push(event);
    }
    if !rest.is_empty()
        && let Err(error) = manager.records.store.record(&rest).await
    {
        warn!(%error, "lost the last events at the stop");
    }
    Ok(())
}
