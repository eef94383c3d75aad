//! Limits by key, in memory.

use super::{MemoryStore, Tables};
use crate::limit_uses::{excess, forward, named};
use crate::port::{
    Change, LIMITS_MAX, LimitCounts, LimitDeleted, LimitUse, Limits, LimitsLookedAt, StoreError,
};
use async_trait::async_trait;
use everwatch_core::capacity::limits::{KeyCount, KeyCounts, Limit, limit_of};
use everwatch_core::capacity::supply::Load;
use everwatch_core::clock::Timestamp;
use everwatch_core::id::{LimitKey, LimitPattern, Pool};
use everwatch_core::record::row::{Row, Use};
use everwatch_core::record::row_policy::RowPolicy;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

impl Tables {
    /// Each observer that counts towards this key, and how.
    fn uses<'a>(&'a self, key: &'a LimitKey) -> impl Iterator<Item = (&'a Row, Use)> {
        let of = move |row: &Row| row.limit_uses().into_iter().find(|(it, _)| it == key).map(|(_, how)| how);
        self.observers.values().filter_map(move |kept| Some((&kept.row, of(&kept.row)?)))
    }

    fn used(&self, key: &LimitKey) -> u64 {
        self.uses(key).filter(|(_, how)| how.uses_place()).count() as u64
    }

    fn maximum(&self, key: &LimitKey) -> Option<u32> {
        limit_of(key, self.limits.values()).map(|limit| limit.max)
    }

    /// Those that wait for a place of this key, in their order.
    fn behind<'a>(&'a self, key: &'a LimitKey, policy: &RowPolicy) -> Vec<&'a Row> {
        let behind = self.uses(key).filter(|(_, how)| *how == Use::Behind);
        let mut rows: Vec<&Row> = behind.map(|(row, _)| row).collect();
        rows.sort_by_key(|row| (row.limit_rank(policy), row.id));
        rows
    }

    pub(super) fn key_counts(&self, pool: &Pool, candidates: &[Row], policy: &RowPolicy) -> KeyCounts {
        let keys = named(candidates).into_iter().filter_map(|key| LimitKey::new(&key).ok());
        let count = |key: LimitKey| {
            let behind = self.behind(&key, policy);
            let first = behind.iter().find(|row| row.definition.pool == *pool);
            let first_behind = first.and_then(|row| Some((row.limit_rank(policy)?, row.id)));
            let count = KeyCount { max: self.maximum(&key), used: self.used(&key), first_behind };
            (key, count)
        };
        keys.map(count).collect()
    }

    pub(super) fn unclaimed(&self, keys: &[String]) -> BTreeMap<LimitKey, u64> {
        let keys = keys.iter().filter_map(|key| LimitKey::new(key).ok());
        let free = |key: LimitKey| {
            let claimed = self.uses(&key).filter(|(_, how)| *how != Use::Named).count() as u64;
            let free = self.maximum(&key).map_or(0, u64::from).saturating_sub(claimed);
            (key, free)
        };
        keys.map(free).collect()
    }

    fn counts(&self, covers: impl Fn(&LimitKey) -> bool) -> (u64, u64) {
        let (mut used, mut waiting) = (0, 0);
        for kept in self.observers.values() {
            for (_, how) in kept.row.limit_uses().into_iter().filter(|(key, _)| covers(key)) {
                used += u64::from(how.uses_place());
                waiting += u64::from(how == Use::Behind);
            }
        }
        (used, waiting)
    }

    /// The keys of this limit that observers name.
    fn named_keys(&self, limit: &LimitPattern) -> BTreeSet<LimitKey> {
        let uses = self.observers.values().flat_map(|kept| kept.row.limit_uses());
        uses.map(|(key, _)| key).filter(|key| limit.covers(key)).collect()
    }
}

#[async_trait]
impl Limits for MemoryStore {
    async fn limits(
        &self,
        after: Option<&LimitPattern>,
        most: usize,
    ) -> Result<Vec<LimitCounts>, StoreError> {
        let tables = self.tables();
        let listed = tables.limits.values().filter(|limit| limit.is_listed());
        let rest = listed.filter(|limit| after.is_none_or(|after| limit.key > *after));
        let shown = |limit: &Limit| {
            let (used, waiting) = tables.counts(|key| limit.key.covers(key));
            LimitCounts { limit: limit.clone(), used, waiting }
        };
        Ok(rest.take(most).map(shown).collect())
    }
    async fn limits_of(&self, keys: &[LimitKey]) -> Result<BTreeMap<LimitKey, Limit>, StoreError> {
        let tables = self.tables();
        let found = |key: &LimitKey| Some((key.clone(), limit_of(key, tables.limits.values())?.clone()));
        Ok(keys.iter().filter_map(found).collect())
    }
    async fn limit_counts(&self, key: &LimitKey) -> Result<(u64, u64), StoreError> {
        Ok(self.tables().counts(|it| it == key))
    }
    async fn limit_users(
        &self,
        key: &LimitKey,
        waits: bool,
        most: usize,
    ) -> Result<Vec<LimitUse>, StoreError> {
        let tables = self.tables();
        let rows: Vec<&Row> = if waits {
            tables.behind(key, &self.policy)
        } else {
            tables.uses(key).filter(|(_, how)| how.uses_place()).map(|(row, _)| row).collect()
        };
        let shown = |row: &Row| LimitUse { id: row.id, name: row.definition.name.clone() };
        Ok(rows.into_iter().take(most).map(shown).collect())
    }
    async fn behind_limits(&self) -> Result<BTreeMap<Pool, Load>, StoreError> {
        let tables = self.tables();
        let mut loads: BTreeMap<Pool, Load> = BTreeMap::new();
        for kept in tables.observers.values().filter(|kept| kept.row.is_behind_limit()) {
            let load = loads.entry(kept.row.definition.pool.clone()).or_default();
            load.number += 1;
            load.weight += u64::from(kept.row.definition.weight);
        }
        Ok(loads)
    }
    async fn limit_count(&self) -> Result<u64, StoreError> {
        Ok(self.tables().limits.values().filter(|limit| limit.is_listed()).count() as u64)
    }
    async fn limit(&self, key: &LimitPattern) -> Result<Option<LimitCounts>, StoreError> {
        let tables = self.tables();
        let (used, waiting) = tables.counts(|it| key.covers(it));
        Ok(tables.limits.get(key).map(|limit| LimitCounts { limit: limit.clone(), used, waiting }))
    }
    async fn put_limit(&self, limit: &Limit) -> Result<bool, StoreError> {
        let mut tables = self.tables();
        let is_new = !tables.limits.contains_key(&limit.key);
        if is_new && tables.limits.len() as u64 >= LIMITS_MAX {
            return Err(StoreError::Refused(format!(
                "there are {LIMITS_MAX} limits: delete one that is not needed"
            )));
        }
        tables.limits.insert(limit.key.clone(), limit.clone());
        let keys = tables.named_keys(&limit.key);
        tables.changed_limits.extend(keys);
        Ok(is_new)
    }
    async fn delete_limit(&self, key: &LimitPattern) -> Result<LimitDeleted, StoreError> {
        let mut tables = self.tables();
        if !tables.limits.contains_key(key) {
            return Ok(LimitDeleted::Missing);
        }
        let keys = tables.named_keys(key);
        let others = || tables.limits.values().filter(|limit| limit.key != *key);
        let uncovered = keys.iter().filter(|key| limit_of(key, others()).is_none());
        let in_use: usize = uncovered.map(|key| tables.uses(key).count()).sum();
        if in_use > 0 {
            return Ok(LimitDeleted::InUse(in_use as u64));
        }
        tables.limits.remove(key);
        tables.changed_limits.extend(keys);
        Ok(LimitDeleted::Done)
    }
    async fn look_at_limits(&self, now: Timestamp, most: usize) -> Result<LimitsLookedAt, StoreError> {
        let mut tables = self.tables();
        let marks = std::mem::take(&mut tables.changed_limits);
        let limits: Vec<Limit> = tables.limits.values().cloned().collect();
        let (mut rows, mut beyond, mut again) = (Vec::new(), Vec::new(), Vec::new());
        for key in &marks {
            let count = KeyCount { max: tables.maximum(key), used: tables.used(key), first_behind: None };
            let free = usize::try_from(count.free()).unwrap_or(usize::MAX);
            let behind = tables.behind(key, &self.policy);
            let pools: BTreeSet<&Pool> = behind.iter().map(|row| &row.definition.pool).collect();
            let mut all_came = true;
            for pool in pools {
                let first = behind.iter().filter(|row| row.definition.pool == *pool).take(free.min(most));
                let first: Vec<Row> = first.map(|row| (*row).clone()).collect();
                all_came &= first.len() < most;
                rows.extend(first);
            }
            let excess = excess(key, &count, &limits);
            if excess > 0 {
                let mut newest: Vec<&Row> =
                    tables.uses(key).filter(|(_, how)| how.uses_place()).map(|(row, _)| row).collect();
                newest.sort_by_key(|row| Reverse(row.id));
                beyond.extend(newest.into_iter().take(excess.min(most)).cloned());
            }
            if excess > 0 || free > most && !all_came {
                again.push(key.clone());
            }
        }
        tables.changed_limits.extend(again);
        let forward = forward(rows, now);
        let changes: Vec<Change<'_>> =
            forward.iter().map(|(before, after)| Change { before, after }).collect();
        tables.save(&changes, &self.policy)?;
        Ok(LimitsLookedAt { goes_on: !forward.is_empty(), beyond })
    }
    async fn unreleased(&self, pool: &Pool, most: usize) -> Result<Vec<Row>, StoreError> {
        let is_in = |row: &Row| row.places.as_ref().is_some_and(|places| places.pool == *pool);
        let is_one = |row: &Row| row.awaits_release() && is_in(row);
        Ok(self.rows(most, |kept| is_one(&kept.row).then_some(kept.row.id)))
    }
    async fn pools_with_unreleased(&self) -> Result<Vec<Pool>, StoreError> {
        let rows = self.rows(usize::MAX, |kept| kept.row.awaits_release().then_some(kept.row.id));
        let pools: BTreeSet<Pool> = rows.into_iter().filter_map(|row| row.places.map(|it| it.pool)).collect();
        Ok(pools.into_iter().collect())
    }
}
