//! Events on SQLite.

use crate::columns::{event_page, limit, number, written};
use crate::error_mapping::failure;
use crate::port::{Event, EventFilter, EventPage, EventRange, StoreError};
use everwatch_core::clock::Timestamp;
use serde::Serialize;
use sqlx::SqlitePool;
use uuid::Uuid;

const MATCHING: &str = "(?1 IS NULL OR observer_id = ?1) AND (?2 IS NULL OR service_id = ?2)
    AND (json_array_length(?3) = 0 OR type IN (SELECT value FROM json_each(?3)))";

// In their order: the numbers follow it.
const INSERT: &str = "INSERT INTO events (at, type, observer_id, service_id, document)
    SELECT value ->> 'at', value ->> 'type', value ->> 'observer', value ->> 'service', value ->> 'document'
    FROM json_each(?1) ORDER BY key";

/// What is written of an event.
#[derive(Serialize)]
struct Line {
    at: i64,
    r#type: &'static str,
    observer: Option<Uuid>,
    service: Option<Uuid>,
    document: String,
}

impl Line {
    fn of(event: &Event) -> Result<Self, StoreError> {
        Ok(Self {
            at: event.at.0,
            r#type: event.kind.as_str(),
            observer: event.observer.as_ref().map(|it| it.id),
            service: event.service.as_ref().map(|it| it.id),
            document: written(event)?,
        })
    }
}

pub(super) async fn record(writer: &SqlitePool, events: &[Event]) -> Result<(), StoreError> {
    let lines: Vec<Line> = events.iter().map(Line::of).collect::<Result<_, _>>()?;
    sqlx::query(INSERT).bind(written(&lines)?).execute(writer).await.map_err(failure)?;
    Ok(())
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
        .bind(filter.observer.map(|id| id.to_string()))
        .bind(filter.service.map(|id| id.to_string()))
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
            .bind(filter.observer.map(|id| id.to_string()))
            .bind(filter.service.map(|id| id.to_string()))
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
