//! Batches and their members.

use super::{Created, ObserverResult, StoreError};
use async_trait::async_trait;
use everwatch_core::batch::{Batch, Counts};
use everwatch_core::capacity::admission::PoolOffers;
use everwatch_core::id::{BatchId, BatchRef, Name, ObserverId};
use everwatch_core::record::row::Row;
use everwatch_core::record::status::Status;
use std::collections::BTreeMap;

/// The result of the create of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BatchCreated {
    Done,
    /// A batch has this id: the same request has created it.
    Exists,
    /// A batch of this name is not over.
    NameTaken,
    /// [`everwatch_core::batch::OPEN_MAX`] batches are not over.
    TooMany,
}

/// A part of the members of a batch.
#[derive(Debug, Clone, Copy)]
pub struct BatchPart<'a> {
    pub batch: BatchId,
    /// Empty: every status.
    pub statuses: &'a [Status],
    /// The place of the first one.
    pub from: u32,
    pub most: usize,
}

/// Batches: many observers that one request creates.
#[async_trait]
pub trait Batches: Send + Sync + 'static {
    /// Stores a new batch, and its limit if it has one.
    async fn create_batch(&self, batch: &Batch) -> Result<BatchCreated, StoreError>;
    /// Inserts members like [`super::Observers::create`], in one transaction that also notes the time in the batch. `None`,
    /// and nothing is stored, if the batch is not being created.
    async fn create_members(
        &self,
        batch: BatchId,
        rows: &[Row],
        offers: &PoolOffers,
    ) -> Result<Option<Vec<Created>>, StoreError>;
    /// One batch; a name means the newest of that name.
    async fn batch(&self, which: &BatchRef) -> Result<Option<Batch>, StoreError>;
    /// The newest batches, the newest first. Those that cannot be read are left out.
    async fn batches(&self, most: usize) -> Result<Vec<Batch>, StoreError>;
    /// The batches that managers must look at, the oldest first. Those that cannot be read are left out.
    async fn open_batches(&self) -> Result<Vec<Batch>, StoreError>;
    /// Saves a batch as version + 1; `false`, and nothing is saved, if it has changed in the meantime.
    async fn save_batch(&self, batch: &Batch) -> Result<bool, StoreError>;
    /// The members of each of these batches, by status.
    async fn batch_counts(&self, ids: &[BatchId]) -> Result<BTreeMap<BatchId, Counts>, StoreError>;
    /// Members in order of their places. Those that cannot be read are left out.
    async fn batch_members(&self, part: &BatchPart<'_>) -> Result<Vec<Row>, StoreError>;
    /// The results of these observers.
    async fn results(&self, ids: &[ObserverId]) -> Result<Vec<ObserverResult>, StoreError>;
    /// Those of these names that live observers have which are not members of this batch.
    async fn taken_names(&self, names: &[String], batch: BatchId) -> Result<Vec<Name>, StoreError>;
    /// Deletes a batch without members, and its limit; `false` if it has members, or has changed since this version.
    async fn delete_batch(&self, batch: BatchId, version: i64) -> Result<bool, StoreError>;
}
