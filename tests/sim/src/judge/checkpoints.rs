//! Checks checkpoints: a run continues from the newest one that any code knows to be stored, and after that, no earlier
//! run stores another.

use super::{Exercised, Verdict, breach, knowledge::Knowledge};
use crate::record::Fact;
use everwatch_core::epoch::Epoch;
use everwatch_core::id::ObserverId;
use std::collections::BTreeMap;

#[derive(Default)]
pub(super) struct Checkpoints(BTreeMap<ObserverId, OfObserver>);

#[derive(Default)]
struct OfObserver {
    /// The highest count that each run knows to be stored.
    stored: BTreeMap<Epoch, u64>,
    /// The count from which each run has continued.
    restored: BTreeMap<Epoch, u64>,
}

impl Checkpoints {
    pub(super) fn hear(&mut self, fact: &Fact, known: &Knowledge, exercised: &mut Exercised) -> Verdict {
        match *fact {
            // The backup does not have what was stored since.
            Fact::Restored => self.0.clear(),
            Fact::CheckpointRestored { id, epoch, count } => {
                *exercised.entry("checkpoints restored").or_default() += 1;
                let of = self.0.entry(id).or_default();
                let stored = of.stored.range(..=epoch).map(|(by, count)| (*count, *by)).max();
                if let Some((stored, by)) = stored.filter(|(stored, _)| *stored > count) {
                    let name = known.name(id);
                    let text =
                        format!("{name} {epoch} continues from {count}, and run {by} has stored {stored}");
                    return breach("checkpoints", text);
                }
                of.restored.insert(epoch, count);
            }
            Fact::CheckpointStored { id, epoch, count } => {
                *exercised.entry("checkpoints stored").or_default() += 1;
                let of = self.0.entry(id).or_default();
                let later = of.restored.range(epoch..).find(|(by, from)| **by > epoch && count > **from);
                if let Some((by, from)) = later {
                    let name = known.name(id);
                    let text =
                        format!("{name} {epoch} has stored {count}, and run {by} continued from {from}");
                    return breach("checkpoints", text);
                }
                let newest = of.stored.entry(epoch).or_default();
                *newest = count.max(*newest);
            }
            _ => {}
        }
        Ok(())
    }
}
