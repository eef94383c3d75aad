//! Writes the audit log. Requests that arrive at the same time share one transaction, as creates do.

use super::batches;
use crate::RunError;
use crate::context::Manager;
use crate::context::audit::Note;
use everwatch_store::Store;
use std::sync::Arc;
use tokio::sync::mpsc;
use tracing::{debug, warn};

/// While one transaction commits, the next one is filled.
const IN_FLIGHT: usize = 2;

pub(crate) async fn run(manager: Arc<Manager>, notes: mpsc::Receiver<Note>) -> Result<(), RunError> {
    let write = |manager: Arc<Manager>, batch| async move {
        write(manager.records.store.as_ref(), batch).await;
    };
    batches::run(manager, notes, IN_FLIGHT, write).await
}

async fn write(store: &dyn Store, batch: Vec<Note>) {
    let (mut entries, mut answers, mut outcomes) = (Vec::new(), Vec::new(), Vec::new());
    for note in batch {
        match note {
            Note::Request(entry, answer) => {
                entries.push(entry);
                answers.push(answer);
            }
            Note::Outcome(entry, outcome) => outcomes.push((entry, outcome)),
        }
    }
    if !entries.is_empty() {
        let stored = store.add_audit(&entries).await;
        let mut ids = stored.as_ref().map(|ids| ids.iter().copied()).map_err(|error| Arc::new(error.clone()));
        for answer in answers {
            let stored = match &mut ids {
                Ok(ids) => ids.next().map(Ok),
                Err(error) => Some(Err(Arc::clone(error))),
            };
            if stored.is_none_or(|stored| answer.send(stored).is_err()) {
                debug!("a request ended before it was written to the audit log");
            }
        }
    }
    if !outcomes.is_empty()
        && let Err(error) = store.set_outcomes(&outcomes).await
    {
        warn!(%error, requests = outcomes.len(), "the outcomes of some requests could not be written to the audit log");
    }
}
