//! Limits by key.

use super::StoreError;
use async_trait::async_trait;
use everwatch_core::capacity::limits::Limit;
use everwatch_core::capacity::supply::Load;
use everwatch_core::clock::Timestamp;
use everwatch_core::id::{LimitKey, LimitPattern, Name, ObserverId, Pool};
use everwatch_core::record::row::Row;
use std::collections::BTreeMap;

/// A limit and how much of it is in use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LimitCounts {
    pub limit: Limit,
    /// Places in use; of a limit for a beginning of keys, over all its keys.
    pub used: u64,
    /// Observers that wait for a place.
    pub waiting: u64,
}

/// An observer that uses a place of a limit, or waits for one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LimitUse {
    pub id: ObserverId,
    pub name: Name,
}

/// The result of a delete of a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LimitDeleted {
    Done,
    Missing,
    /// The number of observers that name a key to which no other limit applies.
    InUse(u64),
}

/// The result of a look at limits.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct LimitsLookedAt {
    /// Whether another look is due at once: observers came forward, or more keys have changed than one look reads.
    pub goes_on: bool,
    /// The newest observers of enforced limits, as many as there are beyond each maximum. The next look finds them again,
    /// until they have ended.
    pub beyond: Vec<Row>,
}

/// The most limits.
pub const LIMITS_MAX: u64 = 10_000;

/// Limits by key.
#[async_trait]
pub trait Limits: Send + Sync + 'static {
    /// A page of limits, in the order of their keys.
    async fn limits(&self, after: Option<&LimitPattern>, most: usize)
    -> Result<Vec<LimitCounts>, StoreError>;
    /// The number of limits.
    async fn limit_count(&self) -> Result<u64, StoreError>;
    /// One limit.
    async fn limit(&self, key: &LimitPattern) -> Result<Option<LimitCounts>, StoreError>;
    /// The limits that apply to these keys; keys without a limit are left out.
    async fn limits_of(&self, keys: &[LimitKey]) -> Result<BTreeMap<LimitKey, Limit>, StoreError>;
    /// The places of one key in use, and the observers that wait for one.
    async fn limit_counts(&self, key: &LimitKey) -> Result<(u64, u64), StoreError>;
    /// The observers that use a place of this key or, if `waits`, those that wait for one, in their order.
    async fn limit_users(
        &self,
        key: &LimitKey,
        waits: bool,
        most: usize,
    ) -> Result<Vec<LimitUse>, StoreError>;
    /// The observers of each pool that wait for places of limits.
    async fn behind_limits(&self) -> Result<BTreeMap<Pool, Load>, StoreError>;
    /// Creates or replaces a limit; returns whether it is new. Refused beyond [`LIMITS_MAX`] limits.
    async fn put_limit(&self, limit: &Limit) -> Result<bool, StoreError>;
    /// Deletes a limit that no observer needs.
    async fn delete_limit(&self, key: &LimitPattern) -> Result<LimitDeleted, StoreError>;
    /// Looks at the keys whose maximum or use has changed: lets observers come forward for which places are free, at most
    /// `most` of each key and pool, and finds those that enforced limits must end.
    async fn look_at_limits(&self, now: Timestamp, most: usize) -> Result<LimitsLookedAt, StoreError>;
    /// The observers that have ended and whose messages may still be in the queue of this pool, the oldest first.
    async fn unreleased(&self, pool: &Pool, most: usize) -> Result<Vec<Row>, StoreError>;
    /// The pools for which `unreleased` finds observers.
    async fn pools_with_unreleased(&self) -> Result<Vec<Pool>, StoreError>;
}
