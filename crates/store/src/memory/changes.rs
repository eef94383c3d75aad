//! Saves of changed rows, in memory.

use super::{Kept, Tables};
use crate::limit_uses::freed;
use crate::port::{Change, StoreError};
use everwatch_core::id::ObserverId;
use everwatch_core::record::row_policy::RowPolicy;
use std::collections::HashSet;

impl Tables {
    /// Saves the rows whose version has not changed; returns the ids of the others.
    pub(super) fn save(
        &mut self,
        changes: &[Change<'_>],
        policy: &RowPolicy,
    ) -> Result<Vec<ObserverId>, StoreError> {
        let (mut late, mut met) = (Vec::new(), HashSet::new());
        for Change { before, after: row } in changes {
            let is_first = met.insert(row.id);
            let stored = self.observers.get_mut(&row.id).filter(|kept| kept.row.version == before.version);
            match stored.filter(|_| is_first) {
                Some(kept) => {
                    *kept = Kept::of(row, before.version + 1, policy, kept.has_name)?;
                    self.changed_limits.extend(freed(before, row));
                    self.keep_replaced(before, row);
                }
                None => late.push(row.id),
            }
        }
        Ok(late)
    }
}
