//! The counts of slots, on SQLite.

use crate::columns::{pool_counts_of, written};
use crate::error_mapping::failure;
use crate::port::StoreError;
use everwatch_core::capacity::admission::PoolCount;
use everwatch_core::record::row_policy::RowPolicy;
use sqlx::SqliteConnection;
use std::collections::HashMap;

/// Counts the slots of these pools, inside or outside a transaction.
pub(super) async fn count(
    connection: &mut SqliteConnection,
    pools: &[String],
    policy: &RowPolicy,
) -> Result<HashMap<String, PoolCount>, StoreError> {
    // The slots of a cordoned service are neither capacity nor in use. Observers of single pools weigh 1.
    let counts = "SELECT pool, '', '', COALESCE(SUM(capacity) FILTER (WHERE state = 'active'),
                MAX(capacity) FILTER (WHERE state = 'single'), MIN(capacity) FILTER (WHERE state = 'standby')),
            COALESCE(SUM(MAX(capacity - weight_max + 1, 0)) FILTER (WHERE state = 'active'),
                MAX(capacity) FILTER (WHERE state = 'single'), MIN(capacity) FILTER (WHERE state = 'standby')),
            COALESCE(SUM(capacity / weight_max) FILTER (WHERE state = 'active'),
                MAX(capacity) FILTER (WHERE state = 'single'), MIN(capacity) FILTER (WHERE state = 'standby')) FROM services
            WHERE pool IN (SELECT value FROM json_each(?1)) AND state IN ('active', 'single', 'standby') GROUP BY pool
        UNION ALL
        SELECT c.pool, c.kind, c.slot, SUM(c.number), SUM(c.weight), 0 FROM observer_counts AS c
            WHERE c.pool IN (SELECT value FROM json_each(?1)) AND c.slot <> '' AND c.service_id NOT IN
                (SELECT id FROM services WHERE pool IN (SELECT value FROM json_each(?1)) AND state = 'cordoned')
            GROUP BY c.pool, c.kind, c.slot";
    if pools.is_empty() {
        return Ok(HashMap::new());
    }
    let rows = sqlx::query_as(counts).bind(written(&pools)?).fetch_all(connection).await.map_err(failure)?;
    pool_counts_of(rows, pools, policy)
}
