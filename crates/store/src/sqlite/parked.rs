//! Unreadable messages on SQLite.

use crate::columns::{limit, number, without_nul};
use crate::error_mapping::failure;
use crate::port::{Parked, ParkedHead, StoreError};
use everwatch_core::clock::Timestamp;
use sqlx::SqlitePool;

pub(super) async fn park(writer: &SqlitePool, parked: &[Parked]) -> Result<(), StoreError> {
    let insert = "INSERT INTO parked (queue, reason, body, at) VALUES (?1, ?2, ?3, ?4)";
    let mut transaction = super::writing(writer).await?;
    for one in parked {
        sqlx::query(insert)
            .bind(without_nul(&one.queue))
            .bind(without_nul(&one.reason))
            .bind(one.body.as_slice())
            .bind(one.at.0)
            .execute(&mut *transaction)
            .await
            .map_err(failure)?;
    }
    transaction.commit().await.map_err(failure)
}

pub(super) async fn page(
    pool: &SqlitePool,
    before: Option<i64>,
    most: usize,
) -> Result<(Vec<ParkedHead>, u64), StoreError> {
    let mut snapshot = super::snapshot(pool).await?;
    let newest = "SELECT id, queue, reason, substr(body, 1, 4096), length(body), at
        FROM parked WHERE id < ?1 ORDER BY id DESC LIMIT ?2";
    let rows: Vec<(i64, String, String, Vec<u8>, i64, i64)> = sqlx::query_as(newest)
        .bind(before.unwrap_or(i64::MAX))
        .bind(limit(most))
        .fetch_all(&mut *snapshot)
        .await
        .map_err(failure)?;
    let total =
        sqlx::query_scalar("SELECT COUNT(*) FROM parked").fetch_one(&mut *snapshot).await.map_err(failure)?;
    let shown = |(id, queue, reason, head, size, at)| {
        let (size, at) = (number(size), Timestamp(at));
        ParkedHead { id, queue, reason, head, size, at }
    };
    Ok((rows.into_iter().map(shown).collect(), number(total)))
}

type Stored = (i64, String, String, Vec<u8>, i64);

fn parked((id, queue, reason, body, at): Stored) -> Parked {
    Parked { id, queue, reason, body, at: Timestamp(at) }
}

pub(super) async fn one(pool: &SqlitePool, id: i64) -> Result<Option<Parked>, StoreError> {
    let one = sqlx::query_as("SELECT id, queue, reason, body, at FROM parked WHERE id = ?1").bind(id);
    let found: Option<Stored> = one.fetch_optional(pool).await.map_err(failure)?;
    Ok(found.map(parked))
}

pub(super) async fn unpark(pool: &SqlitePool, id: i64) -> Result<bool, StoreError> {
    let gone =
        sqlx::query("DELETE FROM parked WHERE id = ?1").bind(id).execute(pool).await.map_err(failure)?;
    Ok(gone.rows_affected() > 0)
}

pub(super) async fn forget(writer: &SqlitePool, before: Timestamp, keep: usize) -> Result<u64, StoreError> {
    let forget = "DELETE FROM parked WHERE at < ?1 OR id <= (SELECT MAX(id) FROM parked) - ?2";
    let done = sqlx::query(forget).bind(before.0).bind(limit(keep)).execute(writer).await.map_err(failure)?;
    Ok(done.rows_affected())
}
