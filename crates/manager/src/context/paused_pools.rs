//! The notes about paused pools: no manager admits an observer to them.

use everwatch_core::id::Pool;
use everwatch_store::{Store, StoreError};
use std::collections::BTreeSet;
use std::time::Duration;

const PREFIX: &str = "pool-admission/";
const PAUSED: &str = "paused";
const OPEN: &str = "open";

fn note(pool: &Pool) -> String {
    format!("{PREFIX}{pool}")
}

pub(crate) async fn all(store: &dyn Store) -> Result<BTreeSet<Pool>, StoreError> {
    let notes = store.notes_under(PREFIX).await?.into_iter();
    let paused = notes.filter(|(_, value)| value == PAUSED);
    Ok(paused.filter_map(|(name, _)| Pool::new(name.strip_prefix(PREFIX)?).ok()).collect())
}

pub(crate) async fn contain(store: &dyn Store, pool: &Pool) -> Result<bool, StoreError> {
    Ok(store.note(&note(pool)).await?.as_deref() == Some(PAUSED))
}

/// Returns whether that changed anything.
pub(crate) async fn set(store: &dyn Store, pool: &Pool, paused: bool) -> Result<bool, StoreError> {
    if contain(store, pool).await? == paused {
        return Ok(false);
    }
    store.set_note(&note(pool), if paused { PAUSED } else { OPEN }, Duration::MAX).await?;
    Ok(true)
}
