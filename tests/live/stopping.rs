//! Each role stops on a signal: gracefully on the first, at once on the second.

use everwatch_api::Observer;
use everwatch_core::record::status::Status;
use everwatch_tests::cluster::{Cluster, everwatch, free_address};
use everwatch_tests::dev::Dev;
use everwatch_tests::http::holder;
use everwatch_tests::wait::wait_for;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;
use std::process::Command;
use std::time::{Duration, Instant};

#[tokio::test]
async fn a_manager_ends_in_order() {
    let mut cluster = Cluster::new("manager-stops");
    cluster.manager().await;
    let begun = Instant::now();
    assert_eq!(cluster.terminate("manager"), Some(0), "{}", cluster.log("manager"));
    // After a graceful stop, the database file alone is a complete backup, without its log.
    let log = cluster.scratch.path().join("everwatch.db-wal");
    assert_eq!(log.metadata().map_or(0, |it| it.len()), 0, "{}", log.display());
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
}

#[tokio::test]
async fn a_second_signal_ends_a_service_whose_observers_take_their_time() {
    let mut cluster = Cluster::new("twice");
    cluster.manager().await;
    cluster.service("a", 5).await;
    let ready = cluster.scratch.path().join("ready");
    let script = format!("trap '' TERM; touch {}; while :; do sleep 1; done", ready.display());
    let spec = json!({"argv": ["/bin/sh", "-c", script]});
    cluster.api.create(json!({"name": "deaf", "kind": "exec", "spec": spec, "grace": "10m"})).await;
    wait_for("the deaf one to run", || async {
        ready.exists().then_some(()).ok_or_else(|| cluster.log("a"))
    })
    .await;
    cluster.signal("a", Signal::SIGTERM);
    wait_for("the service to hand over", || async {
        let log = cluster.full_log("a");
        if log.contains("handing over all observers") { Ok(()) } else { Err(log) }
    })
    .await;
    let begun = Instant::now();
    assert_eq!(cluster.terminate("a"), Some(0), "{}", cluster.log("a"));
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
}

#[tokio::test]
async fn dev_shows_a_failover_and_ends_by_ctrl_c() {
    let mut dev = Dev::start(2, 10).await;
    let api = &dev.api;
    api.create(json!({"name": "hello", "kind": "ticker"})).await;
    let before = api.until_status("hello", "Processing").await;
    let owner = holder(&before).unwrap();
    let (code, _, said) = dev.run(&format!("chaos kill {owner}"));
    assert_eq!(code, Some(0), "{said}");
    let runs_on_another =
        |it: &Observer| it.status == Status::Processing && holder(it).is_some_and(|service| service != owner);
    api.until_observer("hello", runs_on_another).await;
    kill(Pid::from_raw(i32::try_from(dev.process.id()).unwrap()), Signal::SIGINT).unwrap();
    assert_eq!(dev.process.wait().unwrap().code(), Some(0));
}

#[tokio::test]
async fn a_killed_dev_leaves_nothing_to_the_next_one_with_its_process_id() {
    let scratch = tempfile::tempdir().unwrap();
    let first_process_of_a_namespace = || {
        let mut command = Command::new("unshare");
        command.args(["--pid", "--fork", "--kill-child"]).arg(everwatch()).env("TMPDIR", scratch.path());
        command
    };
    let dev = Dev::start_by(first_process_of_a_namespace(), &free_address(), (1, 10)).await;
    dev.api.create(json!({"name": "hello", "kind": "ticker"})).await;
    drop(dev);
    let left = || std::fs::read_dir(scratch.path()).unwrap().count();
    assert_eq!(left(), 1, "a killed process deletes nothing");
    let dev = Dev::start_by(first_process_of_a_namespace(), &free_address(), (1, 10)).await;
    assert_eq!(dev.api.observers().await, []);
    assert_eq!(left(), 2);
}
