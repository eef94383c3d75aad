//! The versions of the definition of an observer.

use everwatch_core::clock::Timestamp;
use everwatch_core::observer::difference;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

/// A version of the definition of an observer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct DefinitionVersion {
    /// 1 is the definition that the observer was created with.
    pub version: u32,
    /// When it became the definition.
    #[schema(value_type = String, format = DateTime)]
    pub at: Timestamp,
    /// The `everwatch-actor` header of the request that created the observer or changed its definition, or the address of
    /// the client of that request. Null if no request did.
    pub by: Option<String>,
    /// The complete definition.
    pub definition: Value,
    /// Differences from the previous version. Null for the first version, and if the previous one is no longer kept.
    pub changes: Option<Vec<Difference>>,
}

/// A member of a definition that differs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Difference {
    /// JSON pointer to the member.
    #[schema(example = "/spec/every")]
    pub pointer: String,
    /// Absent if the member is new.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<Value>,
    /// Absent if the member was removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<Value>,
}

impl Difference {
    /// The members that differ, ordered by their place.
    #[must_use]
    pub fn all(before: &Value, after: &Value) -> Vec<Self> {
        let found = difference::differences(before, after).into_iter();
        found.map(|it| Self { pointer: it.pointer, before: it.before, after: it.after }).collect()
    }
}

/// The version to restore.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RevertTo {
    /// The number of the version; managers keep the last 100 former ones.
    #[schema(minimum = 1, example = 3)]
    pub to: u32,
}
