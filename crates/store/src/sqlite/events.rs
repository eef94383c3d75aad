//! Events on SQLite.

use super::statements::Statements;
use crate::columns::{event_page, limit, number, written};
use crate::error_mapping::failure;
use crate::port::{Event, EventFilter, EventPage, EventRange, StoreError};
use everwatch_core::clock::Timestamp;
use sqlx::SqlitePool;
use std::sync::LazyLock;

const MATCHING: &str = "(?1 IS NULL OR observer_id = ?1) AND (?2 IS NULL OR service_id = ?2)
    AND (json_array_length(?3) = 0 OR type IN (SELECT value FROM json_each(?3)))";

static INSERT: LazyLock<Statements> = LazyLock::new(|| {
    Statements::new("INSERT INTO events (at, type, observer_id, service_id, document)", 5, "")
});

pub(super) async fn record(writer: &SqlitePool, events: &[Event]) -> Result<(), StoreError> {
    let mut transaction = super::writing(writer).await?;
    // In their order: the numbers follow it.
    for (text, part) in INSERT.parts(events) {
        let mut query = sqlx::query(text);
        for event in part {
            query = query
                .bind(event.at.0)
                .bind(event.kind.as_str())
                .bind(event.observer.as_ref().map(|it| it.id))
                .bind(event.service.as_ref().map(|it| it.id))
                .bind(written(event)?);
        }
        query.execute(&mut *transaction).await.map_err(failure)?;
    }
    transaction.commit().await.map_err(failure)
}

pub(super) async fn page(
    pool: &SqlitePool,
    filter: &EventFilter,
    stretch: EventRange,
    most: usize,
) -> Result<EventPage, StoreError> {
    let mut snapshot = super::snapshot(pool).await?;
    let (place, order, from) = match stretch {
        EventRange::Before(id) => ("id < ?4", "DESC", id),
        EventRange::After(id) => ("id > ?4", "ASC", id),
    };
    let types: Vec<&str> = filter.kinds.iter().map(|kind| kind.as_str()).collect();
    let types = serde_json::json!(types).to_string();
    let select =
        format!("SELECT id, document FROM events WHERE {MATCHING} AND {place} ORDER BY id {order} LIMIT ?5");
    let rows: Vec<(i64, String)> = sqlx::query_as(sqlx::AssertSqlSafe(select))
        .bind(filter.observer.map(|id| id.0))
        .bind(filter.service.map(|id| id.0))
        .bind(&types)
        .bind(from)
        .bind(limit(most))
        .fetch_all(&mut *snapshot)
        .await
        .map_err(failure)?;
    let count = format!("SELECT COUNT(*) FROM events WHERE {MATCHING}");
    let total = match stretch {
        EventRange::After(_) => 0,
        EventRange::Before(_) => sqlx::query_scalar(sqlx::AssertSqlSafe(count))
            .bind(filter.observer.map(|id| id.0))
            .bind(filter.service.map(|id| id.0))
            .bind(&types)
            .fetch_one(&mut *snapshot)
            .await
            .map_err(failure)?,
    };
    event_page(rows, number(total))
}

pub(super) async fn ends(pool: &SqlitePool) -> Result<(i64, i64), StoreError> {
    let ends = "SELECT COALESCE(MIN(id), 0), COALESCE(MAX(id), 0) FROM events";
    sqlx::query_as(ends).fetch_one(pool).await.map_err(failure)
}

pub(super) async fn forget(writer: &SqlitePool, before: Timestamp, keep: usize) -> Result<u64, StoreError> {
    // One always stays: the numbers go on from it.
    let forget = "DELETE FROM events WHERE (at < ?1 OR id <= (SELECT MAX(id) FROM events) - ?2)
        AND id < (SELECT MAX(id) FROM events)";
    let done = sqlx::query(forget).bind(before.0).bind(limit(keep)).execute(writer).await.map_err(failure)?;
    Ok(done.rows_affected())
}
