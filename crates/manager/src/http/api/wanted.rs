//! What the document says of bodies that `core` reads member by member: only their schemas are used.
#![expect(dead_code, reason = "core reads these bodies, so that every error names its place")]

use serde_json::Value;
use std::collections::BTreeMap;
use utoipa::ToSchema;

/// An observer as a person wants it; null is as good as nothing.
#[derive(ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewObserver {
    /// 1 to 128 of `A-Z a-z 0-9 . _ -`; made up if there is none.
    name: Option<String>,
    kind: String,
    /// Its arguments, as its kind wants them; at most 64 KiB.
    spec: Option<Value>,
    #[schema(default = "default")]
    pool: Option<String>,
    labels: Option<BTreeMap<String, String>>,
    retry: Option<RetryPolicy>,
    overlap: Option<Overlap>,
    /// Between telling its code to end and aborting it.
    #[schema(default = "10s")]
    grace: Option<String>,
    on_full: Option<OnFull>,
    desired: Option<RunOrRest>,
}

/// Members of an observer that change; null takes a default back.
#[derive(ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ObserverPatch {
    /// Its own name: it has that for good.
    name: Option<String>,
    kind: Option<String>,
    /// Merged member by member, where it is an object.
    spec: Option<Value>,
    pool: Option<String>,
    labels: Option<BTreeMap<String, Option<String>>>,
    /// Merged member by member, unless it says a kind.
    #[schema(value_type = Option<Object>)]
    retry: Option<RetryPolicy>,
    overlap: Option<Overlap>,
    grace: Option<String>,
    on_full: Option<OnFull>,
    desired: Option<RunOrRest>,
}

/// When it is started again after an error; `attempts` counts the starts of one run, null means for ever.
#[derive(ToSchema)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum RetryPolicy {
    /// Doubling delays.
    Exponential {
        #[schema(required = false, default = "1s")]
        first: String,
        #[schema(required = false, default = "60s")]
        max: String,
        #[schema(minimum = 1)]
        attempts: Option<u32>,
        /// Health of so long makes the delays short again.
        #[schema(required = false, default = "5m")]
        reset_after: String,
    },
    /// The same delay each time.
    Fixed {
        every: String,
        #[schema(minimum = 1)]
        attempts: Option<u32>,
    },
    /// These delays, then it gives up.
    Intervals { delays: Vec<String> },
}

/// Whether a redelivered run may start while the one before might still be ending.
#[derive(ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Overlap {
    Allow,
    Forbid,
}

/// What a create does when the pool has no free slot.
#[derive(ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum OnFull {
    Reject,
    Queue,
}

/// Whether it is to run.
#[derive(ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum RunOrRest {
    Running,
    Paused,
}

/// What is wrong with one member of a body.
#[derive(ToSchema)]
pub(crate) struct MemberError {
    /// Where, as a JSON pointer.
    pointer: String,
    detail: String,
}
