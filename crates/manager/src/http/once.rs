//! Idempotency keys: a create that is sent again with its key answers what the first one made.

use super::problem::{Code, Problem};
use crate::shared::Manager;
use axum::http::HeaderMap;
use everwatch_core::id::ObserverId;
use everwatch_core::row::Row;
use serde_json::Value;
use std::time::Duration;
use uuid::Uuid;

pub(crate) const HEADER: &str = "idempotency-key";
/// How long a key is remembered.
const KEEP: Duration = Duration::from_secs(86_400);
const LONGEST: usize = 255;

/// The identity that a create is to have.
pub(crate) enum Once {
    /// It is to be made; `again` if it may have been tried before.
    Make { id: ObserverId, again: bool },
    /// It was made.
    Made(Box<Row>),
}

/// Naively, the key is written down after the create; but a manager that dies in between makes a second
/// observer. So the key reserves the identity first, and whoever comes again creates that one.
pub(crate) async fn reserve(manager: &Manager, headers: &HeaderMap, body: &Value) -> Result<Once, Problem> {
    let fresh = ObserverId(Uuid::now_v7());
    let Some(key) = key(headers)? else { return Ok(Once::Make { id: fresh, again: false }) };
    let digest = Uuid::new_v5(&Uuid::NAMESPACE_OID, body.to_string().as_bytes());
    let stands = manager.store.claim(&format!("key/{key}"), &format!("{fresh} {digest}"), KEEP).await?;
    let (id, known) = stands.split_once(' ').unwrap_or_default();
    if known != digest.to_string() {
        let detail =
            format!("the {HEADER} `{key}` was used with another body; use a new key for a new observer");
        return Err(Problem::new(Code::KeyReused, detail));
    }
    let id: ObserverId =
        id.parse().map_err(|_| Problem::new(Code::Internal, "a stored key cannot be read"))?;
    if id == fresh {
        return Ok(Once::Make { id, again: false });
    }
    Ok(match manager.store.load(&[id]).await?.one()? {
        Some(row) => Once::Made(Box::new(row)),
        // The identity of an observer that was forgotten is never given to another: its epochs would begin again.
        None if manager.store.forgotten(&[id]).await?.contains(&id) => return Err(deleted(key)),
        None => Once::Make { id, again: true },
    })
}

fn deleted(key: &str) -> Problem {
    let detail = format!(
        "the observer that was created with the {HEADER} `{key}` has been deleted; use a new key for a new observer"
    );
    Problem::new(Code::KeyReused, detail)
}

fn key(headers: &HeaderMap) -> Result<Option<&str>, Problem> {
    let Some(key) = headers.get(HEADER) else { return Ok(None) };
    let key = key.to_str().ok().filter(|key| !key.is_empty() && key.len() <= LONGEST);
    let rule = format!("the header {HEADER} is 1 to {LONGEST} visible ASCII characters");
    key.map(Some).ok_or_else(|| Problem::new(Code::BadHeader, rule))
}
