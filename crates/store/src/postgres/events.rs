//! Events on PostgreSQL.

use crate::columns::{event_page, limit, number, written};
use crate::error_mapping::failure;
use crate::port::{Event, EventFilter, EventPage, EventRange, StoreError};
use everwatch_core::clock::Timestamp;
use sqlx::PgPool;

const MATCHING: &str = "($1::uuid IS NULL OR observer_id = $1) AND ($2::uuid IS NULL OR service_id = $2)
    AND (CARDINALITY($3::text[]) = 0 OR type = ANY($3))";

pub(super) async fn record(pool: &PgPool, events: &[Event]) -> Result<(), StoreError> {
    let documents = events.iter().map(written).collect::<Result<Vec<String>, _>>()?;
    let mut transaction = pool.begin().await.map_err(failure)?;
    // Two managers that number events concurrently may commit the lower number later: a client that follows
    // the numbers would miss that event. The lock serializes the writers.
    let lock = "SELECT pg_advisory_xact_lock(hashtextextended('everwatch/events', 0))";
    sqlx::query(lock).execute(&mut *transaction).await.map_err(failure)?;
    let insert = "INSERT INTO events (at, type, observer_id, service_id, document)
        SELECT at, type, observer_id, service_id, document
        FROM UNNEST($1::bigint[], $2::text[], $3::uuid[], $4::uuid[], $5::text[])
            WITH ORDINALITY AS n (at, type, observer_id, service_id, document, place)
        ORDER BY place";
    sqlx::query(insert)
        .bind(events.iter().map(|event| event.at.0).collect::<Vec<_>>())
        .bind(events.iter().map(|event| event.kind.as_str()).collect::<Vec<_>>())
        .bind(events.iter().map(|event| event.observer.as_ref().map(|it| it.id)).collect::<Vec<_>>())
        .bind(events.iter().map(|event| event.service.as_ref().map(|it| it.id)).collect::<Vec<_>>())
        .bind(documents)
        .execute(&mut *transaction)
        .await
        .map_err(failure)?;
    transaction.commit().await.map_err(failure)
}

pub(super) async fn page(
    pool: &PgPool,
    filter: &EventFilter,
    stretch: EventRange,
    most: usize,
) -> Result<EventPage, StoreError> {
    let mut snapshot = super::snapshot(pool).await?;
    let (place, order, from) = match stretch {
        EventRange::Before(id) => ("id < $4", "DESC", id),
        EventRange::After(id) => ("id > $4", "ASC", id),
    };
    let types: Vec<&str> = filter.kinds.iter().map(|kind| kind.as_str()).collect();
    let select =
        format!("SELECT id, document FROM events WHERE {MATCHING} AND {place} ORDER BY id {order} LIMIT $5");
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

pub(super) async fn ends(pool: &PgPool) -> Result<(i64, i64), StoreError> {
    let ends = "SELECT COALESCE(MIN(id), 0), COALESCE(MAX(id), 0) FROM events";
    sqlx::query_as(ends).fetch_one(pool).await.map_err(failure)
}

pub(super) async fn forget(pool: &PgPool, before: Timestamp, keep: usize) -> Result<u64, StoreError> {
    // One always stays: the numbers go on from it.
    let forget = "DELETE FROM events WHERE (at < $1 OR id <= (SELECT MAX(id) FROM events) - $2)
        AND id < (SELECT MAX(id) FROM events)";
    let done = sqlx::query(forget).bind(before.0).bind(limit(keep)).execute(pool).await.map_err(failure)?;
    Ok(done.rows_affected())
}
