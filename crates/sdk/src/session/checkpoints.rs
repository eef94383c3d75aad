//! Passes checkpoints between the code of observers and the managers, and repeats what managers have not answered.

use crate::error::{Error, Permanent};
use crate::session::reporter::Reporter;
use everwatch_core::epoch::Epoch;
use everwatch_core::id::ObserverId;
use everwatch_core::wire::checkpoint::{
    CHECKPOINT_MAX_BYTES, Checkpoint, CheckpointAnswers, CheckpointWanted, SavedCheckpoint,
};
use everwatch_core::wire::report::Report;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::Instant;

/// A manager that dies may leave a report unanswered.
const REPEAT_AFTER: Duration = Duration::from_secs(5);

type Run = (ObserverId, Epoch);

pub(crate) struct Checkpoints {
    reporter: Reporter,
    /// At most one entry for each run that is held here.
    runs: Mutex<HashMap<Run, OfRun>>,
}

/// The checkpoints of one run.
#[derive(Default)]
struct OfRun {
    /// The number of the newest one.
    number: u64,
    /// The newest one, if no manager has stored it yet.
    unsaved: Option<(String, Instant)>,
    /// The code that waits until this number is stored.
    saves: Vec<(u64, oneshot::Sender<()>)>,
    /// The code that waits for the checkpoint of an earlier run.
    wants: Vec<oneshot::Sender<Option<SavedCheckpoint>>>,
    wanted_at: Option<Instant>,
}

impl Checkpoints {
    pub(crate) fn new(reporter: Reporter) -> Self {
        Self { reporter, runs: Mutex::default() }
    }

    /// Saves a checkpoint; returns when a manager has stored it, or a later one.
    pub(crate) async fn save(&self, run: Run, value: String) -> Result<(), Error> {
        if value.len() > CHECKPOINT_MAX_BYTES {
            let size = value.len();
            let text =
                format!("a checkpoint of {size} bytes of JSON: at most {CHECKPOINT_MAX_BYTES} are kept");
            return Err(Permanent::new(text).into());
        }
        let stored = {
            let mut runs = self.lock();
            let of_run = runs.entry(run).or_default();
            of_run.number += 1;
            of_run.unsaved = Some((value.clone(), Instant::now()));
            let (sender, stored) = oneshot::channel();
            of_run.saves.retain(|(_, waits)| !waits.is_closed());
            of_run.saves.push((of_run.number, sender));
            self.report(run, of_run.number, value);
            stored
        };
        stored.await.map_err(|_| "the session with the broker is lost".into())
    }

    /// The newest checkpoint that a manager has stored.
    pub(crate) async fn restored(&self, run: Run) -> Result<Option<SavedCheckpoint>, Error> {
        let restored = {
            let mut runs = self.lock();
            let of_run = runs.entry(run).or_default();
            let (sender, restored) = oneshot::channel();
            of_run.wants.retain(|waits| !waits.is_closed());
            of_run.wants.push(sender);
            of_run.wanted_at = Some(Instant::now());
            self.want(run);
            restored
        };
        restored.await.map_err(|_| "the session with the broker is lost".into())
    }

    pub(crate) fn on_answers(&self, answers: CheckpointAnswers) {
        let mut runs = self.lock();
        for stored in answers.stored {
            let Some(of_run) = runs.get_mut(&(stored.id, stored.epoch)) else { continue };
            if of_run.number <= stored.number {
                of_run.unsaved = None;
            }
            let waiting = std::mem::take(&mut of_run.saves);
            let (done, rest): (Vec<_>, _) =
                waiting.into_iter().partition(|(number, _)| *number <= stored.number);
            of_run.saves = rest;
            for (_, waits) in done {
                let _gave_up = waits.send(());
            }
        }
        for restored in answers.restored {
            let Some(of_run) = runs.get_mut(&(restored.id, restored.epoch)) else { continue };
            // What this run has saved itself counts only once it is stored.
            for waits in of_run.wants.drain(..) {
                let _gave_up = waits.send(restored.checkpoint.clone());
            }
            of_run.wanted_at = None;
        }
    }

    /// Repeats what managers have not answered for a while.
    pub(crate) fn repeat(&self) {
        let now = Instant::now();
        let is_due = |at: Instant| now.duration_since(at) >= REPEAT_AFTER;
        for (run, of_run) in self.lock().iter_mut() {
            let number = of_run.number;
            if let Some((value, at)) = of_run.unsaved.as_mut().filter(|(_, at)| is_due(*at)) {
                *at = now;
                self.report(*run, number, value.clone());
            }
            if of_run.wanted_at.is_some_and(is_due) {
                of_run.wanted_at = Some(now);
                self.want(*run);
            }
        }
    }

    /// This run is no longer held.
    pub(crate) fn end(&self, run: Run) {
        self.lock().remove(&run);
    }

    fn report(&self, (id, epoch): Run, number: u64, value: String) {
        self.reporter.mention(Report::Checkpoint(Checkpoint { id, epoch, number, value }));
    }
    fn want(&self, (id, epoch): Run) {
        self.reporter.mention(Report::CheckpointWanted(CheckpointWanted { id, epoch }));
    }
    fn lock(&self) -> MutexGuard<'_, HashMap<Run, OfRun>> {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
