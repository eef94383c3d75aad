//! Checks checkpoints: a run continues from the newest one that any code knows to be stored, and after that, no earlier
//! run stores another.

use super::{Exercised, Verdict, breach, knowledge::Knowledge};
use crate::record::Fact;
use everwatch_core::epoch::Epoch;
use everwatch_core::id::ObserverId;
use std::collections::{BTreeMap, BTreeSet};

#[derive(Default)]
pub(super) struct Checkpoints {
    of: BTreeMap<ObserverId, OfObserver>,
    /// Observers with two runs of the same epoch, because an older content of the broker came back.
    rewound: BTreeSet<ObserverId>,
}

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
            Fact::Restored => self.of.clear(),
            Fact::Rewound { ref messages } => self.rewound.extend(messages.iter().map(|(id, _)| *id)),
            Fact::CheckpointRestored { id, epoch, count } if !self.rewound.contains(&id) => {
                *exercised.entry("checkpoints restored").or_default() += 1;
                let of = self.of.entry(id).or_default();
                let stored = of.stored.range(..=epoch).map(|(by, count)| (*count, *by)).max();
                if let Some((stored, by)) = stored.filter(|(stored, _)| *stored > count) {
                    let name = known.name(id);
                    let text =
                        format!("{name} {epoch} continues from {count}, and run {by} has stored {stored}");
                    return breach("checkpoints", text);
                }
                of.restored.insert(epoch, count);
            }
            Fact::CheckpointStored { id, epoch, count } if !self.rewound.contains(&id) => {
                *exercised.entry("checkpoints stored").or_default() += 1;
                let of = self.of.entry(id).or_default();
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
