//! A deployment for one measurement: child processes of this binary with their own prefix and folder.
//! Dropping it kills them; [`Place::clean`] deletes their queues.

use crate::client::{Client, Failure};
use crate::item::Item;
use anyhow::{Context as _, bail};
use everwatch_api::{Listed, Observer, Service, Stats};
use everwatch_broker::{Broker as _, RabbitBroker, STATE_QUEUES_MAX, Topology};
use everwatch_core::id::Pool;
use everwatch_core::record::service::ServiceState;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use reqwest::Method;
use serde_json::{Value, json};
use std::fs::File;
use std::net::TcpListener;
use std::process::Stdio;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tokio::process::{Child, Command};
use tokio::time::sleep;

/// How many requests or publishes are under way at once.
pub(super) const CONCURRENCY: usize = 32;
/// Observers in one request that creates a batch.
pub(super) const BATCH: u32 = 1000;
/// How long a step may take before the measurement fails.
pub(super) const PATIENCE: Duration = Duration::from_secs(180);
/// How often the API is polled. More frequent polls would slow down the measured processes.
const LOOK_EVERY: Duration = Duration::from_millis(100);
pub(super) const HEARTBEAT: Duration = Duration::from_secs(5);

/// The broker and the database of the measurements, and the prefixes to clean up afterwards.
pub(super) struct Place {
    pub(super) broker_url: String,
    pub(super) store_url: Option<String>,
    prefixes: Mutex<Vec<String>>,
}

impl Place {
    pub(super) fn new(broker_url: String, store_url: Option<String>) -> Self {
        Self { broker_url, store_url, prefixes: Mutex::default() }
    }

    /// Makes sure, before anything is started, that the broker can be used.
    pub(super) async fn check(&self) -> anyhow::Result<()> {
        let broker = RabbitBroker::new(&self.broker_url, "", HEARTBEAT)
            .map_err(|error| Failure::Usage(format!("--broker: {error}")))?;
        broker.connect("everwatch bench").await?.close().await;
        Ok(())
    }

    /// Creates a new prefix and remembers it for [`Place::clean`].
    fn prefix(&self) -> String {
        let prefix = format!("everwatch-bench-{}.", uuid::Uuid::new_v4().simple());
        self.prefixes.lock().unwrap_or_else(PoisonError::into_inner).push(prefix.clone());
        prefix
    }

    /// Deletes the queues and exchanges of everything that ran here.
    pub(super) async fn clean(&self) -> anyhow::Result<()> {
        let prefixes = std::mem::take(&mut *self.prefixes.lock().unwrap_or_else(PoisonError::into_inner));
        if prefixes.is_empty() {
            return Ok(());
        }
        let broker = RabbitBroker::new(&self.broker_url, "", HEARTBEAT)?;
        let (mut queues, mut exchanges) = (Vec::new(), Vec::new());
        for prefix in prefixes {
            // The environment may set any number for the processes; a queue that does not exist is deleted without an
            // error.
            let topology = Topology::new(&prefix).with_state_queues(STATE_QUEUES_MAX);
            queues.extend(topology.durable_queues().into_iter().map(|(queue, _)| queue));
            queues.extend([topology.work(&Pool::default()), bare(&prefix), format!("{prefix}store")]);
            exchanges.extend(topology.exchange_names(&[Pool::default()]));
        }
        broker
            .remove(&queues, &exchanges)
            .await
            .context("cannot delete the benchmark's queues and exchanges; they stay on the broker")
    }
}

/// The queue that the bare broker is measured with.
pub(super) fn bare(prefix: &str) -> String {
    format!("{prefix}bare")
}

/// A running process of this binary.
pub(super) struct Process {
    pub(super) name: String,
    child: Child,
}

impl Process {
    /// `kill -9`; returns as soon as the signal is sent.
    pub(super) fn kill(&mut self) -> anyhow::Result<()> {
        self.child.start_kill().with_context(|| self.name.clone())
    }
    pub(super) async fn wait(&mut self) -> anyhow::Result<()> {
        self.child.wait().await.map(drop).with_context(|| self.name.clone())
    }
    pub(super) fn pid(&self) -> anyhow::Result<u32> {
        self.child.id().with_context(|| format!("{} has ended", self.name))
    }
    pub(super) fn stdout(&mut self) -> Option<tokio::process::ChildStdout> {
        self.child.stdout.take()
    }
}

/// A deployment: one prefix, one database, and one address of a manager.
pub(super) struct Deployment {
    pub(super) broker_url: String,
    pub(super) prefix: String,
    pub(super) api: Client,
    store_url: String,
    listen: String,
    folder: TempDir,
    /// A part of all observer and service names. It keeps deployments apart that use the same database one
    /// after another.
    tag: String,
    keeps_store: bool,
    services: u32,
}

impl Deployment {
    /// Creates a deployment without starting a process.
    pub(super) fn new(place: &Place) -> anyhow::Result<Self> {
        let folder = tempfile::Builder::new().prefix("everwatch-bench-").tempdir()?;
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let listen = format!("127.0.0.1:{port}");
        let own = || format!("sqlite://{}", folder.path().join("everwatch.db").display());
        Ok(Self {
            broker_url: place.broker_url.clone(),
            prefix: place.prefix(),
            api: Client::new(&format!("http://{listen}"))?,
            store_url: place.store_url.clone().unwrap_or_else(own),
            listen,
            folder,
            tag: uuid::Uuid::new_v4().simple().to_string()[..8].to_owned(),
            keeps_store: place.store_url.is_some(),
            services: 0,
        })
    }

    /// Starts a process of this binary; its log is in the folder.
    pub(super) fn start(&self, name: &str, what: &[&str], own: &[(&str, &str)]) -> anyhow::Result<Process> {
        let log = File::create(self.folder.path().join(format!("{name}.log")))?;
        let mut command = Command::new(std::env::current_exe()?);
        for (key, _) in std::env::vars().filter(|(key, _)| key.starts_with("EVERWATCH_")) {
            command.env_remove(key);
        }
        let child = command
            .args(what)
            .env("EVERWATCH_BROKER__URL", &self.broker_url)
            .env("EVERWATCH_BROKER__PREFIX", &self.prefix)
            .env("EVERWATCH_STORE__URL", &self.store_url)
            .env("EVERWATCH_MANAGER__LISTEN", &self.listen)
            .env("EVERWATCH_LOG__FILTER", "warn")
            .envs(own.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log)
            .kill_on_drop(true)
            .spawn()?;
        Ok(Process { name: name.to_owned(), child })
    }

    /// Starts the manager and waits until it is ready.
    pub(super) async fn manager(&self) -> anyhow::Result<Process> {
        let mut manager = self.start("manager", &["run", "manager"], &[])?;
        let begun = Instant::now();
        while self.api.order(Method::GET, "/readyz", None).await.is_err() {
            self.check(&mut manager, begun)?;
            sleep(Duration::from_millis(50)).await;
        }
        Ok(manager)
    }

    /// Starts `count` services in one process, and waits until the manager knows them all.
    pub(super) async fn fleet(&self, count: u32) -> anyhow::Result<Process> {
        let number = count.to_string();
        let mut fleet = self.start("fleet", &["bench-fleet", &number], &[])?;
        let begun = Instant::now();
        loop {
            let stats: Stats = self.api.read("/v1/stats").await?;
            if stats.services.get("active") == Some(&u64::from(count)) {
                return Ok(fleet);
            }
            self.check(&mut fleet, begun)?;
            sleep(LOOK_EVERY).await;
        }
    }

    /// Starts a service and waits until the manager knows it and its blocks are open. Returns its process and
    /// its id.
    pub(super) async fn service(&mut self, capacity: u32) -> anyhow::Result<(Process, String)> {
        self.services += 1;
        let name = format!("bench-{}-{}", self.tag, self.services);
        let capacity = capacity.to_string();
        let own = [("EVERWATCH_SERVICE__NAME", &*name), ("EVERWATCH_SERVICE__CAPACITY", &*capacity)];
        let mut service = self.start(&name, &["run", "service"], &own)?;
        let begun = Instant::now();
        loop {
            let page: Listed<Service> = self.api.read(&format!("/v1/services?name={name}")).await?;
            if let Some(it) = page.items.iter().find(|it| it.state == ServiceState::Active) {
                // The service opens its blocks within a second after the manager's welcome message.
                sleep(Duration::from_secs(3)).await;
                return Ok((service, it.id.to_string()));
            }
            self.check(&mut service, begun)?;
            sleep(Duration::from_millis(50)).await;
        }
    }

    fn check(&self, process: &mut Process, begun: Instant) -> anyhow::Result<()> {
        let ended = process.child.try_wait()?;
        if ended.is_none() && begun.elapsed() < PATIENCE {
            return Ok(());
        }
        let log = std::fs::read_to_string(self.folder.path().join(format!("{}.log", process.name)))?;
        let tail: Vec<_> = log.lines().rev().take(5).collect();
        let tail: Vec<_> = tail.into_iter().rev().collect();
        bail!("{} did not get ready: {}", process.name, tail.join("\n"))
    }

    /// Creates idle observers. Returns how long it took until the manager accepted the last one.
    pub(super) async fn create(&self, count: u32) -> anyhow::Result<Duration> {
        let begun = Instant::now();
        stream::iter(0..count)
            .map(|number| async move {
                self.api.order(Method::POST, "/v1/observers", Some(&self.observer(number))).await
            })
            .buffer_unordered(CONCURRENCY)
            .try_collect::<()>()
            .await?;
        Ok(begun.elapsed())
    }

    /// Creates idle observers in batches, one after another. Returns how long it took until the manager accepted the
    /// last one.
    pub(super) async fn create_in_batches(&self, count: u32) -> anyhow::Result<Duration> {
        let begun = Instant::now();
        for first in (0..count).step_by(BATCH as usize) {
            let create = |number| json!({"op": "create", "observer": self.observer(number)});
            let wishes = (first..count.min(first + BATCH)).map(create).collect();
            self.api.order(Method::POST, "/v1/observers:batch", Some(&Value::Array(wishes))).await?;
        }
        Ok(begun.elapsed())
    }

    /// How many run on this service.
    pub(super) async fn running(&self, service: &str) -> anyhow::Result<u64> {
        let path = format!("/v1/observers?status=Processing&limit=1&service={service}");
        Ok(self.api.read::<Listed<Observer>>(&path).await?.total)
    }

    /// Waits until `count` observers run on this service.
    pub(super) async fn until_running(&self, service: &str, count: u32) -> anyhow::Result<()> {
        let begun = Instant::now();
        loop {
            let running = self.running(service).await?;
            if running == u64::from(count) {
                return Ok(());
            }
            if begun.elapsed() > PATIENCE {
                let waited = PATIENCE.as_secs();
                let text = format!("{running} of {count} observers run after {waited} s");
                return Err(Failure::TimedOut(text).into());
            }
            sleep(LOOK_EVERY).await;
        }
    }

    /// All observers of a service, page by page.
    pub(super) async fn observers(&self, service: &str) -> anyhow::Result<Vec<Item<Observer>>> {
        crate::requests::all(&self.api, &[("service", service.to_owned())], usize::MAX).await
    }

    /// All services in these states, page by page.
    pub(super) async fn services(&self, states: &str) -> anyhow::Result<Vec<Service>> {
        let (mut services, mut cursor) = (Vec::new(), String::new());
        loop {
            let path = format!("/v1/services?state={states}&limit=500{cursor}");
            let page: Listed<Service> = self.api.read(&path).await?;
            services.extend(page.items);
            let Some(next) = page.next_cursor else { return Ok(services) };
            cursor = format!("&cursor={next}");
        }
    }

    /// An observer that does nothing for an hour.
    pub(super) fn observer(&self, number: u32) -> Value {
        let (name, spec) = (format!("bench-{}-{number:06}", self.tag), json!({"every": "1h"}));
        json!({"name": name, "kind": "ticker", "spec": spec, "on_full": "queue"})
    }

    /// Requests the deletes of all observers.
    pub(super) async fn delete(&self, count: u32) -> anyhow::Result<()> {
        stream::iter(0..count)
            .map(|number| async move {
                let path = format!("/v1/observers/bench-{}-{number:06}", self.tag);
                self.api.order(Method::DELETE, &path, None).await
            })
            .buffer_unordered(CONCURRENCY)
            .try_collect()
            .await
    }

    /// Waits until all observers are deleted.
    pub(super) async fn until_deleted(&self) -> anyhow::Result<()> {
        let begun = Instant::now();
        loop {
            let left = self.api.read::<Listed<Observer>>("/v1/observers?limit=1").await?.total;
            if left == 0 {
                return Ok(());
            }
            if begun.elapsed() > PATIENCE {
                let text = format!("{left} observers are not deleted after {} s", PATIENCE.as_secs());
                return Err(Failure::TimedOut(text).into());
            }
            sleep(LOOK_EVERY).await;
        }
    }

    /// Deletes the observers if the database outlives this deployment.
    pub(super) async fn leave(&self, count: u32) -> anyhow::Result<()> {
        if self.keeps_store {
            self.delete(count).await?;
            self.until_deleted().await?;
        }
        Ok(())
    }
}
