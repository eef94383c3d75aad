//! The audit log: requests that change something, their principals and their outcomes.

use super::verb::Verb;
use crate::clock::Timestamp;
use serde::{Deserialize, Serialize};

/// One request that changes something, or that was refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditEntry {
    /// 0 until it is stored.
    #[serde(skip)]
    pub id: i64,
    pub at: Timestamp,
    /// `None`: the request was not authenticated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub principal: Option<String>,
    /// The id of its token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    /// What the client says about itself (`Everwatch-Actor`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub actor: Option<String>,
    /// The address at the other end of the connection.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    pub verb: Option<Verb>,
    pub method: String,
    /// With the query.
    pub path: String,
    /// `None`: the manager died before it answered, or the request is in progress.
    #[serde(skip)]
    pub outcome: Option<Outcome>,
}

/// What came of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// The HTTP status of the response.
    pub status: u16,
    /// The path of what it created.
    pub created: Option<String>,
}

/// Which entries a list shows.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AuditFilter {
    pub principal: Option<String>,
    /// Those before this number; `None`: the newest.
    pub before: Option<i64>,
}
