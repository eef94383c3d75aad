//! Lists, totals and counts of observers for people, on PostgreSQL.

use super::observers::{Reading, observers};
use crate::columns::{counts_matching_of, counts_of, health_counts_of, held_weights_of};
use crate::error_mapping::failure;
use crate::listing::{Parameters, effective_health, effective_reason, page};
use crate::port::{
    Counts, Filter, HealthCounts, HeldWeights, ListCursor, MatchingCounts, Page, Sort, StoreError,
};
use crate::unreadable::StoredObserver;
use sqlx::PgPool;
use uuid::Uuid;

macro_rules! matching {
    () => {
        concat!(
            "s.status = ANY($1::text[]) AND ($2::text IS NULL OR s.kind = $2) AND ($3::text IS NULL OR s.pool = $3)
         AND ($4::uuid IS NULL OR s.service_id = $4) AND o.labels @> $5::text::jsonb
         AND ($6::text IS NULL OR strpos(lower(o.name), $6) > 0)
         AND ($7::text[] IS NULL OR ",
            effective_health!("(EXTRACT(EPOCH FROM clock_timestamp()) * 1000)::bigint"),
            " = ANY($7))
         AND ($8::text[] IS NULL OR ",
            effective_reason!(
                "(EXTRACT(EPOCH FROM clock_timestamp()) * 1000)::bigint",
                "COALESCE($9::text::jsonb ->> s.pool, 'no-service-in-pool')"
            ),
            " = ANY($8))
         AND ($10::text IS NULL OR EXISTS (SELECT 1 FROM jsonb_array_elements($10::text::jsonb) AS part
            WHERE (part -> 'namespaces' = 'null' OR part -> 'namespaces' ? o.namespace)
                AND (part -> 'pools' = 'null' OR part -> 'pools' ? s.pool)
                AND (part -> 'kinds' = 'null' OR part -> 'kinds' ? s.kind)))
         AND ($11::text IS NULL OR o.namespace = $11)
         AND ($12::text IS NULL OR NOT EXISTS (SELECT 1 FROM jsonb_array_elements($12::text::jsonb) AS want
            WHERE (want ->> 'not')::boolean = (o.labels ? (want ->> 'key')
                AND (want -> 'values' = 'null' OR want -> 'values' ? (o.labels ->> (want ->> 'key'))))))"
        )
    };
}

/// Binds the parameters of [`matching`].
macro_rules! bound {
    ($query:expr, $the:expr) => {
        $query
            .bind(&$the.status)
            .bind(&$the.kind)
            .bind(&$the.pool)
            .bind($the.service)
            .bind(&$the.labels)
            .bind(&$the.q)
            .bind(&$the.health)
            .bind(&$the.reasons)
            .bind(&$the.obstacles)
            .bind(&$the.scope)
            .bind(&$the.namespace)
            .bind(&$the.selector)
    };
}

macro_rules! listing {
    ($by:literal, $value:literal, $past:literal, $way:literal) => {
        observers!(
            "WHERE ",
            matching!(),
            " AND (o.",
            $by,
            ", o.id) ",
            $past,
            " (",
            $value,
            ", $14) ORDER BY o.",
            $by,
            " ",
            $way,
            ", o.id ",
            $way,
            " LIMIT $15 OFFSET $16"
        )
    };
}

const MATCHES: &str =
    concat!("SELECT COUNT(*) FROM observer_states s JOIN observers o ON o.id = s.id WHERE ", matching!());

const COUNTS_MATCHING: &str = concat!(
    "SELECT s.status, ",
    effective_health!("(EXTRACT(EPOCH FROM clock_timestamp()) * 1000)::bigint"),
    ", COUNT(*) FROM observer_states s JOIN observers o ON o.id = s.id WHERE ",
    matching!(),
    " GROUP BY 1, 2"
);

// The number of matches of a filter that has no other conditions: each save keeps it.
const COUNTED: &str = "SELECT COALESCE(SUM(number), 0)::bigint FROM observer_counts
    WHERE status = ANY($1::text[]) AND ($2::text IS NULL OR pool = $2) AND ($3::uuid IS NULL OR service_id = $3)
        AND ($4::text IS NULL OR kind = $4)";

pub(super) async fn list(
    (pool, ledger): Reading<'_>,
    filter: &Filter,
    after: Option<&ListCursor>,
    most: usize,
) -> Result<Page, StoreError> {
    let mut snapshot = super::snapshot(pool).await?;
    let statement = match (filter.sort, filter.descending) {
        (Sort::Name, false) => listing!("name", "$13::text", ">", "ASC"),
        (Sort::Name, true) => listing!("name", "$13::text", "<", "DESC"),
        (Sort::CreatedAt, false) => listing!("created_at", "$13::text::bigint", ">", "ASC"),
        (Sort::CreatedAt, true) => listing!("created_at", "$13::text::bigint", "<", "DESC"),
    };
    let the = &Parameters::of(filter, after)?;
    let count = if the.is_counted() {
        sqlx::query_scalar(COUNTED).bind(&the.status).bind(&the.pool).bind(the.service).bind(&the.kind)
    } else {
        bound!(sqlx::query_scalar(MATCHES), the)
    };
    let total = count.fetch_one(&mut *snapshot).await.map_err(failure)?;
    let mut pages = ledger.pages::<StoredObserver>(most.saturating_add(1));
    while let Some((limit, offset)) = pages.next() {
        let query =
            bound!(sqlx::query_as(statement), the).bind(&the.value).bind(the.id).bind(limit).bind(offset);
        pages.add(query.fetch_all(&mut *snapshot).await.map_err(failure)?);
    }
    Ok(page(pages.rows(), most, total))
}

pub(super) async fn counts_matching(pool: &PgPool, filter: &Filter) -> Result<MatchingCounts, StoreError> {
    let the = &Parameters::of(filter, None)?;
    counts_matching_of(bound!(sqlx::query_as(COUNTS_MATCHING), the).fetch_all(pool).await.map_err(failure)?)
}

pub(super) async fn counts(pool: &PgPool) -> Result<Counts, StoreError> {
    let counts = "SELECT pool, status, SUM(number)::bigint, SUM(weight)::bigint FROM observer_counts GROUP BY pool, status
        HAVING SUM(number) > 0";
    counts_of(sqlx::query_as(counts).fetch_all(pool).await.map_err(failure)?)
}

pub(super) async fn held_weights(pool: &PgPool) -> Result<HeldWeights, StoreError> {
    let weights = "SELECT service_id, SUM(weight)::bigint FROM observer_counts
        WHERE service_id <> '00000000-0000-0000-0000-000000000000' GROUP BY service_id HAVING SUM(weight) > 0";
    Ok(held_weights_of(sqlx::query_as(weights).fetch_all(pool).await.map_err(failure)?))
}

pub(super) async fn health_counts(pool: &PgPool) -> Result<HealthCounts, StoreError> {
    let counts =
        "SELECT pool, health, service_id, SUM(number)::bigint FROM observer_counts WHERE health <> ''
        GROUP BY pool, health, service_id HAVING SUM(number) > 0";
    let steady = "SELECT pool, health, COALESCE(service_id, '00000000-0000-0000-0000-000000000000'), COUNT(*)
        FROM observer_states
        WHERE steady_at <= (EXTRACT(EPOCH FROM clock_timestamp()) * 1000)::bigint AND health IS NOT NULL
        GROUP BY 1, 2, 3";
    let mut snapshot = super::snapshot(pool).await?;
    let groups: Vec<(String, String, Uuid, i64)> =
        sqlx::query_as(counts).fetch_all(&mut *snapshot).await.map_err(failure)?;
    let steady: Vec<(String, String, Uuid, i64)> =
        sqlx::query_as(steady).fetch_all(&mut *snapshot).await.map_err(failure)?;
    let living: Vec<Uuid> = sqlx::query_scalar("SELECT id FROM services WHERE ended_at IS NULL")
        .fetch_all(&mut *snapshot)
        .await
        .map_err(failure)?;
    health_counts_of(groups, steady, &living.into_iter().collect())
}
