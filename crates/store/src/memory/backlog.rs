//! Observers that wait for a slot, in memory.

use super::{Kept, MemoryStore, Tables};
use crate::port::{Admission, Backlog, Change, Decided, PLACE_MAX, Place, StoreError, WaitingPools};
use async_trait::async_trait;
use everwatch_core::capacity::admission::{PoolCount, Selection};
use everwatch_core::capacity::preemption::{Look, Preempted, READ_MAX};
use everwatch_core::capacity::supply::{Load, Supply};
use everwatch_core::id::Pool;
use everwatch_core::record::row::{Row, Slot};
use everwatch_core::record::row_policy::RowPolicy;
use everwatch_core::record::service::{ServiceRow, ServiceState};
use everwatch_core::record::taking::taking;
use std::collections::HashMap;

impl Tables {
    pub(super) fn pool_counts(&self, rows: &[Row], policy: &RowPolicy) -> HashMap<String, PoolCount> {
        let empty = || PoolCount { ahead: policy.admit_ahead.into(), ..PoolCount::default() };
        let of_rows = rows.iter().map(|row| (row.definition.pool.to_string(), empty()));
        let mut counts: HashMap<String, PoolCount> = of_rows.collect();
        let services: Vec<ServiceRow> = self.services.values().cloned().collect();
        for it in taking(&services) {
            let count = counts.entry(it.registration.pool.to_string()).or_insert_with(empty);
            count.supply = count.supply.and(Supply::of(it.capacity(), it.registration.weight_max));
        }
        let is_cordoned = |row: &Row| {
            let service = row.holder().and_then(|holder| self.services.get(&holder));
            service.is_some_and(|it| it.state() == ServiceState::Cordoned && !it.registration.pool_single)
        };
        for Kept { row, .. } in self.observers.values() {
            let definition = &row.definition;
            let count = counts.entry(definition.pool.to_string()).or_insert_with(empty);
            let of_kind = count.kinds.entry(definition.kind.clone()).or_default();
            match row.slot() {
                Slot::Admitted if is_cordoned(row) => {}
                Slot::Admitted => of_kind.admitted = of_kind.admitted.and(Load::of(row)),
                Slot::Waiting => of_kind.waiting = of_kind.waiting.and(Load::of(row)),
                Slot::None => {}
            }
        }
        counts
    }

    /// The first admitted observers in the order of preemption, before this place.
    fn admitted(&self, pool: &Pool, below: i64) -> Vec<Row> {
        let of_pool = self.observers.values().filter(|kept| kept.row.definition.pool == *pool);
        let mut found: Vec<(i64, &Row)> = of_pool
            .filter_map(|kept| Some((kept.row.preemption_rank()?, &kept.row)))
            .filter(|(rank, _)| *rank < below)
            .collect();
        found.sort_unstable_by_key(|(rank, row)| (*rank, row.id));
        found.into_iter().take(READ_MAX).map(|(_, row)| row.clone()).collect()
    }
    fn first_waiting(&self, pool: &Pool, selection: &Selection) -> Vec<Row> {
        let is_one = |row: &Row| row.definition.pool == *pool && selection.contains(row);
        let of_kind = self.observers.values().filter(|kept| is_one(&kept.row));
        let mut found: Vec<(i64, &Row)> = of_kind.filter_map(|kept| Some((kept.rank?, &kept.row))).collect();
        found.sort_by_key(|(rank, row)| (*rank, row.id));
        found
            .into_iter()
            .take(usize::try_from(selection.most).unwrap_or(usize::MAX))
            .map(|(_, row)| row.clone())
            .collect()
    }
}

#[async_trait]
impl Backlog for MemoryStore {
    async fn waiting_pools(&self) -> Result<WaitingPools, StoreError> {
        let tables = self.tables();
        let mut counts = tables.pool_counts(&[], &self.policy);
        counts.retain(|_, count| count.waiting() > 0);
        let pools = crate::columns::by_pool(counts)?;
        Ok(WaitingPools { pools, limits_changed: !tables.changed_limits.is_empty() })
    }
    async fn admit(&self, admission: &Admission<'_>) -> Result<Vec<Decided>, StoreError> {
        let mut tables = self.tables();
        let mut counts = tables.pool_counts(&[], &self.policy);
        let counted = counts.remove(admission.pool.as_str()).unwrap_or_default();
        let selections = counted.selections(admission.offers, admission.most);
        let first = |selection| tables.first_waiting(admission.pool, selection);
        let candidates = selections.iter().flat_map(first).collect();
        let candidates = admission.candidates(candidates);
        let keys = tables.key_counts(admission.pool, &candidates, &self.policy);
        let decided = admission.decide(&counted, (candidates, keys), &self.policy);
        let changes: Vec<Change<'_>> =
            decided.iter().map(|it| Change { before: &it.before, after: &it.after }).collect();
        tables.save(&changes, &self.policy)?;
        Ok(decided)
    }
    async fn preempt(&self, look: &Look<'_>) -> Result<Vec<Preempted>, StoreError> {
        let mut tables = self.tables();
        let counted = tables.pool_counts(&[], &self.policy).remove(look.pool.as_str()).unwrap_or_default();
        let first = |selection| tables.first_waiting(look.pool, selection);
        let waiting: Vec<Row> = look.selections(&counted).iter().flat_map(first).collect();
        let Some(below) = look.below(&waiting) else { return Ok(Vec::new()) };
        let keys = tables.key_counts(look.pool, &waiting, &self.policy);
        let admitted = tables.admitted(look.pool, below);
        let preempted = look.decide(&counted, (waiting, keys), &admitted, &self.policy);
        let changes: Vec<Change<'_>> =
            preempted.iter().map(|it| Change { before: &it.before, after: &it.after }).collect();
        tables.save(&changes, &self.policy)?;
        Ok(preempted)
    }
    async fn waiting(&self, pool: &Pool, selection: &Selection) -> Result<Vec<Row>, StoreError> {
        Ok(self.tables().first_waiting(pool, selection))
    }
    async fn place(&self, row: &Row) -> Result<Option<Place>, StoreError> {
        let Some(rank) = row.rank(&self.policy) else { return Ok(None) };
        let tables = self.tables();
        let of_pool =
            tables.observers.values().filter(|kept| kept.row.definition.pool == row.definition.pool);
        let ranks = of_pool.filter_map(|kept| Some((kept.rank?, kept.row.id)));
        let (mut ahead, mut waiting) = (0, 0);
        for other in ranks {
            waiting += 1;
            ahead += u64::from(other < (rank, row.id));
        }
        Ok(Some(Place { ahead: ahead.min(PLACE_MAX.into()), waiting }))
    }
}
