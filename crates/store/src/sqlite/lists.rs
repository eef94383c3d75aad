//! Lists, totals and counts of observers for people, on SQLite.

use super::observers::Reading;
use super::statements::array;
use crate::columns::{counts_matching_of, counts_of, health_counts_of, held_weights_of};
use crate::error_mapping::failure;
use crate::listing::{Parameters, effective_health, effective_reason, page};
use crate::port::{
    Counts, Filter, HealthCounts, HeldWeights, ListCursor, MatchingCounts, Page, Sort, StoreError,
};
use crate::unreadable::StoredObserver;
use everwatch_core::clock;
use sqlx::{AssertSqlSafe, SqlitePool};
use uuid::Uuid;

const LABELLED: &str = "NOT EXISTS (SELECT 1 FROM json_each(?5) AS want WHERE NOT EXISTS (
    SELECT 1 FROM json_each(o.labels) AS has WHERE has.key = want.key AND has.value = want.value))";

/// A requirement is broken if the labels have what they must not have, or have not what they must have.
const SELECTED: &str = "NOT EXISTS (SELECT 1 FROM json_each(?13) AS want WHERE (want.value ->> '$.not') = EXISTS (
    SELECT 1 FROM json_each(o.labels) AS has WHERE has.key = want.value ->> '$.key' AND (
        want.value ->> '$.values' IS NULL OR has.value IN (SELECT value FROM json_each(want.value, '$.values')))))";

const OF_HEALTH: &str = concat!(effective_health!("?8"), " IN (SELECT value FROM json_each(?7))");

const OF_REASON: &str = concat!(
    effective_reason!(
        "?8",
        "COALESCE((SELECT value FROM json_each(?10) WHERE key = s.pool), 'no-service-in-pool')"
    ),
    " IN (SELECT value FROM json_each(?9))"
);

const IN_SCOPE: &str = "EXISTS (SELECT 1 FROM json_each(?11) AS part
    WHERE (part.value ->> '$.namespaces' IS NULL
            OR o.namespace IN (SELECT value FROM json_each(part.value, '$.namespaces')))
        AND (part.value ->> '$.pools' IS NULL OR s.pool IN (SELECT value FROM json_each(part.value, '$.pools')))
        AND (part.value ->> '$.kinds' IS NULL OR s.kind IN (SELECT value FROM json_each(part.value, '$.kinds'))))";

/// Builds the condition of a filter. An unset field adds no clause, so that SQLite can answer from an index
/// without reading rows.
fn matching(the: &Parameters) -> String {
    let asked = [
        (the.kind.is_some(), "s.kind = ?2"),
        (the.pool.is_some(), "s.pool = ?3"),
        (the.service.is_some(), "s.service_id = ?4"),
        (the.has_labels(), LABELLED),
        (the.selector.is_some(), SELECTED),
        (the.q.is_some(), "instr(lower(o.name), ?6) > 0"),
        (the.health.is_some(), OF_HEALTH),
        (the.reasons.is_some(), OF_REASON),
        (the.scope.is_some(), IN_SCOPE),
        (the.namespace.is_some(), "o.namespace = ?12"),
        // Only with this condition, SQLite can use the index of namespaces.
        (the.namespace.as_ref().is_some_and(|it| it != "default"), "o.namespace <> 'default'"),
    ];
    let asked = asked.iter().filter(|(is_asked, _)| *is_asked).map(|(_, clause)| *clause);
    let status = "s.status IN (SELECT value FROM json_each(?1))";
    std::iter::once(status).chain(asked).collect::<Vec<_>>().join(" AND ")
}

/// Binds the parameters of [`matching`].
macro_rules! bound {
    ($query:expr, $the:expr) => {
        $query
            .bind(array(&$the.status))
            .bind(&$the.kind)
            .bind(&$the.pool)
            .bind($the.service)
            .bind(&$the.labels)
            .bind(&$the.q)
            .bind($the.health.as_ref().map(|it| array(it)))
            .bind(clock::now().0)
            .bind($the.reasons.as_ref().map(|it| array(it)))
            .bind(&$the.obstacles)
            .bind(&$the.scope)
            .bind(&$the.namespace)
            .bind(&$the.selector)
    };
}

pub(super) async fn list(
    (pool, ledger): Reading<'_>,
    filter: &Filter,
    after: Option<&ListCursor>,
    most: usize,
) -> Result<Page, StoreError> {
    let mut snapshot = super::snapshot(pool).await?;
    let the = &Parameters::of(filter, after)?;
    let matching = matching(the);
    let (by, value) = match filter.sort {
        Sort::Name => ("name", "?14"),
        Sort::CreatedAt => ("created_at", "CAST(?14 AS INTEGER)"),
    };
    let (past, way) = if filter.descending { ("<", "DESC") } else { (">", "ASC") };
    let count = if the.is_counted() {
        format!("SELECT COALESCE(SUM(s.number), 0) FROM observer_counts s WHERE {matching}")
    } else {
        format!("SELECT COUNT(*) FROM observer_states s JOIN observers o ON o.id = s.id WHERE {matching}")
    };
    let statement = format!(
        "SELECT s.id, s.version, s.digest, o.definition, s.state FROM observers o CROSS JOIN observer_states s ON s.id = o.id
        WHERE {matching} AND (o.{by}, o.id) {past} ({value}, ?15)
        ORDER BY o.{by} {way}, o.id {way} LIMIT ?16 OFFSET ?17"
    );
    let total = bound!(sqlx::query_scalar(AssertSqlSafe(count)), the)
        .fetch_one(&mut *snapshot)
        .await
        .map_err(failure)?;
    let mut pages = ledger.pages::<StoredObserver>(most.saturating_add(1));
    while let Some((limit, offset)) = pages.next() {
        let query = bound!(sqlx::query_as(AssertSqlSafe(statement.clone())), the)
            .bind(&the.value)
            .bind(the.id)
            .bind(limit)
            .bind(offset);
        pages.add(query.fetch_all(&mut *snapshot).await.map_err(failure)?);
    }
    Ok(page(pages.rows(), most, total))
}

pub(super) async fn counts_matching(
    pool: &SqlitePool,
    filter: &Filter,
) -> Result<MatchingCounts, StoreError> {
    let the = &Parameters::of(filter, None)?;
    let statement = format!(
        "SELECT s.status, {}, COUNT(*) FROM observer_states s JOIN observers o ON o.id = s.id WHERE {} GROUP BY 1, 2",
        effective_health!("?8"),
        matching(the)
    );
    let rows = bound!(sqlx::query_as(AssertSqlSafe(statement)), the).fetch_all(pool).await;
    counts_matching_of(rows.map_err(failure)?)
}

pub(super) async fn counts(pool: &SqlitePool) -> Result<Counts, StoreError> {
    let counts = "SELECT pool, status, SUM(number), SUM(weight) FROM observer_counts GROUP BY pool, status
        HAVING SUM(number) > 0";
    counts_of(sqlx::query_as(counts).fetch_all(pool).await.map_err(failure)?)
}

pub(super) async fn held_weights(pool: &SqlitePool) -> Result<HeldWeights, StoreError> {
    let weights = "SELECT service_id, SUM(weight) FROM observer_counts WHERE service_id <> zeroblob(16)
        GROUP BY service_id HAVING SUM(weight) > 0";
    Ok(held_weights_of(sqlx::query_as(weights).fetch_all(pool).await.map_err(failure)?))
}

pub(super) async fn health_counts(pool: &SqlitePool) -> Result<HealthCounts, StoreError> {
    let counts = "SELECT pool, health, service_id, SUM(number) FROM observer_counts WHERE health <> ''
        GROUP BY pool, health, service_id HAVING SUM(number) > 0";
    let steady = "SELECT pool, health, COALESCE(service_id, zeroblob(16)), COUNT(*) FROM observer_states
        WHERE steady_at <= ?1 AND health IS NOT NULL GROUP BY 1, 2, 3";
    let mut snapshot = super::snapshot(pool).await?;
    let groups: Vec<(String, String, Uuid, i64)> =
        sqlx::query_as(counts).fetch_all(&mut *snapshot).await.map_err(failure)?;
    let steady: Vec<(String, String, Uuid, i64)> =
        sqlx::query_as(steady).bind(clock::now().0).fetch_all(&mut *snapshot).await.map_err(failure)?;
    let living: Vec<Uuid> = sqlx::query_scalar("SELECT id FROM services WHERE ended_at IS NULL")
        .fetch_all(&mut *snapshot)
        .await
        .map_err(failure)?;
    health_counts_of(groups, steady, &living.into_iter().collect())
}
