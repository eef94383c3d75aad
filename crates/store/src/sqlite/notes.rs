//! Notes (the key-value table) on SQLite.

use crate::error_mapping::failure;
use crate::port::StoreError;
use everwatch_core::clock;
use sqlx::SqlitePool;
use std::time::Duration;

const CLAIM: &str = "INSERT INTO key_value (name, value, until) VALUES (?1, ?2, ?3)
    ON CONFLICT (name) DO UPDATE SET value = excluded.value, until = excluded.until
        WHERE key_value.until <= ?4 OR key_value.value = excluded.value";

const SET: &str = "INSERT INTO key_value (name, value, until) VALUES (?1, ?2, ?3)
    ON CONFLICT (name) DO UPDATE SET value = excluded.value, until = excluded.until";

const READ: &str = "SELECT value FROM key_value WHERE name = ?1 AND until > ?2";

pub(super) async fn claim(
    writer: &SqlitePool,
    name: &str,
    value: &str,
    keep: Duration,
) -> Result<String, StoreError> {
    let now = clock::now();
    let mut transaction = super::writing(writer).await?;
    let claim = sqlx::query(CLAIM).bind(name).bind(value).bind(now.plus(keep).0).bind(now.0);
    claim.execute(&mut *transaction).await.map_err(failure)?;
    let read = sqlx::query_scalar("SELECT value FROM key_value WHERE name = ?1").bind(name);
    let stands = read.fetch_one(&mut *transaction).await.map_err(failure)?;
    transaction.commit().await.map_err(failure)?;
    Ok(stands)
}

pub(super) async fn read(pool: &SqlitePool, name: &str) -> Result<Option<String>, StoreError> {
    let read = sqlx::query_scalar(READ).bind(name).bind(clock::now().0);
    read.fetch_optional(pool).await.map_err(failure)
}

pub(super) async fn under(pool: &SqlitePool, prefix: &str) -> Result<Vec<(String, String)>, StoreError> {
    let under = "SELECT name, value FROM key_value
        WHERE name >= ?1 AND substr(name, 1, length(?1)) = ?1 AND until > ?2 ORDER BY name";
    sqlx::query_as(under).bind(prefix).bind(clock::now().0).fetch_all(pool).await.map_err(failure)
}

pub(super) async fn set(
    writer: &SqlitePool,
    name: &str,
    value: &str,
    keep: Duration,
) -> Result<(), StoreError> {
    let set = sqlx::query(SET).bind(name).bind(value).bind(clock::now().plus(keep).0);
    set.execute(writer).await.map(drop).map_err(failure)
}

pub(super) async fn swap(
    writer: &SqlitePool,
    name: &str,
    before: &str,
    after: &str,
) -> Result<bool, StoreError> {
    let swap = sqlx::query("UPDATE key_value SET value = ?3 WHERE name = ?1 AND value = ?2 AND until > ?4");
    let swap = swap.bind(name).bind(before).bind(after).bind(clock::now().0);
    Ok(swap.execute(writer).await.map_err(failure)?.rows_affected() == 1)
}

pub(super) async fn forget(writer: &SqlitePool) -> Result<u64, StoreError> {
    let now = clock::now().0;
    let forget = sqlx::query("DELETE FROM key_value WHERE until <= ?1").bind(now);
    let forgotten = forget.execute(writer).await.map_err(failure)?.rows_affected();
    let forget = sqlx::query("DELETE FROM forgotten_observers WHERE until <= ?1").bind(now);
    forget.execute(writer).await.map_err(failure)?;
    Ok(forgotten)
}
