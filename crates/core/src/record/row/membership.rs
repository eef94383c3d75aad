//! The batch of an observer.

use crate::id::BatchId;
use crate::observer::definition::ObserverDefinition;
use crate::record::row::Row;
use serde::{Deserialize, Serialize};

/// An observer is a member of a batch. It is kept as long as the batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Membership {
    pub batch: BatchId,
    /// Its place in the request that created the batch, from 0.
    pub place: u32,
}

impl Row {
    /// Whether it has ended for good, and its message is gone: its batch may be deleted with it.
    #[must_use]
    pub fn may_leave_batch(&self) -> bool {
        self.ended_at.is_some() && !self.awaits_release()
    }

    /// This definition with the limits of its batch and its namespace. Users can neither add such a limit nor remove it.
    pub(crate) fn with_implied_limits(&self, mut definition: ObserverDefinition) -> ObserverDefinition {
        definition.limits.retain(|key| !key.is_implied());
        definition.limits.extend(self.definition.limits.iter().filter(|key| key.is_implied()).cloned());
        definition
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Timestamp;
    use crate::id::{LimitKey, Name, ObserverId};
    use crate::record::row_policy::RowPolicy;
    use serde_json::json;
    use uuid::Uuid;

    fn member() -> Row {
        let batch = BatchId(Uuid::from_u128(7));
        let body = json!({"kind": "ticker", "limits": ["mine", format!("batch:{batch}")]});
        let definition = ObserverDefinition::parse(body, &Name::new("a").unwrap()).unwrap();
        let row =
            Row::created(ObserverId(Uuid::from_u128(8)), definition, Timestamp(0), &RowPolicy::default());
        Row { batch: Some(Membership { batch, place: 0 }), ..row }
    }

    #[test]
    fn a_change_leaves_the_limit_of_the_batch() {
        let (mut row, policy) = (member(), RowPolicy::default());
        let kept = LimitKey::of_batch(row.batch.unwrap().batch);
        let other = LimitKey::of_batch(BatchId(Uuid::from_u128(9)));
        let changed = row.definition.patched(&json!({"limits": [other.as_str()], "priority": 5})).unwrap();
        assert_eq!(row.update(changed, Timestamp(1), &policy), Ok(true));
        assert_eq!(row.definition.limits, [kept].into());
        let same = row.definition.patched(&json!({"limits": []})).unwrap();
        assert_eq!(row.update(same, Timestamp(2), &policy), Ok(false));
    }

    #[test]
    fn an_ended_member_stays_as_long_as_its_batch() {
        let (mut row, policy) = (member(), RowPolicy::default());
        row = row.created_waiting();
        assert!(row.delete(Timestamp(1), &policy) && row.may_leave_batch());
        assert_eq!((row.forget_at(&policy), row.due_at(&policy)), (None, None));
        row.batch = None;
        assert!(row.forget_at(&policy).is_some());
    }
}
