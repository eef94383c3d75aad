//! Converts batches to the columns of their table, and back. Both databases share this code.

use crate::columns::read;
use crate::port::StoreError;
use everwatch_core::batch::{Batch, Counts};
use everwatch_core::clock::Timestamp;
use everwatch_core::id::{BatchId, Name};
use std::collections::BTreeMap;
use uuid::Uuid;

/// The columns of a stored batch: id, version, touched_at, document.
pub(crate) type StoredBatch = (Uuid, i64, i64, String);

pub(crate) fn batch((id, version, touched_at, document): StoredBatch) -> Result<Batch, StoreError> {
    Ok(Batch { id: BatchId(id), version, touched_at: Timestamp(touched_at), ..read(&document)? })
}

/// The batches that can be read: one that a newer manager has written hides no other.
pub(crate) fn batches(found: Vec<StoredBatch>) -> Vec<Batch> {
    let read = |it: StoredBatch| {
        let id = it.0;
        batch(it).inspect_err(|error| tracing::warn!(batch = %id, %error, "cannot read a batch")).ok()
    };
    found.into_iter().filter_map(read).collect()
}

/// Numbers of members by batch and status.
pub(crate) fn counts(
    ids: &[BatchId],
    found: Vec<(Uuid, String, i64)>,
) -> Result<BTreeMap<BatchId, Counts>, StoreError> {
    let mut counts: BTreeMap<BatchId, Counts> = ids.iter().map(|id| (*id, Counts::new())).collect();
    for (id, status, number) in found {
        let status = status.parse().map_err(StoreError::Corrupt)?;
        let of = counts.entry(BatchId(id)).or_default();
        of.insert(status, u32::try_from(number).unwrap_or(u32::MAX));
    }
    Ok(counts)
}

pub(crate) fn names(found: &[String]) -> Result<Vec<Name>, StoreError> {
    found.iter().map(|it| Name::new(it).map_err(|error| StoreError::Corrupt(error.to_string()))).collect()
}
