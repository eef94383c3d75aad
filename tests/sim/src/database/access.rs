//! The tables of tokens, roles and the audit log.

use super::{Access as Way, RemoteStore};
use async_trait::async_trait;
use everwatch_core::access::{AuditEntry, AuditFilter, Outcome, Role, Token, TokenId};
use everwatch_core::clock::Timestamp;
use everwatch_core::id::Name;
use everwatch_store::{Access, AccessChanges, Audit, RoleDeleted, RoleWritten, StoreError, TokenAdded};

#[async_trait]
impl Access for RemoteStore {
    async fn add_token(&self, token: &Token, now: Timestamp) -> Result<TokenAdded, StoreError> {
        self.operation(Way::Write, self.memory().add_token(token, now)).await
    }
    async fn change_token(&self, before: &Token, after: &Token) -> Result<bool, StoreError> {
        self.operation(Way::Write, self.memory().change_token(before, after)).await
    }
    async fn access_changes(&self) -> Result<AccessChanges, StoreError> {
        self.operation(Way::Read, self.memory().access_changes()).await
    }
    async fn tokens(&self) -> Result<Vec<Token>, StoreError> {
        self.operation(Way::Read, self.memory().tokens()).await
    }
    async fn token(&self, id: &TokenId) -> Result<Option<Token>, StoreError> {
        self.operation(Way::Read, self.memory().token(id)).await
    }
    async fn forget_tokens(&self, before: Timestamp) -> Result<u64, StoreError> {
        self.operation(Way::Write, self.memory().forget_tokens(before)).await
    }
    async fn roles(&self) -> Result<Vec<Role>, StoreError> {
        self.operation(Way::Read, self.memory().roles()).await
    }
    async fn put_role(&self, role: &Role) -> Result<RoleWritten, StoreError> {
        self.operation(Way::Write, self.memory().put_role(role)).await
    }
    async fn delete_role(&self, name: &Name, now: Timestamp) -> Result<RoleDeleted, StoreError> {
        self.operation(Way::Write, self.memory().delete_role(name, now)).await
    }
}

#[async_trait]
impl Audit for RemoteStore {
    async fn add_audit(&self, entries: &[AuditEntry]) -> Result<Vec<i64>, StoreError> {
        self.operation(Way::Write, self.memory().add_audit(entries)).await
    }
    async fn set_outcomes(&self, outcomes: &[(i64, Outcome)]) -> Result<(), StoreError> {
        self.operation(Way::Write, self.memory().set_outcomes(outcomes)).await
    }
    async fn audit(&self, filter: &AuditFilter, most: usize) -> Result<Vec<AuditEntry>, StoreError> {
        self.operation(Way::Read, self.memory().audit(filter, most)).await
    }
    async fn count_audit(&self, principal: Option<&str>) -> Result<u64, StoreError> {
        self.operation(Way::Read, self.memory().count_audit(principal)).await
    }
    async fn forget_audit(&self, before: Timestamp) -> Result<u64, StoreError> {
        self.operation(Way::Write, self.memory().forget_audit(before)).await
    }
}
