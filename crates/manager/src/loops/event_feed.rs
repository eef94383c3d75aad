//! Reads new events from the database once for all who follow them.

use crate::RunError;
use crate::context::Manager;
use everwatch_store::{EventFilter, EventRange, StoreError};
use std::sync::Arc;
use std::time::Duration;
use tracing::debug;

/// How often events of other managers are looked for.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Events in one read.
pub(crate) const PAGE: usize = 500;

/// Reads new events while a client follows.
pub(crate) async fn run(manager: Arc<Manager>) -> Result<(), RunError> {
    let mut recorded = manager.records.events.written.subscribe();
    let mut last = None;
    loop {
        tokio::select! {
            () = manager.stop.cancelled() => return Ok(()),
            _ = recorded.changed() => {}
            () = tokio::time::sleep(LOOK_EVERY) => {}
        }
        if manager.requests.limits.streams.held() == 0 {
            if last.take().is_some() {
                manager.requests.recent.forget();
            }
        } else if let Err(error) = read(&manager, &mut last).await {
            debug!(%error, "followers wait for the database");
        }
    }
}

async fn read(manager: &Manager, last: &mut Option<i64>) -> Result<(), StoreError> {
    let mut after = match *last {
        Some(last) => last,
        None => {
            let newest = manager.records.store.event_ends().await?.1;
            manager.requests.recent.begin(newest);
            newest
        }
    };
    *last = Some(after);
    loop {
        let events = manager
            .records
            .store
            .events(&EventFilter { details: true, ..EventFilter::default() }, EventRange::After(after), PAGE)
            .await?
            .events;
        let is_last = events.len() < PAGE;
        after = events.last().map_or(after, |event| event.id);
        *last = Some(after);
        manager.requests.recent.push(events);
        if is_last {
            return Ok(());
        }
    }
}
