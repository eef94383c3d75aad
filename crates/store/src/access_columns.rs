//! Tokens, roles and the audit log as both databases store them: documents beside the columns that are searched.

use crate::columns::{read, without_nul};
use crate::port::StoreError;
use everwatch_core::access::{AuditEntry, Origin, Outcome, Role, Token};
use everwatch_core::clock::Timestamp;
use serde::Serialize;

/// Number, time, status, what was created, document.
pub(crate) type AuditColumns = (i64, i64, Option<i32>, Option<String>, String);

/// A token by columns.
pub(crate) struct TokenColumns {
    pub(crate) id: String,
    /// Of a token that is not a session: its name, unique among the valid ones.
    pub(crate) name: Option<String>,
    pub(crate) role: String,
    /// When it stops being valid.
    pub(crate) valid_until: i64,
    pub(crate) document: String,
}

impl TokenColumns {
    pub(crate) fn of(token: &Token) -> Result<Self, StoreError> {
        let valid_until = token.revoked_at.map_or(token.expires_at, |at| at.min(token.expires_at));
        Ok(Self {
            id: token.id.to_string(),
            name: (token.origin == Origin::Created).then(|| token.name.to_string()),
            role: token.role.to_string(),
            valid_until: valid_until.0,
            document: written(token)?,
        })
    }
}

pub(crate) fn written(document: &impl Serialize) -> Result<String, StoreError> {
    let text = serde_json::to_string(document).map_err(|error| StoreError::Corrupt(error.to_string()))?;
    // The escape of a NUL in JSON.
    Ok(text.replace("\\u0000", ""))
}

fn readable<T: serde::de::DeserializeOwned>(documents: Vec<String>, what: &str) -> Vec<T> {
    let one = |document: String| {
        read(&document)
            .inspect_err(|error| tracing::warn!(what, %error, "a stored document cannot be read"))
            .ok()
    };
    documents.into_iter().filter_map(one).collect()
}

pub(crate) fn tokens(documents: Vec<String>) -> Vec<Token> {
    readable(documents, "token")
}

pub(crate) fn roles(documents: Vec<String>) -> Vec<Role> {
    readable(documents, "role")
}

/// Time, principal, document.
pub(crate) fn audit_columns(entry: &AuditEntry) -> Result<(i64, Option<String>, String), StoreError> {
    Ok((entry.at.0, entry.principal.as_deref().map(without_nul), written(entry)?))
}

pub(crate) fn audit_entries(columns: Vec<AuditColumns>) -> Vec<AuditEntry> {
    let entry = |(id, at, status, created, document): AuditColumns| {
        let entry: AuditEntry = read(&document)
            .inspect_err(|error| tracing::warn!(id, %error, "an entry of the audit log cannot be read"))
            .ok()?;
        let status = status.and_then(|status| u16::try_from(status).ok());
        let outcome = status.map(|status| Outcome { status, created });
        Some(AuditEntry { id, at: Timestamp(at), outcome, ..entry })
    };
    columns.into_iter().filter_map(entry).collect()
}
