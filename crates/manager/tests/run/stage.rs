//! Managers on threads of their own, so that they can be stopped as hard as a process, and their API.

use everwatch_broker::{Broker, MemoryBroker, RabbitBroker};
use everwatch_manager::{RunError, Settings};
use everwatch_tests::http::Api;
use everwatch_tests::wait::wait_for;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

/// What managers and services of one test share.
pub(crate) struct Stage {
    pub(crate) broker: Arc<dyn Broker>,
    /// The same, where it is the one in this process.
    pub(crate) memory: MemoryBroker,
    pub(crate) store_url: String,
    pub(crate) settings: Settings,
    _directory: TempDir,
}

/// The database and its log.
const FILES: [&str; 2] = ["", "-wal"];

/// Short times, so that tests are quick.
pub(crate) fn quick() -> Settings {
    let mut settings = Settings { listen: SocketAddr::from(([127, 0, 0, 1], 0)), ..Settings::default() };
    settings.heartbeat_interval = Duration::from_millis(500);
    settings.lost_after = Duration::from_millis(1500);
    settings.orphan_after = Duration::from_secs(3);
    settings.row.lease = Duration::from_secs(4);
    settings.row.sweep_after = Duration::from_secs(2);
    // Some tests fill a work queue before a service lives.
    settings.row.admit_ahead = 10_000;
    settings
}

impl Stage {
    /// The broker in this process and a SQLite file.
    pub(crate) fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let memory = MemoryBroker::new();
        Self {
            broker: Arc::new(memory.clone()),
            memory,
            store_url: format!("sqlite://{}", directory.path().join("test.db").display()),
            settings: quick(),
            _directory: directory,
        }
    }

    /// The SQLite files, once the manager that was stopped has let go of them.
    pub(crate) async fn backup(&self) -> [Vec<u8>; 2] {
        self.until_closed().await;
        FILES.map(|suffix| std::fs::read(format!("{}{suffix}", self.file())).unwrap_or_default())
    }

    /// Puts a backup in the place of the database.
    pub(crate) async fn restore(&self, backup: &[Vec<u8>; 2]) {
        self.until_closed().await;
        let _not_there = std::fs::remove_file(format!("{}-shm", self.file()));
        for (suffix, bytes) in FILES.iter().zip(backup) {
            std::fs::write(format!("{}{suffix}", self.file()), bytes).unwrap();
        }
    }

    async fn until_closed(&self) {
        let policy = &self.settings.row;
        wait_for("the database to be closed", || async {
            let opened = everwatch_store::open(&self.store_url, policy.clone()).await;
            opened.map(drop).map_err(|error| error.to_string())
        })
        .await;
    }

    fn file(&self) -> &str {
        self.store_url.strip_prefix("sqlite://").unwrap()
    }

    /// PostgreSQL instead of SQLite.
    pub(crate) async fn on_postgres(mut self) -> Self {
        self.store_url = everwatch_store::conformance::fresh_postgres().await;
        self
    }

    /// RabbitMQ instead of the broker in this process.
    pub(crate) fn on_rabbit(mut self) -> Self {
        let url = std::env::var("EVERWATCH_TEST_AMQP_URL")
            .expect("EVERWATCH_TEST_AMQP_URL is not set: ./tests/run starts a RabbitMQ and sets it");
        self.settings.prefix = format!("manager-{}.", &Uuid::new_v4().simple().to_string()[..8]);
        let heartbeat = Duration::from_secs(5);
        self.broker = Arc::new(RabbitBroker::new(&url, &self.settings.prefix, heartbeat).unwrap());
        self
    }

    /// Starts a manager and waits until it listens.
    pub(crate) async fn manager(&self) -> Manager {
        self.try_manager().await.unwrap_or_else(|error| panic!("{error}"))
    }

    /// Starts a manager and waits until it is ready.
    pub(crate) async fn ready_manager(&self) -> Manager {
        let manager = self.manager().await;
        manager.api.until_ready().await;
        manager
    }

    /// Starts a manager; the error if it ends before it listens.
    pub(crate) async fn try_manager(&self) -> Result<Manager, RunError> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        let runtime = runtime.unwrap();
        let (settings, broker, url) =
            (self.settings.clone(), Arc::clone(&self.broker), self.store_url.clone());
        let (stop, killed) = (CancellationToken::new(), CancellationToken::new());
        let (heard, mut listening) = oneshot::channel();
        let (over, mut ended) = oneshot::channel();
        let (stopped, kill) = (stop.clone(), killed.clone());
        std::thread::spawn(move || {
            let life = async move {
                // The manager before it, ended in the same process, may not have let go of the file yet.
                let mut ticks = tokio::time::interval(Duration::from_millis(50));
                let mut tries = 0;
                let store = loop {
                    ticks.tick().await;
                    tries += 1;
                    match everwatch_store::open(&url, settings.row.clone()).await {
                        Err(error) if tries < 100 && error.to_string().contains("is in use") => {}
                        opened => break opened.unwrap(),
                    }
                };
                let said = |address| heard.send(address).unwrap();
                let opened = async { Ok(Some(store)) };
                everwatch_manager::run(settings, opened, broker, axum::Router::new(), stopped, said).await
            };
            let outcome = runtime.block_on(killed.run_until_cancelled(life));
            runtime.shutdown_background();
            // The receiver is gone once a test is over.
            let _unheard = outcome.map(|outcome| over.send(outcome));
        });
        tokio::select! {
            ended = &mut ended => Err(ended.unwrap().expect_err("it ended")),
            Ok(address) = &mut listening => Ok(Manager { api: Api::new(format!("http://{address}")), stop, kill, ended }),
        }
    }
}

/// One manager; dropped, it ends in the middle of whatever it does.
pub(crate) struct Manager {
    pub(crate) api: Api,
    stop: CancellationToken,
    kill: CancellationToken,
    ended: oneshot::Receiver<Result<(), RunError>>,
}

impl Manager {
    /// Asks it to stop; how it ended.
    pub(crate) async fn stop(mut self) -> Result<(), RunError> {
        self.stop.cancel();
        tokio::time::timeout(Duration::from_secs(20), &mut self.ended).await.expect("it stops").unwrap()
    }

    /// How it ends by itself.
    pub(crate) async fn ended(mut self) -> Result<(), RunError> {
        tokio::time::timeout(Duration::from_secs(20), &mut self.ended).await.expect("it ends").unwrap()
    }
}

impl Drop for Manager {
    fn drop(&mut self) {
        self.kill.cancel();
    }
}
