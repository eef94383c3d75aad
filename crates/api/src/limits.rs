//! Limits by key.

use crate::NamedThing;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// How many observers that name a key may run at once, and how many do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Limit {
    /// The key, or the beginning of keys and a `*`: then each key that begins so has this limit.
    #[schema(example = "account-42")]
    pub key: String,
    /// The maximum that may run at once.
    pub max: u32,
    /// Whether a maximum below the number in use ends observers: the newest ones return to the backlog.
    pub enforce: bool,
    /// Places in use. An observer uses its place until its message is gone. Of a limit with a `*`, over all keys that begin
    /// so.
    pub used: u64,
    /// Observers that wait for a place.
    pub waiting: u64,
}

/// A limit as a request sets it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LimitSettings {
    /// 1 to 1,000,000.
    #[schema(minimum = 1, maximum = 1_000_000)]
    pub max: u32,
    /// Whether a maximum below the number in use ends observers.
    #[serde(default)]
    pub enforce: bool,
}

/// One limit, and who uses it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LimitUsers {
    /// The key, or the beginning of keys and a `*`.
    #[schema(example = "account-42")]
    pub key: String,
    /// The maximum that may run at once.
    pub max: u32,
    /// Whether a maximum below the number in use ends observers: the newest ones return to the backlog.
    pub enforce: bool,
    /// Places in use.
    pub used: u64,
    /// Observers that wait for a place.
    pub waiting: u64,
    /// The limit that applies to the key; the key itself, unless it is a limit with a `*`.
    #[schema(example = "account-*")]
    pub applies: String,
    /// The first 100 observers that use a place; none for a limit with a `*`.
    pub users: Vec<NamedThing>,
    /// The first 100 observers that wait for a place, in their order; none for a limit with a `*`.
    pub waiters: Vec<NamedThing>,
}
