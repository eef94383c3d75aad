//! Batches in memory.

use super::{MemoryStore, Tables};
use crate::port::{BatchCreated, BatchPart, Batches, Created, ObserverResult, StoreError};
use async_trait::async_trait;
use everwatch_core::batch::{Batch, BatchState, Counts, OPEN_MAX};
use everwatch_core::capacity::admission::PoolOffers;
use everwatch_core::capacity::limits::Limit;
use everwatch_core::clock;
use everwatch_core::id::{BatchId, BatchRef, LimitKey, LimitPattern, Name, ObserverId};
use everwatch_core::record::row::Row;
use everwatch_core::record::status::Status;
use std::collections::BTreeMap;

/// The stored batches.
pub(super) type Stored = BTreeMap<BatchId, Batch>;

impl Tables {
    fn newest_batches(&self) -> Vec<&Batch> {
        let mut all: Vec<&Batch> = self.batches.values().collect();
        all.sort_by_key(|it| std::cmp::Reverse((it.created_at, it.id)));
        all
    }

    /// The members of a batch by their places.
    fn members(&self, batch: BatchId) -> BTreeMap<u32, (Status, &Row)> {
        let of = |row: &Row| row.batch.filter(|it| it.batch == batch).map(|it| it.place);
        self.observers.values().filter_map(|kept| Some((of(&kept.row)?, (kept.status, &kept.row)))).collect()
    }
}

#[async_trait]
impl Batches for MemoryStore {
    async fn create_batch(&self, batch: &Batch) -> Result<BatchCreated, StoreError> {
        let mut tables = self.tables();
        if tables.batches.contains_key(&batch.id) {
            return Ok(BatchCreated::Exists);
        }
        let open: Vec<&Batch> = tables.batches.values().filter(|it| it.ended_at.is_none()).collect();
        if open.iter().any(|it| it.name_key() == batch.name_key()) {
            return Ok(BatchCreated::NameTaken);
        }
        if open.len() >= OPEN_MAX {
            return Ok(BatchCreated::TooMany);
        }
        tables.batches.insert(batch.id, batch.clone());
        if let (Some(key), Some(max)) = (batch.limit_key(), batch.max_running) {
            let key = LimitPattern::from(key);
            tables.limits.insert(key.clone(), Limit { key, max, enforce: false });
        }
        Ok(BatchCreated::Done)
    }
    async fn create_members(
        &self,
        batch: BatchId,
        rows: &[Row],
        offers: &PoolOffers,
    ) -> Result<Option<Vec<Created>>, StoreError> {
        let mut tables = self.tables();
        let stored = tables.batches.get_mut(&batch).filter(|it| it.state == BatchState::Creating);
        let Some(stored) = stored else { return Ok(None) };
        stored.touched_at = clock::now();
        tables.create(rows, offers, &self.policy).map(Some)
    }
    async fn batch(&self, which: &BatchRef) -> Result<Option<Batch>, StoreError> {
        let tables = self.tables();
        Ok(match which {
            BatchRef::Id(id) => tables.batches.get(id).cloned(),
            BatchRef::Name(namespace, name) => {
                let is_it = |it: &&Batch| it.name == *name && it.namespace == *namespace;
                tables.newest_batches().into_iter().find(is_it).cloned()
            }
        })
    }
    async fn batches(&self, most: usize) -> Result<Vec<Batch>, StoreError> {
        Ok(self.tables().newest_batches().into_iter().take(most).cloned().collect())
    }
    async fn open_batches(&self) -> Result<Vec<Batch>, StoreError> {
        let tables = self.tables();
        Ok(tables.newest_batches().into_iter().rev().filter(|it| it.is_open()).cloned().collect())
    }
    async fn save_batch(&self, batch: &Batch) -> Result<bool, StoreError> {
        let mut tables = self.tables();
        let stored = tables.batches.get_mut(&batch.id).filter(|it| it.version == batch.version);
        let Some(stored) = stored else { return Ok(false) };
        let touched_at = stored.touched_at.max(batch.touched_at);
        *stored = Batch { version: batch.version + 1, touched_at, ..batch.clone() };
        Ok(true)
    }
    async fn batch_counts(&self, ids: &[BatchId]) -> Result<BTreeMap<BatchId, Counts>, StoreError> {
        let tables = self.tables();
        let count = |id: &BatchId| {
            let mut counts = Counts::new();
            for (status, _) in tables.members(*id).into_values() {
                *counts.entry(status).or_default() += 1;
            }
            (*id, counts)
        };
        Ok(ids.iter().map(count).collect())
    }
    async fn batch_members(&self, part: &BatchPart<'_>) -> Result<Vec<Row>, StoreError> {
        let tables = self.tables();
        let members = tables.members(part.batch).into_iter().filter(|(place, (status, _))| {
            *place >= part.from && (part.statuses.is_empty() || part.statuses.contains(status))
        });
        Ok(members.take(part.most).map(|(_, (_, row))| row.clone()).collect())
    }
    async fn results(&self, ids: &[ObserverId]) -> Result<Vec<ObserverResult>, StoreError> {
        let tables = self.tables();
        Ok(ids.iter().filter_map(|id| tables.results.get(id)).cloned().collect())
    }
    async fn taken_names(&self, names: &[String], batch: BatchId) -> Result<Vec<Name>, StoreError> {
        let tables = self.tables();
        let others = tables
            .observers
            .values()
            .filter(|kept| kept.has_name && kept.row.batch.is_none_or(|it| it.batch != batch));
        let mut taken: Vec<Name> = others
            .filter(|kept| names.contains(&kept.row.definition.name_key()))
            .map(|kept| kept.row.definition.name.clone())
            .collect();
        taken.sort();
        Ok(taken)
    }
    async fn delete_batch(&self, batch: BatchId, version: i64) -> Result<bool, StoreError> {
        let mut tables = self.tables();
        let is_current = tables.batches.get(&batch).is_some_and(|it| it.version == version);
        if !is_current || !tables.members(batch).is_empty() {
            return Ok(false);
        }
        tables.batches.remove(&batch);
        tables.limits.remove(&LimitPattern::from(LimitKey::of_batch(batch)));
        Ok(true)
    }
}
