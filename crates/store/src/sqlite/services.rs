//! Services on SQLite.

use crate::columns::{ServiceColumns, read, read_all};
use crate::failure::failure;
use crate::port::StoreError;
use everwatch_core::clock::Timestamp;
use everwatch_core::id::{Name, ServiceId};
use everwatch_core::service::ServiceRow;
use sqlx::{SqliteConnection, SqlitePool};

const SAVE: &str = "UPDATE services SET version = ?2, name = ?3, pool = ?4, capacity = ?5, state = ?6,
        born_at = ?7, ended_at = ?8, document = ?9
    WHERE id = ?1 AND version = ?2 - 1";

const INSERT: &str = "INSERT INTO services
        (id, version, name, pool, capacity, state, born_at, ended_at, document)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9) ON CONFLICT DO NOTHING";

pub(super) async fn all(pool: &SqlitePool, ended_since: Timestamp) -> Result<Vec<ServiceRow>, StoreError> {
    let all = "SELECT document FROM services WHERE ended_at IS NULL OR ended_at >= ?1
        ORDER BY name, born_at, id";
    let documents: Vec<String> =
        sqlx::query_scalar(all).bind(ended_since.0).fetch_all(pool).await.map_err(failure)?;
    read_all(&documents)
}

pub(super) async fn find(
    pool: &SqlitePool,
    id: Option<ServiceId>,
    name: Option<&Name>,
) -> Result<Option<ServiceRow>, StoreError> {
    let one = "SELECT document FROM services WHERE id = ?1 OR (?1 IS NULL AND name = ?2)
        ORDER BY born_at DESC, id DESC LIMIT 1";
    let document: Option<String> = sqlx::query_scalar(one)
        .bind(id.map(|id| id.to_string()))
        .bind(name.map(Name::as_str))
        .fetch_optional(pool)
        .await
        .map_err(failure)?;
    document.as_deref().map(read).transpose()
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
        .bind(row.born_at)
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
