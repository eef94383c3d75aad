//! The store on PostgreSQL: any number of managers share one.

mod access;
mod backlog;
mod batches;
mod checkpoints;
mod credentials;
mod events;
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
mod worklists;

use self::credentials::Credentials;
use crate::error_mapping::{failure, migration};
use crate::port::*;
use crate::unreadable::{Dialect, Ledger};
use async_trait::async_trait;
use everwatch_core::capacity::admission::{PoolOffers, Selection};
use everwatch_core::capacity::limits::Limit;
use everwatch_core::capacity::placement::Refused;
use everwatch_core::capacity::preemption::{Look, Preempted};
use everwatch_core::capacity::supply::Load;
use everwatch_core::clock::Timestamp;
use everwatch_core::doctor::Schema;
use everwatch_core::id::{
    LimitKey, LimitPattern, Name, ObserverId, ObserverRef, Pool, ServiceId, ServiceRef,
};
use everwatch_core::record::row::Row;
use everwatch_core::record::row_policy::RowPolicy;
use everwatch_core::record::service::ServiceRow;
use everwatch_core::wire::checkpoint::{Checkpoint, CheckpointRestored, CheckpointStored, CheckpointWanted};
use everwatch_core::wire::report::{InventoryRange, RangeTotal};
use sqlx::migrate::Migrator;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{ConnectOptions as _, Connection as _, PgPool, Postgres, Transaction};
use std::collections::BTreeMap;
use std::future::Future;
use std::path::Path;
use std::str::FromStr as _;
use std::time::Duration;

static MIGRATOR: Migrator = sqlx::migrate!("migrations/postgres");
/// The newest change that was made to the tables.
const SCHEMA: &str = "SELECT coalesce(max(version), 0) FROM _sqlx_migrations WHERE success";

/// How long a statement waits for a connection before the database counts as unreachable.
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(5);
/// The server cancels a statement, a wait for a lock and an idle transaction after this long.
const STATEMENT_TIMEOUT: &str = "10s";
/// A server that does not answer at all (network cut, process frozen) counts as unreachable after this long.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(15);

pub(crate) struct PgStore {
    pool: PgPool,
    policy: RowPolicy,
    unreadable: Ledger,
    _credentials: Option<Credentials>,
}

/// How connections of this URL are made.
fn options(url: &str) -> Result<PgConnectOptions, sqlx::Error> {
    let limits = ["statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout"];
    let options = PgConnectOptions::from_str(url)?.application_name("everwatch");
    Ok(options.options(limits.map(|limit| (limit, STATEMENT_TIMEOUT))))
}

impl PgStore {
    /// `file`: contains the URL, perhaps with new credentials later.
    pub(crate) async fn open(url: &str, file: Option<&Path>, policy: RowPolicy) -> Result<Self, StoreError> {
        migrate(&PgConnectOptions::from_str(url).map_err(failure)?.application_name("everwatch")).await?;
        let pool = PgPoolOptions::new()
            .max_connections(16)
            .min_connections(1)
            .acquire_timeout(ACQUIRE_TIMEOUT)
            .connect_with(options(url).map_err(failure)?)
            .await
            .map_err(failure)?;
        let credentials = file.map(|file| Credentials::follow(file, url, pool.clone()));
        let unreadable = Ledger::new(Dialect::Postgres);
        Ok(Self { pool, policy, unreadable, _credentials: credentials })
    }

    fn reading(&self) -> observers::Reading<'_> {
        (&self.pool, &self.unreadable)
    }
}

/// Opens a read-only transaction in which all statements see the same snapshot.
async fn snapshot(pool: &PgPool) -> Result<Transaction<'static, Postgres>, StoreError> {
    pool.begin_with("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY").await.map_err(failure)
}

/// Runs the migrations on a separate connection without a time limit, because changing a large table may take
/// long.
async fn migrate(options: &PgConnectOptions) -> Result<(), StoreError> {
    let connected = tokio::time::timeout(ACQUIRE_TIMEOUT, options.connect()).await;
    let mut connection = connected.unwrap_or(Err(sqlx::Error::PoolTimedOut)).map_err(failure)?;
    MIGRATOR.run(&mut connection).await.map_err(migration)?;
    connection.close().await.map_err(failure)
}

/// Limits how long a call waits for the server. A server behind a broken network link never answers; without
/// the limit, the call and the manager would wait for ever.
async fn answered<T>(call: impl Future<Output = Result<T, StoreError>> + Send) -> Result<T, StoreError> {
    let silent = || StoreError::Unavailable(format!("it did not answer within {ANSWER_TIMEOUT:?}"));
    tokio::time::timeout(ANSWER_TIMEOUT, call).await.unwrap_or_else(|_| Err(silent()))
}

#[async_trait]
impl KeyValue for PgStore {
    async fn claim(&self, name: &str, value: &str, keep: Duration) -> Result<String, StoreError> {
        answered(notes::claim(&self.pool, name, value, keep)).await
    }
    async fn note(&self, name: &str) -> Result<Option<String>, StoreError> {
        answered(notes::read(&self.pool, name)).await
    }
    async fn notes_under(&self, prefix: &str) -> Result<Vec<(String, String)>, StoreError> {
        answered(notes::under(&self.pool, prefix)).await
    }
    async fn set_note(&self, name: &str, value: &str, keep: Duration) -> Result<(), StoreError> {
        answered(notes::set(&self.pool, name, value, keep)).await
    }
    async fn swap_note(&self, name: &str, before: &str, after: &str) -> Result<bool, StoreError> {
        answered(notes::swap(&self.pool, name, before, after)).await
    }
    async fn forget_notes(&self) -> Result<u64, StoreError> {
        answered(notes::forget(&self.pool)).await
    }
}

#[async_trait]
impl Events for PgStore {
    async fn record(&self, events: &[Event]) -> Result<(), StoreError> {
        answered(events::record(&self.pool, events)).await
    }
    async fn events(
        &self,
        filter: &EventFilter,
        stretch: EventRange,
        most: usize,
    ) -> Result<EventPage, StoreError> {
        answered(events::page(&self.pool, filter, stretch, most)).await
    }
    async fn event_ends(&self) -> Result<(i64, i64), StoreError> {
        answered(events::ends(&self.pool)).await
    }
    async fn forget_events(&self, before: Timestamp, keep: usize) -> Result<u64, StoreError> {
        answered(events::forget(&self.pool, before, keep)).await
    }
}

#[async_trait]
impl Observers for PgStore {
    async fn create(&self, rows: &[Row], offers: &PoolOffers) -> Result<Vec<Created>, StoreError> {
        answered(observers::create(&self.pool, (rows, offers), &self.policy)).await
    }
    async fn load(&self, ids: &[ObserverId]) -> Result<Found<Row, ObserverId>, StoreError> {
        answered(observers::load(self.reading(), ids)).await
    }
    async fn find(&self, which: &ObserverRef) -> Result<Option<Row>, StoreError> {
        answered(observers::find(self.reading(), which)).await
    }
    async fn save(&self, changes: &[Change<'_>]) -> Result<Vec<ObserverId>, StoreError> {
        answered(observers::save(&self.pool, changes, &self.policy)).await
    }
    async fn versions(&self, id: ObserverId) -> Result<Vec<DefinitionVersion>, StoreError> {
        answered(observers::versions(&self.pool, id)).await
    }
    async fn list(
        &self,
        filter: &Filter,
        after: Option<&ListCursor>,
        limit: usize,
    ) -> Result<Page, StoreError> {
        answered(lists::list(self.reading(), filter, after, limit)).await
    }
    async fn counts_matching(&self, filter: &Filter) -> Result<MatchingCounts, StoreError> {
        answered(lists::counts_matching(&self.pool, filter)).await
    }
    async fn counts(&self) -> Result<Counts, StoreError> {
        answered(lists::counts(&self.pool)).await
    }
    async fn health_counts(&self) -> Result<HealthCounts, StoreError> {
        answered(lists::health_counts(&self.pool)).await
    }
    async fn held_weights(&self) -> Result<HeldWeights, StoreError> {
        answered(lists::held_weights(&self.pool)).await
    }
    async fn forget(&self, rows: &[(ObserverId, i64)]) -> Result<(), StoreError> {
        answered(observers::forget(&self.pool, rows)).await
    }
    async fn forgotten(&self, ids: &[ObserverId]) -> Result<Vec<ObserverId>, StoreError> {
        answered(observers::forgotten(&self.pool, ids)).await
    }
    async fn unreadable(&self) -> Result<Vec<Unreadable>, StoreError> {
        answered(observers::look(self.reading())).await?;
        answered(services::look(self.reading())).await?;
        Ok(self.unreadable.all())
    }
}

#[async_trait]
impl Backlog for PgStore {
    async fn waiting_pools(&self) -> Result<WaitingPools, StoreError> {
        backlog::waiting_pools(&self.pool, &self.policy).await
    }
    async fn admit(&self, admission: &Admission<'_>) -> Result<Vec<Decided>, StoreError> {
        backlog::admit(self.reading(), admission, &self.policy).await
    }
    async fn preempt(&self, look: &Look<'_>) -> Result<Vec<Preempted>, StoreError> {
        backlog::preempt(self.reading(), look, &self.policy).await
    }
    async fn waiting(&self, pool: &Pool, selection: &Selection) -> Result<Vec<Row>, StoreError> {
        backlog::waiting(self.reading(), pool, selection).await
    }
    async fn place(&self, row: &Row) -> Result<Option<Place>, StoreError> {
        backlog::place(&self.pool, row, &self.policy).await
    }
}

#[async_trait]
impl Limits for PgStore {
    async fn limits(
        &self,
        after: Option<&LimitPattern>,
        most: usize,
    ) -> Result<Vec<LimitCounts>, StoreError> {
        limits::page(&self.pool, after, most).await
    }
    async fn limits_of(&self, keys: &[LimitKey]) -> Result<BTreeMap<LimitKey, Limit>, StoreError> {
        limits::of(&self.pool, keys).await
    }
    async fn limit_counts(&self, key: &LimitKey) -> Result<(u64, u64), StoreError> {
        limits::of_key(&self.pool, key).await
    }
    async fn limit_users(
        &self,
        key: &LimitKey,
        waits: bool,
        most: usize,
    ) -> Result<Vec<LimitUse>, StoreError> {
        limits::users(&self.pool, (key, waits), most).await
    }
    async fn behind_limits(&self) -> Result<BTreeMap<Pool, Load>, StoreError> {
        limits::behind(&self.pool).await
    }
    async fn limit_count(&self) -> Result<u64, StoreError> {
        limits::number(&self.pool).await
    }
    async fn limit(&self, key: &LimitPattern) -> Result<Option<LimitCounts>, StoreError> {
        limits::one(&self.pool, key).await
    }
    async fn put_limit(&self, limit: &Limit) -> Result<bool, StoreError> {
        limits::put(&self.pool, limit).await
    }
    async fn delete_limit(&self, key: &LimitPattern) -> Result<LimitDeleted, StoreError> {
        limits::delete(&self.pool, key).await
    }
    async fn look_at_limits(&self, now: Timestamp, most: usize) -> Result<LimitsLookedAt, StoreError> {
        limits::look(self.reading(), (now, most), &self.policy).await
    }
    async fn unreleased(&self, pool: &Pool, most: usize) -> Result<Vec<Row>, StoreError> {
        limits::unreleased(self.reading(), pool, most).await
    }
    async fn pools_with_unreleased(&self) -> Result<Vec<Pool>, StoreError> {
        limits::pools_with_unreleased(self.reading()).await
    }
}

#[async_trait]
impl Worklists for PgStore {
    async fn due(&self, now: Timestamp, most: usize) -> Result<Vec<Row>, StoreError> {
        answered(worklists::due(self.reading(), now, most)).await
    }
    async fn commanded_since(&self, since: Timestamp, most: usize) -> Result<Vec<Row>, StoreError> {
        answered(worklists::commanded_since(self.reading(), since, most)).await
    }
    async fn ending(&self, most: usize) -> Result<Vec<Row>, StoreError> {
        answered(worklists::ending(self.reading(), most)).await
    }
    async fn refused(&self) -> Result<Vec<Refused>, StoreError> {
        answered(worklists::refused(&self.pool)).await
    }
    async fn refused_rows(&self, of: &Refused, most: usize) -> Result<Vec<Row>, StoreError> {
        answered(worklists::refused_rows(self.reading(), of, most)).await
    }
    async fn unheld(&self, pool: &Pool, living: &[ServiceId], most: usize) -> Result<Vec<Row>, StoreError> {
        answered(worklists::unheld(self.reading(), pool, living, most)).await
    }
    async fn held_totals(
        &self,
        service: ServiceId,
        ranges: &[InventoryRange],
    ) -> Result<Vec<RangeTotal>, StoreError> {
        answered(observers::held_totals(&self.pool, service, ranges)).await
    }
    async fn held_by(
        &self,
        service: ServiceId,
        range: InventoryRange,
    ) -> Result<Vec<ObserverId>, StoreError> {
        answered(observers::held_by(&self.pool, service, range)).await
    }
}

#[async_trait]
impl Services for PgStore {
    async fn services(&self, ended_since: Timestamp) -> Result<Found<ServiceRow, ServiceId>, StoreError> {
        answered(services::all(self.reading(), ended_since)).await
    }
    async fn load_services(&self, ids: &[ServiceId]) -> Result<Found<ServiceRow, ServiceId>, StoreError> {
        answered(services::load(self.reading(), ids)).await
    }
    async fn namesakes(&self, names: &[Name], ended_since: Timestamp) -> Result<Vec<ServiceRow>, StoreError> {
        services::namesakes(self.reading(), names, ended_since).await
    }
    async fn ends(&self, ids: &[ServiceId]) -> Result<BTreeMap<ServiceId, Timestamp>, StoreError> {
        answered(services::ends(&self.pool, ids)).await
    }
    async fn service(&self, which: &ServiceRef) -> Result<Option<ServiceRow>, StoreError> {
        answered(services::find(self.reading(), which)).await
    }
    async fn save_services(&self, rows: &[ServiceRow]) -> Result<Vec<ServiceId>, StoreError> {
        answered(services::save(&self.pool, rows)).await
    }
    async fn forget_services(&self, before: Timestamp) -> Result<u64, StoreError> {
        answered(services::forget(&self.pool, before)).await
    }
}

#[async_trait]
impl Checkpoints for PgStore {
    async fn save_checkpoints(
        &self,
        checkpoints: &[Checkpoint],
    ) -> Result<Vec<CheckpointStored>, StoreError> {
        checkpoints::save(&self.pool, checkpoints).await
    }
    async fn request_checkpoints(
        &self,
        wanted: &[CheckpointWanted],
    ) -> Result<Vec<CheckpointRestored>, StoreError> {
        checkpoints::request(&self.pool, wanted).await
    }
    async fn save_results(&self, results: &[ObserverResult]) -> Result<(), StoreError> {
        checkpoints::save_results(&self.pool, results).await
    }
    async fn result(&self, id: ObserverId) -> Result<Option<ObserverResult>, StoreError> {
        checkpoints::result(&self.pool, id).await
    }
}

#[async_trait]
impl ParkedMessages for PgStore {
    async fn park(&self, parked: &[Parked]) -> Result<(), StoreError> {
        for part in parked::parts(parked) {
            answered(parked::park(&self.pool, part)).await?;
        }
        Ok(())
    }
    async fn parked_one(&self, id: i64) -> Result<Option<Parked>, StoreError> {
        answered(parked::one(&self.pool, id)).await
    }
    async fn unpark(&self, id: i64) -> Result<bool, StoreError> {
        answered(parked::unpark(&self.pool, id)).await
    }
    async fn forget_parked(&self, before: Timestamp, keep: usize) -> Result<u64, StoreError> {
        answered(parked::forget(&self.pool, before, keep)).await
    }
    async fn parked(&self, before: Option<i64>, limit: usize) -> Result<(Vec<ParkedHead>, u64), StoreError> {
        answered(parked::page(&self.pool, before, limit)).await
    }
}

#[async_trait]
impl Store for PgStore {
    async fn close(&self) {
        self.pool.close().await;
    }
    async fn schema(&self) -> Result<Schema, StoreError> {
        let found =
            answered(async { sqlx::query_scalar(SCHEMA).fetch_one(&self.pool).await.map_err(failure) })
                .await?;
        let known = MIGRATOR.iter().map(|change| change.version).max().unwrap_or(0);
        Ok(Schema { found, known })
    }
    async fn now(&self) -> Result<Timestamp, StoreError> {
        let now = "SELECT (EXTRACT(EPOCH FROM clock_timestamp()) * 1000)::bigint";
        answered(async { sqlx::query_scalar(now).fetch_one(&self.pool).await.map_err(failure) })
            .await
            .map(Timestamp)
    }
}
