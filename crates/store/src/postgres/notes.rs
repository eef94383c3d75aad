//! Notes (the key-value table) on PostgreSQL.

use crate::error_mapping::failure;
use crate::port::StoreError;
use sqlx::PgPool;
use std::time::Duration;

// Uses the clock of the database, so that managers whose clocks differ agree on when a lease ends.
macro_rules! now {
    () => {
        "(EXTRACT(EPOCH FROM clock_timestamp()) * 1000)::bigint"
    };
}

const CLAIM: &str = concat!(
    "INSERT INTO key_value AS n (name, value, until) VALUES ($1, $2, LEAST($3, 9e18 - ",
    now!(),
    ")::bigint + ",
    now!(),
    ") ON CONFLICT (name) DO UPDATE SET value = EXCLUDED.value, until = EXCLUDED.until
        WHERE n.until <= ",
    now!(),
    " OR n.value = EXCLUDED.value RETURNING value"
);

const SET: &str = concat!(
    "INSERT INTO key_value (name, value, until) VALUES ($1, $2, LEAST($3, 9e18 - ",
    now!(),
    ")::bigint + ",
    now!(),
    ") ON CONFLICT (name) DO UPDATE SET value = EXCLUDED.value, until = EXCLUDED.until"
);

const READ: &str = concat!("SELECT value FROM key_value WHERE name = $1 AND until > ", now!());

/// How often a claim is tried if the existing note expires between the insert and the read.
const TRIES: usize = 5;

pub(super) async fn claim(
    pool: &PgPool,
    name: &str,
    value: &str,
    keep: Duration,
) -> Result<String, StoreError> {
    for _ in 0..TRIES {
        let claim = sqlx::query_scalar(CLAIM).bind(name).bind(value).bind(millis(keep));
        if let Some(stands) = claim.fetch_optional(pool).await.map_err(failure)? {
            return Ok(stands);
        }
        if let Some(stands) = read(pool, name).await? {
            return Ok(stands);
        }
    }
    Err(StoreError::Contended(format!("the note {name} keeps changing")))
}

pub(super) async fn read(pool: &PgPool, name: &str) -> Result<Option<String>, StoreError> {
    sqlx::query_scalar(READ).bind(name).fetch_optional(pool).await.map_err(failure)
}

pub(super) async fn under(pool: &PgPool, prefix: &str) -> Result<Vec<(String, String)>, StoreError> {
    let under = concat!(
        "SELECT name, value FROM key_value WHERE starts_with(name, $1) AND until > ",
        now!(),
        " ORDER BY name COLLATE \"C\""
    );
    sqlx::query_as(under).bind(prefix).fetch_all(pool).await.map_err(failure)
}

pub(super) async fn set(pool: &PgPool, name: &str, value: &str, keep: Duration) -> Result<(), StoreError> {
    let set = sqlx::query(SET).bind(name).bind(value).bind(millis(keep));
    set.execute(pool).await.map(drop).map_err(failure)
}

pub(super) async fn swap(pool: &PgPool, name: &str, before: &str, after: &str) -> Result<bool, StoreError> {
    let swap = concat!("UPDATE key_value SET value = $3 WHERE name = $1 AND value = $2 AND until > ", now!());
    let swap = sqlx::query(swap).bind(name).bind(before).bind(after);
    Ok(swap.execute(pool).await.map_err(failure)?.rows_affected() == 1)
}

pub(super) async fn forget(pool: &PgPool) -> Result<u64, StoreError> {
    let forget = concat!("DELETE FROM key_value WHERE until <= ", now!());
    let done = sqlx::query(forget).execute(pool).await.map_err(failure)?;
    let forget = concat!("DELETE FROM forgotten_observers WHERE until <= ", now!());
    sqlx::query(forget).execute(pool).await.map_err(failure)?;
    Ok(done.rows_affected())
}

fn millis(keep: Duration) -> i64 {
    i64::try_from(keep.as_millis()).unwrap_or(i64::MAX)
}
