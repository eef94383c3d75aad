//! Events on PostgreSQL.

use crate::columns::{limit, number, written};
use crate::failure::failure;
use crate::port::{Event, EventFilter, EventPage, StoreError, Stretch};
use everwatch_core::clock::Timestamp;
use sqlx::PgPool;

const MATCHING: &str = "($1::uuid IS NULL OR observer_id = $1) AND ($2::uuid IS NULL OR service_id = $2)
    AND (CARDINALITY($3::text[]) = 0 OR what = ANY($3))";

pub(super) async fn record(pool: &PgPool, events: &[Event]) -> Result<(), StoreError> {
    let documents = events.iter().map(written).collect::<Result<Vec<String>, _>>()?;
    let mut transaction = pool.begin().await.map_err(failure)?;
    // Naively, two managers number their events side by side, and the lower number may be committed
    // later: whoever follows the numbers would miss it.
    let lock = "SELECT pg_advisory_xact_lock(hashtextextended('everwatch/events', 0))";
    sqlx::query(lock).execute(&mut *transaction).await.map_err(failure)?;
    let insert = "INSERT INTO events (at, what, observer_id, service_id, document)
        SELECT at, what, observer_id, service_id, document
        FROM UNNEST($1::bigint[], $2::text[], $3::uuid[], $4::uuid[], $5::text[])
            WITH ORDINALITY AS n (at, what, observer_id, service_id, document, place)
        ORDER BY place";
    sqlx::query(insert)
        .bind(events.iter().map(|event| event.at.0).collect::<Vec<_>>())
        .bind(events.iter().map(|event| event.what.as_str()).collect::<Vec<_>>())
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
    stretch: Stretch,
    most: usize,
) -> Result<EventPage, StoreError> {
    let mut snapshot = super::snapshot(pool).await?;
    let (place, order, from) = match stretch {
        Stretch::Before(id) => ("id < $4", "DESC", id),
        Stretch::After(id) => ("id > $4", "ASC", id),
    };
    let what: Vec<&str> = filter.what.iter().map(|what| what.as_str()).collect();
    let select =
        format!("SELECT id, document FROM events WHERE {MATCHING} AND {place} ORDER BY id {order} LIMIT $5");
    let rows: Vec<(i64, String)> = sqlx::query_as(sqlx::AssertSqlSafe(select))
        .bind(filter.observer.map(|id| id.0))
        .bind(filter.service.map(|id| id.0))
        .bind(&what)
        .bind(from)
        .bind(limit(most))
        .fetch_all(&mut *snapshot)
        .await
        .map_err(failure)?;
    let count = format!("SELECT COUNT(*) FROM events WHERE {MATCHING}");
    let total = match stretch {
        Stretch::After(_) => 0,
        Stretch::Before(_) => sqlx::query_scalar(sqlx::AssertSqlSafe(count))
            .bind(filter.observer.map(|id| id.0))
            .bind(filter.service.map(|id| id.0))
            .bind(&what)
            .fetch_one(&mut *snapshot)
            .await
            .map_err(failure)?,
    };
    EventPage::read(rows, number(total))
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
