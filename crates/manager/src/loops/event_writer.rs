//! Writes events to the database, many at a time, in the order in which they came, and summaries of bursts after them.

use super::gather::gather;
use crate::RunError;
use crate::context::Manager;
use crate::events::late_ends;
use crate::events::summaries::Summaries;
use everwatch_store::Event;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tracing::warn;

const BATCH: usize = 500;
const GATHER: Duration = Duration::from_millis(20);
const AGAIN_AFTER: Duration = Duration::from_secs(1);

pub(crate) async fn run(manager: Arc<Manager>, mut events: mpsc::Receiver<Event>) -> Result<(), RunError> {
    let mut summaries = Summaries::default();
    while let Some(mut batch) = next(&manager, &mut events, &summaries).await {
        late_ends::correct(&mut batch);
        let batch = summaries.pass(batch, manager.records.clock.now());
        if batch.is_empty() {
            continue;
        }
        while let Err(error) = manager.records.store.record(&batch).await {
            warn!(%error, "cannot store events; retrying");
            let pause = tokio::time::sleep(AGAIN_AFTER);
            if manager.stop.run_until_cancelled(pause).await.is_none() {
                warn!(events = batch.len(), "lost events at the stop");
                return Ok(());
            }
        }
        manager.records.events.written.send_modify(|count| *count = count.wrapping_add(1));
    }
    // The program stops: this writes the remaining events and the open summaries once, without retries.
    let mut rest = Vec::new();
    while let Ok(event) = events.try_recv() {
        rest.push(event);
    }
    late_ends::correct(&mut rest);
    let now = manager.records.clock.now();
    let mut rest = summaries.pass(rest, now);
    rest.extend(summaries.end(now));
    if !rest.is_empty()
        && let Err(error) = manager.records.store.record(&rest).await
    {
        warn!(%error, "lost the last events at the stop");
    }
    Ok(())
}

/// The next events; none if a summary is due first. `None` at the end of the program.
async fn next(
    manager: &Manager,
    events: &mut mpsc::Receiver<Event>,
    summaries: &Summaries,
) -> Option<Vec<Event>> {
    let until_due = summaries.due_at().map(|due| due.since(manager.records.clock.now()));
    let due = async {
        match until_due {
            Some(pause) => tokio::time::sleep(pause).await,
            None => std::future::pending().await,
        }
    };
    let first = tokio::select! {
        () = manager.stop.cancelled() => return None,
        first = events.recv() => first?,
        () = due => return Some(Vec::new()),
    };
    Some(gather(first, events, BATCH, GATHER).await)
}
