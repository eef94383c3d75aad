//! Prepares a database that was restored from a backup for the services that kept running.

use crate::events::log::plain;
use crate::fleet::safe_mode;
use everwatch_api::SafeMode;
use everwatch_core::record::events::EventKind;
use everwatch_core::record::status::Status;
use everwatch_store::{Change, Filter, ListCursor, Sort, Store, StoreError, Table};
use std::time::Duration;

const BATCH: usize = 500;
/// How often a row is tried again that a manager changes meanwhile: none should run.
const TRIES: usize = 20;
/// What was done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Restored {
    pub observers: u64,
}

/// Switches safe mode on, empties the buckets of rates, and raises what observers are published as next above all that may be in the broker.
/// No manager may run.
///
/// # Errors
/// If the database cannot be reached or read, or if another program changes it.
pub async fn restored(store: &dyn Store) -> Result<Restored, StoreError> {
    let now = store.now().await?;
    let reason = safe_mode::RESTORED.to_owned();
    let text = serde_json::to_string(&SafeMode { on: true, reason })
        .map_err(|error| StoreError::Corrupt(error.to_string()))?;
    store.set_note(safe_mode::NOTE, &text, Duration::MAX).await?;
    store.record(&[plain(EventKind::SafeMode, now, format!("on: {}", safe_mode::RESTORED))]).await?;
    store.empty_rates().await?;
    let status = Status::ALL.into_iter().filter(|status| *status != Status::Deleted).collect();
    let filter = Filter { status, sort: Sort::CreatedAt, ..Filter::default() };
    let (mut after, mut observers) = (None, 0);
    loop {
        let page = store.list(&filter, after.as_ref(), BATCH).await?;
        after = page.rows.last().map(|row| ListCursor { value: row.created_at.0.to_string(), id: row.id });
        observers += page.rows.len() as u64;
        let mut rows = page.rows;
        for _ in 0..TRIES {
            let before = rows.clone();
            for row in &mut rows {
                row.restored(now);
            }
            let changes = before.iter().zip(&rows).map(|(before, after)| Change { before, after });
            let late = store.save(&changes.collect::<Vec<_>>()).await?;
            rows = if late.is_empty() { Vec::new() } else { store.load(&late).await?.rows };
        }
        if !rows.is_empty() {
            return Err(StoreError::Unavailable(
                "a manager runs and changes the database: stop it first".to_owned(),
            ));
        }
        if !page.more {
            return whole(store).await.map(|()| Restored { observers });
        }
    }
}

/// A row that cannot be read was not raised: once it can be read, its next publish could be an older one's.
async fn whole(store: &dyn Store) -> Result<(), StoreError> {
    match store.unreadable().await?.iter().find(|it| it.table == Table::Observers) {
        None => Ok(()),
        Some(it) => Err(StoreError::Corrupt(format!(
            "observer {}: {}; {}; then run `everwatch migrate --restored` again",
            it.id,
            it.why,
            it.cure()
        ))),
    }
}
