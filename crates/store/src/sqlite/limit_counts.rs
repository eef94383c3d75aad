//! Limits and how observers count towards them, on SQLite.

use super::statements::{array, keys};
use crate::error_mapping::failure;
use crate::limit_uses::{StoredLimit, UseChanges, counts, covering, end_of, limit, named};
use crate::port::{StoreError, Table};
use crate::unreadable::Ledger;
use everwatch_core::capacity::limits::{KeyCounts, Limit};
use everwatch_core::id::{LimitKey, LimitPattern, Pool};
use everwatch_core::record::row::Row;
use serde_json::json;
use sqlx::SqliteConnection;
use std::collections::BTreeMap;
use uuid::Uuid;

/// Writes how observers count towards limits.
pub(super) async fn write_uses(
    connection: &mut SqliteConnection,
    changes: UseChanges,
) -> Result<(), StoreError> {
    if changes.is_empty() {
        return Ok(());
    }
    let delete = "DELETE FROM limit_uses WHERE observer_id IN (SELECT unhex(value) FROM json_each(?1))";
    let delete = sqlx::query(delete).bind(keys(changes.observers.into_iter()));
    delete.execute(&mut *connection).await.map_err(failure)?;
    let insert = "INSERT INTO limit_uses (key, observer_id, how, pool, rank)
        SELECT value ->> 0, unhex(value ->> 1), value ->> 2, value ->> 3, value ->> 4 FROM json_each(?1)";
    let uses = changes.uses.iter();
    let uses = uses.map(|it| json!([it.key, it.observer.simple().to_string(), it.how, it.pool, it.rank]));
    let insert = sqlx::query(insert).bind(array(&uses.collect::<Vec<_>>()));
    insert.execute(&mut *connection).await.map_err(failure)?;
    mark_changed(connection, &changes.changed.into_iter().collect::<Vec<_>>()).await
}

/// Managers must look at these keys.
pub(super) async fn mark_changed(
    connection: &mut SqliteConnection,
    changed: &[String],
) -> Result<(), StoreError> {
    let mark = "INSERT INTO changed_limits (key, token) SELECT value, random() FROM json_each(?1) WHERE true
        ON CONFLICT (key) DO UPDATE SET token = excluded.token";
    sqlx::query(mark).bind(array(changed)).execute(connection).await.map(drop).map_err(failure)
}

pub(super) async fn read_limits(
    connection: &mut SqliteConnection,
    keys: &[String],
) -> Result<Vec<Limit>, StoreError> {
    let read = "SELECT key, max, enforce FROM limits WHERE key IN (SELECT value FROM json_each(?1))";
    let found: Vec<StoredLimit> =
        sqlx::query_as(read).bind(array(&covering(keys))).fetch_all(connection).await.map_err(failure)?;
    found.into_iter().map(limit).collect()
}

pub(super) async fn used(
    connection: &mut SqliteConnection,
    keys: &[String],
) -> Result<Vec<(String, i64)>, StoreError> {
    let used = "SELECT key, COUNT(*) FROM limit_uses
        WHERE key IN (SELECT value FROM json_each(?1)) AND how IN ('used', 'unreleased') GROUP BY key";
    sqlx::query_as(used).bind(array(keys)).fetch_all(connection).await.map_err(failure)
}

/// The counts of the keys that these candidates for admission to a pool name. An observer that cannot be read comes before
/// none.
pub(super) async fn count(
    (connection, ledger): (&mut SqliteConnection, &Ledger),
    pool: &Pool,
    candidates: &[Row],
) -> Result<KeyCounts, StoreError> {
    let keys = named(candidates);
    if keys.is_empty() {
        return Ok(KeyCounts::new());
    }
    let limits = read_limits(connection, &keys).await?;
    let used = used(connection, &keys).await?;
    let first = "SELECT k.value, u.rank, u.observer_id FROM json_each(?1) AS k JOIN limit_uses AS u
        ON u.key = k.value AND u.observer_id = (SELECT observer_id FROM limit_uses
            WHERE key = k.value AND how = 'behind' AND pool = ?2
                AND observer_id NOT IN (SELECT unhex(value) FROM json_each(?3)) ORDER BY rank, observer_id LIMIT 1)";
    let first: Vec<(String, i64, Uuid)> = sqlx::query_as(first)
        .bind(array(&keys))
        .bind(pool.as_str())
        .bind(super::statements::keys(ledger.ids(Table::Observers).into_iter()))
        .fetch_all(connection)
        .await
        .map_err(failure)?;
    counts(&keys, &limits, &used, &first)
}

/// The free places of these keys that no observer waits for.
pub(super) async fn unclaimed(
    connection: &mut SqliteConnection,
    keys: &[String],
) -> Result<BTreeMap<LimitKey, u64>, StoreError> {
    if keys.is_empty() {
        return Ok(BTreeMap::new());
    }
    let limits = read_limits(connection, keys).await?;
    let claimed = "SELECT key, COUNT(*) FROM limit_uses
        WHERE key IN (SELECT value FROM json_each(?1)) AND how <> 'named' GROUP BY key";
    let claimed: Vec<(String, i64)> =
        sqlx::query_as(claimed).bind(array(keys)).fetch_all(connection).await.map_err(failure)?;
    Ok(counts(keys, &limits, &claimed, &[])?.into_iter().map(|(key, count)| (key, count.free())).collect())
}

/// Writes a limit in a transaction that has checked that it may.
pub(super) async fn write_limit(connection: &mut SqliteConnection, limit: &Limit) -> Result<(), StoreError> {
    let put = "INSERT INTO limits (key, max, enforce) VALUES (?1, ?2, ?3)
        ON CONFLICT (key) DO UPDATE SET max = excluded.max, enforce = excluded.enforce";
    let put = sqlx::query(put).bind(limit.key.as_str()).bind(limit.max).bind(limit.enforce);
    put.execute(&mut *connection).await.map_err(failure)?;
    let named = named_keys(&mut *connection, &limit.key).await?;
    mark_changed(connection, &named).await
}

/// The keys of this limit that observers name.
async fn named_keys(
    connection: &mut SqliteConnection,
    key: &LimitPattern,
) -> Result<Vec<String>, StoreError> {
    let Some(prefix) = key.prefix() else { return Ok(vec![key.to_string()]) };
    let named = "SELECT DISTINCT key FROM limit_uses WHERE key >= ?1 AND key < ?2";
    sqlx::query_scalar(named).bind(prefix).bind(end_of(prefix)).fetch_all(connection).await.map_err(failure)
}
