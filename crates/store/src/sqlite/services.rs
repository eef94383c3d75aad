//! Services on SQLite.

use super::observers::{Reading, told};
use crate::columns::ServiceColumns;
use crate::error_mapping::failure;
use crate::port::{Found, StoreError, Table};
use everwatch_core::clock::Timestamp;
use everwatch_core::id::{ServiceId, ServiceRef};
use everwatch_core::record::service::ServiceRow;
use sqlx::{SqliteConnection, SqlitePool};
use std::collections::BTreeMap;
use uuid::Uuid;

const SAVE: &str = "UPDATE services SET version = ?2, name = ?3, pool = ?4, capacity = ?5, state = ?6,
        registered_at = ?7, ended_at = ?8, document = ?9
    WHERE id = ?1 AND version = ?2 - 1";

const INSERT: &str = "INSERT INTO services
        (id, version, name, pool, capacity, state, registered_at, ended_at, document)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9) ON CONFLICT DO NOTHING";

pub(super) async fn all(
    (pool, ledger): Reading<'_>,
    ended_since: Timestamp,
) -> Result<Found<ServiceRow, ServiceId>, StoreError> {
    let all = "SELECT id, document FROM services WHERE ended_at IS NULL OR ended_at >= ?1
        ORDER BY name, registered_at, id";
    let rows = sqlx::query_as(all).bind(ended_since.0).fetch_all(pool).await.map(told).map_err(failure)?;
    Ok(ledger.read(&rows))
}

pub(super) async fn ends(
    pool: &SqlitePool,
    ids: &[ServiceId],
) -> Result<BTreeMap<ServiceId, Timestamp>, StoreError> {
    let ends = "SELECT id, ended_at FROM services
        WHERE id IN (SELECT value FROM json_each(?1)) AND ended_at IS NOT NULL";
    let ids = serde_json::json!(ids).to_string();
    let rows: Vec<(String, i64)> = sqlx::query_as(ends).bind(ids).fetch_all(pool).await.map_err(failure)?;
    let end = |(id, at): (String, i64)| Some((ServiceId(Uuid::parse_str(&id).ok()?), Timestamp(at)));
    Ok(rows.into_iter().filter_map(end).collect())
}

/// Rereads the unreadable rows in the ledger, and removes those that can be read or no longer exist.
pub(super) async fn look((pool, ledger): Reading<'_>) -> Result<(), StoreError> {
    let ids = ledger.ids(Table::Services);
    if !ids.is_empty() {
        let load = "SELECT id, document FROM services WHERE id IN (SELECT value FROM json_each(?1))";
        let load = sqlx::query_as(load).bind(serde_json::json!(ids).to_string());
        ledger.look::<ServiceRow>(&ids, &load.fetch_all(pool).await.map(told).map_err(failure)?);
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
    let found = sqlx::query_as(one)
        .bind(id.map(ToString::to_string))
        .bind(name)
        .fetch_all(pool)
        .await
        .map(told)
        .map_err(failure)?;
    found.first().map(|(id, document)| ledger.read_one(*id, document)).transpose()
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
        .bind(row.id.to_string())
        .bind(row.version)
        .bind(row.name)
        .bind(row.pool)
        .bind(row.capacity)
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
    Ok(done.rows_affected())
}
