//! The notes about pools: which are paused, so that no manager admits an observer to them, and which are single.

use everwatch_core::id::Pool;
use everwatch_store::{Store, StoreError};
use std::collections::BTreeSet;
use std::time::Duration;

const PREFIX: &str = "pool-admission/";
const PAUSED: &str = "paused";
const OPEN: &str = "open";
/// Before the name of a single pool; no name of a pool contains a colon. The two settings have separate notes, so that
/// managers that write them at once do not overwrite each other.
const SINGLE: &str = "single:";
const YES: &str = "yes";

/// What is noted about pools.
#[derive(Debug, Default)]
pub(crate) struct PoolNotes {
    pub(crate) paused: BTreeSet<Pool>,
    pub(crate) single: BTreeSet<Pool>,
}

fn note(pool: &Pool) -> String {
    format!("{PREFIX}{pool}")
}

fn note_of_single(pool: &Pool) -> String {
    format!("{PREFIX}{SINGLE}{pool}")
}

pub(crate) async fn all(store: &dyn Store) -> Result<PoolNotes, StoreError> {
    let mut notes = PoolNotes::default();
    for (key, value) in store.notes_under(PREFIX).await? {
        let Some(name) = key.strip_prefix(PREFIX) else { continue };
        match (name.strip_prefix(SINGLE), value.as_str()) {
            (Some(name), _) => notes.single.extend(Pool::new(name).ok()),
            (None, PAUSED) => notes.paused.extend(Pool::new(name).ok()),
            (None, _) => {}
        }
    }
    Ok(notes)
}

pub(crate) async fn is_paused(store: &dyn Store, pool: &Pool) -> Result<bool, StoreError> {
    Ok(store.note(&note(pool)).await?.as_deref() == Some(PAUSED))
}

/// Returns whether that changed anything.
pub(crate) async fn set_paused(store: &dyn Store, pool: &Pool, paused: bool) -> Result<bool, StoreError> {
    if is_paused(store, pool).await? == paused {
        return Ok(false);
    }
    store.set_note(&note(pool), if paused { PAUSED } else { OPEN }, Duration::MAX).await?;
    Ok(true)
}

/// A pool stays single until it is deleted.
pub(crate) async fn set_single(store: &dyn Store, pool: &Pool) -> Result<(), StoreError> {
    store.set_note(&note_of_single(pool), YES, Duration::MAX).await
}

/// Removes what is noted about a deleted pool.
pub(crate) async fn forget(store: &dyn Store, pool: &Pool) -> Result<(), StoreError> {
    for note in [note(pool), note_of_single(pool)] {
        store.set_note(&note, "", Duration::ZERO).await?;
    }
    Ok(())
}
