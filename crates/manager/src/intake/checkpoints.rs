//! Checkpoints and results that the code of observers saves.

use crate::context::records::Records;
use everwatch_core::id::ServiceId;
use everwatch_core::wire::checkpoint::{Checkpoint, CheckpointAnswers, CheckpointWanted};
use everwatch_core::wire::report::{RunEvent, RunReport};
use everwatch_store::{ObserverResult, StoreError};
use std::collections::BTreeMap;

/// What one batch of reports contains.
#[derive(Debug, Default)]
pub(crate) struct Saved {
    checkpoints: Vec<(ServiceId, Checkpoint)>,
    wanted: Vec<(ServiceId, CheckpointWanted)>,
    results: Vec<ObserverResult>,
}

impl Saved {
    pub(crate) fn add_checkpoint(&mut self, service: ServiceId, checkpoint: Checkpoint) {
        self.checkpoints.push((service, checkpoint));
    }
    pub(crate) fn add_wanted(&mut self, service: ServiceId, wanted: CheckpointWanted) {
        self.wanted.push((service, wanted));
    }
    /// The result in this report, if it has one.
    pub(crate) fn add_result(&mut self, report: &RunReport) {
        if let RunEvent::CompletedWith { result } = &report.event {
            let value = result.clone();
            self.results.push(ObserverResult { id: report.id, epoch: report.epoch, value });
        }
    }
}

/// Stores the results. A row must not show that its observer has completed before its result can be read.
pub(crate) async fn save_results(records: &Records, saved: &Saved) -> Result<(), StoreError> {
    if saved.results.is_empty() {
        return Ok(());
    }
    records.store.save_results(&saved.results).await
}

/// Stores the checkpoints and returns the answers. The checkpoints of a batch are stored before its requests are answered.
/// Observers without a row get no answer: their services repeat the report until the observer is adopted.
pub(crate) async fn apply(records: &Records, saved: &Saved) -> Result<Vec<CheckpointAnswers>, StoreError> {
    let mut answers: BTreeMap<ServiceId, CheckpointAnswers> = BTreeMap::new();
    let empty = |service| CheckpointAnswers { service, stored: Vec::new(), restored: Vec::new() };
    if !saved.checkpoints.is_empty() {
        let checkpoints: Vec<Checkpoint> = saved.checkpoints.iter().map(|(_, it)| it.clone()).collect();
        let stored = records.store.save_checkpoints(&checkpoints).await?;
        for stored in stored {
            let of =
                |it: &Checkpoint| (it.id, it.epoch, it.number) == (stored.id, stored.epoch, stored.number);
            let sender = saved.checkpoints.iter().find(|(_, it)| of(it)).map(|(service, _)| *service);
            if let Some(service) = sender {
                answers.entry(service).or_insert_with(|| empty(service)).stored.push(stored);
            }
        }
    }
    if !saved.wanted.is_empty() {
        let wanted: Vec<CheckpointWanted> = saved.wanted.iter().map(|(_, it)| *it).collect();
        for restored in records.store.request_checkpoints(&wanted).await? {
            let of = |it: &CheckpointWanted| (it.id, it.epoch) == (restored.id, restored.epoch);
            let sender = saved.wanted.iter().find(|(_, it)| of(it)).map(|(service, _)| *service);
            if let Some(service) = sender {
                answers.entry(service).or_insert_with(|| empty(service)).restored.push(restored);
            }
        }
    }
    Ok(answers.into_values().collect())
}
