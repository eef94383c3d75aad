//! Checkpoints and results that the code of observers saves.

use crate::context::records::Records;
use everwatch_core::epoch::Epoch;
use everwatch_core::id::{ObserverId, ServiceId};
use everwatch_core::wire::checkpoint::{
    CHECKPOINT_MAX_BYTES, Checkpoint, CheckpointAnswers, CheckpointWanted,
};
use everwatch_core::wire::report::{RunEvent, RunReport};
use everwatch_store::{ObserverResult, StoreError};
use std::collections::{BTreeMap, HashMap};
use tracing::warn;

/// What one batch of reports contains.
#[derive(Debug, Default)]
pub(crate) struct Saved {
    checkpoints: Vec<Checkpoint>,
    wanted: Vec<CheckpointWanted>,
    results: Vec<ObserverResult>,
    /// The service of each run, for the answers.
    senders: HashMap<(ObserverId, Epoch), ServiceId>,
}

impl Saved {
    pub(crate) fn add_checkpoint(&mut self, service: ServiceId, checkpoint: Checkpoint) {
        let (id, bytes) = (checkpoint.id, checkpoint.value.len());
        if bytes > CHECKPOINT_MAX_BYTES {
            warn!(observer = %id, %service, bytes, "a checkpoint is refused: at most {CHECKPOINT_MAX_BYTES} bytes");
            return;
        }
        self.senders.insert((id, checkpoint.epoch), service);
        self.checkpoints.push(checkpoint);
    }
    pub(crate) fn add_wanted(&mut self, service: ServiceId, wanted: CheckpointWanted) {
        self.senders.insert((wanted.id, wanted.epoch), service);
        self.wanted.push(wanted);
    }
    /// The result in this report, if it has one.
    pub(crate) fn add_result(&mut self, report: &RunReport) {
        let RunEvent::CompletedWith { result } = &report.event else { return };
        let (id, bytes) = (report.id, result.len());
        if bytes > CHECKPOINT_MAX_BYTES {
            warn!(observer = %id, bytes, "a result is not stored: at most {CHECKPOINT_MAX_BYTES} bytes");
            return;
        }
        self.results.push(ObserverResult { id, epoch: report.epoch, value: result.clone() });
    }
}

/// Stores the results. A row must not show that its observer has completed before its result can be read.
pub(crate) async fn save_results(records: &Records, saved: &Saved) -> Result<(), StoreError> {
    if saved.results.is_empty() {
        return Ok(());
    }
    records.store.save_results(&saved.results).await
}

/// Stores the checkpoints and returns the answers. The checkpoints of a batch are stored before its requests are
/// answered. Observers without a row get no answer: their services repeat the report until the observer is adopted.
pub(crate) async fn apply(records: &Records, saved: &Saved) -> Result<Vec<CheckpointAnswers>, StoreError> {
    let stored = match saved.checkpoints.as_slice() {
        [] => Vec::new(),
        checkpoints => records.store.save_checkpoints(checkpoints).await?,
    };
    let restored = match saved.wanted.as_slice() {
        [] => Vec::new(),
        wanted => records.store.request_checkpoints(wanted).await?,
    };
    let mut answers: BTreeMap<ServiceId, CheckpointAnswers> = BTreeMap::new();
    let empty = |service| CheckpointAnswers { service, stored: Vec::new(), restored: Vec::new() };
    for stored in stored {
        if let Some(service) = saved.senders.get(&(stored.id, stored.epoch)) {
            answers.entry(*service).or_insert_with(|| empty(*service)).stored.push(stored);
        }
    }
    for restored in restored {
        if let Some(service) = saved.senders.get(&(restored.id, restored.epoch)) {
            answers.entry(*service).or_insert_with(|| empty(*service)).restored.push(restored);
        }
    }
    Ok(answers.into_values().collect())
}
