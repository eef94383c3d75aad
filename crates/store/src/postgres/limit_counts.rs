//! Limits and how observers count towards them, on PostgreSQL.

use crate::error_mapping::failure;
use crate::limit_uses::{StoredLimit, UseChanges, counts, covering, end_of, limit, named};
use crate::port::{StoreError, Table};
use crate::unreadable::Ledger;
use everwatch_core::capacity::limits::{KeyCounts, Limit};
use everwatch_core::id::{LimitKey, LimitPattern, Pool};
use everwatch_core::record::row::Row;
use sqlx::PgConnection;
use std::collections::BTreeMap;
use uuid::Uuid;

/// Writes how observers count towards limits.
pub(super) async fn write_uses(connection: &mut PgConnection, changes: UseChanges) -> Result<(), StoreError> {
    if changes.is_empty() {
        return Ok(());
    }
    let delete = "DELETE FROM limit_uses WHERE observer_id = ANY($1::uuid[])";
    let delete = sqlx::query(delete).bind(changes.observers);
    delete.execute(&mut *connection).await.map_err(failure)?;
    let insert = "INSERT INTO limit_uses (key, observer_id, how, pool, rank)
        SELECT * FROM UNNEST($1::text[], $2::uuid[], $3::text[], $4::text[], $5::bigint[])";
    let uses = &changes.uses;
    let insert = sqlx::query(insert)
        .bind(uses.iter().map(|it| it.key.as_str()).collect::<Vec<_>>())
        .bind(uses.iter().map(|it| it.observer).collect::<Vec<_>>())
        .bind(uses.iter().map(|it| it.how).collect::<Vec<_>>())
        .bind(uses.iter().map(|it| it.pool.as_str()).collect::<Vec<_>>())
        .bind(uses.iter().map(|it| it.rank).collect::<Vec<_>>());
    insert.execute(&mut *connection).await.map_err(failure)?;
    mark_changed(connection, &changes.changed.into_iter().collect::<Vec<_>>()).await
}

/// Managers must look at these keys.
pub(super) async fn mark_changed(
    connection: &mut PgConnection,
    changed: &[String],
) -> Result<(), StoreError> {
    if changed.is_empty() {
        return Ok(());
    }
    let mark = "INSERT INTO changed_limits (key, token)
        SELECT key, (random() * 9e18)::bigint FROM UNNEST($1::text[]) AS f (key) ORDER BY key
        ON CONFLICT (key) DO UPDATE SET token = EXCLUDED.token";
    sqlx::query(mark).bind(changed).execute(connection).await.map(drop).map_err(failure)
}

pub(super) async fn read_limits(
    connection: &mut PgConnection,
    keys: &[String],
) -> Result<Vec<Limit>, StoreError> {
    let read = "SELECT key, max, enforce FROM limits WHERE key = ANY($1::text[])";
    let found: Vec<StoredLimit> =
        sqlx::query_as(read).bind(covering(keys)).fetch_all(connection).await.map_err(failure)?;
    found.into_iter().map(limit).collect()
}

pub(super) async fn used(
    connection: &mut PgConnection,
    keys: &[String],
) -> Result<Vec<(String, i64)>, StoreError> {
    let used = "SELECT key, COUNT(*) FROM limit_uses
        WHERE key = ANY($1::text[]) AND how IN ('used', 'unreleased') GROUP BY key";
    sqlx::query_as(used).bind(keys).fetch_all(connection).await.map_err(failure)
}

/// Locks the keys until the transaction ends, after the locks of the pools. Without the locks, two managers could count the
/// same free place and both assign it.
pub(super) async fn lock(connection: &mut PgConnection, keys: &[String]) -> Result<(), StoreError> {
    let lock = "SELECT pg_advisory_xact_lock(key) FROM (
        SELECT DISTINCT hashtextextended('everwatch/limit/' || name, 0) AS key FROM UNNEST($1::text[]) AS k (name)
        ORDER BY key) AS keys";
    sqlx::query(lock).bind(keys).execute(connection).await.map(drop).map_err(failure)
}

/// Locks the keys that these candidates for admission to a pool name, and counts their places. An observer that cannot be
/// read comes before none.
pub(super) async fn count(
    (connection, ledger): (&mut PgConnection, &Ledger),
    pool: &Pool,
    candidates: &[Row],
) -> Result<KeyCounts, StoreError> {
    let keys = named(candidates);
    if keys.is_empty() {
        return Ok(KeyCounts::new());
    }
    lock(connection, &keys).await?;
    let limits = read_limits(connection, &keys).await?;
    let used = used(connection, &keys).await?;
    let first = "SELECT k.key, u.rank, u.observer_id FROM UNNEST($1::text[]) AS k (key)
        CROSS JOIN LATERAL (SELECT rank, observer_id FROM limit_uses
            WHERE key = k.key AND how = 'behind' AND pool = $2 AND observer_id <> ALL($3::uuid[])
            ORDER BY rank, observer_id LIMIT 1) AS u";
    let first: Vec<(String, i64, Uuid)> = sqlx::query_as(first)
        .bind(&keys)
        .bind(pool.as_str())
        .bind(ledger.ids(Table::Observers))
        .fetch_all(connection)
        .await
        .map_err(failure)?;
    counts(&keys, &limits, &used, &first)
}

/// Locks these keys, and counts their free places that no observer waits for.
pub(super) async fn unclaimed(
    connection: &mut PgConnection,
    keys: &[String],
) -> Result<BTreeMap<LimitKey, u64>, StoreError> {
    if keys.is_empty() {
        return Ok(BTreeMap::new());
    }
    lock(connection, keys).await?;
    let limits = read_limits(connection, keys).await?;
    let claimed = "SELECT key, COUNT(*) FROM limit_uses
        WHERE key = ANY($1::text[]) AND how <> 'named' GROUP BY key";
    let claimed: Vec<(String, i64)> =
        sqlx::query_as(claimed).bind(keys).fetch_all(connection).await.map_err(failure)?;
    Ok(counts(keys, &limits, &claimed, &[])?.into_iter().map(|(key, count)| (key, count.free())).collect())
}

/// Writes a limit in a transaction that has checked that it may.
pub(super) async fn write_limit(connection: &mut PgConnection, limit: &Limit) -> Result<(), StoreError> {
    let put = "INSERT INTO limits (key, max, enforce) VALUES ($1, $2, $3)
        ON CONFLICT (key) DO UPDATE SET max = excluded.max, enforce = excluded.enforce";
    let put = sqlx::query(put).bind(limit.key.as_str()).bind(i64::from(limit.max)).bind(limit.enforce);
    put.execute(&mut *connection).await.map_err(failure)?;
    let named = named_keys(&mut *connection, &limit.key).await?;
    mark_changed(connection, &named).await
}

/// The keys of this limit that observers name.
async fn named_keys(connection: &mut PgConnection, key: &LimitPattern) -> Result<Vec<String>, StoreError> {
    let Some(prefix) = key.prefix() else { return Ok(vec![key.to_string()]) };
    let named = "SELECT DISTINCT key FROM limit_uses WHERE key >= $1 AND key < $2";
    sqlx::query_scalar(named).bind(prefix).bind(end_of(prefix)).fetch_all(connection).await.map_err(failure)
}
