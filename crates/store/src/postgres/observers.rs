//! Observers on PostgreSQL: each batch is one statement over arrays.

use crate::columns::{Columns, HealthGroup, counts_of, health_counts_of, refused_as, refused_of};
use crate::error_mapping::failure;
use crate::listing::{Parameters, effective_health, effective_reason, page};
use crate::port::{Counts, Created, Filter, Found, HealthCounts, ListCursor, Page, Sort, StoreError, Table};
use crate::unreadable::{Document, Ledger};
use everwatch_core::capacity::create_admission::{Occupancy, admit, counted_pools, names, refused_by};
use everwatch_core::capacity::placement::Refused;
use everwatch_core::clock::Timestamp;
use everwatch_core::failure::adoption::REMEMBERED;
use everwatch_core::id::{ObserverId, ObserverRef, Pool, ServiceId};
use everwatch_core::record::row::{Row, RowPolicy};
use everwatch_core::record::status::Status;
use everwatch_core::wire::report::InventoryRange;
use sqlx::{PgConnection, PgPool};
use std::collections::{HashMap, HashSet};
use uuid::Uuid;

macro_rules! batch {
    () => {
        "UNNEST($1::uuid[], $2::bigint[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[],
            $8::uuid[], $9::bigint[], $10::bigint[], $11::bigint[], $12::bigint[], $13::text[], $14::text[],
            $15::text[], $16::bigint[], $17::text[])
        AS n (id, version, name, name_key, kind, pool, status, service_id, generation, created_at, due_at,
            commanded_at, labels, document, health, steady_at, reason_code)"
    };
}

// Inserts in the order of the names: two transactions that create the same names lock them in the same order
// and cannot deadlock.
const INSERT: &str = concat!(
    "INSERT INTO observers (id, version, name, name_key, kind, pool, status, service_id, generation,
        created_at, due_at, commanded_at, labels, document, health, steady_at, reason_code)
    SELECT id, version, name, name_key, kind, pool, status, service_id, generation,
        created_at, due_at, commanded_at, labels::jsonb, document, health, steady_at, reason_code
    FROM ",
    batch!(),
    " ORDER BY n.name ON CONFLICT DO NOTHING RETURNING id"
);

// Locks rows in the order of their ids, so two overlapping saves wait but cannot deadlock. A row that has
// given up its name never takes it back: another observer may have the name.
const SAVE: &str = concat!(
    "WITH mine AS MATERIALIZED (
        SELECT o.id FROM observers o
        JOIN UNNEST($1::uuid[], $2::bigint[]) AS k (id, version)
          ON o.id = k.id AND o.version = k.version - 1
        ORDER BY o.id FOR UPDATE OF o)
    UPDATE observers o SET version = n.version, name = n.name,
        name_key = CASE WHEN o.name_key IS NULL THEN NULL ELSE n.name_key END,
        kind = n.kind, pool = n.pool, status = n.status, service_id = n.service_id,
        generation = n.generation, created_at = n.created_at, due_at = n.due_at,
        commanded_at = n.commanded_at, labels = n.labels::jsonb, document = n.document,
        health = n.health, steady_at = n.steady_at, reason_code = n.reason_code
    FROM ",
    batch!(),
    ", mine WHERE o.id = n.id AND o.id = mine.id AND o.version = n.version - 1 RETURNING o.id"
);

macro_rules! matching {
    () => {
        concat!(
            "status = ANY($1::text[]) AND ($2::text IS NULL OR kind = $2) AND ($3::text IS NULL OR pool = $3)
         AND ($4::uuid IS NULL OR service_id = $4) AND labels @> $5::text::jsonb
         AND ($6::text IS NULL OR strpos(lower(name), $6) > 0)
         AND ($7::text[] IS NULL OR ",
            effective_health!("(EXTRACT(EPOCH FROM clock_timestamp()) * 1000)::bigint"),
            " = ANY($7))
         AND ($8::text[] IS NULL OR ",
            effective_reason!(
                "(EXTRACT(EPOCH FROM clock_timestamp()) * 1000)::bigint",
                "COALESCE($9::text::jsonb ->> pool, 'no-service-in-pool')"
            ),
            " = ANY($8))"
        )
    };
}

macro_rules! listing {
    ($by:literal, $value:literal, $past:literal, $way:literal) => {
        concat!(
            "SELECT id, document FROM observers WHERE ",
            matching!(),
            " AND (",
            $by,
            ", id) ",
            $past,
            " (",
            $value,
            ", $11) ORDER BY ",
            $by,
            " ",
            $way,
            ", id ",
            $way,
            " LIMIT $12 OFFSET $13"
        )
    };
}

const COUNT: &str = concat!("SELECT COUNT(*) FROM observers WHERE ", matching!());

pub(super) async fn create(
    pool: &PgPool,
    rows: &[Row],
    policy: &RowPolicy,
) -> Result<Vec<Created>, StoreError> {
    let mut transaction = pool.begin().await.map_err(failure)?;
    let free = count_free(&mut transaction, &counted_pools(rows)).await?;
    let holders = holders(&mut transaction, &names(rows)).await?;
    let mut answers = admit(rows, Occupancy { holders, free });
    let admitted = rows.iter().zip(&answers).filter(|(_, answer)| **answer == Created::Done);
    let columns: Vec<Columns> =
        admitted.map(|(row, _)| Columns::of(row, row.version, policy)).collect::<Result<_, _>>()?;
    if !columns.is_empty() {
        let inserted: HashSet<Uuid> = write(&mut transaction, INSERT, &columns).await?.into_iter().collect();
        if inserted.len() < columns.len() {
            // Another manager committed one of the names after this transaction read the holders and before
            // it inserted.
            let holders = self::holders(&mut transaction, &names(rows)).await?;
            for (row, answer) in rows.iter().zip(&mut answers) {
                if *answer == Created::Done && !inserted.contains(&row.id.0) {
                    *answer = refused_by(holders.get(row.definition.name.as_str()).copied());
                }
            }
        }
    }
    transaction.commit().await.map_err(failure)?;
    Ok(answers)
}

/// Counts the free slots of these pools and locks the pools until the transaction ends. Without the lock, two
/// managers could count the same free slot and both assign it.
async fn count_free(
    connection: &mut PgConnection,
    pools: &[String],
) -> Result<HashMap<String, i64>, StoreError> {
    if pools.is_empty() {
        return Ok(HashMap::new());
    }
    let lock = "SELECT pg_advisory_xact_lock(key) FROM (
        SELECT DISTINCT hashtextextended('everwatch/' || pool, 0) AS key FROM UNNEST($1::text[]) AS p (pool)
        ORDER BY key) AS keys";
    sqlx::query(lock).bind(pools).execute(&mut *connection).await.map_err(failure)?;
    let free = "SELECT pool, (
            COALESCE((SELECT SUM(capacity) FROM services s WHERE s.pool = p.pool AND s.state = 'active'), 0)
            - (SELECT COUNT(*) FROM observers o WHERE o.pool = p.pool
                AND o.status IN ('Created', 'Processing', 'OnDeleting')))::bigint
        FROM UNNEST($1::text[]) AS p (pool)";
    let rows: Vec<(String, i64)> =
        sqlx::query_as(free).bind(pools).fetch_all(connection).await.map_err(failure)?;
    Ok(rows.into_iter().collect())
}

async fn holders(
    connection: &mut PgConnection,
    names: &[&str],
) -> Result<HashMap<String, Status>, StoreError> {
    let held = "SELECT name_key, status FROM observers WHERE name_key = ANY($1::text[])";
    let rows: Vec<(String, String)> =
        sqlx::query_as(held).bind(names).fetch_all(connection).await.map_err(failure)?;
    rows.into_iter().map(|(name, status)| Ok((name, status.parse().map_err(StoreError::Corrupt)?))).collect()
}

async fn write(
    connection: &mut PgConnection,
    statement: &'static str,
    rows: &[Columns],
) -> Result<Vec<Uuid>, StoreError> {
    sqlx::query_scalar(statement)
        .bind(rows.iter().map(|row| row.id).collect::<Vec<_>>())
        .bind(rows.iter().map(|row| row.version).collect::<Vec<_>>())
        .bind(rows.iter().map(|row| row.name.as_str()).collect::<Vec<_>>())
        .bind(rows.iter().map(|row| row.name_key.as_deref()).collect::<Vec<_>>())
        .bind(rows.iter().map(|row| row.kind.as_str()).collect::<Vec<_>>())
        .bind(rows.iter().map(|row| row.pool.as_str()).collect::<Vec<_>>())
        .bind(rows.iter().map(|row| row.status).collect::<Vec<_>>())
        .bind(rows.iter().map(|row| row.service_id).collect::<Vec<_>>())
        .bind(rows.iter().map(|row| row.generation).collect::<Vec<_>>())
        .bind(rows.iter().map(|row| row.created_at).collect::<Vec<_>>())
        .bind(rows.iter().map(|row| row.due_at).collect::<Vec<_>>())
        .bind(rows.iter().map(|row| row.commanded_at).collect::<Vec<_>>())
        .bind(rows.iter().map(|row| row.labels.as_str()).collect::<Vec<_>>())
        .bind(rows.iter().map(|row| row.document.as_str()).collect::<Vec<_>>())
        .bind(rows.iter().map(|row| row.health).collect::<Vec<_>>())
        .bind(rows.iter().map(|row| row.steady_at).collect::<Vec<_>>())
        .bind(rows.iter().map(|row| row.reason_code).collect::<Vec<_>>())
        .fetch_all(connection)
        .await
        .map_err(failure)
}

/// The connection pool to read from, and the ledger that records unreadable rows.
pub(super) type Reading<'a> = (&'a PgPool, &'a Ledger);

pub(super) async fn load(
    (pool, ledger): Reading<'_>,
    ids: &[ObserverId],
) -> Result<Found<Row, ObserverId>, StoreError> {
    let ids: Vec<Uuid> = ids.iter().map(|id| id.0).collect();
    Ok(ledger.read(&documents(pool, &ids).await?))
}

async fn documents(pool: &PgPool, ids: &[Uuid]) -> Result<Vec<Document<Uuid>>, StoreError> {
    let load = "SELECT id, document FROM observers WHERE id = ANY($1::uuid[])";
    sqlx::query_as(load).bind(ids).fetch_all(pool).await.map_err(failure)
}

/// Rereads the unreadable rows in the ledger, and removes those that can be read or no longer exist.
pub(super) async fn look((pool, ledger): Reading<'_>) -> Result<(), StoreError> {
    let ids = ledger.ids(Table::Observers);
    if !ids.is_empty() {
        ledger.look::<Row>(&ids, &documents(pool, &ids).await?);
    }
    Ok(())
}

pub(super) async fn find(
    (pool, ledger): Reading<'_>,
    which: &ObserverRef,
) -> Result<Option<Row>, StoreError> {
    let by_name = "SELECT id, document FROM observers WHERE name = $1
        ORDER BY name_key IS NULL, created_at DESC, id DESC LIMIT 1";
    let query = match which {
        ObserverRef::Id(id) => sqlx::query_as("SELECT id, document FROM observers WHERE id = $1").bind(id.0),
        ObserverRef::Name(name) => sqlx::query_as(by_name).bind(name.as_str()),
    };
    let found: Option<Document<Uuid>> = query.fetch_optional(pool).await.map_err(failure)?;
    found.map(|(id, document)| ledger.read_one(id, &document)).transpose()
}

pub(super) async fn save(
    pool: &PgPool,
    rows: &[Row],
    policy: &RowPolicy,
) -> Result<Vec<ObserverId>, StoreError> {
    let mut ids = HashSet::new();
    let firsts = rows.iter().filter(|row| ids.insert(row.id));
    let columns: Vec<Columns> =
        firsts.map(|row| Columns::of(row, row.version + 1, policy)).collect::<Result<_, _>>()?;
    let mut connection = pool.acquire().await.map_err(failure)?;
    let mut done: HashSet<Uuid> = write(&mut connection, SAVE, &columns).await?.into_iter().collect();
    // If a batch contains an id twice, the second row fails like a late save from another manager.
    Ok(rows.iter().map(|row| row.id).filter(|id| !done.remove(&id.0)).collect())
}

pub(super) async fn due(reading: Reading<'_>, now: Timestamp, most: usize) -> Result<Vec<Row>, StoreError> {
    let due = "SELECT id, document FROM observers WHERE due_at <= $1 ORDER BY due_at, id LIMIT $2 OFFSET $3";
    up_to(reading, due, now, most).await
}

pub(super) async fn commanded_since(
    reading: Reading<'_>,
    since: Timestamp,
    most: usize,
) -> Result<Vec<Row>, StoreError> {
    let sent = "SELECT id, document FROM observers WHERE commanded_at >= $1 ORDER BY commanded_at DESC, id
        LIMIT $2 OFFSET $3";
    up_to(reading, sent, since, most).await
}

pub(super) async fn ending((pool, ledger): Reading<'_>, most: usize) -> Result<Vec<Row>, StoreError> {
    let ending = "SELECT id, document FROM observers
        WHERE reason_code IN ('deleting', 'pausing', 'restart-requested', 'withdrawing')
        ORDER BY commanded_at, id LIMIT $1 OFFSET $2";
    let mut pages = ledger.pages(most);
    while let Some((limit, offset)) = pages.next() {
        let query = sqlx::query_as(ending).bind(limit).bind(offset);
        pages.add(query.fetch_all(pool).await.map_err(failure)?);
    }
    Ok(pages.rows())
}

pub(super) async fn refused(pool: &PgPool) -> Result<Vec<Refused>, StoreError> {
    let groups = "SELECT pool, kind, reason_code, COUNT(*) FROM observers
        WHERE reason_code IN ('refused', 'no-service-for-kind')
        GROUP BY pool, kind, reason_code ORDER BY pool, kind, reason_code DESC";
    refused_of(sqlx::query_as(groups).fetch_all(pool).await.map_err(failure)?)
}

pub(super) async fn refused_rows(
    (pool, ledger): Reading<'_>,
    of: &Refused,
    most: usize,
) -> Result<Vec<Row>, StoreError> {
    let refused = "SELECT id, document FROM observers
        WHERE reason_code IN ('refused', 'no-service-for-kind') AND reason_code = $1 AND pool = $2 AND kind = $3
        ORDER BY created_at, id LIMIT $4 OFFSET $5";
    let code = refused_as(of.withdrawn);
    let mut pages = ledger.pages(most);
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
    let unheld = "SELECT id, document FROM observers
        WHERE pool = $1 AND status IN ('Created', 'Processing', 'OnDeleting')
          AND (reason_code IS NULL OR reason_code <> 'no-service-for-kind')
          AND (service_id IS NULL OR NOT service_id = ANY($2::uuid[]))
        ORDER BY created_at, id LIMIT $3 OFFSET $4";
    let living: &Vec<Uuid> = &living.iter().map(|service| service.0).collect();
    let mut pages = ledger.pages(most);
    while let Some((limit, offset)) = pages.next() {
        let query = sqlx::query_as(unheld).bind(of.as_str()).bind(living).bind(limit).bind(offset);
        pages.add(query.fetch_all(pool).await.map_err(failure)?);
    }
    Ok(pages.rows())
}

pub(super) async fn held_by(
    pool: &PgPool,
    service: ServiceId,
    range: InventoryRange,
) -> Result<Vec<ObserverId>, StoreError> {
    let held = "SELECT id FROM observers WHERE service_id = $1
        AND ($2::uuid IS NULL OR id > $2) AND ($3::uuid IS NULL OR id <= $3)";
    let [after, upto] = [range.after, range.upto].map(|id| id.map(|id| id.0));
    let query = sqlx::query_scalar(held).bind(service.0).bind(after).bind(upto);
    let found: Vec<Uuid> = query.fetch_all(pool).await.map_err(failure)?;
    Ok(found.into_iter().map(ObserverId).collect())
}

async fn up_to(
    (pool, ledger): Reading<'_>,
    statement: &'static str,
    at: Timestamp,
    most: usize,
) -> Result<Vec<Row>, StoreError> {
    let mut pages = ledger.pages(most);
    while let Some((limit, offset)) = pages.next() {
        let query = sqlx::query_as(statement).bind(at.0).bind(limit).bind(offset);
        pages.add(query.fetch_all(pool).await.map_err(failure)?);
    }
    Ok(pages.rows())
}

pub(super) async fn list(
    (pool, ledger): Reading<'_>,
    filter: &Filter,
    after: Option<&ListCursor>,
    most: usize,
) -> Result<Page, StoreError> {
    let mut snapshot = super::snapshot(pool).await?;
    let statement = match (filter.sort, filter.descending) {
        (Sort::Name, false) => listing!("name", "$10::text", ">", "ASC"),
        (Sort::Name, true) => listing!("name", "$10::text", "<", "DESC"),
        (Sort::CreatedAt, false) => listing!("created_at", "$10::text::bigint", ">", "ASC"),
        (Sort::CreatedAt, true) => listing!("created_at", "$10::text::bigint", "<", "DESC"),
    };
    let the = &Parameters::of(filter, after)?;
    let total = sqlx::query_scalar(COUNT)
        .bind(&the.status)
        .bind(&the.kind)
        .bind(&the.pool)
        .bind(the.service)
        .bind(&the.labels)
        .bind(&the.q)
        .bind(&the.health)
        .bind(&the.reasons)
        .bind(&the.obstacles)
        .fetch_one(&mut *snapshot)
        .await
        .map_err(failure)?;
    let mut pages = ledger.pages(most.saturating_add(1));
    while let Some((limit, offset)) = pages.next() {
        let query = sqlx::query_as(statement)
            .bind(&the.status)
            .bind(&the.kind)
            .bind(&the.pool)
            .bind(the.service)
            .bind(&the.labels)
            .bind(&the.q)
            .bind(&the.health)
            .bind(&the.reasons)
            .bind(&the.obstacles)
            .bind(&the.value)
            .bind(the.id)
            .bind(limit)
            .bind(offset);
        pages.add(query.fetch_all(&mut *snapshot).await.map_err(failure)?);
    }
    Ok(page(pages.rows(), most, total))
}

pub(super) async fn counts(pool: &PgPool) -> Result<Counts, StoreError> {
    let counts = "SELECT pool, status, COUNT(*) FROM observers GROUP BY pool, status";
    counts_of(sqlx::query_as(counts).fetch_all(pool).await.map_err(failure)?)
}

pub(super) async fn health_counts(pool: &PgPool) -> Result<HealthCounts, StoreError> {
    let counts = "SELECT pool, health, service_id, COUNT(*), COUNT(*) FILTER
            (WHERE steady_at <= (EXTRACT(EPOCH FROM clock_timestamp()) * 1000)::bigint)
        FROM observers WHERE health IS NOT NULL GROUP BY pool, health, service_id";
    let groups: Vec<(String, String, Option<Uuid>, i64, i64)> =
        sqlx::query_as(counts).fetch_all(pool).await.map_err(failure)?;
    let living: Vec<Uuid> = sqlx::query_scalar("SELECT id FROM services WHERE ended_at IS NULL")
        .fetch_all(pool)
        .await
        .map_err(failure)?;
    let group = |(pool, health, holder, count, steady)| HealthGroup { pool, health, holder, count, steady };
    health_counts_of(groups.into_iter().map(group).collect(), &living.into_iter().collect())
}

pub(super) async fn forget(pool: &PgPool, rows: &[(ObserverId, i64)]) -> Result<(), StoreError> {
    let forget = "WITH gone AS (DELETE FROM observers o USING (
            SELECT o.id FROM observers o JOIN UNNEST($1::uuid[], $2::bigint[]) AS k (id, version)
              ON o.id = k.id AND o.version = k.version
            ORDER BY o.id FOR UPDATE OF o) AS mine
        WHERE o.id = mine.id RETURNING o.id)
        INSERT INTO key_value (name, value, until)
            SELECT 'forgotten/' || id, '', (EXTRACT(EPOCH FROM clock_timestamp()) * 1000)::bigint + $3
            FROM gone ORDER BY id
        ON CONFLICT (name) DO UPDATE SET until = EXCLUDED.until";
    sqlx::query(forget)
        .bind(rows.iter().map(|(id, _)| id.0).collect::<Vec<_>>())
        .bind(rows.iter().map(|(_, version)| *version).collect::<Vec<_>>())
        .bind(i64::try_from(REMEMBERED.as_millis()).unwrap_or(i64::MAX))
        .execute(pool)
        .await
        .map_err(failure)?;
    Ok(())
}

pub(super) async fn forgotten(pool: &PgPool, ids: &[ObserverId]) -> Result<Vec<ObserverId>, StoreError> {
    let forgotten = "SELECT substr(name, 11)::uuid FROM key_value
        WHERE name = ANY(SELECT 'forgotten/' || id FROM UNNEST($1::uuid[]) AS ids (id))
          AND until > (EXTRACT(EPOCH FROM clock_timestamp()) * 1000)::bigint";
    let ids: Vec<Uuid> = ids.iter().map(|id| id.0).collect();
    let found: Vec<Uuid> = sqlx::query_scalar(forgotten).bind(ids).fetch_all(pool).await.map_err(failure)?;
    Ok(found.into_iter().map(ObserverId).collect())
}
