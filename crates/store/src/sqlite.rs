//! The store on SQLite: one manager, one file. One connection writes, four read.

mod access;
mod backlog;
mod batches;
mod checkpoints;
mod events;
mod group_commit;
mod limit_counts;
mod limits;
mod lists;
mod namespaces;
mod notes;
mod observers;
mod parked;
mod pool_counts;
mod rates;
mod rollouts;
mod services;
mod statements;
mod worklists;

use crate::error_mapping::{failure, migration};
use crate::port::*;
use crate::unreadable::{Dialect, Ledger};
use async_trait::async_trait;
use everwatch_core::capacity::admission::{PoolOffers, Selection};
use everwatch_core::capacity::limits::Limit;
use everwatch_core::capacity::placement::Refused;
use everwatch_core::capacity::preemption::{Look, Preempted};
use everwatch_core::capacity::supply::Load;
use everwatch_core::clock::{self, Timestamp};
use everwatch_core::doctor::Schema;
use everwatch_core::id::{
    LimitKey, LimitPattern, Name, ObserverId, ObserverRef, Pool, ServiceId, ServiceRef,
};
use everwatch_core::record::row::Row;
use everwatch_core::record::row_policy::RowPolicy;
use everwatch_core::record::service::ServiceRow;
use everwatch_core::wire::checkpoint::{Checkpoint, CheckpointRestored, CheckpointStored, CheckpointWanted};
use everwatch_core::wire::report::{InventoryRange, RangeTotal};
use group_commit::GroupCommit;
use sqlx::migrate::Migrator;
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous};
use sqlx::{Connection as _, Sqlite, SqlitePool, Transaction};
use statements::PREPARED_MAX;
use std::collections::BTreeMap;
use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};
use std::str::FromStr as _;
use std::time::Duration;

static MIGRATOR: Migrator = sqlx::migrate!("migrations/sqlite");
/// The newest change that was made to the tables.
const SCHEMA: &str = "SELECT coalesce(max(version), 0) FROM _sqlx_migrations WHERE success";

pub(crate) struct SqliteStore {
    writer: SqlitePool,
    readers: SqlitePool,
    saves: GroupCommit,
    policy: RowPolicy,
    unreadable: Ledger,
    /// The lock tells other processes that the file is in use. It is dropped last.
    _lock: Option<File>,
}

impl SqliteStore {
    pub(crate) async fn open(url: &str, policy: RowPolicy) -> Result<Self, StoreError> {
        let options = SqliteConnectOptions::from_str(url)
            .map_err(failure)?
            .create_if_missing(true)
            .journal_mode(SqliteJournalMode::Wal)
            // With `Normal`, SQLite synchronizes the log only when it writes the log back. A power loss would
            // then undo commits that the store has confirmed, and with them acknowledged reports and
            // published generations.
            .synchronous(SqliteSynchronous::Full)
            .busy_timeout(Duration::from_secs(5))
            .pragma("journal_size_limit", "67108864")
            .pragma("wal_autocheckpoint", "8000")
            // A cache of 16 MiB for each connection. With the default of 2 MiB, every batch would read its
            // pages from disk again.
            .pragma("cache_size", "-16384")
            // The database thread and the reading task switch each time this many rows wait; a larger buffer
            // makes that rarer.
            .row_buffer_size(1000)
            .statement_cache_capacity(PREPARED_MAX)
            .optimize_on_close(true, None);
        // A database in memory cannot be shared with another process, nor between two connections.
        let path = options.get_filename().to_path_buf();
        let in_memory = url.contains(":memory:") || url.contains("mode=memory");
        let lock = if in_memory { None } else { Some(lock(&path)?) };
        let at = |error| at(&path, error);
        let writer = pool(1).connect_with(options.clone()).await.map_err(failure).map_err(at)?;
        MIGRATOR.run(&writer).await.map_err(migration).map_err(at)?;
        let readers = if in_memory {
            writer.clone()
        } else {
            pool(4).connect_with(options.read_only(true)).await.map_err(failure).map_err(at)?
        };
        let (saves, unreadable) = (GroupCommit::default(), Ledger::new(Dialect::Sqlite));
        Ok(Self { writer, readers, saves, policy, unreadable, _lock: lock })
    }

    fn reading(&self) -> observers::Reading<'_> {
        (&self.readers, &self.unreadable)
    }

    /// For reads whose rows are written next. A commit of one connection empties the page caches of all others, so the
    /// readers read from the file again; the writer still has the pages.
    fn reading_to_write(&self) -> observers::Reading<'_> {
        (&self.writer, &self.unreadable)
    }
}

/// Opens a pool that never closes an idle connection: a database in memory is lost when its last connection
/// closes.
///
/// A full disk makes SQLite roll back a transaction by itself, and the client's rollback then fails. Such a
/// connection would refuse every later transaction, so the pool replaces it.
fn pool(most: u32) -> SqlitePoolOptions {
    SqlitePoolOptions::new()
        .max_connections(most)
        .min_connections(1)
        .idle_timeout(None)
        .max_lifetime(None)
        .test_before_acquire(false)
        .before_acquire(|connection, _| Box::pin(async move { Ok(!connection.is_in_transaction()) }))
}

fn at(path: &Path, error: StoreError) -> StoreError {
    match error {
        StoreError::Refused(why) => StoreError::Refused(format!("{}: {why}", path.display())),
        other => other,
    }
}

/// Locks the file for this process until the process ends, however it ends. Without the lock, a second
/// manager could open the file. Both would work, but each would wait for the other's writes and leases, which
/// SQLite cannot hand over.
fn lock(path: &Path) -> Result<File, StoreError> {
    let mut name = path.as_os_str().to_owned();
    name.push(".lock");
    let name = PathBuf::from(name);
    let unwritable = |error: std::io::Error| {
        StoreError::Refused(format!(
            "{} cannot be written ({error}): name a file in a directory that exists and that this program \
             may write",
            name.display()
        ))
    };
    let file = File::options().create(true).truncate(false).write(true).open(&name).map_err(unwritable)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(StoreError::Refused(format!(
            "{} is in use by another manager: SQLite serves one manager; use postgres:// for more",
            path.display()
        ))),
        Err(TryLockError::Error(error)) => Err(unwritable(error)),
    }
}

/// Opens a read-only transaction in which all statements see the same snapshot.
async fn snapshot(readers: &SqlitePool) -> Result<Transaction<'static, Sqlite>, StoreError> {
    readers.begin().await.map_err(failure)
}

/// Opens a transaction that takes the write lock when it begins. A transaction that begins as a reader fails
/// at its first write, without waiting, if another connection has written in between.
async fn writing(writer: &SqlitePool) -> Result<Transaction<'static, Sqlite>, StoreError> {
    writer.begin_with("BEGIN IMMEDIATE").await.map_err(failure)
}

#[async_trait]
impl KeyValue for SqliteStore {
    async fn claim(&self, name: &str, value: &str, keep: Duration) -> Result<String, StoreError> {
        notes::claim(&self.writer, name, value, keep).await
    }
    async fn note(&self, name: &str) -> Result<Option<String>, StoreError> {
        notes::read(&self.readers, name).await
    }
    async fn notes_under(&self, prefix: &str) -> Result<Vec<(String, String)>, StoreError> {
        notes::under(&self.readers, prefix).await
    }
    async fn set_note(&self, name: &str, value: &str, keep: Duration) -> Result<(), StoreError> {
        notes::set(&self.writer, name, value, keep).await
    }
    async fn swap_note(&self, name: &str, before: &str, after: &str) -> Result<bool, StoreError> {
        notes::swap(&self.writer, name, before, after).await
    }
    async fn forget_notes(&self) -> Result<u64, StoreError> {
        notes::forget(&self.writer).await
    }
}

#[async_trait]
impl Events for SqliteStore {
    async fn record(&self, events: &[Event]) -> Result<(), StoreError> {
        events::record(&self.writer, events).await
    }
    async fn events(
        &self,
        filter: &EventFilter,
        stretch: EventRange,
        most: usize,
    ) -> Result<EventPage, StoreError> {
        events::page(&self.readers, filter, stretch, most).await
    }
    async fn event_ends(&self) -> Result<(i64, i64), StoreError> {
        events::ends(&self.readers).await
    }
    async fn forget_events(&self, before: Timestamp, keep: usize) -> Result<u64, StoreError> {
        events::forget(&self.writer, before, keep).await
    }
}

#[async_trait]
impl Observers for SqliteStore {
    async fn create(&self, rows: &[Row], offers: &PoolOffers) -> Result<Vec<Created>, StoreError> {
        observers::create(&self.writer, (rows, offers), &self.policy).await
    }
    async fn load(&self, ids: &[ObserverId]) -> Result<Found<Row, ObserverId>, StoreError> {
        observers::load(self.reading_to_write(), ids).await
    }
    async fn find(&self, which: &ObserverRef) -> Result<Option<Row>, StoreError> {
        observers::find(self.reading(), which).await
    }
    async fn save(&self, changes: &[Change<'_>]) -> Result<Vec<ObserverId>, StoreError> {
        self.saves.save(&self.writer, changes, &self.policy).await
    }
    async fn versions(&self, id: ObserverId) -> Result<Vec<DefinitionVersion>, StoreError> {
        observers::versions(&self.readers, id).await
    }
    async fn list(
        &self,
        filter: &Filter,
        after: Option<&ListCursor>,
        limit: usize,
    ) -> Result<Page, StoreError> {
        lists::list(self.reading(), filter, after, limit).await
    }
    async fn counts_matching(&self, filter: &Filter) -> Result<MatchingCounts, StoreError> {
        lists::counts_matching(&self.readers, filter).await
    }
    async fn counts(&self) -> Result<Counts, StoreError> {
        lists::counts(&self.readers).await
    }
    async fn health_counts(&self) -> Result<HealthCounts, StoreError> {
        lists::health_counts(&self.readers).await
    }
    async fn held_weights(&self) -> Result<HeldWeights, StoreError> {
        lists::held_weights(&self.readers).await
    }
    async fn forget(&self, rows: &[(ObserverId, i64)]) -> Result<(), StoreError> {
        observers::forget(&self.writer, rows).await
    }
    async fn forgotten(&self, ids: &[ObserverId]) -> Result<Vec<ObserverId>, StoreError> {
        observers::forgotten(&self.readers, ids).await
    }
    async fn unreadable(&self) -> Result<Vec<Unreadable>, StoreError> {
        observers::look(self.reading()).await?;
        services::look(self.reading()).await?;
        Ok(self.unreadable.all())
    }
}

#[async_trait]
impl Backlog for SqliteStore {
    async fn waiting_pools(&self) -> Result<WaitingPools, StoreError> {
        backlog::waiting_pools(&self.readers, &self.policy).await
    }
    async fn admit(&self, admission: &Admission<'_>) -> Result<Vec<Decided>, StoreError> {
        backlog::admit(self.reading_to_write(), admission, &self.policy).await
    }
    async fn preempt(&self, look: &Look<'_>) -> Result<Vec<Preempted>, StoreError> {
        backlog::preempt(self.reading_to_write(), look, &self.policy).await
    }
    async fn waiting(&self, pool: &Pool, selection: &Selection) -> Result<Vec<Row>, StoreError> {
        backlog::waiting(self.reading(), pool, selection).await
    }
    async fn place(&self, row: &Row) -> Result<Option<Place>, StoreError> {
        backlog::place(&self.readers, row, &self.policy).await
    }
}

#[async_trait]
impl Limits for SqliteStore {
    async fn limits(
        &self,
        after: Option<&LimitPattern>,
        most: usize,
    ) -> Result<Vec<LimitCounts>, StoreError> {
        limits::page(&self.readers, after, most).await
    }
    async fn limits_of(&self, keys: &[LimitKey]) -> Result<BTreeMap<LimitKey, Limit>, StoreError> {
        limits::of(&self.readers, keys).await
    }
    async fn limit_counts(&self, key: &LimitKey) -> Result<(u64, u64), StoreError> {
        limits::of_key(&self.readers, key).await
    }
    async fn limit_users(
        &self,
        key: &LimitKey,
        waits: bool,
        most: usize,
    ) -> Result<Vec<LimitUse>, StoreError> {
        limits::users(&self.readers, (key, waits), most).await
    }
    async fn behind_limits(&self) -> Result<BTreeMap<Pool, Load>, StoreError> {
        limits::behind(&self.readers).await
    }
    async fn limit_count(&self) -> Result<u64, StoreError> {
        limits::number(&self.readers).await
    }
    async fn limit(&self, key: &LimitPattern) -> Result<Option<LimitCounts>, StoreError> {
        limits::one(&self.readers, key).await
    }
    async fn put_limit(&self, limit: &Limit) -> Result<bool, StoreError> {
        limits::put(&self.writer, limit).await
    }
    async fn delete_limit(&self, key: &LimitPattern) -> Result<LimitDeleted, StoreError> {
        limits::delete(&self.writer, key).await
    }
    async fn look_at_limits(&self, now: Timestamp, most: usize) -> Result<LimitsLookedAt, StoreError> {
        limits::look(self.reading_to_write(), (now, most), &self.policy).await
    }
    async fn unreleased(&self, pool: &Pool, most: usize) -> Result<Vec<Row>, StoreError> {
        limits::unreleased(self.reading(), pool, most).await
    }
    async fn pools_with_unreleased(&self) -> Result<Vec<Pool>, StoreError> {
        limits::pools_with_unreleased(self.reading()).await
    }
}

#[async_trait]
impl Worklists for SqliteStore {
    async fn due(&self, now: Timestamp, most: usize) -> Result<Vec<Row>, StoreError> {
        worklists::due(self.reading_to_write(), now, most).await
    }
    async fn commanded_since(&self, since: Timestamp, most: usize) -> Result<Vec<Row>, StoreError> {
        worklists::commanded_since(self.reading(), since, most).await
    }
    async fn ending(&self, most: usize) -> Result<Vec<Row>, StoreError> {
        worklists::ending(self.reading(), most).await
    }
    async fn refused(&self) -> Result<Vec<Refused>, StoreError> {
        worklists::refused(&self.readers).await
    }
    async fn refused_rows(&self, of: &Refused, most: usize) -> Result<Vec<Row>, StoreError> {
        worklists::refused_rows(self.reading(), of, most).await
    }
    async fn unheld(&self, pool: &Pool, living: &[ServiceId], most: usize) -> Result<Vec<Row>, StoreError> {
        worklists::unheld(self.reading(), pool, living, most).await
    }
    async fn held_totals(
        &self,
        service: ServiceId,
        ranges: &[InventoryRange],
    ) -> Result<Vec<RangeTotal>, StoreError> {
        observers::held_totals(&self.readers, service, ranges).await
    }
    async fn held_by(
        &self,
        service: ServiceId,
        range: InventoryRange,
    ) -> Result<Vec<ObserverId>, StoreError> {
        observers::held_by(&self.readers, service, range).await
    }
}

#[async_trait]
impl Services for SqliteStore {
    async fn services(&self, ended_since: Timestamp) -> Result<Found<ServiceRow, ServiceId>, StoreError> {
        services::all(self.reading(), ended_since).await
    }
    async fn load_services(&self, ids: &[ServiceId]) -> Result<Found<ServiceRow, ServiceId>, StoreError> {
        services::load(self.reading(), ids).await
    }
    async fn namesakes(&self, names: &[Name], ended_since: Timestamp) -> Result<Vec<ServiceRow>, StoreError> {
        services::namesakes(self.reading(), names, ended_since).await
    }
    async fn ends(&self, ids: &[ServiceId]) -> Result<BTreeMap<ServiceId, Timestamp>, StoreError> {
        services::ends(&self.readers, ids).await
    }
    async fn service(&self, which: &ServiceRef) -> Result<Option<ServiceRow>, StoreError> {
        services::find(self.reading(), which).await
    }
    async fn save_services(&self, rows: &[ServiceRow]) -> Result<Vec<ServiceId>, StoreError> {
        services::save(&self.writer, rows).await
    }
    async fn forget_services(&self, before: Timestamp) -> Result<u64, StoreError> {
        services::forget(&self.writer, before).await
    }
}

#[async_trait]
impl Checkpoints for SqliteStore {
    async fn save_checkpoints(
        &self,
        checkpoints: &[Checkpoint],
    ) -> Result<Vec<CheckpointStored>, StoreError> {
        checkpoints::save(&self.writer, checkpoints).await
    }
    async fn request_checkpoints(
        &self,
        wanted: &[CheckpointWanted],
    ) -> Result<Vec<CheckpointRestored>, StoreError> {
        checkpoints::request(&self.writer, wanted).await
    }
    async fn save_results(&self, results: &[ObserverResult]) -> Result<(), StoreError> {
        checkpoints::save_results(&self.writer, results).await
    }
    async fn result(&self, id: ObserverId) -> Result<Option<ObserverResult>, StoreError> {
        checkpoints::result(&self.readers, id).await
    }
}

#[async_trait]
impl ParkedMessages for SqliteStore {
    async fn park(&self, parked: &[Parked]) -> Result<(), StoreError> {
        parked::park(&self.writer, parked).await
    }
    async fn parked_one(&self, id: i64) -> Result<Option<Parked>, StoreError> {
        parked::one(&self.readers, id).await
    }
    async fn unpark(&self, id: i64) -> Result<bool, StoreError> {
        parked::unpark(&self.writer, id).await
    }
    async fn forget_parked(&self, before: Timestamp, keep: usize) -> Result<u64, StoreError> {
        parked::forget(&self.writer, before, keep).await
    }
    async fn parked(&self, before: Option<i64>, limit: usize) -> Result<(Vec<ParkedHead>, u64), StoreError> {
        parked::page(&self.readers, before, limit).await
    }
}

#[async_trait]
impl Store for SqliteStore {
    async fn close(&self) {
        self.readers.close().await;
        // By default, the last connection to close writes the log into the file. That may be a reader,
        // because a reader's thread may end after the writer's, and a reader may not write.
        let emptied = sqlx::query("PRAGMA wal_checkpoint(TRUNCATE)").execute(&self.writer).await;
        if let Err(error) = emptied {
            tracing::warn!(%error, "the log of the database file stays beside it");
        }
        self.writer.close().await;
    }
    async fn schema(&self) -> Result<Schema, StoreError> {
        let found = sqlx::query_scalar(SCHEMA).fetch_one(&self.readers).await.map_err(failure)?;
        let known = MIGRATOR.iter().map(|change| change.version).max().unwrap_or(0);
        Ok(Schema { found, known })
    }
    async fn now(&self) -> Result<Timestamp, StoreError> {
        Ok(clock::now())
    }
}
