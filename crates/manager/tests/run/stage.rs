//! Managers on threads of their own, so that they can be stopped as hard as a process, and their API.

use everwatch_broker::{Broker, MemoryBroker, RabbitBroker};
use everwatch_manager::{RunError, Settings};
use serde_json::Value;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
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
        eventually("the database to be closed", || async {
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
                everwatch_manager::run(settings, store, broker, axum::Router::new(), stopped, said).await
            };
            let outcome = runtime.block_on(killed.run_until_cancelled(life));
            runtime.shutdown_background();
            // The receiver is gone once a test is over.
            let _unheard = outcome.map(|outcome| over.send(outcome));
        });
        tokio::select! {
            ended = &mut ended => Err(ended.unwrap().expect_err("it ended")),
            Ok(address) = &mut listening => Ok(Manager { api: Api::new(address), stop, kill, ended }),
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

/// A client that panics with what went wrong.
#[derive(Clone)]
pub(crate) struct Api {
    pub(crate) url: String,
    client: reqwest::Client,
}

impl Api {
    pub(crate) fn new(address: SocketAddr) -> Self {
        // A second install is refused and changes nothing.
        let _installed = rustls::crypto::ring::default_provider().install_default();
        Self { url: format!("http://{address}"), client: reqwest::Client::new() }
    }

    pub(crate) async fn try_call(
        &self,
        method: &str,
        path: &str,
        body: Option<Value>,
    ) -> reqwest::Result<(u16, Value)> {
        let mut request = self.client.request(method.parse().unwrap(), format!("{}{path}", self.url));
        if let Some(body) = body {
            request = request.json(&body);
        }
        let response = request.send().await?;
        let status = response.status().as_u16();
        let text = response.text().await?;
        Ok((status, serde_json::from_str(&text).unwrap_or(Value::String(text))))
    }
    pub(crate) async fn call(&self, method: &str, path: &str, body: Option<Value>) -> (u16, Value) {
        self.try_call(method, path, body).await.unwrap_or_else(|error| panic!("{method} {path}: {error}"))
    }
    /// A stream of server-sent events.
    pub(crate) async fn follow(&self, path: &str) -> reqwest::Response {
        self.follow_as(path, "text/event-stream").await.error_for_status().unwrap()
    }
    pub(crate) async fn follow_as(&self, path: &str, accept: &str) -> reqwest::Response {
        self.client.get(format!("{}{path}", self.url)).header("accept", accept).send().await.unwrap()
    }
    pub(crate) async fn get(&self, path: &str) -> Value {
        let (status, body) = self.call("GET", path, None).await;
        assert_eq!(status, 200, "GET {path}: {body}");
        body
    }
    pub(crate) async fn create(&self, body: Value) -> Value {
        let (status, made) = self.call("POST", "/v1/observers", Some(body.clone())).await;
        assert_eq!(status, 201, "{body}: {made}");
        made
    }
    /// Waits until what is at `path` is right.
    pub(crate) async fn until(&self, path: &str, is_right: impl Fn(u16, &Value) -> bool) -> Value {
        eventually(path, || async {
            match self.try_call("GET", path, None).await {
                Ok((status, body)) if is_right(status, &body) => Ok(body),
                other => Err(format!("{other:?}")),
            }
        })
        .await
    }
    pub(crate) async fn until_ready(&self) {
        self.until("/readyz", |status, _| status == 200).await;
    }
    pub(crate) async fn until_status(&self, name: &str, definition: &str) -> Value {
        self.until(&format!("/v1/observers/{name}"), |_, body| body["status"] == definition).await
    }
}

/// Waits until `look` succeeds; after a minute it panics with what it last saw.
pub(crate) async fn eventually<T, F: Future<Output = Result<T, String>>>(
    what: &str,
    look: impl Fn() -> F,
) -> T {
    let begun = Instant::now();
    let mut ticks = tokio::time::interval(Duration::from_millis(20));
    loop {
        ticks.tick().await;
        match look().await {
            Ok(seen) => return seen,
            Err(seen) => assert!(begun.elapsed().as_secs() < 60, "waited a minute for {what}; saw {seen}"),
        }
    }
}

/// Lets this much time pass while `still` holds.
pub(crate) async fn throughout<F: Future<Output = Result<(), String>>>(
    time: Duration,
    still: impl Fn() -> F,
) {
    let begun = Instant::now();
    let mut ticks = tokio::time::interval(Duration::from_millis(50));
    while begun.elapsed() < time {
        ticks.tick().await;
        still().await.unwrap_or_else(|seen| panic!("{seen}"));
    }
}
