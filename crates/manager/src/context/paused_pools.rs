//! The notes about pools: which are paused, so that no manager admits an observer to them, and which are single.

use everwatch_core::id::Pool;
use everwatch_store::{Store, StoreError};
use std::collections::BTreeSet;
use std::time::Duration;

const PREFIX: &str = "pool-admission/";
const PAUSED: &str = "paused";
const OPEN: &str = "open";
/// After one of the two words. A pool is single from its creation on.
const SINGLE: &str = " single";

/// What is noted about pools.
#[derive(Debug, Default)]
pub(crate) struct PoolNotes {
    pub(crate) paused: BTreeSet<Pool>,
    pub(crate) single: BTreeSet<Pool>,
}

fn note(pool: &Pool) -> String {
    format!("{PREFIX}{pool}")
}

fn is_paused(value: &str) -> bool {
    value.trim_end_matches(SINGLE) == PAUSED
}

pub(crate) async fn all(store: &dyn Store) -> Result<PoolNotes, StoreError> {
    let mut notes = PoolNotes::default();
    for (name, value) in store.notes_under(PREFIX).await? {
        let Some(Ok(pool)) = name.strip_prefix(PREFIX).map(Pool::new) else { continue };
        if value.ends_with(SINGLE) {
            notes.single.insert(pool.clone());
        }
        if is_paused(&value) {
            notes.paused.insert(pool);
        }
    }
    Ok(notes)
}

pub(crate) async fn contain(store: &dyn Store, pool: &Pool) -> Result<bool, StoreError> {
    Ok(store.note(&note(pool)).await?.is_some_and(|value| is_paused(&value)))
}

/// Returns whether that changed anything.
pub(crate) async fn set(store: &dyn Store, pool: &Pool, paused: bool) -> Result<bool, StoreError> {
    let before = store.note(&note(pool)).await?.unwrap_or_else(|| OPEN.to_owned());
    if is_paused(&before) == paused {
        return Ok(false);
    }
    let single = if before.ends_with(SINGLE) { SINGLE } else { "" };
    let value = format!("{}{single}", if paused { PAUSED } else { OPEN });
    store.set_note(&note(pool), &value, Duration::MAX).await?;
    Ok(true)
}

/// Returns whether that changed anything.
pub(crate) async fn set_single(store: &dyn Store, pool: &Pool) -> Result<bool, StoreError> {
    let before = store.note(&note(pool)).await?.unwrap_or_else(|| OPEN.to_owned());
    if before.ends_with(SINGLE) {
        return Ok(false);
    }
    store.set_note(&note(pool), &format!("{before}{SINGLE}"), Duration::MAX).await?;
    Ok(true)
}
