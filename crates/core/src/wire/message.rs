//! What all messages share: the version, the limits, and how a body is written and read.
//! Every body is `{"v": 1, …}`; a reader ignores members it does not know.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// The message version that this program writes.
pub const VERSION: u16 = 1;
/// The highest version of work messages that this program reads.
pub const WORK_VERSION: u16 = 2;
/// The most entries in one batch of reports, revocations or inventory entries.
pub const BATCH_MAX: usize = 500;

/// Why a body is unreadable, as a sentence.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Unreadable(pub String);

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde wants it so")]
pub(crate) fn is_false(flag: &bool) -> bool {
    !*flag
}

#[derive(Serialize)]
struct Versioned<'a, T> {
    v: u16,
    body: &'a T,
}
#[derive(Deserialize)]
struct VersionOnly {
    v: u16,
}
#[derive(Deserialize)]
struct BodyOnly<T> {
    body: T,
}

/// The bytes of a report, heartbeat or command.
///
/// # Errors
/// If a value cannot be written as JSON (a bug in the caller).
pub fn encode<T: Serialize>(body: &T) -> Result<Vec<u8>, serde_json::Error> {
    serde_json::to_vec(&Versioned { v: VERSION, body })
}

/// # Errors
/// If the bytes are not JSON, of another version, or not such a message; the error names the cause.
pub fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Unreadable> {
    let VersionOnly { v } = serde_json::from_slice(bytes)
        .map_err(|error| Unreadable(format!("not a message of Everwatch: {error}")))?;
    if v != VERSION {
        return Err(Unreadable(format!("message version {v} is unknown here")));
    }
    serde_json::from_slice::<BodyOnly<T>>(bytes)
        .map(|it| it.body)
        .map_err(|error| Unreadable(format!("not a message of this queue: {error}")))
}
