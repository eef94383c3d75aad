//! Namespaces on PostgreSQL. A create locks its namespaces first and counts their observers after that: a count from before
//! the wait for a lock would miss what the create before has stored.

use super::limit_counts::write_limit;
use super::rates::now;
use super::{PgStore, answered, snapshot};
use crate::error_mapping::failure;
use crate::namespaces::{Columns, FoundNamespaces, columns_of, counts_of, row_of};
use crate::port::{NamespaceDeleted, NamespaceWritten, Namespaces, StoreError};
use async_trait::async_trait;
use everwatch_core::capacity::namespace::{NamespaceRow, NamespaceSettings};
use everwatch_core::clock::Timestamp;
use everwatch_core::id::{LimitKey, Namespace};
use sqlx::{PgConnection, PgPool};
use std::collections::BTreeMap;

const READ: &str = "SELECT name, settings, creates FROM namespaces WHERE name = ANY($1::text[])";
const LOCK: &str =
    "SELECT name, settings, creates FROM namespaces WHERE name = ANY($1::text[]) ORDER BY name FOR UPDATE";
// The qualified names of a namespace stand together in their index, between its name and a slash, and the character that
// follows the slash.
const COUNT: &str = "SELECT n.name, CASE n.name
        WHEN 'default' THEN (SELECT COUNT(*) FROM observers o WHERE o.name_key IS NOT NULL AND o.namespace = 'default')
        ELSE (SELECT COUNT(*) FROM observers o WHERE o.name_key > n.name || '/' AND o.name_key < n.name || '0') END
    FROM UNNEST($1::text[]) AS n (name)";
const WRITE: &str = "INSERT INTO namespaces (name, settings, creates) VALUES ($1, $2, $3)
    ON CONFLICT (name) DO UPDATE SET settings = EXCLUDED.settings, creates = EXCLUDED.creates";

fn texts(names: &[Namespace]) -> Vec<&str> {
    names.iter().map(Namespace::as_str).collect()
}

async fn rows(
    connection: &mut PgConnection,
    statement: &'static str,
    names: &[Namespace],
) -> Result<Vec<NamespaceRow>, StoreError> {
    let query = sqlx::query_as::<_, Columns>(statement).bind(texts(names));
    query.fetch_all(connection).await.map_err(failure)?.into_iter().map(row_of).collect()
}

async fn count(
    connection: &mut PgConnection,
    names: &[Namespace],
) -> Result<BTreeMap<Namespace, u64>, StoreError> {
    if names.is_empty() {
        return Ok(BTreeMap::new());
    }
    let found = sqlx::query_as(COUNT).bind(texts(names)).fetch_all(connection).await.map_err(failure)?;
    counts_of(names, found)
}

/// Locks and reads the namespaces of creates in their transaction.
pub(super) async fn lock(
    connection: &mut PgConnection,
    names: &[Namespace],
) -> Result<FoundNamespaces, StoreError> {
    let rows = rows(&mut *connection, LOCK, names).await?;
    if rows.is_empty() {
        return Ok(FoundNamespaces { rows, observers: BTreeMap::new(), now: Timestamp(0) });
    }
    let observers = count(&mut *connection, &FoundNamespaces::counted(&rows)).await?;
    Ok(FoundNamespaces { rows, observers, now: now(connection).await? })
}

pub(super) async fn write(connection: &mut PgConnection, rows: &[NamespaceRow]) -> Result<(), StoreError> {
    for row in rows {
        let (name, settings, creates) = columns_of(row)?;
        let write = sqlx::query(WRITE).bind(name).bind(settings).bind(creates);
        write.execute(&mut *connection).await.map_err(failure)?;
    }
    Ok(())
}

async fn put(
    pool: &PgPool,
    name: &Namespace,
    settings: &NamespaceSettings,
) -> Result<NamespaceWritten, StoreError> {
    let mut transaction = pool.begin().await.map_err(failure)?;
    // Two managers that count the namespaces at the same time could exceed their maximum.
    let alone = "SELECT pg_advisory_xact_lock(hashtextextended('everwatch namespaces', 0))";
    sqlx::query(alone).execute(&mut *transaction).await.map_err(failure)?;
    let before = rows(&mut transaction, LOCK, std::slice::from_ref(name)).await?.pop();
    let others = sqlx::query_scalar("SELECT COUNT(*) FROM namespaces WHERE name <> 'default'");
    let others = crate::columns::number(others.fetch_one(&mut *transaction).await.map_err(failure)?);
    let (now, is_new) = (now(&mut transaction).await?, before.is_none());
    let Some(row) = NamespaceRow::set(before, (name, settings.clone()), others, now) else {
        return Ok(NamespaceWritten::TooMany);
    };
    write(&mut transaction, std::slice::from_ref(&row)).await?;
    if let Some(limit) = row.limit() {
        write_limit(&mut transaction, &limit).await?;
    }
    transaction.commit().await.map_err(failure)?;
    Ok(if is_new { NamespaceWritten::Created } else { NamespaceWritten::Replaced })
}

async fn delete(pool: &PgPool, name: &Namespace) -> Result<NamespaceDeleted, StoreError> {
    let mut transaction = pool.begin().await.map_err(failure)?;
    let names = std::slice::from_ref(name);
    if rows(&mut transaction, LOCK, names).await?.is_empty() {
        return Ok(NamespaceDeleted::Missing);
    }
    let count = count(&mut transaction, names).await?.remove(name).unwrap_or(0);
    if NamespaceRow::is_in_use(name, count) {
        return Ok(NamespaceDeleted::InUse(count));
    }
    let delete = sqlx::query("DELETE FROM namespaces WHERE name = $1").bind(name.as_str());
    delete.execute(&mut *transaction).await.map_err(failure)?;
    if let Some(key) = LimitKey::of_namespace(name) {
        let delete = sqlx::query("DELETE FROM limits WHERE key = $1").bind(key.to_string());
        delete.execute(&mut *transaction).await.map_err(failure)?;
    }
    transaction.commit().await.map_err(failure)?;
    Ok(NamespaceDeleted::Done)
}

#[async_trait]
impl Namespaces for PgStore {
    async fn namespaces(&self) -> Result<Vec<NamespaceRow>, StoreError> {
        let all = sqlx::query_as("SELECT name, settings, creates FROM namespaces ORDER BY name");
        let found: Vec<Columns> = all.fetch_all(&self.pool).await.map_err(failure)?;
        found.into_iter().map(row_of).collect()
    }
    async fn namespace(&self, name: &Namespace) -> Result<Option<NamespaceRow>, StoreError> {
        let mut snapshot = snapshot(&self.pool).await?;
        Ok(rows(&mut snapshot, READ, std::slice::from_ref(name)).await?.pop())
    }
    async fn namespace_counts(&self, names: &[Namespace]) -> Result<BTreeMap<Namespace, u64>, StoreError> {
        let mut snapshot = snapshot(&self.pool).await?;
        count(&mut snapshot, names).await
    }
    async fn put_namespace(
        &self,
        name: &Namespace,
        settings: &NamespaceSettings,
    ) -> Result<NamespaceWritten, StoreError> {
        answered(put(&self.pool, name, settings)).await
    }
    async fn delete_namespace(&self, name: &Namespace) -> Result<NamespaceDeleted, StoreError> {
        answered(delete(&self.pool, name)).await
    }
}
