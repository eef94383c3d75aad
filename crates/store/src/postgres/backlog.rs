//! Observers that wait for a slot, on PostgreSQL.

use super::observers::{Reading, observers, save_within};
use super::pool_counts::{count, lock_and_count};
use super::{limit_counts, limits};
use crate::columns::{by_pool, number};
use crate::error_mapping::failure;
use crate::port::{Admission, Change, Decided, PLACE_MAX, Place, StoreError, WaitingPools};
use crate::unreadable::{Ledger, StoredObserver};
use everwatch_core::capacity::admission::Selection;
use everwatch_core::capacity::preemption::{Look, Preempted, READ_MAX};
use everwatch_core::id::{ObserverId, Pool};
use everwatch_core::record::row::Row;
use everwatch_core::record::row_policy::RowPolicy;
use sqlx::{PgConnection, PgPool};
use std::collections::{BTreeMap, HashSet};

pub(super) async fn waiting_pools(pool: &PgPool, policy: &RowPolicy) -> Result<WaitingPools, StoreError> {
    let waiting =
        "SELECT pool FROM observer_counts WHERE slot = 'waiting' GROUP BY pool HAVING SUM(number) > 0";
    let mut snapshot = super::snapshot(pool).await?;
    let pools: Vec<String> = sqlx::query_scalar(waiting).fetch_all(&mut *snapshot).await.map_err(failure)?;
    let limits_changed = limits::have_changed(&mut snapshot).await?;
    if pools.is_empty() {
        return Ok(WaitingPools { pools: BTreeMap::new(), limits_changed });
    }
    let counts = count(&mut snapshot, &pools, policy).await?;
    Ok(WaitingPools { pools: by_pool(counts)?, limits_changed })
}

pub(super) async fn admit(
    (pool, ledger): Reading<'_>,
    admission: &Admission<'_>,
    policy: &RowPolicy,
) -> Result<Vec<Decided>, StoreError> {
    let mut transaction = pool.begin().await.map_err(failure)?;
    let name = admission.pool.to_string();
    let counted = lock_and_count(&mut transaction, std::slice::from_ref(&name), policy).await?;
    let counted = counted.get(&name).cloned().unwrap_or_default();
    let mut candidates = Vec::new();
    for selection in counted.selections(admission.offers, admission.most) {
        candidates.extend(first_of((&mut transaction, ledger), admission.pool, &selection).await?);
    }
    let candidates = admission.candidates(candidates);
    let keys = limit_counts::count((&mut transaction, ledger), admission.pool, &candidates).await?;
    let mut decided = admission.decide(&counted, (candidates, keys), policy);
    let changes: Vec<Change<'_>> =
        decided.iter().map(|it| Change { before: &it.before, after: &it.after }).collect();
    let unsaved = save_within(&mut transaction, &changes, policy).await?;
    transaction.commit().await.map_err(failure)?;
    let unsaved: HashSet<ObserverId> = unsaved.into_iter().collect();
    decided.retain(|it| !unsaved.contains(&it.after.id));
    Ok(decided)
}

pub(super) async fn preempt(
    (pool, ledger): Reading<'_>,
    look: &Look<'_>,
    policy: &RowPolicy,
) -> Result<Vec<Preempted>, StoreError> {
    let mut transaction = pool.begin().await.map_err(failure)?;
    let name = look.pool.to_string();
    let counted = lock_and_count(&mut transaction, std::slice::from_ref(&name), policy)
        .await?
        .remove(&name)
        .unwrap_or_default();
    let mut waiting = Vec::new();
    for selection in look.selections(&counted) {
        waiting.extend(first_of((&mut transaction, ledger), look.pool, &selection).await?);
    }
    let Some(below) = look.below(&waiting) else { return Ok(Vec::new()) };
    let keys = limit_counts::count((&mut transaction, ledger), look.pool, &waiting).await?;
    let admitted = admitted((&mut transaction, ledger), look.pool, below).await?;
    let mut preempted = look.decide(&counted, (waiting, keys), &admitted, policy);
    let changes: Vec<Change<'_>> =
        preempted.iter().map(|it| Change { before: &it.before, after: &it.after }).collect();
    let unsaved = save_within(&mut transaction, &changes, policy).await?;
    transaction.commit().await.map_err(failure)?;
    let unsaved: HashSet<ObserverId> = unsaved.into_iter().collect();
    preempted.retain(|it| !unsaved.contains(&it.after.id));
    Ok(preempted)
}

/// The first admitted observers in the order of preemption, before this place. No index serves this query: it would have
/// to change with every admitted observer, and only managers that preempt ask, once a second while an observer of a higher
/// priority waits.
async fn admitted(
    (connection, ledger): (&mut PgConnection, &Ledger),
    pool: &Pool,
    below: i64,
) -> Result<Vec<Row>, StoreError> {
    let first = observers!(
        "WHERE s.pool = $1 AND s.slot = 'admitted' AND s.preemption_rank < $2
            ORDER BY s.preemption_rank, s.id LIMIT $3 OFFSET $4"
    );
    let mut pages = ledger.pages::<StoredObserver>(READ_MAX);
    while let Some((limit, offset)) = pages.next() {
        let query = sqlx::query_as(first).bind(pool.as_str()).bind(below).bind(limit).bind(offset);
        pages.add(query.fetch_all(&mut *connection).await.map_err(failure)?);
    }
    Ok(pages.rows())
}

pub(super) async fn waiting(
    (pool, ledger): Reading<'_>,
    of: &Pool,
    selection: &Selection,
) -> Result<Vec<Row>, StoreError> {
    let mut snapshot = super::snapshot(pool).await?;
    first_of((&mut snapshot, ledger), of, selection).await
}

/// The first waiting observers of a kind and of certain weights.
async fn first_of(
    (connection, ledger): (&mut PgConnection, &Ledger),
    pool: &Pool,
    selection: &Selection,
) -> Result<Vec<Row>, StoreError> {
    let first = observers!(
        "WHERE s.pool = $1 AND s.kind = $2 AND s.rank IS NOT NULL AND s.weight BETWEEN $3 AND $4
            ORDER BY s.rank, s.id LIMIT $5 OFFSET $6"
    );
    let most = usize::try_from(selection.most).unwrap_or(usize::MAX);
    let mut pages = ledger.pages::<StoredObserver>(most);
    while let Some((limit, offset)) = pages.next() {
        let query = sqlx::query_as(first).bind(pool.as_str()).bind(selection.kind.as_str());
        let query =
            query.bind(i32::from(*selection.weights.start())).bind(i32::from(*selection.weights.end()));
        let query = query.bind(limit).bind(offset);
        pages.add(query.fetch_all(&mut *connection).await.map_err(failure)?);
    }
    Ok(pages.rows())
}

pub(super) async fn place(pool: &PgPool, row: &Row, policy: &RowPolicy) -> Result<Option<Place>, StoreError> {
    let Some(rank) = row.rank(policy) else { return Ok(None) };
    let place = "SELECT (SELECT COUNT(*) FROM (SELECT 1 FROM observer_states
            WHERE pool = $1 AND rank IS NOT NULL AND (rank, id) < ($2, $3) LIMIT $4) AS ahead),
        COALESCE((SELECT SUM(number)::bigint FROM observer_counts WHERE pool = $1 AND slot = 'waiting'), 0)";
    let query = sqlx::query_as(place).bind(row.definition.pool.as_str()).bind(rank).bind(row.id.0);
    let (ahead, waiting) = query.bind(i64::from(PLACE_MAX)).fetch_one(pool).await.map_err(failure)?;
    Ok(Some(Place { ahead: number(ahead), waiting: number(waiting) }))
}
