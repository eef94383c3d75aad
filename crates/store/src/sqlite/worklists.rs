//! Lists of the observers that wait for something a manager does, on SQLite.

use super::observers::{Reading, observers};
use super::statements::keys;
use crate::columns::{refused_as, refused_of};
use crate::error_mapping::failure;
use crate::port::StoreError;
use crate::unreadable::StoredObserver;
use everwatch_core::capacity::placement::Refused;
use everwatch_core::clock::Timestamp;
use everwatch_core::id::{Pool, ServiceId};
use everwatch_core::record::row::Row;
use sqlx::SqlitePool;

pub(super) async fn due(reading: Reading<'_>, now: Timestamp, most: usize) -> Result<Vec<Row>, StoreError> {
    let due = observers!("WHERE s.due_at <= ?1 ORDER BY s.due_at, s.id LIMIT ?2 OFFSET ?3");
    up_to(reading, due, now, most).await
}

pub(super) async fn commanded_since(
    reading: Reading<'_>,
    since: Timestamp,
    most: usize,
) -> Result<Vec<Row>, StoreError> {
    let sent = observers!("WHERE s.commanded_at >= ?1 ORDER BY s.commanded_at DESC, s.id LIMIT ?2 OFFSET ?3");
    up_to(reading, sent, since, most).await
}

pub(super) async fn ending((pool, ledger): Reading<'_>, most: usize) -> Result<Vec<Row>, StoreError> {
    let ending = observers!(
        "WHERE s.id IN (
            SELECT id FROM observer_states
                WHERE reason_code IN ('deleting', 'pausing', 'restart-requested', 'withdrawing')
            UNION ALL SELECT observer_id FROM limit_uses WHERE how = 'unreleased')
        ORDER BY s.commanded_at, s.id LIMIT ?1 OFFSET ?2"
    );
    let mut pages = ledger.pages::<StoredObserver>(most);
    while let Some((limit, offset)) = pages.next() {
        let query = sqlx::query_as(ending).bind(limit).bind(offset);
        pages.add(query.fetch_all(pool).await.map_err(failure)?);
    }
    Ok(pages.rows())
}

pub(super) async fn refused(pool: &SqlitePool) -> Result<Vec<Refused>, StoreError> {
    let groups = "SELECT pool, kind, reason_code, COUNT(*) FROM observer_states
        WHERE reason_code IN ('refused', 'no-service-for-kind')
        GROUP BY pool, kind, reason_code ORDER BY pool, kind, reason_code DESC";
    refused_of(sqlx::query_as(groups).fetch_all(pool).await.map_err(failure)?)
}

pub(super) async fn refused_rows(
    (pool, ledger): Reading<'_>,
    of: &Refused,
    most: usize,
) -> Result<Vec<Row>, StoreError> {
    let refused = observers!(
        "WHERE s.reason_code IN ('refused', 'no-service-for-kind') AND s.reason_code = ?1 AND s.pool = ?2
            AND s.kind = ?3
        ORDER BY s.id LIMIT ?4 OFFSET ?5"
    );
    let code = refused_as(of.withdrawn);
    let mut pages = ledger.pages::<StoredObserver>(most);
    while let Some((limit, offset)) = pages.next() {
        let query = sqlx::query_as(refused).bind(code).bind(of.pool.as_str()).bind(of.kind.as_str());
        let query = query.bind(limit).bind(offset);
        pages.add(query.fetch_all(pool).await.map_err(failure)?);
    }
    Ok(pages.rows())
}

pub(super) async fn unheld(
    (pool, ledger): Reading<'_>,
    of: &Pool,
    living: &[ServiceId],
    most: usize,
) -> Result<Vec<Row>, StoreError> {
    // From the holders: in a healthy system, this reads no row of an observer that is held.
    let unheld = observers!(
        "WHERE s.pool = ?1 AND s.slot = 'admitted'
            AND s.id IN (
                SELECT id FROM observer_states WHERE service_id IS NULL AND slot = 'admitted' AND pool = ?1
                UNION ALL
                SELECT h.id FROM (SELECT DISTINCT service_id FROM observer_counts
                    WHERE pool = ?1 AND number > 0 AND service_id <> zeroblob(16)
                        AND service_id NOT IN (SELECT unhex(value) FROM json_each(?2))) AS c
                CROSS JOIN observer_states AS h ON h.service_id = c.service_id)
        ORDER BY s.id LIMIT ?3 OFFSET ?4"
    );
    let living = &keys(living.iter().map(|it| it.0));
    let mut pages = ledger.pages::<StoredObserver>(most);
    while let Some((limit, offset)) = pages.next() {
        let query = sqlx::query_as(unheld).bind(of.as_str()).bind(living).bind(limit).bind(offset);
        pages.add(query.fetch_all(pool).await.map_err(failure)?);
    }
    Ok(pages.rows())
}

async fn up_to(
    (pool, ledger): Reading<'_>,
    statement: &'static str,
    at: Timestamp,
    most: usize,
) -> Result<Vec<Row>, StoreError> {
    let mut pages = ledger.pages::<StoredObserver>(most);
    while let Some((limit, offset)) = pages.next() {
        let query = sqlx::query_as(statement).bind(at.0).bind(limit).bind(offset);
        pages.add(query.fetch_all(pool).await.map_err(failure)?);
    }
    Ok(pages.rows())
}
