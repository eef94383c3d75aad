//! The examples of both packages as services: what they show holds when their processes are killed and suspended.

mod exchange;

use everwatch_api::Observer;
use everwatch_core::record::health::Health;
use everwatch_core::record::status::Status;
use everwatch_tests::cluster::{Cluster, everwatch, from_environment};
use everwatch_tests::http::holder;
use everwatch_tests::rabbitmq::Management;
use everwatch_tests::wait::wait_for;
use exchange::Exchange;
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

fn example(name: &str) -> PathBuf {
    everwatch().with_file_name("examples").join(name)
}

/// A manager and the services `a` and `b`, which run this program.
async fn start(name: &str, program: PathBuf, environment: &[(&str, &str)]) -> Cluster {
    let mut cluster = Cluster::new(name);
    cluster.service_program = program;
    for (key, value) in environment {
        cluster.extra.push(((*key).to_owned(), (*value).to_owned()));
    }
    cluster.manager().await;
    for service in ["a", "b"] {
        cluster.service(service, 10).await;
    }
    cluster
}

/// The service that runs the observer.
async fn until_running(cluster: &Cluster, name: &str) -> String {
    let it = cluster.api.until_observer(name, |it| it.health == Some(Health::Running)).await;
    holder(&it).unwrap().to_owned()
}

/// Kills the service that runs the observer, waits until the other one runs it, and starts the killed service again.
/// After several kills, the observer does not count as running for a while, because it may be their cause.
async fn fail_over(cluster: &mut Cluster, name: &str) {
    let killed = holder(&cluster.api.observer(name).await).unwrap().to_owned();
    cluster.kill(&killed);
    let runs_elsewhere = |it: &Observer| {
        it.status == Status::Processing && holder(it).is_some_and(|service| service != killed)
    };
    cluster.api.until_observer(name, runs_elsewhere).await;
    cluster.service(&killed, 10).await;
}

/// The prices that arrive in a queue of the output exchange.
struct Output {
    management: Management,
    queue: String,
    /// The newest price and its epoch, by routing key.
    newest: RefCell<BTreeMap<String, (u64, u64)>>,
}

impl Output {
    async fn of(cluster: &Cluster) -> Self {
        let management = Management::new(from_environment("EVERWATCH_TEST_MANAGEMENT_URL"));
        let (exchange, queue) = (format!("{}output", cluster.prefix), format!("{}prices", cluster.prefix));
        management.listen(&exchange, &queue).await;
        Self { management, queue, newest: RefCell::default() }
    }

    /// Takes what has arrived.
    async fn take(&self) {
        for message in self.management.take(&self.queue).await {
            let value: Value = serde_json::from_str(message["payload"].as_str().unwrap()).unwrap();
            let (key, headers) =
                (message["routing_key"].as_str().unwrap(), &message["properties"]["headers"]);
            let symbol = value["symbol"].as_str().unwrap();
            assert_eq!((key, &headers["symbol"]), (&*format!("prices.{symbol}"), &json!(symbol)));
            let price = value["price"].as_str().unwrap().parse().unwrap();
            let epoch = headers["everwatch-epoch"].as_u64().unwrap();
            self.newest.borrow_mut().insert(key.to_owned(), (price, epoch));
        }
    }

    /// Waits until each symbol has a price above this one, and returns the epochs of these prices.
    async fn until_above(&self, price: u64) -> Vec<u64> {
        wait_for(&format!("prices above {price}"), || async {
            self.take().await;
            let newest = self.newest.borrow();
            let are_newer = newest.len() == 2 && newest.values().all(|(newest, _)| *newest > price);
            if are_newer { Ok(newest.values().map(|it| it.1).collect()) } else { Err(format!("{newest:?}")) }
        })
        .await
    }
}

async fn prices_go_on(name: &str, program: PathBuf) {
    let exchange = Exchange::open().await;
    let mut cluster = start(name, program, &[]).await;
    let output = Output::of(&cluster).await;
    let spec = json!({"url": exchange.url, "symbols": ["btc-eur", "eth-eur"], "silence_seconds": 1});
    cluster.api.create(json!({"name": "prices", "kind": "price-watcher", "spec": spec})).await;
    until_running(&cluster, "prices").await;
    let first = output.until_above(0).await;

    exchange.drop_connections().await;
    assert_eq!(output.until_above(exchange.price()).await, first, "a lost connection needs no new run");
    exchange.stall_connections().await;
    assert_eq!(output.until_above(exchange.price()).await, first, "a silent connection needs no new run");

    fail_over(&mut cluster, "prices").await;
    let second = output.until_above(exchange.price()).await;
    assert!(second.iter().all(|epoch| *epoch > first[0]), "{second:?} after {first:?}");
    let it = cluster.api.observer("prices").await;
    assert_eq!((it.restarts, it.last_error), (0, None), "the code has kept its connection by itself");
}

#[tokio::test]
async fn the_price_watcher_in_rust_follows_an_unreliable_exchange() {
    prices_go_on("prices-rust", example("price_watcher")).await;
}

#[tokio::test]
async fn the_price_watcher_in_python_follows_an_unreliable_exchange() {
    let folder = tempfile::tempdir().unwrap();
    let program = crate::conformance::program(folder.path(), "sdk/python/examples/price_watcher.py");
    prices_go_on("prices-python", program).await;
}

/// A database of its own for the samples of `guarded_writer`.
struct Samples {
    url: String,
}

impl Samples {
    fn create() -> Self {
        let server = from_environment("EVERWATCH_TEST_POSTGRES_URL");
        let name = format!("samples_{}", uuid::Uuid::new_v4().simple());
        let (base, _) = server.rsplit_once('/').unwrap();
        query(&server, &format!("create database {name}")).unwrap();
        Self { url: format!("{base}/{name}") }
    }

    /// The number of samples of each epoch, in the order of the writes; none until the first run has made the table.
    fn by_epoch(&self) -> Vec<(u64, u64)> {
        let sql = "select epoch, count(*) from samples group by epoch order by min(id)";
        let line = |line: &str| {
            let (epoch, count) = line.split_once('|')?;
            Some((epoch.parse().ok()?, count.parse().ok()?))
        };
        query(&self.url, sql).unwrap_or_default().lines().filter_map(line).collect()
    }

    /// The number of samples that were written after samples of a higher epoch.
    fn written_by_replaced_runs(&self) -> u64 {
        let sql = "select count(*) from (select epoch, max(epoch) over (order by id) as highest from samples) as all_samples
            where epoch < highest";
        query(&self.url, sql).unwrap().trim().parse().unwrap()
    }

    async fn until(&self, what: &str, is_right: impl Fn(&[(u64, u64)]) -> bool) -> Vec<(u64, u64)> {
        wait_for(what, || async {
            let samples = self.by_epoch();
            if is_right(&samples) { Ok(samples) } else { Err(format!("{samples:?}")) }
        })
        .await
    }
}

fn query(url: &str, sql: &str) -> Result<String, String> {
    let output = Command::new("psql").args([url, "-Atqc", sql]).output().unwrap();
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
}

#[tokio::test]
async fn the_guarded_writer_refuses_the_write_of_a_suspended_service() {
    let samples = Samples::create();
    let environment = [("GUARDED_WRITER_DATABASE_URL", &*samples.url), ("EVERWATCH_BROKER__HEARTBEAT", "3s")];
    let cluster = start("guarded", example("guarded_writer"), &environment).await;
    cluster.api.create(json!({"name": "load", "kind": "guarded-writer", "spec": {"every_ms": 10}})).await;
    let suspended = until_running(&cluster, "load").await;
    let before = samples.until("samples", |it| it.first().is_some_and(|(_, count)| *count > 20)).await;
    let first = before[0].0;

    cluster.signal(&suspended, Signal::SIGSTOP);
    let replaced = samples.until("samples of the next run", |it| it.len() == 2 && it[1].1 > 20).await;
    assert!(replaced[1].0 > first, "{replaced:?}");
    let refused = || cluster.full_log(&suspended).matches("write refused: a later run has written").count();
    assert_eq!(refused(), 0);
    cluster.signal(&suspended, Signal::SIGCONT);
    wait_for("the refusal of a write", || async {
        if refused() > 0 { Ok(()) } else { Err(cluster.log(&suspended)) }
    })
    .await;

    let further = replaced[1].1 + 50;
    let after =
        samples.until("more samples", |it| it.last().is_some_and(|(_, count)| *count > further)).await;
    assert_eq!(after.len(), 2, "{after:?}");
    assert_eq!(after[0], replaced[0], "the suspended run has written nothing more");
    assert_eq!(samples.written_by_replaced_runs(), 0);
}

/// The contents of the files of a folder, without unfinished copies.
fn contents(folder: &Path) -> BTreeMap<String, String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let files = entries.map(|it| (it.file_name().into_string().unwrap(), it.path()));
    let finished = files.filter(|(name, _)| !name.starts_with(".copy-"));
    finished.filter_map(|(name, path)| Some((name, std::fs::read_to_string(path).ok()?))).collect()
}

async fn until_equal(from: &Path, to: &Path) {
    wait_for("equal folders", || async {
        let (original, copy) = (contents(from), contents(to));
        if original == copy { Ok(()) } else { Err(format!("{} of {} files", copy.len(), original.len())) }
    })
    .await;
}

/// Creates, changes and deletes files until it is dropped.
struct Writer {
    stop: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Writer {
    fn start(folder: &Path) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let (stopped, folder) = (stop.clone(), folder.to_owned());
        let write = move || {
            for number in (0_usize..).take_while(|_| !stopped.load(Ordering::Relaxed)) {
                let text = format!("{number} ").repeat(1 + number % 1000);
                std::fs::write(folder.join((number % 100).to_string()), text).unwrap();
                if number % 7 == 0 {
                    let _absent = std::fs::remove_file(folder.join((number % 50).to_string()));
                }
                std::thread::sleep(Duration::from_millis(2));
            }
        };
        Self { stop, thread: Some(std::thread::spawn(write)) }
    }

    fn stop(mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join().unwrap();
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

#[tokio::test]
async fn the_file_replicator_keeps_folders_equal_while_its_services_are_killed() {
    let mut cluster = start("replicator", example("file_replicator"), &[]).await;
    let (from, to) = (cluster.folder("from"), cluster.folder("to"));
    std::fs::write(from.join("first"), "first").unwrap();
    let spec = json!({"from": from, "to": to, "every_ms": 100});
    let observer = json!({"name": "copy", "kind": "file-replicator", "overlap": "forbid", "spec": spec});
    cluster.api.create(observer).await;
    until_equal(&from, &to).await;
    // The text appears after the checkpoint is stored.
    let in_step = |it: &Observer| it.progress.as_deref() == Some("1 files in step");
    cluster.api.until_observer("copy", in_step).await;
    let inode = || std::fs::metadata(to.join("first")).unwrap().ino();
    let first = inode();
    for _ in 0..3 {
        let writer = Writer::start(&from);
        let before = contents(&to);
        wait_for("copies of new files", || async {
            if contents(&to) == before { Err(format!("{} files", before.len())) } else { Ok(()) }
        })
        .await;
        fail_over(&mut cluster, "copy").await;
        writer.stop();
        until_equal(&from, &to).await;
    }
    assert_eq!(inode(), first, "the checkpoint tells each run that this file is in step");
}
