//! Which checkpoint of an observer is stored, and which runs get it.

use crate::epoch::Epoch;
use crate::wire::checkpoint::{CHECKPOINT_MAX_BYTES, Checkpoint, SavedCheckpoint};
use serde::{Deserialize, Serialize};

/// What the database knows about the checkpoints of one observer.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct StoredCheckpoint {
    /// The highest run that has requested the newest checkpoint. It continues from that checkpoint, so a later one of an
    /// earlier run would be from a run that was replaced.
    pub requested_by: Epoch,
    pub saved: Option<SavedCheckpoint>,
}

/// What became of a checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Saving {
    /// It is stored now.
    Stored,
    /// It, or a later one of the same run, was stored before.
    Known,
    /// A later run has requested or saved a checkpoint, so this one comes from a run that was replaced; or it is larger
    /// than [`CHECKPOINT_MAX_BYTES`].
    Refused,
}

impl StoredCheckpoint {
    /// Stores a checkpoint, unless it is known, from a replaced run or too large. Repeatable.
    pub fn save(&mut self, new: &Checkpoint) -> Saving {
        if new.value.len() > CHECKPOINT_MAX_BYTES {
            return Saving::Refused;
        }
        let known = self.saved.as_ref().map(|saved| (saved.epoch, saved.number));
        if new.epoch < self.requested_by || known.is_some_and(|(epoch, _)| new.epoch < epoch) {
            return Saving::Refused;
        }
        if known >= Some((new.epoch, new.number)) {
            return Saving::Known;
        }
        self.saved = Some(SavedCheckpoint { epoch: new.epoch, number: new.number, value: new.value.clone() });
        Saving::Stored
    }

    /// The checkpoint from which a run continues. Repeatable; `None` if a later run has requested or saved one, so that
    /// this run was replaced.
    pub fn request(&mut self, by: Epoch) -> Option<Option<SavedCheckpoint>> {
        let saved_by = self.saved.as_ref().map_or(Epoch::default(), |saved| saved.epoch);
        if by < self.requested_by.max(saved_by) {
            return None;
        }
        self.requested_by = by;
        Some(self.saved.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::ObserverId;
    use uuid::Uuid;

    fn checkpoint(run: u32, number: u64) -> Checkpoint {
        let id = ObserverId(Uuid::from_u128(1));
        Checkpoint { id, epoch: Epoch::new(1, run), number, value: format!("\"{run}.{number}\"") }
    }
    fn value(stored: &StoredCheckpoint) -> &str {
        stored.saved.as_ref().map_or("", |saved| &saved.value)
    }

    #[test]
    fn the_newest_checkpoint_wins_in_any_order() {
        let mut stored = StoredCheckpoint::default();
        assert_eq!(stored.save(&checkpoint(0, 2)), Saving::Stored);
        assert_eq!(stored.save(&checkpoint(0, 1)), Saving::Known, "late");
        assert_eq!(stored.save(&checkpoint(0, 2)), Saving::Known, "twice");
        assert_eq!(stored.save(&checkpoint(1, 1)), Saving::Stored, "the next run counts from 1");
        assert_eq!(stored.save(&checkpoint(0, 9)), Saving::Refused, "a replaced run");
        assert_eq!(value(&stored), "\"1.1\"");
    }

    #[test]
    fn a_run_continues_from_a_checkpoint_that_no_earlier_run_changes() {
        let mut stored = StoredCheckpoint::default();
        stored.save(&checkpoint(0, 1));
        let got = stored.request(Epoch::new(1, 1)).unwrap().unwrap();
        assert_eq!((got.epoch, got.value.as_str()), (Epoch::new(1, 0), "\"0.1\""));
        assert_eq!(stored.save(&checkpoint(0, 2)), Saving::Refused);
        assert_eq!(stored.request(Epoch::new(1, 1)).unwrap().unwrap(), got, "it asks again");
        assert_eq!(stored.request(Epoch::new(1, 0)), None, "a replaced run");
        stored.save(&checkpoint(1, 1));
        assert_eq!(
            stored.request(Epoch::new(1, 0)),
            None,
            "a run that was replaced by one that asked nothing"
        );
        assert_eq!(stored.request(Epoch::new(2, 0)).unwrap().unwrap().value, "\"1.1\"");
    }

    #[test]
    fn a_checkpoint_that_is_too_large_is_refused() {
        let mut stored = StoredCheckpoint::default();
        let large = Checkpoint { value: "1".repeat(CHECKPOINT_MAX_BYTES + 1), ..checkpoint(0, 1) };
        assert_eq!(stored.save(&large), Saving::Refused);
        let fits = Checkpoint { value: "1".repeat(CHECKPOINT_MAX_BYTES), ..checkpoint(0, 2) };
        assert_eq!(stored.save(&fits), Saving::Stored);
    }

    #[test]
    fn without_a_checkpoint_the_answer_is_empty() {
        let mut stored = StoredCheckpoint::default();
        assert_eq!(stored.request(Epoch::new(1, 0)), Some(None));
        assert_eq!(stored.save(&checkpoint(0, 1)), Saving::Stored, "the run that requested it saves its own");
    }
}
