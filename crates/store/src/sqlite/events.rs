//! Events on SQLite.

use super::statements::Statements;
use crate::columns::{event_page, limit, number, written};
use crate::error_mapping::failure;
use crate::events::{Forgets, Forgetting};
use crate::port::{Event, EventFilter, EventPage, EventRange, StoreError};
use everwatch_core::clock::Timestamp;
use sqlx::SqlitePool;
use std::sync::LazyLock;

const MATCHING: &str = "(?1 IS NULL OR observer_id = ?1) AND (?2 IS NULL OR service_id = ?2)
    AND (json_array_length(?3) = 0 OR type IN (SELECT value FROM json_each(?3)))
    AND (?4 IS NULL OR at >= ?4) AND (?5 IS NULL OR at <= ?5)";

static INSERT: LazyLock<Statements> = LazyLock::new(|| {
    Statements::new("INSERT INTO events (at, type, observer_id, service_id, detail, document)", 6, "")
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
                .bind(event.detail)
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
        EventRange::Before(id) => ("id < ?6", "DESC", id),
        EventRange::After(id) => ("id > ?6", "ASC", id),
    };
    let types: Vec<&str> = filter.kinds.iter().map(|kind| kind.as_str()).collect();
    let types = serde_json::json!(types).to_string();
    let (since, until) = (filter.since.map(|at| at.0), filter.until.map(|at| at.0));
    let class = if filter.with_details() { "" } else { "AND detail = 0" };
    let select = format!(
        "SELECT id, at, detail, document FROM events WHERE {MATCHING} {class} AND {place} ORDER BY id {order} LIMIT ?7"
    );
    let rows: Vec<(i64, i64, bool, String)> = sqlx::query_as(sqlx::AssertSqlSafe(select))
        .bind(filter.observer.map(|id| id.0))
        .bind(filter.service.map(|id| id.0))
        .bind(&types)
        .bind(since)
        .bind(until)
        .bind(from)
        .bind(limit(most))
        .fetch_all(&mut *snapshot)
        .await
        .map_err(failure)?;
    let count = format!("SELECT COUNT(*) FROM events WHERE {MATCHING} {class}");
    let total = match stretch {
        EventRange::After(_) => 0,
        EventRange::Before(_) => sqlx::query_scalar(sqlx::AssertSqlSafe(count))
            .bind(filter.observer.map(|id| id.0))
            .bind(filter.service.map(|id| id.0))
            .bind(&types)
            .bind(since)
            .bind(until)
            .fetch_one(&mut *snapshot)
            .await
            .map_err(failure)?,
    };
    Ok(event_page(rows, number(total)))
}

pub(super) async fn ends(pool: &SqlitePool) -> Result<(i64, i64), StoreError> {
    let ends = "SELECT COALESCE(MIN(id), 0), COALESCE(MAX(id), 0) FROM events";
    sqlx::query_as(ends).fetch_one(pool).await.map_err(failure)
}

/// Deletes some of the oldest events that are older than `before`.
const FORGET_OLD: &str = "DELETE FROM events WHERE at < ?1
    AND id IN (SELECT id FROM events WHERE id < (SELECT MAX(id) FROM events) ORDER BY id LIMIT ?2)";
/// Deletes some events of one class beyond the newest `?2`.
const FORGET_BEYOND: &str = "DELETE FROM events WHERE id IN (
    SELECT id FROM events WHERE detail = ?1 AND id < (SELECT MAX(id) FROM events)
        AND id <= (SELECT id FROM events WHERE detail = ?1 ORDER BY id DESC LIMIT 1 OFFSET ?2)
    ORDER BY id LIMIT ?3)";

pub(super) async fn forget(writer: &SqlitePool, before: Timestamp, keep: usize) -> Result<u64, StoreError> {
    let mut forgetting = Forgetting::default();
    while let Some(next) = forgetting.next() {
        let query = match next {
            Forgets::Old => sqlx::query(FORGET_OLD).bind(before.0),
            Forgets::Beyond { detail } => sqlx::query(FORGET_BEYOND).bind(detail).bind(limit(keep)),
        };
        let done = query.bind(limit(Forgetting::BATCH)).execute(writer).await.map_err(failure)?;
        forgetting.on_deleted(done.rows_affected());
    }
    Ok(forgetting.deleted)
}
