//! Limits by key, on SQLite.

use super::limit_counts::{mark_changed, read_limits, used, write_limit};
use super::observers::{Reading, observers, save_within};
use super::statements::array;
use crate::columns;
use crate::error_mapping::failure;
use crate::limit_uses::{StoredLimit, after_key, by_pool, counts, excess, forward, limit, range, shown};
use crate::port::{Change, LIMITS_MAX, LimitCounts, LimitDeleted, LimitUse, LimitsLookedAt, StoreError};
use crate::unreadable::{Ledger, StoredObserver};
use everwatch_core::capacity::limits::{Limit, MAX_MAX, limit_of};
use everwatch_core::capacity::supply::Load;
use everwatch_core::clock::Timestamp;
use everwatch_core::id::{LimitKey, LimitPattern, Pool};
use everwatch_core::record::row::Row;
use everwatch_core::record::row_policy::RowPolicy;
use sqlx::{SqliteConnection, SqlitePool};
use std::collections::BTreeMap;

pub(super) async fn page(
    pool: &SqlitePool,
    after: Option<&LimitPattern>,
    most: usize,
) -> Result<Vec<LimitCounts>, StoreError> {
    let mut snapshot = super::snapshot(pool).await?;
    let read = "SELECT key, max, enforce FROM limits WHERE key > ?1
        AND NOT (key LIKE 'namespace:%' AND max = ?3) ORDER BY key LIMIT ?2";
    let query = sqlx::query_as(read)
        .bind(after.map_or("", LimitPattern::as_str))
        .bind(columns::limit(most))
        .bind(i64::from(MAX_MAX));
    let found: Vec<StoredLimit> = query.fetch_all(&mut *snapshot).await.map_err(failure)?;
    let mut page = Vec::with_capacity(found.len());
    for stored in found {
        page.push(counted(&mut snapshot, stored).await?);
    }
    Ok(page)
}

async fn counts_between(
    connection: &mut SqliteConnection,
    (from, to): (&str, &str),
) -> Result<(u64, u64), StoreError> {
    let counts =
        "SELECT COUNT(*) FILTER (WHERE how IN ('used', 'unreleased')), COUNT(*) FILTER (WHERE how = 'behind')
        FROM limit_uses WHERE key >= ?1 AND key < ?2";
    let (used, waiting) =
        sqlx::query_as(counts).bind(from).bind(to).fetch_one(connection).await.map_err(failure)?;
    Ok((columns::number(used), columns::number(waiting)))
}

pub(super) async fn of_key(pool: &SqlitePool, key: &LimitKey) -> Result<(u64, u64), StoreError> {
    let mut snapshot = super::snapshot(pool).await?;
    counts_between(&mut snapshot, (key.as_str(), &after_key(key.as_str()))).await
}

pub(super) async fn of(
    pool: &SqlitePool,
    keys: &[LimitKey],
) -> Result<BTreeMap<LimitKey, Limit>, StoreError> {
    let names: Vec<String> = keys.iter().map(LimitKey::to_string).collect();
    let mut snapshot = super::snapshot(pool).await?;
    let limits = read_limits(&mut snapshot, &names).await?;
    Ok(keys.iter().filter_map(|key| Some((key.clone(), limit_of(key, &limits)?.clone()))).collect())
}

pub(super) async fn users(
    pool: &SqlitePool,
    (key, waits): (&LimitKey, bool),
    most: usize,
) -> Result<Vec<LimitUse>, StoreError> {
    let users = if waits {
        "SELECT u.observer_id, o.name FROM limit_uses AS u JOIN observers AS o ON o.id = u.observer_id
            WHERE u.key = ?1 AND u.how = 'behind' ORDER BY u.rank, u.observer_id LIMIT ?2"
    } else {
        "SELECT u.observer_id, o.name FROM limit_uses AS u JOIN observers AS o ON o.id = u.observer_id
            WHERE u.key = ?1 AND u.how IN ('used', 'unreleased') ORDER BY u.observer_id LIMIT ?2"
    };
    let query = sqlx::query_as(users).bind(key.as_str()).bind(columns::limit(most));
    query.fetch_all(pool).await.map_err(failure)?.into_iter().map(shown).collect()
}

pub(super) async fn behind(pool: &SqlitePool) -> Result<BTreeMap<Pool, Load>, StoreError> {
    let behind = "SELECT pool, COUNT(*), SUM(weight) FROM observer_states
            WHERE id IN (SELECT observer_id FROM limit_uses WHERE how = 'behind') GROUP BY pool";
    by_pool(sqlx::query_as(behind).fetch_all(pool).await.map_err(failure)?)
}

pub(super) async fn number(pool: &SqlitePool) -> Result<u64, StoreError> {
    let number =
        sqlx::query_scalar("SELECT COUNT(*) FROM limits WHERE NOT (key LIKE 'namespace:%' AND max = ?1)")
            .bind(i64::from(MAX_MAX))
            .fetch_one(pool)
            .await
            .map_err(failure)?;
    Ok(columns::number(number))
}

pub(super) async fn one(pool: &SqlitePool, key: &LimitPattern) -> Result<Option<LimitCounts>, StoreError> {
    let mut snapshot = super::snapshot(pool).await?;
    let read = "SELECT key, max, enforce FROM limits WHERE key = ?1";
    let found: Option<StoredLimit> =
        sqlx::query_as(read).bind(key.as_str()).fetch_optional(&mut *snapshot).await.map_err(failure)?;
    match found {
        Some(stored) => counted(&mut snapshot, stored).await.map(Some),
        None => Ok(None),
    }
}

async fn counted(connection: &mut SqliteConnection, stored: StoredLimit) -> Result<LimitCounts, StoreError> {
    let limit = limit(stored)?;
    let (from, to) = range(&limit.key);
    let (used, waiting) = counts_between(connection, (&from, &to)).await?;
    Ok(LimitCounts { limit, used, waiting })
}

pub(super) async fn put(writer: &SqlitePool, limit: &Limit) -> Result<bool, StoreError> {
    let mut transaction = super::writing(writer).await?;
    let known: Option<i64> = sqlx::query_scalar("SELECT max FROM limits WHERE key = ?1")
        .bind(limit.key.as_str())
        .fetch_optional(&mut *transaction)
        .await
        .map_err(failure)?;
    let number: i64 = sqlx::query_scalar("SELECT COUNT(*) FROM limits")
        .fetch_one(&mut *transaction)
        .await
        .map_err(failure)?;
    if known.is_none() && columns::number(number) >= LIMITS_MAX {
        return Err(StoreError::Refused(format!(
            "there are {LIMITS_MAX} limits: delete one that is not needed"
        )));
    }
    write_limit(&mut transaction, limit).await?;
    transaction.commit().await.map_err(failure)?;
    Ok(known.is_none())
}

pub(super) async fn delete(writer: &SqlitePool, key: &LimitPattern) -> Result<LimitDeleted, StoreError> {
    let mut transaction = super::writing(writer).await?;
    let deleted = sqlx::query("DELETE FROM limits WHERE key = ?1").bind(key.as_str());
    let deleted = deleted.execute(&mut *transaction).await.map_err(failure)?.rows_affected();
    if deleted == 0 {
        return Ok(LimitDeleted::Missing);
    }
    let (from, to) = range(key);
    let named = "SELECT key, COUNT(*) FROM limit_uses WHERE key >= ?1 AND key < ?2 GROUP BY key";
    let named: Vec<(String, i64)> =
        sqlx::query_as(named).bind(from).bind(to).fetch_all(&mut *transaction).await.map_err(failure)?;
    let names: Vec<String> = named.iter().map(|(key, _)| key.clone()).collect();
    let mut in_use = 0;
    for part in names.chunks(100) {
        let limits = read_limits(&mut transaction, part).await?;
        let uncovered =
            |name: &String| LimitKey::new(name).is_ok_and(|key| limit_of(&key, &limits).is_none());
        let uncovered = named.iter().filter(|(name, _)| part.contains(name) && uncovered(name));
        in_use += uncovered.map(|(_, number)| columns::number(*number)).sum::<u64>();
    }
    if in_use > 0 {
        return Ok(LimitDeleted::InUse(in_use));
    }
    mark_changed(&mut transaction, &names).await?;
    transaction.commit().await.map_err(failure)?;
    Ok(LimitDeleted::Done)
}

/// The keys that one transaction looks at.
const CHANGED_MAX: usize = 50;

/// Whether managers must look at limits.
pub(super) async fn have_changed(connection: &mut SqliteConnection) -> Result<bool, StoreError> {
    let changed = "SELECT EXISTS (SELECT 1 FROM changed_limits)";
    sqlx::query_scalar(changed).fetch_one(connection).await.map_err(failure)
}

pub(super) async fn look(
    (writer, ledger): Reading<'_>,
    (now, most): (Timestamp, usize),
    policy: &RowPolicy,
) -> Result<LimitsLookedAt, StoreError> {
    let changed = "SELECT key FROM changed_limits ORDER BY looked_at, key LIMIT ?1";
    let changed: Vec<String> = sqlx::query_scalar(changed)
        .bind(columns::limit(CHANGED_MAX))
        .fetch_all(writer)
        .await
        .map_err(failure)?;
    if changed.is_empty() {
        return Ok(LimitsLookedAt::default());
    }
    let mut transaction = super::writing(writer).await?;
    let limits = read_limits(&mut transaction, &changed).await?;
    let used = used(&mut transaction, &changed).await?;
    let (mut rows, mut beyond, mut done) = (Vec::new(), Vec::new(), Vec::new());
    for (key, count) in counts(&changed, &limits, &used, &[])? {
        let free = usize::try_from(count.free()).unwrap_or(usize::MAX);
        let mut all_came = true;
        let pools = if free > 0 { pools_behind(&mut transaction, &key).await? } else { Vec::new() };
        for pool in pools {
            let first = first_behind((&mut transaction, ledger), (&key, &pool), free.min(most)).await?;
            all_came &= first.len() < most;
            rows.extend(first);
        }
        let excess = excess(&key, &count, &limits);
        if excess > 0 {
            beyond.extend(newest((&mut transaction, ledger), &key, excess.min(most)).await?);
        } else if free <= most || all_came {
            done.push(key);
        }
    }
    let forward = forward(rows, now);
    let changes: Vec<Change<'_>> = forward.iter().map(|(before, after)| Change { before, after }).collect();
    save_within(&mut transaction, &changes, policy).await?;
    let delete = "DELETE FROM changed_limits WHERE key IN (SELECT value FROM json_each(?1))";
    sqlx::query(delete).bind(array(&done)).execute(&mut *transaction).await.map_err(failure)?;
    let keep = "UPDATE changed_limits SET looked_at = ?2 WHERE key IN (SELECT value FROM json_each(?1))";
    sqlx::query(keep).bind(array(&changed)).bind(now.0).execute(&mut *transaction).await.map_err(failure)?;
    transaction.commit().await.map_err(failure)?;
    let is_part = changed.len() >= CHANGED_MAX && !done.is_empty();
    Ok(LimitsLookedAt { goes_on: is_part || !forward.is_empty(), beyond })
}

/// The pools in which observers wait for a place of this key. Reads one entry of the index for each.
async fn pools_behind(connection: &mut SqliteConnection, key: &LimitKey) -> Result<Vec<String>, StoreError> {
    let pools = "WITH RECURSIVE pools (pool) AS (
            SELECT MIN(pool) FROM limit_uses WHERE key = ?1 AND how = 'behind'
            UNION ALL SELECT (SELECT MIN(u.pool) FROM limit_uses AS u
                WHERE u.key = ?1 AND u.how = 'behind' AND u.pool > pools.pool) FROM pools WHERE pools.pool IS NOT NULL)
        SELECT pool FROM pools WHERE pool IS NOT NULL";
    sqlx::query_scalar(pools).bind(key.as_str()).fetch_all(connection).await.map_err(failure)
}

async fn first_behind(
    (connection, ledger): (&mut SqliteConnection, &Ledger),
    (key, pool): (&LimitKey, &str),
    most: usize,
) -> Result<Vec<Row>, StoreError> {
    let first = observers!(
        "JOIN limit_uses AS u ON u.observer_id = s.id WHERE u.key = ?1 AND u.how = 'behind' AND u.pool = ?2
            ORDER BY u.rank, u.observer_id LIMIT ?3 OFFSET ?4"
    );
    let mut pages = ledger.pages::<StoredObserver>(most);
    while let Some((limit, offset)) = pages.next() {
        let query = sqlx::query_as(first).bind(key.as_str()).bind(pool).bind(limit).bind(offset);
        pages.add(query.fetch_all(&mut *connection).await.map_err(failure)?);
    }
    Ok(pages.rows())
}

pub(super) async fn unreleased(
    (pool, ledger): Reading<'_>,
    of: &Pool,
    most: usize,
) -> Result<Vec<Row>, StoreError> {
    let unreleased = observers!(
        "WHERE s.id IN (SELECT observer_id FROM limit_uses WHERE how = 'unreleased' AND pool = ?1)
            ORDER BY s.id LIMIT ?2 OFFSET ?3"
    );
    let mut pages = ledger.pages::<StoredObserver>(most);
    while let Some((limit, offset)) = pages.next() {
        let query = sqlx::query_as(unreleased).bind(of.as_str()).bind(limit).bind(offset);
        pages.add(query.fetch_all(pool).await.map_err(failure)?);
    }
    Ok(pages.rows())
}

pub(super) async fn pools_with_unreleased((pool, _): Reading<'_>) -> Result<Vec<Pool>, StoreError> {
    let pools = "SELECT DISTINCT pool FROM limit_uses WHERE how = 'unreleased' ORDER BY pool";
    let pools: Vec<String> = sqlx::query_scalar(pools).fetch_all(pool).await.map_err(failure)?;
    Ok(pools.iter().filter_map(|it| Pool::new(it).ok()).collect())
}

/// The newest observers that use a place of this key.
async fn newest(
    (connection, ledger): (&mut SqliteConnection, &Ledger),
    key: &LimitKey,
    most: usize,
) -> Result<Vec<Row>, StoreError> {
    let newest = observers!(
        "JOIN limit_uses AS u ON u.observer_id = s.id WHERE u.key = ?1 AND u.how IN ('used', 'unreleased')
            ORDER BY s.id DESC LIMIT ?2"
    );
    let query = sqlx::query_as(newest).bind(key.as_str()).bind(columns::limit(most));
    let found: Vec<StoredObserver> = query.fetch_all(connection).await.map_err(failure)?;
    Ok(ledger.read(&found).rows)
}
