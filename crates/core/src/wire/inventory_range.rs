//! A part of an inventory: the observers in a range of ids.

use crate::id::ObserverId;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A range of ids, exclusive at its start and inclusive at its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct InventoryRange {
    pub after: Option<ObserverId>,
    pub upto: Option<ObserverId>,
}

impl InventoryRange {
    /// Every id.
    pub const ALL: Self = Self { after: None, upto: None };

    /// Whether the id is in the range.
    #[must_use]
    pub fn contains(&self, id: ObserverId) -> bool {
        self.after.is_none_or(|after| id > after) && self.upto.is_none_or(|upto| id <= upto)
    }
}
