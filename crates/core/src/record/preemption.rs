//! Why an observer has given up its slot to another one.

use crate::id::Name;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The observer that needed the slot of another one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Preemption {
    /// `None`: it belongs to another namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<Name>,
    pub priority: i8,
}

impl fmt::Display for Preemption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let by = self.by.as_ref().map_or("an observer of another namespace", Name::as_str);
        write!(f, "preempted by {by}, whose priority is {}", self.priority)
    }
}
