//! A service whose standard error is blocked, because the reader of the pipe has stopped; and a broker that
//! demands shorter heartbeats than the service.

use everwatch_core::record::service::ServiceState;
use everwatch_tests::beacons;
use everwatch_tests::cluster::Cluster;
use everwatch_tests::http::Api;
use everwatch_tests::proxy::Proxy;
use everwatch_tests::rabbitmq::Node;
use everwatch_tests::wait::wait_for;
use nix::fcntl::{FcntlArg, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use serde_json::json;
use std::io::{PipeReader, PipeWriter, Read as _};
use std::os::fd::AsFd as _;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Defaults, in ms: the silence of the broker after which the fence stops all runs. `FENCE_GRACE`: the time
/// that code then has to end.
const HEARTBEAT: i64 = 5000;
const FENCE_GRACE: i64 = 500;
/// Tolerance, in ms: the fence checks ten times a second, a beacon is written fifty times a second, and the
/// machine is busy.
const SLACK: i64 = 1000;

/// A small pipe that is not read.
fn unread_pipe() -> (PipeReader, PipeWriter) {
    let (reader, writer) = std::io::pipe().unwrap();
    fcntl(&writer, FcntlArg::F_SETPIPE_SZ(4096)).unwrap();
    (reader, writer)
}

async fn until_full(pipe: &PipeWriter) {
    wait_for("the pipe to be full", || async {
        let mut ends = [PollFd::new(pipe.as_fd(), PollFlags::POLLOUT)];
        let room = poll(&mut ends, PollTimeout::ZERO).unwrap();
        if room == 0 { Ok(()) } else { Err("there is room".to_owned()) }
    })
    .await;
}

/// Creates an observer that writes a thousand lines a second.
async fn create_chatty(api: &Api) {
    let script = "while :; do seq 100; sleep 0.1; done";
    api.create(json!({"name": "chatty", "kind": "exec", "spec": {"argv": ["/bin/sh", "-c", script]}})).await;
    api.until_status("chatty", "Processing").await;
}

async fn until_both_moved(folder: &Path) {
    wait_for("both to run on the other service", || async {
        let runs = beacons::read(folder);
        let moved = runs.len() == 2 && runs.values().all(|runs| runs.len() == 2);
        if moved { Ok(()) } else { Err(format!("{runs:?}")) }
    })
    .await;
}

fn now() -> i64 {
    jiff::Timestamp::now().as_millisecond()
}

#[tokio::test]
async fn a_cut_service_whose_log_is_stuck_lets_go_in_time() {
    let mut cluster = Cluster::new("stuck-and-cut").with_test_kinds();
    cluster.manager().await;
    let api = cluster.api.clone();
    let (proxy, behind) = Proxy::before(&cluster.broker_url).await;
    let (_unread, stderr) = unread_pipe();
    let watched = stderr.try_clone().unwrap();
    cluster.spawn_service_into("a", 10, &behind, stderr);
    cluster.until_active("a").await;
    let folder = cluster.folder("beacons");
    create_chatty(&api).await;
    api.create(json!({"name": "code", "kind": "beacon", "spec": {"folder": folder}})).await;
    api.create(json!({"name": "child", "kind": "exec", "spec": beacons::exec_spec(&folder)})).await;
    for name in ["code", "child"] {
        api.until_status(name, "Processing").await;
    }
    until_full(&watched).await;
    cluster.service("b", 10).await;

    proxy.pass(false, false);
    let cut = now();
    until_both_moved(&folder).await;
    proxy.pass(true, true);
    wait_for("the cut service to be back", || async {
        let services = api.services().await;
        let back = services.iter().filter(|it| it.name == "a" && it.state == ServiceState::Active).count();
        if back == 1 && services.len() == 3 { Ok(()) } else { Err(format!("{services:?}")) }
    })
    .await;
    for (name, runs) in beacons::read(&folder) {
        let went_on = runs[0].last - cut;
        let limit = HEARTBEAT + FENCE_GRACE + SLACK;
        assert!(went_on <= limit, "{name} went on for {went_on} ms after the cut: {runs:?}");
    }
    beacons::judge("cut with a stuck log", &folder, |_| 0);
}

#[tokio::test]
async fn a_log_that_is_stuck_disturbs_nothing_and_what_it_lost_is_counted() {
    let mut cluster = Cluster::new("stuck").with_test_kinds();
    cluster.manager().await;
    let api = cluster.api.clone();
    let (unread, stderr) = unread_pipe();
    let watched = stderr.try_clone().unwrap();
    let url = cluster.broker_url.clone();
    cluster.spawn_service_into("a", 10, &url, stderr);
    cluster.until_active("a").await;
    let folder = cluster.folder("beacons");
    create_chatty(&api).await;
    until_full(&watched).await;
    let starts = cluster.scratch.path().join("starts");
    let script = format!("echo $$ >>{}; exec sleep 1000", starts.display());
    api.create(json!({"name": "child", "kind": "exec", "spec": {"argv": ["/bin/sh", "-c", script]}})).await;
    api.create(json!({"name": "code", "kind": "beacon", "spec": {"folder": folder}})).await;
    // The fence warns of the observer that blocks; the panics of the other one are logged too.
    api.create(json!({"name": "blocks", "kind": "blocks"})).await;
    let again = json!({"kind": "fixed", "every": "200ms", "attempts": null});
    api.create(json!({"name": "panics", "kind": "panics", "retry": again})).await;
    wait_for("the beacon to have run for three heartbeats", || async {
        let runs = beacons::read(&folder);
        let lasted = runs.get("code").map_or(0, |runs| runs[0].last - runs[0].first);
        if lasted > 3 * HEARTBEAT { Ok(()) } else { Err(format!("{runs:?}")) }
    })
    .await;
    let pids = std::fs::read_to_string(&starts).unwrap();
    assert_eq!(pids.lines().count(), 1, "the child was started again: {pids}");
    assert!(std::path::Path::new("/proc").join(pids.trim()).exists(), "the child is gone");
    let health = Api::new(format!("http://{}", cluster.health_address("a")));
    let lost = wait_for("lost lines to be counted", || async {
        let metrics = health.get("/metrics").await;
        let lines = metrics.as_str().unwrap().lines();
        let mut lost = lines.filter_map(|line| line.strip_prefix("everwatch_lost_log_lines_total "));
        let lost: u64 = lost.next().ok_or("no such metric")?.parse().unwrap();
        if lost > 0 { Ok(lost) } else { Err("0".to_owned()) }
    })
    .await;

    drop(watched);
    let heard = Arc::new(Mutex::new(Vec::new()));
    let text = listen(unread, heard.clone());
    wait_for("the log to say how much of it is lost", || async {
        let text = text();
        let told = text.lines().filter(|line| line.contains("log lines dropped"));
        let counts =
            told.filter_map(|line| line.split("lines=").nth(1)?.split(' ').next()?.parse::<u64>().ok());
        if counts.max() >= Some(lost) { Ok(()) } else { Err(text.chars().take(2000).collect()) }
    })
    .await;
}

fn listen(mut pipe: PipeReader, heard: Arc<Mutex<Vec<u8>>>) -> impl Fn() -> String {
    let hears = heard.clone();
    std::thread::spawn(move || {
        let mut chunk = [0; 4096];
        while let Ok(some @ 1..) = pipe.read(&mut chunk) {
            hears.lock().unwrap().extend_from_slice(&chunk[..some]);
        }
    });
    move || String::from_utf8_lossy(&heard.lock().unwrap()).into_owned()
}

#[tokio::test]
async fn a_service_whose_log_is_stuck_ends_by_a_signal() {
    let mut cluster = Cluster::new("stuck-end").with_test_kinds();
    cluster.manager().await;
    let (_unread, stderr) = unread_pipe();
    let watched = stderr.try_clone().unwrap();
    let url = cluster.broker_url.clone();
    cluster.spawn_service_into("a", 10, &url, stderr);
    cluster.until_active("a").await;
    create_chatty(&cluster.api).await;
    until_full(&watched).await;
    let begun = Instant::now();
    assert_eq!(cluster.terminate("a"), Some(0));
    assert!(begun.elapsed() < Duration::from_secs(8), "{:?}", begun.elapsed());
}

#[tokio::test]
async fn the_heartbeat_that_the_broker_wants_is_the_one_that_fences() {
    let scratch = tempfile::tempdir().unwrap();
    let node = Node::start(&scratch.path().join("node"), &["heartbeat=3"]);
    let mut cluster = Cluster::new("negotiated").on_node(&node).with_test_kinds();
    cluster.extra.push(("EVERWATCH_BROKER__HEARTBEAT".to_owned(), "12s".to_owned()));
    cluster.manager().await;
    let api = cluster.api.clone();
    let (proxy, behind) = Proxy::before(&cluster.broker_url).await;
    cluster.spawn_service_at("a", 10, &behind);
    cluster.until_active("a").await;
    let folder = cluster.folder("beacons");
    api.create(json!({"name": "code", "kind": "beacon", "spec": {"folder": folder}})).await;
    api.create(json!({"name": "child", "kind": "exec", "spec": beacons::exec_spec(&folder)})).await;
    for name in ["code", "child"] {
        api.until_status(name, "Processing").await;
    }
    cluster.service("b", 10).await;
    proxy.pass(false, false);
    let cut = now();
    until_both_moved(&folder).await;
    wait_for("the runs of the cut service to be over", || async {
        let runs = beacons::read(&folder);
        let over = runs.values().all(|runs| now() - runs[0].last > 2000);
        if over { Ok(()) } else { Err(format!("{runs:?}")) }
    })
    .await;
    for (name, runs) in beacons::read(&folder) {
        let went_on = runs[0].last - cut;
        assert!(went_on <= 3000 + FENCE_GRACE + SLACK, "{name} went on for {went_on} ms: {runs:?}");
    }
    beacons::judge("a heartbeat of 3 s by the broker", &folder, |_| 0);
}
