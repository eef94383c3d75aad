//! Tokens, roles and the audit log on SQLite.

use super::{SqliteStore, writing};
use crate::access_columns::{
    AuditColumns, TokenColumns, audit_columns, audit_entries, roles, tokens, written,
};
use crate::columns::{limit, number};
use crate::error_mapping::failure;
use crate::port::{Access, AccessChanges, Audit, RoleDeleted, RoleWritten, StoreError, TokenAdded};
use async_trait::async_trait;
use everwatch_core::access::{AuditEntry, AuditFilter, Outcome, ROLES_MAX, Role, TOKENS_MAX, Token, TokenId};
use everwatch_core::clock::Timestamp;
use everwatch_core::id::Name;
use sqlx::{Sqlite, Transaction};

/// Commits a write of a token or a role.
async fn commit(mut transaction: Transaction<'_, Sqlite>) -> Result<(), StoreError> {
    let note = sqlx::query(
        "UPDATE access_changes SET number = number + 1,
        had_token = EXISTS (SELECT 1 FROM tokens WHERE name IS NOT NULL) OR had_token",
    );
    note.execute(&mut *transaction).await.map_err(failure)?;
    transaction.commit().await.map_err(failure)
}

#[async_trait]
impl Access for SqliteStore {
    async fn add_token(&self, token: &Token, now: Timestamp) -> Result<TokenAdded, StoreError> {
        let columns = TokenColumns::of(token)?;
        let mut transaction = writing(&self.writer).await?;
        let count = "SELECT COUNT(*), COALESCE(SUM(name = ?2), 0) FROM tokens WHERE valid_until > ?1";
        let count = sqlx::query_as(count).bind(now.0).bind(&columns.name);
        let (valid, namesakes): (i64, i64) = count.fetch_one(&mut *transaction).await.map_err(failure)?;
        if namesakes > 0 {
            return Ok(TokenAdded::NameTaken);
        }
        if number(valid) >= TOKENS_MAX {
            return Ok(TokenAdded::TooMany);
        }
        let insert = "INSERT INTO tokens (id, name, role, valid_until, document) VALUES (?1, ?2, ?3, ?4, ?5)";
        let insert = sqlx::query(insert).bind(columns.id).bind(columns.name).bind(columns.role);
        let insert = insert.bind(columns.valid_until).bind(columns.document);
        insert.execute(&mut *transaction).await.map_err(failure)?;
        commit(transaction).await?;
        Ok(TokenAdded::Done)
    }
    async fn change_token(&self, before: &Token, after: &Token) -> Result<bool, StoreError> {
        let columns = TokenColumns::of(after)?;
        let change = "UPDATE tokens SET valid_until = ?3, document = ?4 WHERE id = ?1 AND document = ?2";
        let change = sqlx::query(change).bind(columns.id).bind(written(before)?);
        let change = change.bind(columns.valid_until).bind(columns.document);
        let mut transaction = writing(&self.writer).await?;
        let changed = change.execute(&mut *transaction).await.map_err(failure)?.rows_affected() > 0;
        commit(transaction).await?;
        Ok(changed)
    }
    async fn access_changes(&self) -> Result<AccessChanges, StoreError> {
        let changes = sqlx::query_as("SELECT number, had_token FROM access_changes");
        let (number, had_token) = changes.fetch_one(&self.readers).await.map_err(failure)?;
        Ok(AccessChanges { number, had_token })
    }
    async fn tokens(&self) -> Result<Vec<Token>, StoreError> {
        let all = sqlx::query_scalar("SELECT document FROM tokens ORDER BY id");
        Ok(tokens(all.fetch_all(&self.readers).await.map_err(failure)?))
    }
    async fn token(&self, id: &TokenId) -> Result<Option<Token>, StoreError> {
        let one = sqlx::query_scalar("SELECT document FROM tokens WHERE id = ?1").bind(id.as_str());
        Ok(tokens(one.fetch_all(&self.readers).await.map_err(failure)?).pop())
    }
    async fn forget_tokens(&self, before: Timestamp) -> Result<u64, StoreError> {
        let forget = sqlx::query("DELETE FROM tokens WHERE valid_until < ?1").bind(before.0);
        Ok(forget.execute(&self.writer).await.map_err(failure)?.rows_affected())
    }
    async fn roles(&self) -> Result<Vec<Role>, StoreError> {
        let all = sqlx::query_scalar("SELECT document FROM roles ORDER BY name");
        Ok(roles(all.fetch_all(&self.readers).await.map_err(failure)?))
    }
    async fn put_role(&self, role: &Role) -> Result<RoleWritten, StoreError> {
        let mut transaction = writing(&self.writer).await?;
        let count = sqlx::query_as("SELECT COUNT(*), COALESCE(SUM(name = ?1), 0) FROM roles")
            .bind(role.name.as_str());
        let (all, same): (i64, i64) = count.fetch_one(&mut *transaction).await.map_err(failure)?;
        if same == 0 && number(all) >= ROLES_MAX {
            return Ok(RoleWritten::TooMany);
        }
        let put = "INSERT INTO roles (name, document) VALUES (?1, ?2)
            ON CONFLICT (name) DO UPDATE SET document = excluded.document";
        let put = sqlx::query(put).bind(role.name.as_str()).bind(written(role)?);
        put.execute(&mut *transaction).await.map_err(failure)?;
        commit(transaction).await?;
        Ok(if same == 0 { RoleWritten::Created } else { RoleWritten::Replaced })
    }
    async fn delete_role(&self, name: &Name, now: Timestamp) -> Result<RoleDeleted, StoreError> {
        let mut transaction = writing(&self.writer).await?;
        let users = sqlx::query_scalar("SELECT COUNT(*) FROM tokens WHERE role = ?1 AND valid_until > ?2");
        let users = users.bind(name.as_str()).bind(now.0).fetch_one(&mut *transaction).await;
        let users = number(users.map_err(failure)?);
        if users > 0 {
            return Ok(RoleDeleted::InUse(users));
        }
        let delete = sqlx::query("DELETE FROM roles WHERE name = ?1").bind(name.as_str());
        let deleted = delete.execute(&mut *transaction).await.map_err(failure)?.rows_affected() > 0;
        commit(transaction).await?;
        Ok(if deleted { RoleDeleted::Done } else { RoleDeleted::Missing })
    }
}

#[async_trait]
impl Audit for SqliteStore {
    async fn add_audit(&self, entries: &[AuditEntry]) -> Result<Vec<i64>, StoreError> {
        let mut transaction = writing(&self.writer).await?;
        let mut ids = Vec::with_capacity(entries.len());
        for entry in entries {
            let (at, principal, document) = audit_columns(entry)?;
            let insert = "INSERT INTO audit (at, principal, document) VALUES (?1, ?2, ?3)";
            let insert = sqlx::query(insert).bind(at).bind(principal).bind(document);
            ids.push(insert.execute(&mut *transaction).await.map_err(failure)?.last_insert_rowid());
        }
        transaction.commit().await.map_err(failure)?;
        Ok(ids)
    }
    async fn set_outcomes(&self, outcomes: &[(i64, Outcome)]) -> Result<(), StoreError> {
        let mut transaction = writing(&self.writer).await?;
        for (entry, Outcome { status, created }) in outcomes {
            let set = sqlx::query("UPDATE audit SET status = ?2, created = ?3 WHERE id = ?1").bind(entry);
            let set = set.bind(i32::from(*status)).bind(created);
            set.execute(&mut *transaction).await.map_err(failure)?;
        }
        transaction.commit().await.map_err(failure)
    }
    async fn audit(&self, filter: &AuditFilter, most: usize) -> Result<Vec<AuditEntry>, StoreError> {
        let page = if filter.principal.is_some() {
            "SELECT id, at, status, created, document FROM audit WHERE principal = ?1 AND id < ?2
            ORDER BY id DESC LIMIT ?3"
        } else {
            "SELECT id, at, status, created, document FROM audit WHERE ?1 IS NULL AND id < ?2 ORDER BY id DESC LIMIT ?3"
        };
        let page = sqlx::query_as(page).bind(&filter.principal).bind(filter.before.unwrap_or(i64::MAX));
        let columns: Vec<AuditColumns> =
            page.bind(limit(most)).fetch_all(&self.readers).await.map_err(failure)?;
        Ok(audit_entries(columns))
    }
    async fn count_audit(&self, principal: Option<&str>) -> Result<u64, StoreError> {
        let count = match principal {
            Some(principal) => sqlx::query_scalar("SELECT count(*) FROM audit WHERE principal = ?1")
                .bind(principal.to_owned()),
            None => sqlx::query_scalar("SELECT count(*) FROM audit"),
        };
        let count: i64 = count.fetch_one(&self.readers).await.map_err(failure)?;
        Ok(u64::try_from(count).unwrap_or(0))
    }
    async fn forget_audit(&self, before: Timestamp) -> Result<u64, StoreError> {
        let forget = sqlx::query("DELETE FROM audit WHERE at < ?1").bind(before.0);
        Ok(forget.execute(&self.writer).await.map_err(failure)?.rows_affected())
    }
}
