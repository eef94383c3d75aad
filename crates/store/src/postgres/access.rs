//! Tokens, roles and the audit log on PostgreSQL. Writes of tokens and roles take one lock each, so that no two of them
//! count at the same time.

use super::{PgStore, answered};
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
use sqlx::{PgPool, Postgres, Transaction};

/// Begins a transaction in which no other writes tokens or roles.
async fn alone(pool: &PgPool) -> Result<Transaction<'static, Postgres>, StoreError> {
    let mut transaction = pool.begin().await.map_err(failure)?;
    let lock = sqlx::query("LOCK TABLE roles, tokens IN SHARE ROW EXCLUSIVE MODE");
    lock.execute(&mut *transaction).await.map_err(failure)?;
    Ok(transaction)
}

/// Commits a write of a token or a role.
async fn commit(mut transaction: Transaction<'_, Postgres>) -> Result<(), StoreError> {
    let note = sqlx::query(
        "UPDATE access_changes SET number = number + 1,
        had_token = EXISTS (SELECT 1 FROM tokens WHERE name IS NOT NULL) OR had_token",
    );
    note.execute(&mut *transaction).await.map_err(failure)?;
    transaction.commit().await.map_err(failure)
}

async fn change_token(pool: &PgPool, before: &Token, after: &Token) -> Result<bool, StoreError> {
    let columns = TokenColumns::of(after)?;
    let mut transaction = alone(pool).await?;
    let change = "UPDATE tokens SET valid_until = $3, document = $4 WHERE id = $1 AND document = $2";
    let change = sqlx::query(change).bind(columns.id).bind(written(before)?);
    let change = change.bind(columns.valid_until).bind(columns.document);
    let changed = change.execute(&mut *transaction).await.map_err(failure)?.rows_affected() > 0;
    commit(transaction).await?;
    Ok(changed)
}

async fn add_token(pool: &PgPool, token: &Token, now: Timestamp) -> Result<TokenAdded, StoreError> {
    let columns = TokenColumns::of(token)?;
    let mut transaction = alone(pool).await?;
    let count = "SELECT COUNT(*), COUNT(*) FILTER (WHERE name = $2) FROM tokens WHERE valid_until > $1";
    let count = sqlx::query_as(count).bind(now.0).bind(&columns.name);
    let (valid, namesakes): (i64, i64) = count.fetch_one(&mut *transaction).await.map_err(failure)?;
    if namesakes > 0 {
        return Ok(TokenAdded::NameTaken);
    }
    if number(valid) >= TOKENS_MAX {
        return Ok(TokenAdded::TooMany);
    }
    let insert = "INSERT INTO tokens (id, name, role, valid_until, document) VALUES ($1, $2, $3, $4, $5)";
    let insert = sqlx::query(insert).bind(columns.id).bind(columns.name).bind(columns.role);
    let insert = insert.bind(columns.valid_until).bind(columns.document);
    insert.execute(&mut *transaction).await.map_err(failure)?;
    commit(transaction).await?;
    Ok(TokenAdded::Done)
}

async fn put_role(pool: &PgPool, role: &Role) -> Result<RoleWritten, StoreError> {
    let mut transaction = alone(pool).await?;
    let count = sqlx::query_as("SELECT COUNT(*), COUNT(*) FILTER (WHERE name = $1) FROM roles");
    let count = count.bind(role.name.as_str()).fetch_one(&mut *transaction);
    let (all, same): (i64, i64) = count.await.map_err(failure)?;
    if same == 0 && number(all) >= ROLES_MAX {
        return Ok(RoleWritten::TooMany);
    }
    let put = "INSERT INTO roles (name, document) VALUES ($1, $2)
        ON CONFLICT (name) DO UPDATE SET document = EXCLUDED.document";
    let put = sqlx::query(put).bind(role.name.as_str()).bind(written(role)?);
    put.execute(&mut *transaction).await.map_err(failure)?;
    commit(transaction).await?;
    Ok(if same == 0 { RoleWritten::Created } else { RoleWritten::Replaced })
}

async fn delete_role(pool: &PgPool, name: &Name, now: Timestamp) -> Result<RoleDeleted, StoreError> {
    let mut transaction = alone(pool).await?;
    let users = sqlx::query_scalar("SELECT COUNT(*) FROM tokens WHERE role = $1 AND valid_until > $2");
    let users = users.bind(name.as_str()).bind(now.0).fetch_one(&mut *transaction).await;
    let users = number(users.map_err(failure)?);
    if users > 0 {
        return Ok(RoleDeleted::InUse(users));
    }
    let delete = sqlx::query("DELETE FROM roles WHERE name = $1").bind(name.as_str());
    let deleted = delete.execute(&mut *transaction).await.map_err(failure)?.rows_affected() > 0;
    commit(transaction).await?;
    Ok(if deleted { RoleDeleted::Done } else { RoleDeleted::Missing })
}

async fn add_audit(pool: &PgPool, entries: &[AuditEntry]) -> Result<Vec<i64>, StoreError> {
    let (mut at, mut principals, mut documents) = (Vec::new(), Vec::new(), Vec::new());
    for columns in entries.iter().map(audit_columns) {
        let (time, principal, document) = columns?;
        at.push(time);
        principals.push(principal);
        documents.push(document);
    }
    // The order of RETURNING is that of the inserted rows, whose numbers rise.
    let insert = "INSERT INTO audit (at, principal, document)
        SELECT * FROM UNNEST($1::bigint[], $2::text[], $3::text[]) RETURNING id";
    let insert = sqlx::query_scalar(insert).bind(at).bind(principals).bind(documents);
    let mut ids: Vec<i64> = insert.fetch_all(pool).await.map_err(failure)?;
    ids.sort_unstable();
    Ok(ids)
}

async fn set_outcomes(pool: &PgPool, outcomes: &[(i64, Outcome)]) -> Result<(), StoreError> {
    let set = "UPDATE audit SET status = n.status, created = n.created
        FROM UNNEST($1::bigint[], $2::integer[], $3::text[]) AS n (id, status, created) WHERE audit.id = n.id";
    let ids: Vec<i64> = outcomes.iter().map(|(id, _)| *id).collect();
    let statuses: Vec<i32> = outcomes.iter().map(|(_, outcome)| outcome.status.into()).collect();
    let created: Vec<Option<String>> = outcomes.iter().map(|(_, outcome)| outcome.created.clone()).collect();
    let set = sqlx::query(set).bind(ids).bind(statuses).bind(created);
    set.execute(pool).await.map(drop).map_err(failure)
}

async fn audit(pool: &PgPool, filter: &AuditFilter, most: usize) -> Result<Vec<AuditEntry>, StoreError> {
    let page = if filter.principal.is_some() {
        "SELECT id, at, status, created, document FROM audit WHERE principal = $1 AND id < $2
        ORDER BY id DESC LIMIT $3"
    } else {
        "SELECT id, at, status, created, document FROM audit WHERE $1::text IS NULL AND id < $2
        ORDER BY id DESC LIMIT $3"
    };
    let page = sqlx::query_as(page).bind(&filter.principal).bind(filter.before.unwrap_or(i64::MAX));
    let columns: Vec<AuditColumns> = page.bind(limit(most)).fetch_all(pool).await.map_err(failure)?;
    Ok(audit_entries(columns))
}

async fn count_audit(pool: &PgPool, principal: Option<&str>) -> Result<u64, StoreError> {
    // Two statements: one with both conditions would not use the index of principals.
    let count = match principal {
        Some(principal) => {
            sqlx::query_scalar("SELECT count(*) FROM audit WHERE principal = $1").bind(principal.to_owned())
        }
        None => sqlx::query_scalar("SELECT count(*) FROM audit"),
    };
    let count: i64 = count.fetch_one(pool).await.map_err(failure)?;
    Ok(u64::try_from(count).unwrap_or(0))
}

async fn documents(pool: &PgPool, all: &'static str) -> Result<Vec<String>, StoreError> {
    sqlx::query_scalar(all).fetch_all(pool).await.map_err(failure)
}

async fn delete(pool: &PgPool, all: &'static str, before: Timestamp) -> Result<u64, StoreError> {
    Ok(sqlx::query(all).bind(before.0).execute(pool).await.map_err(failure)?.rows_affected())
}

#[async_trait]
impl Access for PgStore {
    async fn add_token(&self, token: &Token, now: Timestamp) -> Result<TokenAdded, StoreError> {
        answered(add_token(&self.pool, token, now)).await
    }
    async fn change_token(&self, before: &Token, after: &Token) -> Result<bool, StoreError> {
        answered(change_token(&self.pool, before, after)).await
    }
    async fn access_changes(&self) -> Result<AccessChanges, StoreError> {
        let changes = sqlx::query_as("SELECT number, had_token FROM access_changes");
        let (number, had_token) =
            answered(async { changes.fetch_one(&self.pool).await.map_err(failure) }).await?;
        Ok(AccessChanges { number, had_token })
    }
    async fn tokens(&self) -> Result<Vec<Token>, StoreError> {
        Ok(tokens(answered(documents(&self.pool, "SELECT document FROM tokens ORDER BY id")).await?))
    }
    async fn token(&self, id: &TokenId) -> Result<Option<Token>, StoreError> {
        let one = sqlx::query_scalar("SELECT document FROM tokens WHERE id = $1").bind(id.as_str());
        Ok(tokens(answered(async { one.fetch_all(&self.pool).await.map_err(failure) }).await?).pop())
    }
    async fn forget_tokens(&self, before: Timestamp) -> Result<u64, StoreError> {
        answered(delete(&self.pool, "DELETE FROM tokens WHERE valid_until < $1", before)).await
    }
    async fn roles(&self) -> Result<Vec<Role>, StoreError> {
        Ok(roles(answered(documents(&self.pool, "SELECT document FROM roles ORDER BY name")).await?))
    }
    async fn put_role(&self, role: &Role) -> Result<RoleWritten, StoreError> {
        answered(put_role(&self.pool, role)).await
    }
    async fn delete_role(&self, name: &Name, now: Timestamp) -> Result<RoleDeleted, StoreError> {
        answered(delete_role(&self.pool, name, now)).await
    }
}

#[async_trait]
impl Audit for PgStore {
    async fn add_audit(&self, entries: &[AuditEntry]) -> Result<Vec<i64>, StoreError> {
        answered(add_audit(&self.pool, entries)).await
    }
    async fn set_outcomes(&self, outcomes: &[(i64, Outcome)]) -> Result<(), StoreError> {
        answered(set_outcomes(&self.pool, outcomes)).await
    }
    async fn audit(&self, filter: &AuditFilter, most: usize) -> Result<Vec<AuditEntry>, StoreError> {
        answered(audit(&self.pool, filter, most)).await
    }
    async fn count_audit(&self, principal: Option<&str>) -> Result<u64, StoreError> {
        answered(count_audit(&self.pool, principal)).await
    }
    async fn forget_audit(&self, before: Timestamp) -> Result<u64, StoreError> {
        answered(delete(&self.pool, "DELETE FROM audit WHERE at < $1", before)).await
    }
}
