//! The counts of slots, on PostgreSQL.

use crate::columns::pool_counts_of;
use crate::error_mapping::failure;
use crate::port::StoreError;
use everwatch_core::capacity::admission::PoolCount;
use everwatch_core::record::row_policy::RowPolicy;
use sqlx::PgConnection;
use std::collections::HashMap;

/// Counts the slots of these pools and locks the pools until the transaction ends. Without the lock, two managers could
/// count the same free slot and both assign it.
pub(super) async fn lock_and_count(
    connection: &mut PgConnection,
    pools: &[String],
    policy: &RowPolicy,
) -> Result<HashMap<String, PoolCount>, StoreError> {
    if pools.is_empty() {
        return Ok(HashMap::new());
    }
    let lock = "SELECT pg_advisory_xact_lock(key) FROM (
        SELECT DISTINCT hashtextextended('everwatch/' || pool, 0) AS key FROM UNNEST($1::text[]) AS p (pool)
        ORDER BY key) AS keys";
    sqlx::query(lock).bind(pools).execute(&mut *connection).await.map_err(failure)?;
    count(connection, pools, policy).await
}

/// Counts the slots of these pools.
pub(super) async fn count(
    connection: &mut PgConnection,
    pools: &[String],
    policy: &RowPolicy,
) -> Result<HashMap<String, PoolCount>, StoreError> {
    // The slots of a cordoned service are neither capacity nor in use. Observers of single pools weigh 1.
    let counts = "SELECT pool, '' AS kind, '' AS counted, COALESCE(SUM(capacity) FILTER (WHERE state = 'active'),
                MAX(capacity) FILTER (WHERE state = 'single'), MIN(capacity) FILTER (WHERE state = 'standby'))::bigint,
            COALESCE(SUM(GREATEST(capacity - weight_max + 1, 0)) FILTER (WHERE state = 'active'),
                MAX(capacity) FILTER (WHERE state = 'single'), MIN(capacity) FILTER (WHERE state = 'standby'))::bigint,
            COALESCE(SUM(capacity / weight_max) FILTER (WHERE state = 'active'),
                MAX(capacity) FILTER (WHERE state = 'single'), MIN(capacity) FILTER (WHERE state = 'standby'))::bigint FROM services
            WHERE pool = ANY($1::text[]) AND state IN ('active', 'single', 'standby') GROUP BY pool
        UNION ALL
        SELECT c.pool, c.kind, c.slot, SUM(c.number)::bigint, SUM(c.weight)::bigint, 0::bigint FROM observer_counts AS c
            WHERE c.pool = ANY($1::text[]) AND c.slot <> '' AND c.service_id NOT IN
                (SELECT id FROM services WHERE pool = ANY($1::text[]) AND state = 'cordoned')
            GROUP BY c.pool, c.kind, c.slot";
    let rows = sqlx::query_as(counts).bind(pools).fetch_all(connection).await.map_err(failure)?;
    pool_counts_of(rows, pools, policy)
}
