//! The versions of an observer's definition.

use crate::clock::Timestamp;
use crate::record::row::Row;
use serde::{Deserialize, Serialize};

/// The former versions of a definition that are kept.
pub const REVISIONS_MAX: u32 = 100;

/// Which version of its definition an observer has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Revision {
    /// 1 is the definition that it was created with.
    pub number: u32,
    pub at: Timestamp,
    /// The `everwatch-actor` header of the request that changed it, or the address of its client.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
}

impl Row {
    /// The version of its current definition.
    #[must_use]
    pub fn revision(&self) -> Revision {
        let first = || Revision { number: 1, at: self.created_at, by: None };
        self.revised.clone().unwrap_or_else(first)
    }

    /// Its definition changes.
    pub(crate) fn revise(&mut self, now: Timestamp) {
        let number = self.revision().number.saturating_add(1);
        self.revised = Some(Revision { number, at: now, by: None });
    }

    /// Whether its definition is a later version than that of `before`.
    #[must_use]
    pub fn is_revised_since(&self, before: &Self) -> bool {
        self.revised != before.revised
    }

    /// Records the user who changed its definition since `before`.
    pub fn revised_by(&mut self, before: &Self, by: Option<String>) {
        if self.is_revised_since(before)
            && let Some(revision) = &mut self.revised
        {
            revision.by = by;
        }
    }
}
