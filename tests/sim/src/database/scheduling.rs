//! The tables of limits, rates, rollouts and batches.

use super::{Access, RemoteStore};
use async_trait::async_trait;
use everwatch_core::batch::{Batch, Counts};
use everwatch_core::capacity::admission::PoolOffers;
use everwatch_core::capacity::limits::Limit;
use everwatch_core::capacity::namespace::{NamespaceRow, NamespaceSettings};
use everwatch_core::capacity::rate::{Rate, RateRow};
use everwatch_core::capacity::supply::Load;
use everwatch_core::clock::Timestamp;
use everwatch_core::id::{
    BatchId, BatchRef, LimitKey, LimitPattern, Name, Namespace, ObserverId, Pool, RateKey, RolloutRef,
};
use everwatch_core::record::row::Row;
use everwatch_core::rollout::{Member, Rollout, Step};
use everwatch_core::wire::permits::{PermitAnswers, PermitRequest};
use everwatch_store::{
    BatchCreated, BatchPart, Batches, Created, LimitCounts, LimitDeleted, LimitUse, Limits, LimitsLookedAt,
    MembersPart, NamespaceDeleted, NamespaceWritten, Namespaces, ObserverResult, RatePage, Rates,
    RolloutCreated, Rollouts, StepSaved, StoreError,
};
use std::collections::BTreeMap;

#[async_trait]
impl Rates for RemoteStore {
    async fn set_rate(&self, key: &RateKey, rate: Rate) -> Result<RateRow, StoreError> {
        self.operation(Access::Write, self.memory().set_rate(key, rate)).await
    }
    async fn rate(&self, key: &RateKey) -> Result<Option<RateRow>, StoreError> {
        self.operation(Access::Read, self.memory().rate(key)).await
    }
    async fn rates(&self, after: Option<&RateKey>, most: usize) -> Result<RatePage, StoreError> {
        self.operation(Access::Read, self.memory().rates(after, most)).await
    }
    async fn delete_rate(&self, key: &RateKey) -> Result<bool, StoreError> {
        self.operation(Access::Write, self.memory().delete_rate(key)).await
    }
    async fn grant_permits(&self, requests: &[PermitRequest]) -> Result<Vec<PermitAnswers>, StoreError> {
        self.operation(Access::Write, self.memory().grant_permits(requests)).await
    }
    async fn empty_rates(&self) -> Result<(), StoreError> {
        self.operation(Access::Write, self.memory().empty_rates()).await
    }
}

#[async_trait]
impl Namespaces for RemoteStore {
    async fn namespaces(&self) -> Result<Vec<NamespaceRow>, StoreError> {
        self.operation(Access::Read, self.memory().namespaces()).await
    }
    async fn namespace(&self, name: &Namespace) -> Result<Option<NamespaceRow>, StoreError> {
        self.operation(Access::Read, self.memory().namespace(name)).await
    }
    async fn namespace_counts(&self, names: &[Namespace]) -> Result<BTreeMap<Namespace, u64>, StoreError> {
        self.operation(Access::Read, self.memory().namespace_counts(names)).await
    }
    async fn put_namespace(
        &self,
        name: &Namespace,
        settings: &NamespaceSettings,
    ) -> Result<NamespaceWritten, StoreError> {
        self.operation(Access::Write, self.memory().put_namespace(name, settings)).await
    }
    async fn delete_namespace(&self, name: &Namespace) -> Result<NamespaceDeleted, StoreError> {
        self.operation(Access::Write, self.memory().delete_namespace(name)).await
    }
}

#[async_trait]
impl Batches for RemoteStore {
    async fn create_batch(&self, batch: &Batch) -> Result<BatchCreated, StoreError> {
        self.operation(Access::Write, self.memory().create_batch(batch)).await
    }
    async fn create_members(
        &self,
        batch: BatchId,
        rows: &[Row],
        offers: &PoolOffers,
    ) -> Result<Option<Vec<Created>>, StoreError> {
        self.operation(Access::Write, self.memory().create_members(batch, rows, offers)).await
    }
    async fn batch(&self, which: &BatchRef) -> Result<Option<Batch>, StoreError> {
        self.operation(Access::Read, self.memory().batch(which)).await
    }
    async fn batches(&self, most: usize) -> Result<Vec<Batch>, StoreError> {
        self.operation(Access::Read, self.memory().batches(most)).await
    }
    async fn open_batches(&self) -> Result<Vec<Batch>, StoreError> {
        self.operation(Access::Read, self.memory().open_batches()).await
    }
    async fn save_batch(&self, batch: &Batch) -> Result<bool, StoreError> {
        self.operation(Access::Write, self.memory().save_batch(batch)).await
    }
    async fn batch_counts(&self, ids: &[BatchId]) -> Result<BTreeMap<BatchId, Counts>, StoreError> {
        self.operation(Access::Read, self.memory().batch_counts(ids)).await
    }
    async fn batch_members(&self, part: &BatchPart<'_>) -> Result<Vec<Row>, StoreError> {
        self.operation(Access::Read, self.memory().batch_members(part)).await
    }
    async fn results(&self, ids: &[ObserverId]) -> Result<Vec<ObserverResult>, StoreError> {
        self.operation(Access::Read, self.memory().results(ids)).await
    }
    async fn taken_names(&self, names: &[String], batch: BatchId) -> Result<Vec<Name>, StoreError> {
        self.operation(Access::Read, self.memory().taken_names(names, batch)).await
    }
    async fn delete_batch(&self, batch: BatchId, version: i64) -> Result<bool, StoreError> {
        self.operation(Access::Write, self.memory().delete_batch(batch, version)).await
    }
}

#[async_trait]
impl Rollouts for RemoteStore {
    async fn create_rollout(
        &self,
        rollout: &Rollout,
        members: &[Member],
    ) -> Result<RolloutCreated, StoreError> {
        self.operation(Access::Write, self.memory().create_rollout(rollout, members)).await
    }
    async fn rollout(&self, which: &RolloutRef) -> Result<Option<Rollout>, StoreError> {
        self.operation(Access::Read, self.memory().rollout(which)).await
    }
    async fn rollouts(&self, most: usize) -> Result<Vec<Rollout>, StoreError> {
        self.operation(Access::Read, self.memory().rollouts(most)).await
    }
    async fn open_rollouts(&self) -> Result<Vec<Rollout>, StoreError> {
        self.operation(Access::Read, self.memory().open_rollouts()).await
    }
    async fn rollout_members(&self, part: &MembersPart<'_>) -> Result<Vec<Member>, StoreError> {
        self.operation(Access::Read, self.memory().rollout_members(part)).await
    }
    async fn save_step(&self, step: &Step) -> Result<Option<StepSaved>, StoreError> {
        self.operation(Access::Write, self.memory().save_step(step)).await
    }
    async fn forget_rollouts(&self, keep: usize) -> Result<u64, StoreError> {
        self.operation(Access::Write, self.memory().forget_rollouts(keep)).await
    }
}

#[async_trait]
impl Limits for RemoteStore {
    async fn limits(
        &self,
        after: Option<&LimitPattern>,
        most: usize,
    ) -> Result<Vec<LimitCounts>, StoreError> {
        self.operation(Access::Read, self.memory().limits(after, most)).await
    }
    async fn limit_count(&self) -> Result<u64, StoreError> {
        self.operation(Access::Read, self.memory().limit_count()).await
    }
    async fn limit(&self, key: &LimitPattern) -> Result<Option<LimitCounts>, StoreError> {
        self.operation(Access::Read, self.memory().limit(key)).await
    }
    async fn limits_of(&self, keys: &[LimitKey]) -> Result<BTreeMap<LimitKey, Limit>, StoreError> {
        self.operation(Access::Read, self.memory().limits_of(keys)).await
    }
    async fn limit_counts(&self, key: &LimitKey) -> Result<(u64, u64), StoreError> {
        self.operation(Access::Read, self.memory().limit_counts(key)).await
    }
    async fn limit_users(
        &self,
        key: &LimitKey,
        waits: bool,
        most: usize,
    ) -> Result<Vec<LimitUse>, StoreError> {
        self.operation(Access::Read, self.memory().limit_users(key, waits, most)).await
    }
    async fn behind_limits(&self) -> Result<BTreeMap<Pool, Load>, StoreError> {
        self.operation(Access::Read, self.memory().behind_limits()).await
    }
    async fn put_limit(&self, limit: &Limit) -> Result<bool, StoreError> {
        self.operation(Access::Write, self.memory().put_limit(limit)).await
    }
    async fn delete_limit(&self, key: &LimitPattern) -> Result<LimitDeleted, StoreError> {
        self.operation(Access::Write, self.memory().delete_limit(key)).await
    }
    async fn look_at_limits(&self, now: Timestamp, most: usize) -> Result<LimitsLookedAt, StoreError> {
        self.operation(Access::Write, self.memory().look_at_limits(now, most)).await
    }
    async fn unreleased(&self, pool: &Pool, most: usize) -> Result<Vec<Row>, StoreError> {
        self.rows(Vec::len, self.memory().unreleased(pool, most)).await
    }
    async fn pools_with_unreleased(&self) -> Result<Vec<Pool>, StoreError> {
        self.rows(Vec::len, self.memory().pools_with_unreleased()).await
    }
}
