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
    /// The user whose request changed the definition, as the request tells; null for the first version.
    pub by: Option<String>,
    /// The complete definition.
    pub definition: Value,
    /// What differs from the version before. Null for the first version, and if the version before is no longer kept.
    pub changes: Option<Vec<Difference>>,
}

/// A member of a definition that differs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Difference {
    /// The place of the member, as a JSON pointer.
    #[schema(example = "/spec/every")]
    pub pointer: String,
    /// Missing if the member is new.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<Value>,
    /// Missing if the member is gone.
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

/// The version to go back to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RevertTo {
    #[schema(minimum = 1, example = 3)]
    pub to: u32,
}
