//! Observers on SQLite: each batch is one statement over JSON.

use crate::columns::{Columns, HealthGroup, counts_of, health_counts_of, refused_as, refused_of, written};
use crate::error_mapping::failure;
use crate::listing::{Parameters, effective_health, effective_reason, page};
use crate::port::{Counts, Created, Filter, Found, HealthCounts, ListCursor, Page, Sort, StoreError, Table};
use crate::unreadable::{Document, Ledger};
use everwatch_core::capacity::create_admission::{Occupancy, admit, counted_pools, names};
use everwatch_core::capacity::placement::Refused;
use everwatch_core::clock::{self, Timestamp};
use everwatch_core::failure::adoption::REMEMBERED;
use everwatch_core::id::{ObserverId, ObserverRef, Pool, ServiceId};
use everwatch_core::record::row::{Row, RowPolicy};
use everwatch_core::record::status::Status;
use everwatch_core::wire::report::InventoryRange;
use sqlx::{AssertSqlSafe, SqliteConnection, SqlitePool};
use std::collections::{HashMap, HashSet};
use uuid::Uuid;

/// Selects the rows of a batch from the JSON array of their `Columns`.
macro_rules! batch {
    () => {
        "(SELECT value ->> 'id' AS id, value ->> 'version' AS version, value ->> 'name' AS name,
            value ->> 'name_key' AS name_key, value ->> 'kind' AS kind, value ->> 'pool' AS pool,
            value ->> 'status' AS status, value ->> 'service_id' AS service_id,
            value ->> 'generation' AS generation, value ->> 'created_at' AS created_at,
            value ->> 'due_at' AS due_at, value ->> 'commanded_at' AS commanded_at,
            value ->> 'labels' AS labels, value ->> 'document' AS document,
            value ->> 'health' AS health, value ->> 'steady_at' AS steady_at,
            value ->> 'reason_code' AS reason_code
        FROM json_each(?1)) AS n"
    };
}

// `WHERE true`: without it, SQLite reads `ON` as the condition of a join.
const INSERT: &str = concat!(
    "INSERT INTO observers (id, version, name, name_key, kind, pool, status, service_id, generation,
        created_at, due_at, commanded_at, labels, document, health, steady_at, reason_code)
    SELECT id, version, name, name_key, kind, pool, status, service_id, generation, created_at, due_at,
        commanded_at, labels, document, health, steady_at, reason_code
    FROM ",
    batch!(),
    " WHERE true ON CONFLICT DO NOTHING RETURNING id"
);

// The first statement updates only the columns that a report may change: SQLite rewrites an index for each
// column that an UPDATE names, changed or not. The second updates the columns that seldom change, of the rows
// that the first has saved. A row that has given up its name never takes it back: another observer may have
// the name. Both statements go to the database's thread together: sent separately, each would wait for its
// turn there while no other connection can write. BEGIN and COMMIT are separate calls: a caller that is
// cancelled between them would otherwise leave the transaction open.
const SAVE: &str = concat!(
    "UPDATE observers SET version = n.version, status = n.status, service_id = n.service_id,
        generation = n.generation, due_at = n.due_at, commanded_at = n.commanded_at, document = n.document,
        health = n.health, steady_at = n.steady_at, reason_code = n.reason_code
    FROM ",
    batch!(),
    " WHERE observers.id = n.id AND observers.version = n.version - 1 RETURNING observers.id;
    UPDATE observers SET name = n.name,
        name_key = CASE WHEN observers.name_key IS NULL THEN NULL ELSE n.name_key END,
        kind = n.kind, pool = n.pool, created_at = n.created_at, labels = n.labels
    FROM ",
    batch!(),
    " WHERE observers.id = n.id AND observers.version = n.version AND observers.document = n.document
        AND ((observers.name, observers.kind, observers.pool, observers.created_at, observers.labels)
            IS NOT (n.name, n.kind, n.pool, n.created_at, n.labels)
        OR (observers.name_key IS NOT NULL AND n.name_key IS NULL))"
);

const REMEMBER: &str = "INSERT INTO key_value (name, value, until)
    SELECT 'forgotten/' || id, '', ?3 FROM observers WHERE id = ?1 AND version = ?2
    ON CONFLICT (name) DO UPDATE SET until = excluded.until";

const LABELLED: &str = "NOT EXISTS (SELECT 1 FROM json_each(?5) AS want WHERE NOT EXISTS (
    SELECT 1 FROM json_each(observers.labels) AS has WHERE has.key = want.key AND has.value = want.value))";

const OF_HEALTH: &str = concat!(effective_health!("?8"), " IN (SELECT value FROM json_each(?7))");

const OF_REASON: &str = concat!(
    effective_reason!(
        "?8",
        "COALESCE((SELECT value FROM json_each(?10) WHERE key = observers.pool), 'no-service-in-pool')"
    ),
    " IN (SELECT value FROM json_each(?9))"
);

/// Builds the condition of a filter. An unset field adds no clause, so that SQLite can answer from an index
/// without reading rows.
fn matching(the: &Parameters) -> String {
    let asked = [
        (the.kind.is_some(), "kind = ?2"),
        (the.pool.is_some(), "pool = ?3"),
        (the.service.is_some(), "service_id = ?4"),
        (the.labels != "{}", LABELLED),
        (the.q.is_some(), "instr(lower(name), ?6) > 0"),
        (the.health.is_some(), OF_HEALTH),
        (the.reasons.is_some(), OF_REASON),
    ];
    let asked = asked.iter().filter(|(is_asked, _)| *is_asked).map(|(_, clause)| *clause);
    let status = "status IN (SELECT value FROM json_each(?1))";
    std::iter::once(status).chain(asked).collect::<Vec<_>>().join(" AND ")
}

pub(super) async fn create(
    writer: &SqlitePool,
    rows: &[Row],
    policy: &RowPolicy,
) -> Result<Vec<Created>, StoreError> {
    // Needs no transaction: this task holds the only connection that writes, and the insert is one statement.
    let mut writing = writer.acquire().await.map_err(failure)?;
    let free = count_free(&mut writing, &counted_pools(rows)).await?;
    let holders = holders(&mut writing, &names(rows)).await?;
    let mut answers = admit(rows, Occupancy { holders, free });
    let admitted = rows.iter().zip(&answers).filter(|(_, answer)| **answer == Created::Done);
    let columns: Vec<Columns> =
        admitted.map(|(row, _)| Columns::of(row, row.version, policy)).collect::<Result<_, _>>()?;
    let inserted = write(&mut writing, INSERT, &columns).await?;
    for (row, answer) in rows.iter().zip(&mut answers) {
        if *answer == Created::Done && !inserted.contains(&row.id) {
            *answer = Created::NameTaken;
        }
    }
    Ok(answers)
}

/// Free slots of these pools.
async fn count_free(
    connection: &mut SqliteConnection,
    pools: &[String],
) -> Result<HashMap<String, i64>, StoreError> {
    let free = "SELECT value,
        COALESCE((SELECT SUM(capacity) FROM services WHERE pool = value AND state = 'active'), 0)
        - (SELECT COUNT(*) FROM observers WHERE pool = value
            AND status IN ('Created', 'Processing', 'OnDeleting'))
        FROM json_each(?1)";
    if pools.is_empty() {
        return Ok(HashMap::new());
    }
    let counted: Vec<(String, i64)> =
        sqlx::query_as(free).bind(array(pools)).fetch_all(connection).await.map_err(failure)?;
    Ok(counted.into_iter().collect())
}

async fn holders(
    connection: &mut SqliteConnection,
    names: &[&str],
) -> Result<HashMap<String, Status>, StoreError> {
    let held = "SELECT name_key, status FROM observers
        WHERE name_key IN (SELECT value FROM json_each(?1))";
    let rows: Vec<(String, String)> =
        sqlx::query_as(held).bind(array(names)).fetch_all(connection).await.map_err(failure)?;
    rows.into_iter().map(|(name, status)| Ok((name, status.parse().map_err(StoreError::Corrupt)?))).collect()
}

fn array<T: serde::Serialize>(values: &[T]) -> String {
    serde_json::json!(values).to_string()
}

/// Writes all rows with one statement: each statement wakes another thread, which costs more than the write
/// itself.
async fn write(
    connection: &mut SqliteConnection,
    statement: &'static str,
    rows: &[Columns],
) -> Result<HashSet<ObserverId>, StoreError> {
    if rows.is_empty() {
        return Ok(HashSet::new());
    }
    let query = sqlx::query_scalar(statement).bind(written(&rows)?);
    let done: Vec<String> = query.fetch_all(connection).await.map_err(failure)?;
    Ok(parsed(&done)?.into_iter().collect())
}

/// The connection pool to read from, and the ledger that records unreadable rows.
pub(super) type Reading<'a> = (&'a SqlitePool, &'a Ledger);

pub(super) async fn load(
    (pool, ledger): Reading<'_>,
    ids: &[ObserverId],
) -> Result<Found<Row, ObserverId>, StoreError> {
    Ok(ledger.read(&documents(pool, array(ids)).await?))
}

/// Reads the documents with the ids of this JSON array.
async fn documents(pool: &SqlitePool, ids: String) -> Result<Vec<Document<Uuid>>, StoreError> {
    let load = "SELECT id, document FROM observers WHERE id IN (SELECT value FROM json_each(?1))";
    sqlx::query_as(load).bind(ids).fetch_all(pool).await.map(told).map_err(failure)
}

/// Rereads the unreadable rows in the ledger, and removes those that can be read or no longer exist.
pub(super) async fn look((pool, ledger): Reading<'_>) -> Result<(), StoreError> {
    let ids = ledger.ids(Table::Observers);
    if !ids.is_empty() {
        ledger.look::<Row>(&ids, &documents(pool, array(&ids)).await?);
    }
    Ok(())
}

/// Parses the ids of the documents, which SQLite stores as text.
pub(super) fn told(rows: Vec<Document<String>>) -> Vec<Document<Uuid>> {
    rows.into_iter().map(|(id, document)| (Uuid::parse_str(&id).unwrap_or_default(), document)).collect()
}

pub(super) async fn find(
    (pool, ledger): Reading<'_>,
    which: &ObserverRef,
) -> Result<Option<Row>, StoreError> {
    let by_name = "SELECT id, document FROM observers WHERE name = ?1
        ORDER BY name_key IS NULL, created_at DESC, id DESC LIMIT 1";
    let query = match which {
        ObserverRef::Id(id) => {
            sqlx::query_as("SELECT id, document FROM observers WHERE id = ?1").bind(id.to_string())
        }
        ObserverRef::Name(name) => sqlx::query_as(by_name).bind(name.as_str()),
    };
    let found = query.fetch_all(pool).await.map(told).map_err(failure)?;
    found.first().map(|(id, document)| ledger.read_one(*id, document)).transpose()
}

pub(super) async fn save(
    writer: &SqlitePool,
    rows: &[Row],
    policy: &RowPolicy,
) -> Result<Vec<ObserverId>, StoreError> {
    let mut ids = HashSet::new();
    let firsts = rows.iter().filter(|row| ids.insert(row.id));
    let columns: Vec<Columns> =
        firsts.map(|row| Columns::of(row, row.version + 1, policy)).collect::<Result<_, _>>()?;
    let mut transaction = super::writing(writer).await?;
    let mut done = write(&mut transaction, SAVE, &columns).await?;
    transaction.commit().await.map_err(failure)?;
    // If a batch contains an id twice, the second row fails like a late save from another manager.
    Ok(rows.iter().map(|row| row.id).filter(|id| !done.remove(id)).collect())
}

pub(super) async fn due(reading: Reading<'_>, now: Timestamp, most: usize) -> Result<Vec<Row>, StoreError> {
    let due = "SELECT id, document FROM observers WHERE due_at <= ?1 ORDER BY due_at, id LIMIT ?2 OFFSET ?3";
    up_to(reading, due, now, most).await
}

pub(super) async fn commanded_since(
    reading: Reading<'_>,
    since: Timestamp,
    most: usize,
) -> Result<Vec<Row>, StoreError> {
    let sent = "SELECT id, document FROM observers WHERE commanded_at >= ?1 ORDER BY commanded_at DESC, id
        LIMIT ?2 OFFSET ?3";
    up_to(reading, sent, since, most).await
}

pub(super) async fn ending((pool, ledger): Reading<'_>, most: usize) -> Result<Vec<Row>, StoreError> {
    let ending = "SELECT id, document FROM observers
        WHERE reason_code IN ('deleting', 'pausing', 'restart-requested', 'withdrawing')
        ORDER BY commanded_at, id LIMIT ?1 OFFSET ?2";
    let mut pages = ledger.pages(most);
    while let Some((limit, offset)) = pages.next() {
        let query = sqlx::query_as(ending).bind(limit).bind(offset);
        pages.add(query.fetch_all(pool).await.map(told).map_err(failure)?);
    }
    Ok(pages.rows())
}

pub(super) async fn refused(pool: &SqlitePool) -> Result<Vec<Refused>, StoreError> {
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
        WHERE reason_code IN ('refused', 'no-service-for-kind') AND reason_code = ?1 AND pool = ?2 AND kind = ?3
        ORDER BY created_at, id LIMIT ?4 OFFSET ?5";
    let code = refused_as(of.withdrawn);
    let mut pages = ledger.pages(most);
    while let Some((limit, offset)) = pages.next() {
        let query = sqlx::query_as(refused).bind(code).bind(of.pool.as_str()).bind(of.kind.as_str());
        let query = query.bind(limit).bind(offset);
        pages.add(query.fetch_all(pool).await.map(told).map_err(failure)?);
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
        WHERE pool = ?1 AND status IN ('Created', 'Processing', 'OnDeleting')
          AND (reason_code IS NULL OR reason_code <> 'no-service-for-kind')
          AND (service_id IS NULL OR service_id NOT IN (SELECT value FROM json_each(?2)))
        ORDER BY created_at, id LIMIT ?3 OFFSET ?4";
    let living = &array(living);
    let mut pages = ledger.pages(most);
    while let Some((limit, offset)) = pages.next() {
        let query = sqlx::query_as(unheld).bind(of.as_str()).bind(living).bind(limit).bind(offset);
        pages.add(query.fetch_all(pool).await.map(told).map_err(failure)?);
    }
    Ok(pages.rows())
}

pub(super) async fn held_by(
    pool: &SqlitePool,
    service: ServiceId,
    range: InventoryRange,
) -> Result<Vec<ObserverId>, StoreError> {
    let held = "SELECT id FROM observers WHERE service_id = ?1
        AND (?2 IS NULL OR id > ?2) AND (?3 IS NULL OR id <= ?3)";
    let [after, upto] = [range.after, range.upto].map(|id| id.map(|id| id.to_string()));
    let query = sqlx::query_scalar(held).bind(service.to_string()).bind(after).bind(upto);
    let found: Vec<String> = query.fetch_all(pool).await.map_err(failure)?;
    parsed(&found)
}

fn parsed(texts: &[String]) -> Result<Vec<ObserverId>, StoreError> {
    let id = |text: &String| Uuid::parse_str(text).map(ObserverId);
    texts.iter().map(id).collect::<Result<_, _>>().map_err(|error| StoreError::Corrupt(error.to_string()))
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
        pages.add(query.fetch_all(pool).await.map(told).map_err(failure)?);
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
    let the = &Parameters::of(filter, after)?;
    let matching = matching(the);
    let (by, value) = match filter.sort {
        Sort::Name => ("name", "?11"),
        Sort::CreatedAt => ("created_at", "CAST(?11 AS INTEGER)"),
    };
    let (past, way) = if filter.descending { ("<", "DESC") } else { (">", "ASC") };
    let count = format!("SELECT COUNT(*) FROM observers WHERE {matching}");
    let statement = format!(
        "SELECT id, document FROM observers WHERE {matching} AND ({by}, id) {past} ({value}, ?12)
        ORDER BY {by} {way}, id {way} LIMIT ?13 OFFSET ?14"
    );
    let health = &the.health.as_ref().map(|health| array(health));
    let reasons = &the.reasons.as_ref().map(|codes| array(codes));
    let (statement, service) = (&statement, &the.service.map(|service| service.to_string()));
    let total = sqlx::query_scalar(AssertSqlSafe(count))
        .bind(array(&the.status))
        .bind(&the.kind)
        .bind(&the.pool)
        .bind(service)
        .bind(&the.labels)
        .bind(&the.q)
        .bind(health)
        .bind(clock::now().0)
        .bind(reasons)
        .bind(&the.obstacles)
        .fetch_one(&mut *snapshot)
        .await
        .map_err(failure)?;
    let mut pages = ledger.pages(most.saturating_add(1));
    while let Some((limit, offset)) = pages.next() {
        let query = sqlx::query_as(AssertSqlSafe(statement.clone()))
            .bind(array(&the.status))
            .bind(&the.kind)
            .bind(&the.pool)
            .bind(service)
            .bind(&the.labels)
            .bind(&the.q)
            .bind(health)
            .bind(clock::now().0)
            .bind(reasons)
            .bind(&the.obstacles)
            .bind(&the.value)
            .bind(the.id.to_string())
            .bind(limit)
            .bind(offset);
        pages.add(query.fetch_all(&mut *snapshot).await.map(told).map_err(failure)?);
    }
    Ok(page(pages.rows(), most, total))
}

pub(super) async fn counts(pool: &SqlitePool) -> Result<Counts, StoreError> {
    let counts = "SELECT pool, status, COUNT(*) FROM observers GROUP BY pool, status";
    counts_of(sqlx::query_as(counts).fetch_all(pool).await.map_err(failure)?)
}

pub(super) async fn health_counts(pool: &SqlitePool) -> Result<HealthCounts, StoreError> {
    // Groups in the order of the index, which contains every column that the query reads.
    let counts = "SELECT pool, health, service_id, COUNT(*), COUNT(*) FILTER (WHERE steady_at <= ?1)
        FROM observers WHERE health IS NOT NULL GROUP BY pool, status, health, service_id";
    let groups: Vec<(String, String, Option<String>, i64, i64)> =
        sqlx::query_as(counts).bind(clock::now().0).fetch_all(pool).await.map_err(failure)?;
    let living: Vec<String> = sqlx::query_scalar("SELECT id FROM services WHERE ended_at IS NULL")
        .fetch_all(pool)
        .await
        .map_err(failure)?;
    let id = |text: String| Uuid::parse_str(&text).unwrap_or_default();
    let group = |(pool, health, holder, count, steady): (_, _, Option<String>, _, _)| HealthGroup {
        pool,
        health,
        holder: holder.map(id),
        count,
        steady,
    };
    let living = living.into_iter().map(id).collect();
    health_counts_of(groups.into_iter().map(group).collect(), &living)
}

pub(super) async fn forget(writer: &SqlitePool, rows: &[(ObserverId, i64)]) -> Result<(), StoreError> {
    let mut transaction = super::writing(writer).await?;
    let until = clock::now().plus(REMEMBERED).0;
    for (id, version) in rows {
        let id = id.to_string();
        let remember = sqlx::query(REMEMBER).bind(&id).bind(version).bind(until);
        remember.execute(&mut *transaction).await.map_err(failure)?;
        let forget = sqlx::query("DELETE FROM observers WHERE id = ?1 AND version = ?2");
        forget.bind(&id).bind(version).execute(&mut *transaction).await.map_err(failure)?;
    }
    transaction.commit().await.map_err(failure)
}

pub(super) async fn forgotten(pool: &SqlitePool, ids: &[ObserverId]) -> Result<Vec<ObserverId>, StoreError> {
    let forgotten = "SELECT substr(name, 11) FROM key_value
        WHERE name IN (SELECT 'forgotten/' || value FROM json_each(?1)) AND until > ?2";
    let query = sqlx::query_scalar(forgotten).bind(array(ids)).bind(clock::now().0);
    let found: Vec<String> = query.fetch_all(pool).await.map_err(failure)?;
    parsed(&found)
}
