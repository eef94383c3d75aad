//! Namespaces on SQLite.

use super::limit_counts::write_limit;
use super::statements::array;
use super::{SqliteStore, snapshot, writing};
use crate::error_mapping::failure;
use crate::namespaces::{Columns, FoundNamespaces, columns_of, counts_of, row_of};
use crate::port::{NamespaceDeleted, NamespaceWritten, Namespaces, StoreError};
use async_trait::async_trait;
use everwatch_core::capacity::namespace::{NamespaceRow, NamespaceSettings};
use everwatch_core::clock;
use everwatch_core::id::{LimitKey, Namespace};
use sqlx::SqliteConnection;
use std::collections::BTreeMap;

const READ: &str =
    "SELECT name, settings, creates FROM namespaces WHERE name IN (SELECT value FROM json_each(?1))";
// The qualified names of a namespace stand together in their index, between its name and a slash, and the character that
// follows the slash.
const COUNT: &str = "SELECT n.name, CASE n.name
        WHEN 'default' THEN (SELECT COUNT(*) FROM observers o WHERE o.name_key IS NOT NULL AND o.namespace = 'default')
        ELSE (SELECT COUNT(*) FROM observers o WHERE o.name_key > n.name || '/' AND o.name_key < n.name || '0') END
    FROM (SELECT value AS name FROM json_each(?1)) AS n";
const WRITE: &str = "INSERT INTO namespaces (name, settings, creates) VALUES (?1, ?2, ?3)
    ON CONFLICT (name) DO UPDATE SET settings = excluded.settings, creates = excluded.creates";

async fn read(
    connection: &mut SqliteConnection,
    names: &[Namespace],
) -> Result<Vec<NamespaceRow>, StoreError> {
    let query = sqlx::query_as::<_, Columns>(READ).bind(array(names));
    query.fetch_all(connection).await.map_err(failure)?.into_iter().map(row_of).collect()
}

async fn count(
    connection: &mut SqliteConnection,
    names: &[Namespace],
) -> Result<BTreeMap<Namespace, u64>, StoreError> {
    if names.is_empty() {
        return Ok(BTreeMap::new());
    }
    let found = sqlx::query_as(COUNT).bind(array(names)).fetch_all(connection).await.map_err(failure)?;
    counts_of(names, found)
}

/// Reads the namespaces of creates in their transaction.
pub(super) async fn of(
    connection: &mut SqliteConnection,
    names: &[Namespace],
) -> Result<FoundNamespaces, StoreError> {
    let rows = read(&mut *connection, names).await?;
    let observers = count(connection, &FoundNamespaces::counted(&rows)).await?;
    Ok(FoundNamespaces { rows, observers, now: clock::now() })
}

pub(super) async fn write(
    connection: &mut SqliteConnection,
    rows: &[NamespaceRow],
) -> Result<(), StoreError> {
    for row in rows {
        let (name, settings, creates) = columns_of(row)?;
        let write = sqlx::query(WRITE).bind(name).bind(settings).bind(creates);
        write.execute(&mut *connection).await.map_err(failure)?;
    }
    Ok(())
}

#[async_trait]
impl Namespaces for SqliteStore {
    async fn namespaces(&self) -> Result<Vec<NamespaceRow>, StoreError> {
        let all = "SELECT name, settings, creates FROM namespaces ORDER BY name";
        let found: Vec<Columns> = sqlx::query_as(all).fetch_all(&self.readers).await.map_err(failure)?;
        found.into_iter().map(row_of).collect()
    }
    async fn namespace(&self, name: &Namespace) -> Result<Option<NamespaceRow>, StoreError> {
        let mut snapshot = snapshot(&self.readers).await?;
        Ok(read(&mut snapshot, std::slice::from_ref(name)).await?.pop())
    }
    async fn namespace_counts(&self, names: &[Namespace]) -> Result<BTreeMap<Namespace, u64>, StoreError> {
        let mut snapshot = snapshot(&self.readers).await?;
        count(&mut snapshot, names).await
    }
    async fn put_namespace(
        &self,
        name: &Namespace,
        settings: &NamespaceSettings,
    ) -> Result<NamespaceWritten, StoreError> {
        let mut transaction = writing(&self.writer).await?;
        let before = read(&mut transaction, std::slice::from_ref(name)).await?.pop();
        let others = sqlx::query_scalar("SELECT COUNT(*) FROM namespaces WHERE name <> 'default'");
        let others = crate::columns::number(others.fetch_one(&mut *transaction).await.map_err(failure)?);
        let is_new = before.is_none();
        let Some(row) = NamespaceRow::set(before, (name, settings.clone()), others, clock::now()) else {
            return Ok(NamespaceWritten::TooMany);
        };
        write(&mut transaction, std::slice::from_ref(&row)).await?;
        if let Some(limit) = row.limit() {
            write_limit(&mut transaction, &limit).await?;
        }
        transaction.commit().await.map_err(failure)?;
        Ok(if is_new { NamespaceWritten::Created } else { NamespaceWritten::Replaced })
    }
    async fn delete_namespace(&self, name: &Namespace) -> Result<NamespaceDeleted, StoreError> {
        let mut transaction = writing(&self.writer).await?;
        let names = std::slice::from_ref(name);
        if read(&mut transaction, names).await?.is_empty() {
            return Ok(NamespaceDeleted::Missing);
        }
        let count = count(&mut transaction, names).await?.remove(name).unwrap_or(0);
        if NamespaceRow::is_in_use(name, count) {
            return Ok(NamespaceDeleted::InUse(count));
        }
        let delete = sqlx::query("DELETE FROM namespaces WHERE name = ?1").bind(name.as_str());
        delete.execute(&mut *transaction).await.map_err(failure)?;
        if let Some(key) = LimitKey::of_namespace(name) {
            let delete = sqlx::query("DELETE FROM limits WHERE key = ?1").bind(key.to_string());
            delete.execute(&mut *transaction).await.map_err(failure)?;
        }
        transaction.commit().await.map_err(failure)?;
        Ok(NamespaceDeleted::Done)
    }
}
