//! Observers on PostgreSQL: each batch is one statement over arrays.

use super::{limit_counts, namespaces, pool_counts};
use crate::columns::{
    CountChanges, StateColumns, VersionColumns, WantedColumns, firsts, range_totals, released, unsaved,
    without_nul,
};
use crate::error_mapping::failure;
use crate::limit_uses::UseChanges;
use crate::port::{Change, Created, DefinitionVersion, Found, StoreError, Table};
use crate::unreadable::{Ledger, StoredObserver};
use everwatch_core::capacity::admission::PoolOffers;
use everwatch_core::capacity::create_admission::{
    self, Occupancy, admit, counted_limits, counted_pools, names, refused_by,
};
use everwatch_core::failure::adoption::REMEMBERED;
use everwatch_core::id::{ObserverId, ObserverRef, ServiceId};
use everwatch_core::record::row::{REVISIONS_MAX, Row};
use everwatch_core::record::row_policy::RowPolicy;
use everwatch_core::record::status::Status;
use everwatch_core::wire::report::{InventoryRange, RangeTotal};
use sqlx::{PgConnection, PgPool};
use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU16, Ordering};
use uuid::Uuid;

/// The rows of observers, for a condition on either half.
macro_rules! observers {
    ($($rest:expr),*) => {
        concat!(
            "SELECT s.id, s.version, s.digest, o.definition, s.state FROM observer_states s JOIN observers o ON o.id = s.id ",
            $($rest,)*
        )
    };
}
pub(super) use observers;

macro_rules! wanted {
    () => {
        "UNNEST($1::uuid[], $2::text[], $3::text[], $4::text[], $5::text[], $6::bigint[], $7::text[], $8::text[],
            $9::text[])
        AS n (id, name, name_key, kind, pool, created_at, labels, definition, namespace)"
    };
}

macro_rules! states {
    () => {
        "UNNEST($1::uuid[], $2::bigint[], $3::text[], $4::text[], $5::text[], $6::uuid[], $7::bigint[],
            $8::bigint[], $9::text[], $10::bigint[], $11::text[], $12::bigint[], $13::text[], $14::bigint[],
            $15::integer[], $16::bigint[], $17::bytea[])
        AS n (id, version, kind, pool, status, service_id, due_at, commanded_at, health, steady_at, reason_code,
            digest, slot, rank, weight, preemption_rank, state)"
    };
}

// Inserts in the order of the names: two transactions that create the same names lock them in the same order
// and cannot deadlock.
const INSERT: &str = concat!(
    "INSERT INTO observers (id, name, name_key, kind, pool, created_at, labels, definition, namespace)
    SELECT id, name, name_key, kind, pool, created_at, labels::jsonb, definition, namespace FROM ",
    wanted!(),
    " ORDER BY n.name, n.namespace ON CONFLICT DO NOTHING RETURNING id"
);

const RELEASE: &str = "UPDATE observers SET name_key = NULL WHERE id = ANY($1::uuid[])";

// A row that has given up its name never takes it back: another observer may have the name.
const REDEFINE: &str = concat!(
    "UPDATE observers o SET name = n.name,
        name_key = CASE WHEN o.name_key IS NULL THEN NULL ELSE n.name_key END,
        kind = n.kind, pool = n.pool, created_at = n.created_at, labels = n.labels::jsonb,
        definition = n.definition
    FROM ",
    wanted!(),
    " WHERE o.id = n.id RETURNING o.id"
);

const INSERT_STATES: &str = concat!(
    "INSERT INTO observer_states (id, version, kind, pool, status, service_id, due_at, commanded_at, health,
        steady_at, reason_code, digest, slot, rank, weight, preemption_rank, state)
    SELECT * FROM ",
    states!(),
    " RETURNING id"
);

// Locks rows in the order of their ids, so two overlapping saves wait but cannot deadlock.
const SAVE: &str = concat!(
    "WITH mine AS MATERIALIZED (
        SELECT s.id FROM observer_states s
        JOIN UNNEST($1::uuid[], $2::bigint[]) AS k (id, version)
          ON s.id = k.id AND s.version = k.version - 1
        ORDER BY s.id FOR UPDATE OF s)
    UPDATE observer_states s SET version = n.version, kind = n.kind, pool = n.pool, status = n.status,
        service_id = n.service_id, due_at = n.due_at, commanded_at = n.commanded_at, health = n.health,
        steady_at = n.steady_at, reason_code = n.reason_code, digest = n.digest,
        slot = n.slot, rank = n.rank, weight = n.weight, preemption_rank = n.preemption_rank,
        state = n.state
    FROM ",
    states!(),
    ", mine WHERE s.id = n.id AND s.id = mine.id AND s.version = n.version - 1 RETURNING s.id"
);

/// Each number is the sum of this many rows, so that concurrent transactions seldom wait for one another.
const COUNT_PARTS: u16 = 8;
static NEXT_PART: AtomicU16 = AtomicU16::new(0);

const COUNT: &str =
    "INSERT INTO observer_counts AS c (pool, kind, status, health, slot, service_id, part, number, weight)
    SELECT pool, kind, status, health, slot, service_id, $9, number, weight
    FROM UNNEST($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::uuid[], $7::bigint[], $8::bigint[])
        WITH ORDINALITY AS n (pool, kind, status, health, slot, service_id, number, weight, place)
    ORDER BY place
    ON CONFLICT (pool, kind, status, health, slot, service_id, part)
        DO UPDATE SET number = c.number + EXCLUDED.number, weight = c.weight + EXCLUDED.weight";

pub(super) async fn create(
    pool: &PgPool,
    (rows, offers): (&[Row], &PoolOffers),
    policy: &RowPolicy,
) -> Result<Vec<Created>, StoreError> {
    let mut transaction = pool.begin().await.map_err(failure)?;
    let answers = create_within(&mut transaction, (rows, offers), policy).await?;
    transaction.commit().await.map_err(failure)?;
    Ok(answers)
}

/// Creates observers in a transaction that the caller commits.
pub(super) async fn create_within(
    transaction: &mut PgConnection,
    (rows, offers): (&[Row], &PoolOffers),
    policy: &RowPolicy,
) -> Result<Vec<Created>, StoreError> {
    let found = namespaces::lock(&mut *transaction, &create_admission::namespaces(rows)).await?;
    let pools = pool_counts::lock_and_count(&mut *transaction, &counted_pools(rows), policy).await?;
    let holders = holders(&mut *transaction, &names(rows)).await?;
    let limits = limit_counts::unclaimed(&mut *transaction, &counted_limits(rows)).await?;
    let namespaces = found.rooms();
    let mut answers = admit(rows, Occupancy { holders, pools, limits, namespaces }, offers);
    let stored: Vec<Option<Cow<'_, Row>>> =
        rows.iter().zip(&answers).map(|(row, answer)| answer.stored(row)).collect();
    let wanted: Vec<WantedColumns> =
        stored.iter().flatten().map(|row| WantedColumns::of(row)).collect::<Result<_, _>>()?;
    if !wanted.is_empty() {
        let inserted = write_wanted(&mut *transaction, INSERT, &wanted).await?;
        if inserted.len() < wanted.len() {
            // Another manager committed one of the names after this transaction read the holders and before
            // it inserted.
            let holders = self::holders(&mut *transaction, &names(rows)).await?;
            for (row, answer) in rows.iter().zip(&mut answers) {
                if answer.is_stored() && !inserted.contains(&row.id.0) {
                    *answer = refused_by(holders.get(&row.definition.name_key()).copied());
                }
            }
        }
        let done = stored.iter().flatten().map(Cow::as_ref).filter(|row| inserted.contains(&row.id.0));
        let done: Vec<&Row> = done.collect();
        let states = done.iter().map(|row| StateColumns::of(row, row.version, policy));
        let states = states.collect::<Result<Vec<_>, _>>()?;
        write_states(&mut *transaction, INSERT_STATES, &states).await?;
        write_places(&mut *transaction, &states).await?;
        limit_counts::write_uses(&mut *transaction, UseChanges::of_created(done.iter().copied(), policy))
            .await?;
        count(&mut *transaction, CountChanges::of_created(done.into_iter())).await?;
        let counted = create_admission::counted_creates(rows, &answers);
        namespaces::write(&mut *transaction, &found.after(&counted)).await?;
    }
    Ok(answers)
}

async fn holders(
    connection: &mut PgConnection,
    names: &[String],
) -> Result<HashMap<String, Status>, StoreError> {
    let held = "SELECT o.name_key, s.status FROM observers o JOIN observer_states s ON s.id = o.id
        WHERE o.name_key = ANY($1::text[])";
    let rows: Vec<(String, String)> =
        sqlx::query_as(held).bind(names).fetch_all(connection).await.map_err(failure)?;
    rows.into_iter().map(|(name, status)| Ok((name, status.parse().map_err(StoreError::Corrupt)?))).collect()
}

async fn write_wanted(
    connection: &mut PgConnection,
    statement: &'static str,
    rows: &[WantedColumns],
) -> Result<HashSet<Uuid>, StoreError> {
    let written: Vec<Uuid> = sqlx::query_scalar(statement)
        .bind(rows.iter().map(|row| row.id).collect::<Vec<_>>())
        .bind(rows.iter().map(|row| row.name.as_str()).collect::<Vec<_>>())
        .bind(rows.iter().map(|row| row.name_key.as_deref()).collect::<Vec<_>>())
        .bind(rows.iter().map(|row| row.kind.as_str()).collect::<Vec<_>>())
        .bind(rows.iter().map(|row| row.pool.as_str()).collect::<Vec<_>>())
        .bind(rows.iter().map(|row| row.created_at).collect::<Vec<_>>())
        .bind(rows.iter().map(|row| row.labels.as_str()).collect::<Vec<_>>())
        .bind(rows.iter().map(|row| row.definition.as_str()).collect::<Vec<_>>())
        .bind(rows.iter().map(|row| row.namespace.as_str()).collect::<Vec<_>>())
        .fetch_all(connection)
        .await
        .map_err(failure)?;
    Ok(written.into_iter().collect())
}

async fn write_states(
    connection: &mut PgConnection,
    statement: &'static str,
    rows: &[StateColumns],
) -> Result<HashSet<Uuid>, StoreError> {
    let written: Vec<Uuid> = sqlx::query_scalar(statement)
        .bind(rows.iter().map(|row| row.id).collect::<Vec<_>>())
        .bind(rows.iter().map(|row| row.version).collect::<Vec<_>>())
        .bind(rows.iter().map(|row| row.counted.kind.as_str()).collect::<Vec<_>>())
        .bind(rows.iter().map(|row| row.counted.pool.as_str()).collect::<Vec<_>>())
        .bind(rows.iter().map(|row| row.counted.status).collect::<Vec<_>>())
        .bind(rows.iter().map(|row| row.counted.service_id).collect::<Vec<_>>())
        .bind(rows.iter().map(|row| row.due_at).collect::<Vec<_>>())
        .bind(rows.iter().map(|row| row.commanded_at).collect::<Vec<_>>())
        .bind(rows.iter().map(|row| row.counted.health).collect::<Vec<_>>())
        .bind(rows.iter().map(|row| row.steady_at).collect::<Vec<_>>())
        .bind(rows.iter().map(|row| row.reason_code).collect::<Vec<_>>())
        .bind(rows.iter().map(|row| row.digest).collect::<Vec<_>>())
        .bind(rows.iter().map(|row| row.counted.slot).collect::<Vec<_>>())
        .bind(rows.iter().map(|row| row.rank).collect::<Vec<_>>())
        .bind(rows.iter().map(|row| row.weight).collect::<Vec<_>>())
        .bind(rows.iter().map(|row| row.preemption_rank).collect::<Vec<_>>())
        .bind(rows.iter().map(|row| row.state.as_slice()).collect::<Vec<_>>())
        .fetch_all(connection)
        .await
        .map_err(failure)?;
    Ok(written.into_iter().collect())
}

/// Writes the batches of new observers.
async fn write_places(connection: &mut PgConnection, rows: &[StateColumns]) -> Result<(), StoreError> {
    let members: Vec<(Uuid, Uuid, i64)> =
        rows.iter().filter_map(|row| row.batch.map(|(batch, place)| (row.id, batch, place))).collect();
    if members.is_empty() {
        return Ok(());
    }
    let update = "UPDATE observer_states s SET batch_id = n.batch_id, batch_place = n.place
        FROM UNNEST($1::uuid[], $2::uuid[], $3::bigint[]) AS n (id, batch_id, place) WHERE s.id = n.id";
    sqlx::query(update)
        .bind(members.iter().map(|it| it.0).collect::<Vec<_>>())
        .bind(members.iter().map(|it| it.1).collect::<Vec<_>>())
        .bind(members.iter().map(|it| it.2).collect::<Vec<_>>())
        .execute(connection)
        .await
        .map(drop)
        .map_err(failure)
}

async fn count(connection: &mut PgConnection, changes: CountChanges) -> Result<(), StoreError> {
    let changes = changes.into_changes();
    if changes.is_empty() {
        return Ok(());
    }
    sqlx::query(COUNT)
        .bind(changes.iter().map(|(key, _)| key.pool.as_str()).collect::<Vec<_>>())
        .bind(changes.iter().map(|(key, _)| key.kind.as_str()).collect::<Vec<_>>())
        .bind(changes.iter().map(|(key, _)| key.status).collect::<Vec<_>>())
        .bind(changes.iter().map(|(key, _)| key.health.unwrap_or_default()).collect::<Vec<_>>())
        .bind(changes.iter().map(|(key, _)| key.slot).collect::<Vec<_>>())
        .bind(changes.iter().map(|(key, _)| key.service_id.unwrap_or_default()).collect::<Vec<_>>())
        .bind(changes.iter().map(|(_, by)| by.number).collect::<Vec<_>>())
        .bind(changes.iter().map(|(_, by)| by.weight).collect::<Vec<_>>())
        .bind((NEXT_PART.fetch_add(1, Ordering::Relaxed) % COUNT_PARTS).cast_signed())
        .execute(connection)
        .await
        .map(drop)
        .map_err(failure)
}

/// The connection pool to read from, and the ledger that records unreadable rows.
pub(super) type Reading<'a> = (&'a PgPool, &'a Ledger);

pub(super) async fn load(
    (pool, ledger): Reading<'_>,
    ids: &[ObserverId],
) -> Result<Found<Row, ObserverId>, StoreError> {
    let ids: Vec<Uuid> = ids.iter().map(|id| id.0).collect();
    Ok(ledger.read(&stored(pool, &ids).await?))
}

async fn stored(pool: &PgPool, ids: &[Uuid]) -> Result<Vec<StoredObserver>, StoreError> {
    let load = observers!("WHERE s.id = ANY($1::uuid[])");
    sqlx::query_as(load).bind(ids).fetch_all(pool).await.map_err(failure)
}

/// Rereads the unreadable rows in the ledger, and removes those that can be read or no longer exist.
pub(super) async fn look((pool, ledger): Reading<'_>) -> Result<(), StoreError> {
    let ids = ledger.ids(Table::Observers);
    if !ids.is_empty() {
        ledger.look(&ids, &stored(pool, &ids).await?);
    }
    Ok(())
}

pub(super) async fn find(
    (pool, ledger): Reading<'_>,
    which: &ObserverRef,
) -> Result<Option<Row>, StoreError> {
    let by_name = observers!(
        "WHERE o.name = $1 AND o.namespace = $2 ORDER BY o.name_key IS NULL, o.created_at DESC, o.id DESC LIMIT 1"
    );
    let query = match which {
        ObserverRef::Id(id) => sqlx::query_as(observers!("WHERE s.id = $1")).bind(id.0),
        ObserverRef::Name(namespace, name) => {
            sqlx::query_as(by_name).bind(name.as_str()).bind(namespace.as_str())
        }
    };
    let found: Option<StoredObserver> = query.fetch_optional(pool).await.map_err(failure)?;
    found.map(|it| ledger.read_one(&it)).transpose()
}

pub(super) async fn save(
    pool: &PgPool,
    changes: &[Change<'_>],
    policy: &RowPolicy,
) -> Result<Vec<ObserverId>, StoreError> {
    let mut transaction = pool.begin().await.map_err(failure)?;
    let unsaved = save_within(&mut transaction, changes, policy).await?;
    transaction.commit().await.map_err(failure)?;
    Ok(unsaved)
}

/// Saves these changes in a transaction that the caller commits.
pub(super) async fn save_within(
    transaction: &mut PgConnection,
    changes: &[Change<'_>],
    policy: &RowPolicy,
) -> Result<Vec<ObserverId>, StoreError> {
    let firsts = firsts(changes);
    let states = firsts.iter().map(|it| StateColumns::of(it.after, it.before.version + 1, policy));
    let states = states.collect::<Result<Vec<_>, _>>()?;
    let saved = write_states(transaction, SAVE, &states).await?;
    let replaced = VersionColumns::of_replaced(&firsts, &saved)?;
    if !replaced.is_empty() {
        write_versions(transaction, &replaced).await?;
    }
    let redefined = WantedColumns::of_redefined(&firsts, &saved)?;
    if !redefined.is_empty() {
        write_wanted(transaction, REDEFINE, &redefined).await?;
    }
    let released = released(&firsts, &saved);
    if !released.is_empty() {
        sqlx::query(RELEASE).bind(released).execute(&mut *transaction).await.map_err(failure)?;
    }
    count(transaction, CountChanges::of_saved(&firsts, &saved)).await?;
    limit_counts::write_uses(transaction, UseChanges::of_saved(&firsts, &saved, policy)).await?;
    Ok(unsaved(changes, saved))
}

async fn write_versions(connection: &mut PgConnection, rows: &[VersionColumns]) -> Result<(), StoreError> {
    let insert = "INSERT INTO observer_versions (observer_id, number, at, by_user, definition)
        SELECT * FROM UNNEST($1::uuid[], $2::bigint[], $3::bigint[], $4::text[], $5::text[])
        ON CONFLICT DO NOTHING";
    let ids: Vec<Uuid> = rows.iter().map(|row| row.id).collect();
    let insert = sqlx::query(insert)
        .bind(&ids)
        .bind(rows.iter().map(|row| row.number).collect::<Vec<_>>())
        .bind(rows.iter().map(|row| row.at).collect::<Vec<_>>())
        .bind(rows.iter().map(|row| row.by.as_deref().map(without_nul)).collect::<Vec<_>>())
        .bind(rows.iter().map(|row| row.definition.as_str()).collect::<Vec<_>>());
    insert.execute(&mut *connection).await.map_err(failure)?;
    let forget = "DELETE FROM observer_versions v USING UNNEST($1::uuid[], $2::bigint[]) AS n (id, oldest)
        WHERE v.observer_id = n.id AND v.number <= n.oldest";
    let oldest: Vec<i64> = rows.iter().map(|row| row.number - i64::from(REVISIONS_MAX)).collect();
    sqlx::query(forget).bind(&ids).bind(oldest).execute(connection).await.map(drop).map_err(failure)
}

pub(super) async fn versions(pool: &PgPool, id: ObserverId) -> Result<Vec<DefinitionVersion>, StoreError> {
    let read = "SELECT number, at, by_user, definition FROM observer_versions WHERE observer_id = $1
        ORDER BY number DESC";
    let found = sqlx::query_as(read).bind(id.0).fetch_all(pool).await.map_err(failure)?;
    Ok(crate::columns::versions(id, found))
}

pub(super) async fn held_totals(
    pool: &PgPool,
    service: ServiceId,
    ranges: &[InventoryRange],
) -> Result<Vec<RangeTotal>, StoreError> {
    let totals = "SELECT t.entries, t.sum FROM UNNEST($2::uuid[], $3::uuid[]) WITH ORDINALITY AS r (after, upto, place)
        CROSS JOIN LATERAL (SELECT COUNT(*) AS entries, COALESCE(SUM(digest), 0)::bigint AS sum FROM observer_states
            WHERE service_id = $1 AND id > r.after AND id <= r.upto) AS t
        ORDER BY r.place";
    // No observer has the id zero.
    let after: Vec<Uuid> = ranges.iter().map(|range| range.after.map_or(Uuid::nil(), |id| id.0)).collect();
    let upto: Vec<Uuid> = ranges.iter().map(|range| range.upto.map_or(Uuid::max(), |id| id.0)).collect();
    let query = sqlx::query_as(totals).bind(service.0).bind(after).bind(upto);
    Ok(range_totals(query.fetch_all(pool).await.map_err(failure)?))
}

pub(super) async fn held_by(
    pool: &PgPool,
    service: ServiceId,
    range: InventoryRange,
) -> Result<Vec<ObserverId>, StoreError> {
    let held = "SELECT id FROM observer_states WHERE service_id = $1
        AND ($2::uuid IS NULL OR id > $2) AND ($3::uuid IS NULL OR id <= $3)";
    let [after, upto] = [range.after, range.upto].map(|id| id.map(|id| id.0));
    let query = sqlx::query_scalar(held).bind(service.0).bind(after).bind(upto);
    let found: Vec<Uuid> = query.fetch_all(pool).await.map_err(failure)?;
    Ok(found.into_iter().map(ObserverId).collect())
}

pub(super) async fn forget(pool: &PgPool, rows: &[(ObserverId, i64)]) -> Result<(), StoreError> {
    // A trigger deletes the states and counts them.
    let forget = "WITH mine AS MATERIALIZED (
            SELECT s.id FROM observer_states s JOIN UNNEST($1::uuid[], $2::bigint[]) AS k (id, version)
              ON s.id = k.id AND s.version = k.version
            ORDER BY s.id FOR UPDATE OF s),
        gone AS (DELETE FROM observers o USING mine WHERE o.id = mine.id RETURNING o.id)
        INSERT INTO forgotten_observers (id, until)
            SELECT id, (EXTRACT(EPOCH FROM clock_timestamp()) * 1000)::bigint + $3 FROM gone ORDER BY id
        ON CONFLICT (id) DO UPDATE SET until = EXCLUDED.until";
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
    let forgotten = "SELECT id FROM forgotten_observers WHERE id = ANY($1::uuid[])
        AND until > (EXTRACT(EPOCH FROM clock_timestamp()) * 1000)::bigint";
    let ids: Vec<Uuid> = ids.iter().map(|id| id.0).collect();
    let found: Vec<Uuid> = sqlx::query_scalar(forgotten).bind(ids).fetch_all(pool).await.map_err(failure)?;
    Ok(found.into_iter().map(ObserverId).collect())
}
