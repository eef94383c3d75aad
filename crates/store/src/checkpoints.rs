//! Checkpoints and results of observers: what every adapter does between a read and a write.

use everwatch_core::epoch::Epoch;
use everwatch_core::id::ObserverId;
use everwatch_core::record::checkpoint::{Saving, StoredCheckpoint};
use everwatch_core::wire::checkpoint::{
    Checkpoint, CheckpointRestored, CheckpointStored, CheckpointWanted, SavedCheckpoint,
};
use std::collections::{BTreeMap, BTreeSet};
use uuid::Uuid;

/// The result of a completed observer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObserverResult {
    pub id: ObserverId,
    /// The run that completed.
    pub epoch: Epoch,
    /// JSON text.
    pub value: String,
}

/// The checkpoints of those observers of a batch that have a row.
#[derive(Debug, Default)]
pub(crate) struct Loaded {
    of: BTreeMap<ObserverId, StoredCheckpoint>,
    changed: BTreeSet<ObserverId>,
}

/// The columns of a checkpoint: observer, `requested_by`, epoch, number and value.
pub(crate) type Columns = (Uuid, Option<i64>, Option<i64>, Option<i64>, Option<String>);

impl Loaded {
    pub(crate) fn new(of: BTreeMap<ObserverId, StoredCheckpoint>) -> Self {
        Self { of, changed: BTreeSet::new() }
    }

    pub(crate) fn read(rows: Vec<Columns>) -> Self {
        let stored = |(id, requested_by, epoch, number, value): Columns| {
            let saved = match (epoch, number, value) {
                (Some(at), Some(number), Some(value)) => {
                    let number = u64::try_from(number).unwrap_or_default();
                    Some(SavedCheckpoint { epoch: epoch_of(at), number, value })
                }
                _ => None,
            };
            let requested_by = requested_by.map(epoch_of).unwrap_or_default();
            (ObserverId(id), StoredCheckpoint { requested_by, saved })
        };
        Self::new(rows.into_iter().map(stored).collect())
    }

    pub(crate) fn save(&mut self, checkpoints: &[Checkpoint]) -> Vec<CheckpointStored> {
        let mut answers = Vec::new();
        for new in checkpoints {
            let Some(stored) = self.of.get_mut(&new.id) else { continue };
            let saving = stored.save(new);
            if saving == Saving::Stored {
                self.changed.insert(new.id);
            }
            if saving != Saving::Refused {
                answers.push(CheckpointStored { id: new.id, epoch: new.epoch, number: new.number });
            }
        }
        answers
    }

    pub(crate) fn request(&mut self, wanted: &[CheckpointWanted]) -> Vec<CheckpointRestored> {
        let mut answers = Vec::new();
        for CheckpointWanted { id, epoch } in wanted.iter().copied() {
            let Some(stored) = self.of.get_mut(&id) else { continue };
            let before = stored.requested_by;
            let Some(checkpoint) = stored.request(epoch) else { continue };
            if stored.requested_by != before {
                self.changed.insert(id);
            }
            answers.push(CheckpointRestored { id, epoch, checkpoint });
        }
        answers
    }

    /// What must be written.
    pub(crate) fn changed(&self) -> impl Iterator<Item = Columns> + '_ {
        self.changed.iter().filter_map(|id| {
            let StoredCheckpoint { requested_by, saved } = self.of.get(id)?;
            let number = |saved: &SavedCheckpoint| i64::try_from(saved.number).unwrap_or(i64::MAX);
            Some((
                id.0,
                Some(column(*requested_by)),
                saved.as_ref().map(|saved| column(saved.epoch)),
                saved.as_ref().map(number),
                saved.as_ref().map(|saved| saved.value.clone()),
            ))
        })
    }

    pub(crate) fn into_inner(self) -> BTreeMap<ObserverId, StoredCheckpoint> {
        self.of
    }
}

pub(crate) fn column(epoch: Epoch) -> i64 {
    i64::try_from(u64::from(epoch)).unwrap_or(i64::MAX)
}

pub(crate) fn epoch_of(column: i64) -> Epoch {
    u64::try_from(column).unwrap_or_default().into()
}
