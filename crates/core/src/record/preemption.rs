//! Why an observer has given up its slot to another one.

use crate::id::Name;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The observer that needed the slot of another one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Preemption {
    pub by: Name,
    pub priority: i8,
}

impl fmt::Display for Preemption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "preempted by {}, whose priority is {}", self.by, self.priority)
    }
}
