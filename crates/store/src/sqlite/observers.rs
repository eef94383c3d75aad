//! Observers on SQLite: a batch is a few statements of many rows. Each statement wakes the thread of the database, which
//! costs more than the write of a row.

use super::statements::{Statement, Statements, array, gathered, keys};
use super::{limit_counts, namespaces, pool_counts};
use crate::columns::{
    CountChanges, CountKey, StateColumns, VersionColumns, WantedColumns, firsts, range_totals, released,
    unsaved, written,
};
use crate::error_mapping::failure;
use crate::limit_uses::UseChanges;
use crate::port::{Change, Created, DefinitionVersion, Found, StoreError, Table};
use crate::unreadable::{Ledger, StoredObserver};
use everwatch_core::capacity::admission::PoolOffers;
use everwatch_core::capacity::create_admission::{
    self, Occupancy, admit, counted_limits, counted_pools, names,
};
use everwatch_core::clock::{self};
use everwatch_core::failure::adoption::REMEMBERED;
use everwatch_core::id::{ObserverId, ObserverRef, ServiceId};
use everwatch_core::record::row::{REVISIONS_MAX, Row};
use everwatch_core::record::row_policy::RowPolicy;
use everwatch_core::record::status::Status;
use everwatch_core::wire::report::{InventoryRange, RangeTotal};
use sqlx::{SqliteConnection, SqlitePool};
use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::LazyLock;
use uuid::Uuid;

/// The rows of observers, for a condition on either half.
macro_rules! observers {
    ($($rest:literal)*) => {
        concat!(
            "SELECT s.id, s.version, s.digest, o.definition, s.state FROM observer_states s JOIN observers o ON o.id = s.id ",
            $($rest,)*
        )
    };
}
pub(super) use observers;

// A row that has given up its name never takes it back: another observer may have the name.
const RELEASE: &str =
    "UPDATE observers SET name_key = NULL WHERE id IN (SELECT unhex(value) FROM json_each(?1))";
const REDEFINE: &str = "UPDATE observers SET name = ?2, kind = ?3, pool = ?4, labels = ?5, definition = ?6,
    name_key = CASE WHEN name_key IS NULL THEN NULL ELSE ?7 END WHERE id = ?1";

const COUNT: &str =
    "INSERT INTO observer_counts (pool, kind, status, health, slot, service_id, number, weight)
    SELECT value ->> '$[0].pool', value ->> '$[0].kind', value ->> '$[0].status',
        COALESCE(value ->> '$[0].health', ''), value ->> '$[0].slot',
        COALESCE(unhex(value ->> '$[0].service_id', '-'), zeroblob(16)), value ->> '$[1].number',
        value ->> '$[1].weight'
    FROM json_each(?1) WHERE true
    ON CONFLICT DO UPDATE SET number = number + excluded.number, weight = weight + excluded.weight";

static INSERT_WANTED: LazyLock<Statements> = LazyLock::new(|| {
    let insert =
        "INSERT INTO observers (id, name, name_key, kind, pool, created_at, labels, definition, namespace)";
    Statements::new(insert, 9, "ON CONFLICT DO NOTHING")
});

static INSERT_STATES: LazyLock<Statements> = LazyLock::new(|| {
    let insert =
        "INSERT INTO observer_states (id, version, kind, pool, status, service_id, due_at, commanded_at,
        health, steady_at, reason_code, digest, slot, rank, weight, preemption_rank, state, batch_id, batch_place)";
    Statements::new(insert, 19, "")
});

// An `UPDATE … FROM` would be shorter, but SQLite then reads the whole table for each statement. The subquery and the
// conflict are always found by the id.
static SAVE: LazyLock<Statements> = LazyLock::new(|| {
    let save = "WITH n (id, version, kind, pool, status, service_id, due_at, commanded_at, health, steady_at,
        reason_code, digest, slot, rank, weight, preemption_rank, state) AS (";
    let update = ") INSERT INTO observer_states (id, version, kind, pool, status, service_id, due_at,
            commanded_at, health, steady_at, reason_code, digest, slot, rank, weight, preemption_rank, state)
        SELECT * FROM n
        WHERE (SELECT s.version FROM observer_states AS s WHERE s.id = n.id) = n.version - 1
        ON CONFLICT (id) DO UPDATE SET version = excluded.version, kind = excluded.kind, pool = excluded.pool,
            status = excluded.status, service_id = excluded.service_id, due_at = excluded.due_at,
            commanded_at = excluded.commanded_at, health = excluded.health, steady_at = excluded.steady_at,
            reason_code = excluded.reason_code, digest = excluded.digest, slot = excluded.slot,
            rank = excluded.rank, weight = excluded.weight,
            preemption_rank = excluded.preemption_rank, state = excluded.state";
    Statements::new(save, 17, update)
});

pub(super) async fn create(
    writer: &SqlitePool,
    (rows, offers): (&[Row], &PoolOffers),
    policy: &RowPolicy,
) -> Result<Vec<Created>, StoreError> {
    let mut transaction = super::writing(writer).await?;
    let answers = create_within(&mut transaction, (rows, offers), policy).await?;
    transaction.commit().await.map_err(failure)?;
    Ok(answers)
}

/// Creates observers in a transaction that the caller commits.
pub(super) async fn create_within(
    transaction: &mut SqliteConnection,
    (rows, offers): (&[Row], &PoolOffers),
    policy: &RowPolicy,
) -> Result<Vec<Created>, StoreError> {
    let pools = pool_counts::count(&mut *transaction, &counted_pools(rows), policy).await?;
    let found = namespaces::of(&mut *transaction, &create_admission::namespaces(rows)).await?;
    let holders = holders(&mut *transaction, &names(rows)).await?;
    let limits = limit_counts::unclaimed(&mut *transaction, &counted_limits(rows)).await?;
    let namespaces = found.rooms();
    let mut answers = admit(rows, Occupancy { holders, pools, limits, namespaces }, offers);
    let stored: Vec<Option<Cow<'_, Row>>> =
        rows.iter().zip(&answers).map(|(row, answer)| answer.stored(row)).collect();
    let wanted: Vec<WantedColumns> =
        stored.iter().flatten().map(|row| WantedColumns::of(row)).collect::<Result<_, _>>()?;
    let inserted = INSERT_WANTED.write(&mut *transaction, &wanted, |row| row.id, bind_wanted).await?;
    let mut done = Vec::with_capacity(inserted.len());
    for (row, answer) in stored.iter().zip(&mut answers) {
        let Some(row) = row else { continue };
        if inserted.contains(&row.id.0) {
            done.push(row.as_ref());
        } else {
            *answer = Created::NameTaken;
        }
    }
    let states = done.iter().map(|row| StateColumns::of(row, row.version, policy));
    let states = states.collect::<Result<Vec<_>, _>>()?;
    INSERT_STATES.write(&mut *transaction, &states, |row| row.id, bind_created).await?;
    limit_counts::write_uses(&mut *transaction, UseChanges::of_created(done.iter().copied(), policy)).await?;
    count(&mut *transaction, CountChanges::of_created(done.into_iter())).await?;
    let counted = create_admission::counted_creates(rows, &answers);
    namespaces::write(&mut *transaction, &found.after(&counted)).await?;
    Ok(answers)
}

async fn holders(
    connection: &mut SqliteConnection,
    names: &[String],
) -> Result<HashMap<String, Status>, StoreError> {
    let held = "SELECT o.name_key, s.status FROM observers o JOIN observer_states s ON s.id = o.id
        WHERE o.name_key IN (SELECT value FROM json_each(?1))";
    let rows: Vec<(String, String)> =
        sqlx::query_as(held).bind(array(names)).fetch_all(connection).await.map_err(failure)?;
    rows.into_iter().map(|(name, status)| Ok((name, status.parse().map_err(StoreError::Corrupt)?))).collect()
}

fn bind_wanted<'q>(query: Statement<'q>, row: &'q WantedColumns) -> Statement<'q> {
    let query = query.bind(row.id).bind(&row.name).bind(&row.name_key).bind(&row.kind).bind(&row.pool);
    query.bind(row.created_at).bind(&row.labels).bind(&row.definition).bind(&row.namespace)
}

fn bind_created<'q>(query: Statement<'q>, row: &'q StateColumns) -> Statement<'q> {
    let (batch, place) = row.batch.unzip();
    bind_state(query, row).bind(batch).bind(place)
}

fn bind_state<'q>(query: Statement<'q>, row: &'q StateColumns) -> Statement<'q> {
    let CountKey { pool, kind, status, health, slot, service_id } = &row.counted;
    let query = query.bind(row.id).bind(row.version).bind(kind).bind(pool).bind(*status);
    let query = query.bind(*service_id).bind(row.due_at).bind(row.commanded_at).bind(*health);
    let query = query.bind(row.steady_at).bind(row.reason_code).bind(row.digest);
    query.bind(*slot).bind(row.rank).bind(row.weight).bind(row.preemption_rank).bind(&row.state)
}

async fn count(connection: &mut SqliteConnection, changes: CountChanges) -> Result<(), StoreError> {
    let changes = changes.into_changes();
    if changes.is_empty() {
        return Ok(());
    }
    sqlx::query(COUNT).bind(written(&changes)?).execute(connection).await.map(drop).map_err(failure)
}

/// The connection pool to read from, and the ledger that records unreadable rows.
pub(super) type Reading<'a> = (&'a SqlitePool, &'a Ledger);

pub(super) async fn load(
    (pool, ledger): Reading<'_>,
    ids: &[ObserverId],
) -> Result<Found<Row, ObserverId>, StoreError> {
    let load = observers!("WHERE s.id IN (SELECT unhex(value) FROM json_each(?1))");
    let rows = sqlx::query_as::<_, StoredObserver>(load).bind(keys(ids.iter().map(|id| id.0))).fetch(pool);
    Ok(ledger.read(&gathered(rows, ids.len()).await?))
}

/// Rereads the unreadable rows in the ledger, and removes those that can be read or no longer exist.
pub(super) async fn look((pool, ledger): Reading<'_>) -> Result<(), StoreError> {
    let ids = ledger.ids(Table::Observers);
    if !ids.is_empty() {
        let load = observers!("WHERE s.id IN (SELECT unhex(value) FROM json_each(?1))");
        let query = sqlx::query_as(load).bind(keys(ids.iter().copied()));
        let found: Vec<StoredObserver> = query.fetch_all(pool).await.map_err(failure)?;
        ledger.look(&ids, &found);
    }
    Ok(())
}

pub(super) async fn find(
    (pool, ledger): Reading<'_>,
    which: &ObserverRef,
) -> Result<Option<Row>, StoreError> {
    let by_name = observers!(
        "WHERE o.name = ?1 AND o.namespace = ?2 ORDER BY o.name_key IS NULL, o.created_at DESC, o.id DESC LIMIT 1"
    );
    let query = match which {
        ObserverRef::Id(id) => sqlx::query_as(observers!("WHERE s.id = ?1")).bind(id.0),
        ObserverRef::Name(namespace, name) => {
            sqlx::query_as(by_name).bind(name.as_str()).bind(namespace.as_str())
        }
    };
    let found: Option<StoredObserver> = query.fetch_optional(pool).await.map_err(failure)?;
    found.map(|it| ledger.read_one(&it)).transpose()
}

/// Saves these changes in a transaction that the caller commits.
pub(super) async fn save_within(
    transaction: &mut SqliteConnection,
    changes: &[Change<'_>],
    policy: &RowPolicy,
) -> Result<Vec<ObserverId>, StoreError> {
    let firsts = firsts(changes);
    let states = firsts.iter().map(|it| StateColumns::of(it.after, it.before.version + 1, policy));
    let states = states.collect::<Result<Vec<_>, _>>()?;
    let saved = SAVE.write(transaction, &states, |row| row.id, bind_state).await?;
    for version in VersionColumns::of_replaced(&firsts, &saved)? {
        write_version(transaction, version).await?;
    }
    for row in WantedColumns::of_redefined(&firsts, &saved)? {
        let query = sqlx::query(REDEFINE).bind(row.id).bind(row.name).bind(row.kind).bind(row.pool);
        let query = query.bind(row.labels).bind(row.definition).bind(row.name_key);
        query.execute(&mut *transaction).await.map_err(failure)?;
    }
    let released = released(&firsts, &saved);
    if !released.is_empty() {
        let release = sqlx::query(RELEASE).bind(keys(released.into_iter()));
        release.execute(&mut *transaction).await.map_err(failure)?;
    }
    count(transaction, CountChanges::of_saved(&firsts, &saved)).await?;
    limit_counts::write_uses(transaction, UseChanges::of_saved(&firsts, &saved, policy)).await?;
    Ok(unsaved(changes, saved))
}

async fn write_version(connection: &mut SqliteConnection, version: VersionColumns) -> Result<(), StoreError> {
    let VersionColumns { id, number, at, by, definition } = version;
    let insert = "INSERT INTO observer_versions (observer_id, number, at, by_user, definition)
        VALUES (?1, ?2, ?3, ?4, ?5) ON CONFLICT DO NOTHING";
    let insert = sqlx::query(insert).bind(id).bind(number).bind(at).bind(by).bind(definition);
    insert.execute(&mut *connection).await.map_err(failure)?;
    let forget = sqlx::query("DELETE FROM observer_versions WHERE observer_id = ?1 AND number <= ?2");
    let oldest = number - i64::from(REVISIONS_MAX);
    forget.bind(id).bind(oldest).execute(connection).await.map(drop).map_err(failure)
}

pub(super) async fn versions(
    pool: &SqlitePool,
    id: ObserverId,
) -> Result<Vec<DefinitionVersion>, StoreError> {
    let read = "SELECT number, at, by_user, definition FROM observer_versions WHERE observer_id = ?1
        ORDER BY number DESC";
    let found = sqlx::query_as(read).bind(id.0).fetch_all(pool).await.map_err(failure)?;
    Ok(crate::columns::versions(id, found))
}

pub(super) async fn held_totals(
    pool: &SqlitePool,
    service: ServiceId,
    ranges: &[InventoryRange],
) -> Result<Vec<RangeTotal>, StoreError> {
    // Each range reads only its part of the index.
    let totals = "SELECT
            (SELECT COUNT(*) FROM observer_states WHERE service_id = ?1 AND id > r.after AND id <= r.upto),
            (SELECT COALESCE(SUM(digest), 0) FROM observer_states
                WHERE service_id = ?1 AND id > r.after AND id <= r.upto)
        FROM (SELECT key AS place, COALESCE(unhex(value ->> 0), x'') AS after,
            COALESCE(unhex(value ->> 1), x'ffffffffffffffffffffffffffffffffff') AS upto
            FROM json_each(?2)) AS r
        ORDER BY r.place";
    let key = |id: Option<ObserverId>| id.map(|id| id.0.simple().to_string());
    let ranges: Vec<_> = ranges.iter().map(|range| (key(range.after), key(range.upto))).collect();
    let query = sqlx::query_as(totals).bind(service.0).bind(array(&ranges));
    Ok(range_totals(query.fetch_all(pool).await.map_err(failure)?))
}

pub(super) async fn held_by(
    pool: &SqlitePool,
    service: ServiceId,
    range: InventoryRange,
) -> Result<Vec<ObserverId>, StoreError> {
    let held = "SELECT id FROM observer_states WHERE service_id = ?1
        AND (?2 IS NULL OR id > ?2) AND (?3 IS NULL OR id <= ?3)";
    let [after, upto] = [range.after, range.upto].map(|id| id.map(|id| id.0));
    let query = sqlx::query_scalar(held).bind(service.0).bind(after).bind(upto);
    let found: Vec<Uuid> = query.fetch_all(pool).await.map_err(failure)?;
    Ok(found.into_iter().map(ObserverId).collect())
}

pub(super) async fn forget(writer: &SqlitePool, rows: &[(ObserverId, i64)]) -> Result<(), StoreError> {
    let asked: Vec<(String, i64)> =
        rows.iter().map(|(id, version)| (id.0.simple().to_string(), *version)).collect();
    let mut transaction = super::writing(writer).await?;
    let delete = "DELETE FROM observer_states WHERE (id, version) IN
        (SELECT unhex(value ->> 0), value ->> 1 FROM json_each(?1)) RETURNING id";
    let gone: Vec<Uuid> = sqlx::query_scalar(delete)
        .bind(written(&asked)?)
        .fetch_all(&mut *transaction)
        .await
        .map_err(failure)?;
    let gone = keys(gone.into_iter());
    let delete = "DELETE FROM observers WHERE id IN (SELECT unhex(value) FROM json_each(?1))";
    sqlx::query(delete).bind(&gone).execute(&mut *transaction).await.map_err(failure)?;
    let remember = "INSERT INTO forgotten_observers (id, until) SELECT unhex(value), ?2 FROM json_each(?1)
        WHERE true ON CONFLICT DO UPDATE SET until = excluded.until";
    let until = clock::now().plus(REMEMBERED).0;
    sqlx::query(remember).bind(&gone).bind(until).execute(&mut *transaction).await.map_err(failure)?;
    transaction.commit().await.map_err(failure)
}

pub(super) async fn forgotten(pool: &SqlitePool, ids: &[ObserverId]) -> Result<Vec<ObserverId>, StoreError> {
    let forgotten = "SELECT id FROM forgotten_observers
        WHERE id IN (SELECT unhex(value) FROM json_each(?1)) AND until > ?2";
    let query = sqlx::query_scalar(forgotten).bind(keys(ids.iter().map(|id| id.0))).bind(clock::now().0);
    let found: Vec<Uuid> = query.fetch_all(pool).await.map_err(failure)?;
    Ok(found.into_iter().map(ObserverId).collect())
}
