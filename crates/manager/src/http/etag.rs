//! The entity tag of an observer: it changes with its definition and its desired state.

use axum::http::{HeaderName, header};
use everwatch_core::record::row::Row;
use uuid::Uuid;

/// The header: it changes with what a user requests, and not with what services report.
pub(super) fn tag(row: &Row) -> [(HeaderName, String); 1] {
    let definition = serde_json::json!([row.definition, row.desired]).to_string();
    [(header::ETAG, format!("\"{}\"", Uuid::new_v5(&Uuid::NAMESPACE_OID, definition.as_bytes()).simple()))]
}
