//! Services on SQLite.

use super::observers::Reading;
use super::statements::{array, keys};
use crate::columns::ServiceColumns;
use crate::error_mapping::failure;
use crate::port::{Found, StoreError, Table};
use crate::unreadable::StoredService;
use everwatch_core::clock::Timestamp;
use everwatch_core::id::{Name, ServiceId, ServiceRef};
use everwatch_core::record::service::ServiceRow;
use sqlx::{SqliteConnection, SqlitePool};
use std::collections::BTreeMap;
use uuid::Uuid;

const SAVE: &str = "UPDATE services SET version = ?2, name = ?3, pool = ?4, capacity = ?5, weight_max = ?6,
        state = ?7, registered_at = ?8, ended_at = ?9, document = ?10
    WHERE id = ?1 AND version = ?2 - 1";

const INSERT: &str = "INSERT INTO services
        (id, version, name, pool, capacity, weight_max, state, registered_at, ended_at, document)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10) ON CONFLICT DO NOTHING";

pub(super) async fn all(
    (pool, ledger): Reading<'_>,
    ended_since: Timestamp,
) -> Result<Found<ServiceRow, ServiceId>, StoreError> {
    let all = "SELECT id, document FROM services WHERE ended_at IS NULL OR ended_at >= ?1
        ORDER BY name, registered_at, id";
    let rows: Vec<StoredService> =
        sqlx::query_as(all).bind(ended_since.0).fetch_all(pool).await.map_err(failure)?;
    Ok(ledger.read(&rows))
}

pub(super) async fn load(
    (pool, ledger): Reading<'_>,
    ids: &[ServiceId],
) -> Result<Found<ServiceRow, ServiceId>, StoreError> {
    Ok(ledger.read(&stored(pool, keys(ids.iter().map(|id| id.0))).await?))
}

async fn stored(pool: &SqlitePool, keys: String) -> Result<Vec<StoredService>, StoreError> {
    let load = "SELECT id, document FROM services WHERE id IN (SELECT unhex(value) FROM json_each(?1))";
    sqlx::query_as(load).bind(keys).fetch_all(pool).await.map_err(failure)
}

pub(super) async fn namesakes(
    (pool, ledger): Reading<'_>,
    names: &[Name],
    ended_since: Timestamp,
) -> Result<Vec<ServiceRow>, StoreError> {
    let named = "SELECT id, document FROM services WHERE name IN (SELECT value FROM json_each(?1))
        AND (ended_at IS NULL OR ended_at >= ?2) ORDER BY name, registered_at, id";
    let query = sqlx::query_as(named).bind(array(names)).bind(ended_since.0);
    let rows: Vec<StoredService> = query.fetch_all(pool).await.map_err(failure)?;
    Ok(ledger.read(&rows).rows)
}

pub(super) async fn ends(
    pool: &SqlitePool,
    ids: &[ServiceId],
) -> Result<BTreeMap<ServiceId, Timestamp>, StoreError> {
    let ends = "SELECT id, ended_at FROM services
        WHERE id IN (SELECT unhex(value) FROM json_each(?1)) AND ended_at IS NOT NULL";
    let ids = keys(ids.iter().map(|id| id.0));
    let rows: Vec<(Uuid, i64)> = sqlx::query_as(ends).bind(ids).fetch_all(pool).await.map_err(failure)?;
    Ok(rows.into_iter().map(|(id, at)| (ServiceId(id), Timestamp(at))).collect())
}

/// Rereads the unreadable rows in the ledger, and removes those that can be read or no longer exist.
pub(super) async fn look((pool, ledger): Reading<'_>) -> Result<(), StoreError> {
    let ids = ledger.ids(Table::Services);
    if !ids.is_empty() {
        ledger.look(&ids, &stored(pool, keys(ids.iter().copied())).await?);
    }
    Ok(())
}

pub(super) async fn find(
    (pool, ledger): Reading<'_>,
    which: &ServiceRef,
) -> Result<Option<ServiceRow>, StoreError> {
    let (id, name) = match which {
        ServiceRef::Id(id) => (Some(id), None),
        ServiceRef::Name(name) => (None, Some(name.as_str())),
    };
    let one = "SELECT id, document FROM services WHERE id = ?1 OR (?1 IS NULL AND name = ?2)
        ORDER BY registered_at DESC, id DESC LIMIT 1";
    let found: Option<StoredService> =
        sqlx::query_as(one).bind(id.map(|id| id.0)).bind(name).fetch_optional(pool).await.map_err(failure)?;
    found.map(|it| ledger.read_one(&it)).transpose()
}

pub(super) async fn save(writer: &SqlitePool, rows: &[ServiceRow]) -> Result<Vec<ServiceId>, StoreError> {
    let mut late = Vec::new();
    let mut transaction = super::writing(writer).await?;
    for row in rows {
        let saved = write(&mut transaction, SAVE, ServiceColumns::of(row, row.version + 1)?).await?;
        let done = saved
            || (row.version == 1 && write(&mut transaction, INSERT, ServiceColumns::of(row, 1)?).await?);
        if !done {
            late.push(row.id);
        }
    }
    transaction.commit().await.map_err(failure)?;
    Ok(late)
}

async fn write(
    connection: &mut SqliteConnection,
    statement: &'static str,
    row: ServiceColumns,
) -> Result<bool, StoreError> {
    let done = sqlx::query(statement)
        .bind(row.id)
        .bind(row.version)
        .bind(row.name)
        .bind(row.pool)
        .bind(row.capacity)
        .bind(row.weight_max)
        .bind(row.state)
        .bind(row.registered_at)
        .bind(row.ended_at)
        .bind(row.document)
        .execute(connection)
        .await
        .map_err(failure)?;
    Ok(done.rows_affected() > 0)
}

pub(super) async fn forget(writer: &SqlitePool, before: Timestamp) -> Result<u64, StoreError> {
    let forget = "DELETE FROM services WHERE ended_at < ?1";
    let done = sqlx::query(forget).bind(before.0).execute(writer).await.map_err(failure)?;
    // Services that have ended leave counts of zero.
    sqlx::query("DELETE FROM observer_counts WHERE number = 0").execute(writer).await.map_err(failure)?;
    Ok(done.rows_affected())
}
