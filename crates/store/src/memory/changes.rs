//! Creates and saves of rows, in memory.

use super::{Kept, Tables};
use crate::limit_uses::freed;
use crate::port::{Change, Created, StoreError};
use everwatch_core::capacity::admission::PoolOffers;
use everwatch_core::capacity::create_admission::{
    Occupancy, admit, counted_creates, counted_limits, namespaces,
};
use everwatch_core::id::ObserverId;
use everwatch_core::record::row::Row;
use everwatch_core::record::row_policy::RowPolicy;
use std::collections::HashSet;
use std::collections::btree_map::Entry;

impl Tables {
    pub(super) fn create(
        &mut self,
        rows: &[Row],
        offers: &PoolOffers,
        policy: &RowPolicy,
    ) -> Result<Vec<Created>, StoreError> {
        let found = self.found_namespaces(&namespaces(rows));
        let occupancy = Occupancy {
            holders: self.holders(),
            pools: self.pool_counts(rows, policy),
            limits: self.unclaimed(&counted_limits(rows)),
            namespaces: found.rooms(),
        };
        let mut answers = admit(rows, occupancy, offers);
        for (row, answer) in rows.iter().zip(&mut answers) {
            let Some(row) = answer.stored(row) else { continue };
            match self.observers.entry(row.id) {
                Entry::Occupied(_) => *answer = Created::NameTaken,
                Entry::Vacant(place) => {
                    place.insert(Kept::of(&row, row.version, policy, true)?);
                }
            }
        }
        let after = found.after(&counted_creates(rows, &answers));
        self.namespaces.extend(after.into_iter().map(|row| (row.name.clone(), row)));
        Ok(answers)
    }

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
