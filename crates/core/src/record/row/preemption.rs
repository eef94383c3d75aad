//! What an observer gives up for another one of a higher priority: its slot.

use crate::clock::Timestamp;
use crate::observer::definition::PRIORITY_MAX;
use crate::record::preemption::Preemption;
use crate::record::row::{Desired, Row, Slot};
use crate::record::row_policy::RowPolicy;

/// A rank is a priority and a time, the most significant part first. A time in milliseconds has this many bits, enough
/// until the year 2248.
const TIME_BITS: u32 = 43;
const TIME_MAX: i64 = (1 << TIME_BITS) - 1;

impl Row {
    /// Its place in the order of preemption: managers end the runs of a pool in ascending order. First come those that are
    /// giving back their slots already; then the order is: lower priority, later start. `None` if it uses no slot.
    #[must_use]
    pub fn preemption_rank(&self) -> Option<i64> {
        if self.slot() != Slot::Admitted {
            return None;
        }
        if self.gives_slot_back() {
            return Some(0);
        }
        let started = self.observed.runs.last().and_then(|run| run.started.as_ref()).map(|it| it.value.0);
        let before_end = TIME_MAX.saturating_sub(started.unwrap_or(TIME_MAX)).clamp(0, TIME_MAX);
        Some(Self::first_of_priority(self.definition.priority) + before_end)
    }

    /// The first place in the order of preemption of this priority.
    #[must_use]
    pub fn first_of_priority(priority: i8) -> i64 {
        (i64::from(priority) + i64::from(PRIORITY_MAX) + 1) << TIME_BITS
    }

    /// Whether its slot will be free when its run has ended.
    #[must_use]
    pub fn gives_slot_back(&self) -> bool {
        self.awaits_end() && (self.desired != Desired::Running || self.readmitted == Some(self.generation))
    }

    /// Ends its run and lets it return to the backlog, because this observer has a higher priority; returns whether that is
    /// new.
    pub fn give_way_to(&mut self, other: &Self, now: Timestamp, policy: &RowPolicy) -> bool {
        let gives = self.give_up_slot(now, policy);
        if gives {
            let is_known = other.definition.namespace == self.definition.namespace;
            let by = is_known.then(|| other.definition.name.clone());
            let priority = other.definition.priority;
            self.preempted = Some(Preemption { by, priority });
        }
        gives
    }
}
