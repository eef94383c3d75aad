//! The store on PostgreSQL: any number of managers share one.

mod observers;
mod parked;
mod services;

use crate::failure::{failure, migration};
use crate::port::*;
use async_trait::async_trait;
use everwatch_core::clock::Timestamp;
use everwatch_core::id::{Name, ObserverId, ObserverRef, ServiceId};
use everwatch_core::row::{Row, RowPolicy};
use everwatch_core::service::ServiceRow;
use sqlx::PgPool;
use sqlx::migrate::Migrator;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use std::str::FromStr as _;
use std::time::Duration;

static MIGRATOR: Migrator = sqlx::migrate!("migrations/postgres");

/// How long a statement waits for a connection before the database counts as unreachable.
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(5);

pub(crate) struct PgStore {
    pool: PgPool,
    policy: RowPolicy,
}

impl PgStore {
    pub(crate) async fn open(url: &str, policy: RowPolicy) -> Result<Self, StoreError> {
        let options = PgConnectOptions::from_str(url).map_err(failure)?.application_name("everwatch");
        let pool = PgPoolOptions::new()
            .max_connections(16)
            .min_connections(1)
            .acquire_timeout(ACQUIRE_TIMEOUT)
            .connect_with(options)
            .await
            .map_err(failure)?;
        MIGRATOR.run(&pool).await.map_err(migration)?;
        Ok(Self { pool, policy })
    }
}

#[async_trait]
impl Store for PgStore {
    async fn now(&self) -> Result<Timestamp, StoreError> {
        let now = "SELECT (EXTRACT(EPOCH FROM clock_timestamp()) * 1000)::bigint";
        sqlx::query_scalar(now).fetch_one(&self.pool).await.map(Timestamp).map_err(failure)
    }
    async fn create(&self, rows: &[Row]) -> Result<Vec<Created>, StoreError> {
        observers::create(&self.pool, rows, &self.policy).await
    }
    async fn load(&self, ids: &[ObserverId]) -> Result<Vec<Row>, StoreError> {
        observers::load(&self.pool, ids).await
    }
    async fn find(&self, which: &ObserverRef) -> Result<Option<Row>, StoreError> {
        observers::find(&self.pool, which).await
    }
    async fn save(&self, rows: &[Row]) -> Result<Vec<ObserverId>, StoreError> {
        observers::save(&self.pool, rows, &self.policy).await
    }
    async fn due(&self, now: Timestamp, most: usize) -> Result<Vec<Row>, StoreError> {
        observers::due(&self.pool, now, most).await
    }
    async fn commanded_since(&self, since: Timestamp, most: usize) -> Result<Vec<Row>, StoreError> {
        observers::commanded_since(&self.pool, since, most).await
    }
    async fn list(&self, filter: &Filter, after: Option<&After>, limit: usize) -> Result<Page, StoreError> {
        observers::list(&self.pool, filter, after, limit).await
    }
    async fn counts(&self) -> Result<Counts, StoreError> {
        observers::counts(&self.pool).await
    }
    async fn forget(&self, rows: &[(ObserverId, i64)]) -> Result<(), StoreError> {
        observers::forget(&self.pool, rows).await
    }
    async fn services(&self, ended_since: Timestamp) -> Result<Vec<ServiceRow>, StoreError> {
        services::all(&self.pool, ended_since).await
    }
    async fn service(
        &self,
        id: Option<ServiceId>,
        name: Option<&Name>,
    ) -> Result<Option<ServiceRow>, StoreError> {
        services::find(&self.pool, id, name).await
    }
    async fn save_services(&self, rows: &[ServiceRow]) -> Result<Vec<ServiceId>, StoreError> {
        services::save(&self.pool, rows).await
    }
    async fn forget_services(&self, before: Timestamp) -> Result<u64, StoreError> {
        services::forget(&self.pool, before).await
    }
    async fn park(&self, parked: &[Parked]) -> Result<(), StoreError> {
        parked::park(&self.pool, parked).await
    }
    async fn parked(&self, before: Option<i64>, limit: usize) -> Result<(Vec<Parked>, u64), StoreError> {
        parked::page(&self.pool, before, limit).await
    }
}
