//! Services on PostgreSQL.

use super::observers::Reading;
use crate::columns::ServiceColumns;
use crate::error_mapping::failure;
use crate::port::{Found, StoreError, Table};
use crate::unreadable::StoredService;
use everwatch_core::clock::Timestamp;
use everwatch_core::id::{Name, ServiceId, ServiceRef};
use everwatch_core::record::service::ServiceRow;
use sqlx::{PgConnection, PgPool};
use std::collections::{BTreeMap, HashSet};
use uuid::Uuid;

// Locks rows in the order of their ids, so two overlapping saves wait but cannot deadlock.
const SAVE: &str = "WITH mine AS MATERIALIZED (
        SELECT s.id FROM services s
        JOIN UNNEST($1::uuid[], $2::bigint[]) AS k (id, version)
          ON s.id = k.id AND s.version = k.version - 1
        ORDER BY s.id FOR UPDATE OF s)
    UPDATE services s SET version = n.version, name = n.name, pool = n.pool, capacity = n.capacity,
        weight_max = n.weight_max, state = n.state, registered_at = n.registered_at, ended_at = n.ended_at,
        document = n.document
    FROM UNNEST($1::uuid[], $2::bigint[], $3::text[], $4::text[], $5::bigint[], $6::bigint[], $7::text[],
        $8::bigint[], $9::bigint[], $10::text[])
        AS n (id, version, name, pool, capacity, weight_max, state, registered_at, ended_at, document), mine
    WHERE s.id = n.id AND s.id = mine.id AND s.version = n.version - 1
    RETURNING s.id";

const INSERT: &str = "INSERT INTO services
        (id, version, name, pool, capacity, weight_max, state, registered_at, ended_at, document)
    SELECT * FROM UNNEST($1::uuid[], $2::bigint[], $3::text[], $4::text[], $5::bigint[], $6::bigint[],
        $7::text[], $8::bigint[], $9::bigint[], $10::text[]) AS n (id)
    ORDER BY n.id
    ON CONFLICT DO NOTHING
    RETURNING id";

pub(super) async fn all(
    (pool, ledger): Reading<'_>,
    ended_since: Timestamp,
) -> Result<Found<ServiceRow, ServiceId>, StoreError> {
    let all = "SELECT id, document FROM services WHERE ended_at IS NULL OR ended_at >= $1
        ORDER BY name, registered_at, id";
    let rows: Vec<StoredService> =
        sqlx::query_as(all).bind(ended_since.0).fetch_all(pool).await.map_err(failure)?;
    Ok(ledger.read(&rows))
}

pub(super) async fn load(
    (pool, ledger): Reading<'_>,
    ids: &[ServiceId],
) -> Result<Found<ServiceRow, ServiceId>, StoreError> {
    let ids: Vec<Uuid> = ids.iter().map(|id| id.0).collect();
    Ok(ledger.read(&stored(pool, &ids).await?))
}

async fn stored(pool: &PgPool, ids: &[Uuid]) -> Result<Vec<StoredService>, StoreError> {
    let load = "SELECT id, document FROM services WHERE id = ANY($1::uuid[])";
    sqlx::query_as(load).bind(ids).fetch_all(pool).await.map_err(failure)
}

pub(super) async fn namesakes(
    (pool, ledger): Reading<'_>,
    names: &[Name],
    ended_since: Timestamp,
) -> Result<Vec<ServiceRow>, StoreError> {
    let named = "SELECT id, document FROM services WHERE name = ANY($1::text[])
        AND (ended_at IS NULL OR ended_at >= $2) ORDER BY name, registered_at, id";
    let names: Vec<&str> = names.iter().map(Name::as_str).collect();
    let query = sqlx::query_as(named).bind(names).bind(ended_since.0);
    let rows: Vec<StoredService> = query.fetch_all(pool).await.map_err(failure)?;
    Ok(ledger.read(&rows).rows)
}

pub(super) async fn ends(
    pool: &PgPool,
    ids: &[ServiceId],
) -> Result<BTreeMap<ServiceId, Timestamp>, StoreError> {
    let ends = "SELECT id, ended_at FROM services WHERE id = ANY($1::uuid[]) AND ended_at IS NOT NULL";
    let ids: Vec<Uuid> = ids.iter().map(|id| id.0).collect();
    let rows: Vec<(Uuid, i64)> = sqlx::query_as(ends).bind(ids).fetch_all(pool).await.map_err(failure)?;
    Ok(rows.into_iter().map(|(id, at)| (ServiceId(id), Timestamp(at))).collect())
}

/// Rereads the unreadable rows in the ledger, and removes those that can be read or no longer exist.
pub(super) async fn look((pool, ledger): Reading<'_>) -> Result<(), StoreError> {
    let ids = ledger.ids(Table::Services);
    if !ids.is_empty() {
        ledger.look(&ids, &stored(pool, &ids).await?);
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
    let one = "SELECT id, document FROM services WHERE id = $1 OR ($1 IS NULL AND name = $2)
        ORDER BY registered_at DESC, id DESC LIMIT 1";
    let found: Option<StoredService> =
        sqlx::query_as(one).bind(id.map(|id| id.0)).bind(name).fetch_optional(pool).await.map_err(failure)?;
    found.map(|it| ledger.read_one(&it)).transpose()
}

pub(super) async fn save(pool: &PgPool, rows: &[ServiceRow]) -> Result<Vec<ServiceId>, StoreError> {
    let mut ids = HashSet::new();
    let firsts: Vec<&ServiceRow> = rows.iter().filter(|row| ids.insert(row.id)).collect();
    let mut transaction = pool.begin().await.map_err(failure)?;
    let known = firsts.iter().map(|row| ServiceColumns::of(row, row.version + 1));
    let mut done: HashSet<Uuid> =
        write(&mut transaction, SAVE, &known.collect::<Result<Vec<_>, _>>()?).await?.into_iter().collect();
    let new_service = firsts.iter().filter(|row| row.version == 1 && !done.contains(&row.id.0));
    let new_service = new_service.map(|row| ServiceColumns::of(row, 1)).collect::<Result<Vec<_>, _>>()?;
    if !new_service.is_empty() {
        done.extend(write(&mut transaction, INSERT, &new_service).await?);
    }
    transaction.commit().await.map_err(failure)?;
    // If a batch contains an id twice, the second row fails like a late save from another manager.
    Ok(rows.iter().map(|row| row.id).filter(|id| !done.remove(&id.0)).collect())
}

async fn write(
    connection: &mut PgConnection,
    statement: &'static str,
    rows: &[ServiceColumns],
) -> Result<Vec<Uuid>, StoreError> {
    sqlx::query_scalar(statement)
        .bind(rows.iter().map(|row| row.id).collect::<Vec<_>>())
        .bind(rows.iter().map(|row| row.version).collect::<Vec<_>>())
        .bind(rows.iter().map(|row| row.name.as_str()).collect::<Vec<_>>())
        .bind(rows.iter().map(|row| row.pool.as_str()).collect::<Vec<_>>())
        .bind(rows.iter().map(|row| row.capacity).collect::<Vec<_>>())
        .bind(rows.iter().map(|row| row.weight_max).collect::<Vec<_>>())
        .bind(rows.iter().map(|row| row.state).collect::<Vec<_>>())
        .bind(rows.iter().map(|row| row.registered_at).collect::<Vec<_>>())
        .bind(rows.iter().map(|row| row.ended_at).collect::<Vec<_>>())
        .bind(rows.iter().map(|row| row.document.as_str()).collect::<Vec<_>>())
        .fetch_all(connection)
        .await
        .map_err(failure)
}

pub(super) async fn forget(pool: &PgPool, before: Timestamp) -> Result<u64, StoreError> {
    let forget = "DELETE FROM services WHERE ended_at < $1";
    let done = sqlx::query(forget).bind(before.0).execute(pool).await.map_err(failure)?;
    forget_counts(pool).await?;
    Ok(done.rows_affected())
}

/// Deletes counts that are zero in sum: services that have ended leave them. Nothing else may change counts meanwhile.
async fn forget_counts(pool: &PgPool) -> Result<(), StoreError> {
    let empty = "SELECT pool, status, health, service_id FROM observer_counts
        GROUP BY pool, status, health, service_id HAVING SUM(number) = 0";
    let any: bool = sqlx::query_scalar(sqlx::AssertSqlSafe(format!("SELECT EXISTS ({empty})")))
        .fetch_one(pool)
        .await
        .map_err(failure)?;
    if !any {
        return Ok(());
    }
    let mut transaction = pool.begin().await.map_err(failure)?;
    let lock = "LOCK TABLE observer_counts IN SHARE ROW EXCLUSIVE MODE";
    sqlx::query(lock).execute(&mut *transaction).await.map_err(failure)?;
    let delete = format!("DELETE FROM observer_counts WHERE (pool, status, health, service_id) IN ({empty})");
    sqlx::query(sqlx::AssertSqlSafe(delete)).execute(&mut *transaction).await.map_err(failure)?;
    transaction.commit().await.map_err(failure)
}
