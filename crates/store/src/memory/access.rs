//! Tokens, roles and the audit log in memory.

use super::MemoryStore;
use crate::access_columns::TokenColumns;
use crate::port::{Access, AccessChanges, Audit, RoleDeleted, RoleWritten, StoreError, TokenAdded};
use async_trait::async_trait;
use everwatch_core::access::{
    AuditEntry, AuditFilter, Origin, Outcome, ROLES_MAX, Role, TOKENS_MAX, Token, TokenId,
};
use everwatch_core::clock::Timestamp;
use everwatch_core::id::Name;
use std::collections::BTreeMap;

/// What is stored of them.
#[derive(Clone, Default)]
pub(super) struct Stored {
    tokens: BTreeMap<TokenId, Token>,
    roles: BTreeMap<Name, Role>,
    audit: Vec<AuditEntry>,
    last_audit: i64,
    changes: AccessChanges,
}

#[async_trait]
impl Access for MemoryStore {
    async fn add_token(&self, token: &Token, now: Timestamp) -> Result<TokenAdded, StoreError> {
        let mut tables = self.tables();
        let valid = || tables.access.tokens.values().filter(|it| it.is_valid(now));
        let is_named = |it: &&Token| it.origin == Origin::Created && it.name == token.name;
        if token.origin == Origin::Created && valid().any(|it| is_named(&it)) {
            return Ok(TokenAdded::NameTaken);
        }
        if valid().count() as u64 >= TOKENS_MAX {
            return Ok(TokenAdded::TooMany);
        }
        tables.access.changes.number += 1;
        tables.access.changes.had_token |= token.origin == Origin::Created;
        tables.access.tokens.insert(token.id.clone(), token.clone());
        Ok(TokenAdded::Done)
    }
    async fn change_token(&self, before: &Token, after: &Token) -> Result<bool, StoreError> {
        let mut tables = self.tables();
        tables.access.changes.number += 1;
        let Some(found) = tables.access.tokens.get_mut(&before.id).filter(|it| *it == before) else {
            return Ok(false);
        };
        found.clone_from(after);
        Ok(true)
    }
    async fn access_changes(&self) -> Result<AccessChanges, StoreError> {
        Ok(self.tables().access.changes)
    }
    async fn tokens(&self) -> Result<Vec<Token>, StoreError> {
        Ok(self.tables().access.tokens.values().cloned().collect())
    }
    async fn token(&self, id: &TokenId) -> Result<Option<Token>, StoreError> {
        Ok(self.tables().access.tokens.get(id).cloned())
    }
    async fn forget_tokens(&self, before: Timestamp) -> Result<u64, StoreError> {
        let mut tables = self.tables();
        let had = tables.access.tokens.len();
        let until = |token: &Token| TokenColumns::of(token).map_or(i64::MAX, |it| it.valid_until);
        tables.access.tokens.retain(|_, token| until(token) >= before.0);
        Ok((had - tables.access.tokens.len()) as u64)
    }
    async fn roles(&self) -> Result<Vec<Role>, StoreError> {
        Ok(self.tables().access.roles.values().cloned().collect())
    }
    async fn put_role(&self, role: &Role) -> Result<RoleWritten, StoreError> {
        let access = &mut self.tables().access;
        access.changes.number += 1;
        let roles = &mut access.roles;
        if !roles.contains_key(&role.name) && roles.len() as u64 >= ROLES_MAX {
            return Ok(RoleWritten::TooMany);
        }
        let before = roles.insert(role.name.clone(), role.clone());
        Ok(if before.is_none() { RoleWritten::Created } else { RoleWritten::Replaced })
    }
    async fn delete_role(&self, name: &Name, now: Timestamp) -> Result<RoleDeleted, StoreError> {
        let access = &mut self.tables().access;
        let users = access.tokens.values().filter(|it| it.role == *name && it.is_valid(now)).count();
        if users > 0 {
            return Ok(RoleDeleted::InUse(users as u64));
        }
        access.changes.number += 1;
        let removed = access.roles.remove(name);
        Ok(if removed.is_some() { RoleDeleted::Done } else { RoleDeleted::Missing })
    }
}

#[async_trait]
impl Audit for MemoryStore {
    async fn add_audit(&self, entries: &[AuditEntry]) -> Result<Vec<i64>, StoreError> {
        let access = &mut self.tables().access;
        let mut ids = Vec::with_capacity(entries.len());
        for entry in entries {
            access.last_audit += 1;
            access.audit.push(AuditEntry { id: access.last_audit, outcome: None, ..entry.clone() });
            ids.push(access.last_audit);
        }
        Ok(ids)
    }
    async fn set_outcomes(&self, outcomes: &[(i64, Outcome)]) -> Result<(), StoreError> {
        let access = &mut self.tables().access;
        for (id, outcome) in outcomes {
            if let Some(entry) = access.audit.iter_mut().find(|it| it.id == *id) {
                entry.outcome = Some(outcome.clone());
            }
        }
        Ok(())
    }
    async fn audit(&self, filter: &AuditFilter, most: usize) -> Result<Vec<AuditEntry>, StoreError> {
        let tables = self.tables();
        let is = |entry: &&AuditEntry| {
            (filter.principal.is_none() || entry.principal == filter.principal)
                && filter.before.is_none_or(|before| entry.id < before)
        };
        Ok(tables.access.audit.iter().rev().filter(is).take(most).cloned().collect())
    }
    async fn count_audit(&self, principal: Option<&str>) -> Result<u64, StoreError> {
        let is = |entry: &&AuditEntry| principal.is_none() || entry.principal.as_deref() == principal;
        Ok(self.tables().access.audit.iter().filter(is).count() as u64)
    }
    async fn forget_audit(&self, before: Timestamp) -> Result<u64, StoreError> {
        let access = &mut self.tables().access;
        let had = access.audit.len();
        access.audit.retain(|it| it.at >= before);
        Ok((had - access.audit.len()) as u64)
    }
}
