//! Namespaces: the parts of a deployment that belong to different teams.

use everwatch_core::capacity::namespace as core;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The maxima of a namespace; an absent member sets no maximum.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Quotas {
    /// The maximum of its observers that are not deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 1_000_000)]
    pub observers: Option<u32>,
    /// The maximum of its observers that have a slot at the same time; the others wait. Cannot be set for `default`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 1_000_000)]
    pub running: Option<u32>,
    /// The creates that are available at once. Used creates return evenly, the full quota within one minute.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 1_000_000)]
    pub creates_per_minute: Option<u32>,
}

/// What users set of a namespace.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NamespaceSettings {
    #[serde(default)]
    #[schema(required = false)]
    pub quotas: Quotas,
    /// The pools that its observers may use; absent: every pool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(min_items = 1, max_items = 100)]
    pub pools: Option<Vec<String>>,
}

/// A namespace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Namespace {
    /// 1 to 63 of `a-z 0-9 -`; unique. The namespace `default` always exists.
    pub name: String,
    pub quotas: Quotas,
    /// The pools that its observers may use; null: every pool.
    pub pools: Option<Vec<String>>,
    /// Its observers that are not deleted.
    pub observers: u64,
    /// Its observers that have a slot; null for `default`, which has no such quota.
    pub running: Option<u64>,
    /// The creates that its quota has left; null without a quota.
    pub creates_left: Option<u64>,
}

/// The quota because of which a manager refuses a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct QuotaUse {
    /// The namespace that the quota limits.
    pub namespace: String,
    /// `observers` or `creates_per_minute`.
    pub quota: String,
    /// The maximum that the quota sets.
    pub max: u32,
    /// Of `observers`: its observers that are not deleted; of `creates_per_minute`: the creates that have not
    /// returned yet.
    pub used: u64,
}

impl From<core::Quotas> for Quotas {
    fn from(quotas: core::Quotas) -> Self {
        let core::Quotas { observers, running, creates_per_minute } = quotas;
        Self { observers, running, creates_per_minute }
    }
}
