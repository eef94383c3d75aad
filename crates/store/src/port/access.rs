//! Tokens, roles and the audit log.

use super::StoreError;
use async_trait::async_trait;
use everwatch_core::access::{AuditEntry, AuditFilter, Outcome, Role, Token, TokenId};
use everwatch_core::clock::Timestamp;
use everwatch_core::id::Name;

/// The writes of tokens and roles so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AccessChanges {
    /// Rises with each of them.
    pub number: i64,
    /// Whether a user has ever created a token, even if it has ended since. Each write of a token notes this in its own
    /// transaction.
    pub had_token: bool,
}

/// The result of the creation of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenAdded {
    Done,
    /// A valid token, not a session, has this name.
    NameTaken,
    /// [`everwatch_core::access::TOKENS_MAX`] tokens are valid.
    TooMany,
}

/// The result of a write of a role.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RoleWritten {
    Created,
    Replaced,
    /// There are [`everwatch_core::access::ROLES_MAX`] roles.
    TooMany,
}

/// The result of a delete of a role.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RoleDeleted {
    Done,
    Missing,
    /// The number of valid tokens that have it.
    InUse(u64),
}

/// Tokens and roles.
#[async_trait]
pub trait Access: Send + Sync + 'static {
    /// Stores a new token. No two tokens are added at the same time.
    async fn add_token(&self, token: &Token, now: Timestamp) -> Result<TokenAdded, StoreError>;
    /// Replaces a token that is still as it was read; returns whether it was.
    async fn change_token(&self, before: &Token, after: &Token) -> Result<bool, StoreError>;
    /// What managers look at every second, instead of all tokens and roles.
    async fn access_changes(&self) -> Result<AccessChanges, StoreError>;
    /// All tokens and sessions, also those that have ended but are not forgotten yet. Unreadable ones are left out, and
    /// therefore not accepted.
    async fn tokens(&self) -> Result<Vec<Token>, StoreError>;
    /// One token.
    async fn token(&self, id: &TokenId) -> Result<Option<Token>, StoreError>;
    /// Deletes tokens that expired before this time; returns their number.
    async fn forget_tokens(&self, before: Timestamp) -> Result<u64, StoreError>;
    /// All roles that users have defined. Unreadable ones are left out.
    async fn roles(&self) -> Result<Vec<Role>, StoreError>;
    /// Creates or replaces a role.
    async fn put_role(&self, role: &Role) -> Result<RoleWritten, StoreError>;
    /// Deletes a role that no valid token has.
    async fn delete_role(&self, name: &Name, now: Timestamp) -> Result<RoleDeleted, StoreError>;
}

/// The audit log.
#[async_trait]
pub trait Audit: Send + Sync + 'static {
    /// Stores entries in this order, in one transaction; returns their numbers, which rise.
    async fn add_audit(&self, entries: &[AuditEntry]) -> Result<Vec<i64>, StoreError>;
    /// Stores the outcomes of requests; unknown numbers are ignored.
    async fn set_outcomes(&self, outcomes: &[(i64, Outcome)]) -> Result<(), StoreError>;
    /// Entries with their outcomes, the newest first.
    async fn audit(&self, filter: &AuditFilter, most: usize) -> Result<Vec<AuditEntry>, StoreError>;
    /// The number of entries, of this principal if one is given.
    async fn count_audit(&self, principal: Option<&str>) -> Result<u64, StoreError>;
    /// Deletes entries older than `before`; returns their number.
    async fn forget_audit(&self, before: Timestamp) -> Result<u64, StoreError>;
}
