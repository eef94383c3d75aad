//! Preemption: an observer of a higher priority gets the slot of one with a lower priority, whoever dies meanwhile.

use everwatch_api::{Event, Observer};
use everwatch_core::record::service::ServiceState;
use everwatch_core::record::status::Status;
use everwatch_tests::beacons;
use everwatch_tests::cluster::Cluster;
use everwatch_tests::http::holder;
use everwatch_tests::wait::wait_within;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::time::Duration;

const SLOTS: u32 = 5;

fn beacon(name: &str, priority: i8, folder: &Path) -> Value {
    let spec = beacons::exec_spec(folder);
    json!({"name": name, "kind": "exec", "spec": spec, "priority": priority, "on_full": "queue"})
}

/// Services `a` and `b`, whose slots are full with the observers `o0` to `o9`.
async fn full_cluster(name: &str) -> (Cluster, PathBuf) {
    let mut cluster = Cluster::new(name).with_postgres();
    cluster.extra.push(("EVERWATCH_MANAGER__PREEMPT_AFTER".to_owned(), "1s".to_owned()));
    cluster.manager().await;
    for name in ["a", "b"] {
        cluster.spawn_service(name, SLOTS);
        cluster.until_active(name).await;
    }
    let folder = cluster.folder("runs");
    for number in 0..2 * SLOTS {
        let name = format!("o{number}");
        cluster.api.create(beacon(&name, 0, &folder)).await;
        cluster.api.until_status(&name, "Processing").await;
    }
    (cluster, folder)
}

async fn preempted(cluster: &Cluster) -> Vec<Event> {
    cluster.api.list("/v1/events?type=preempted&limit=100").await
}

fn is_preempted(observer: &Observer) -> bool {
    observer.status == Status::Created && observer.reason.contains("preempted by urgent")
}

/// The names of those that wait because another one has their slot.
async fn waiting(cluster: &Cluster) -> Vec<String> {
    let mut all = cluster.api.observers().await;
    all.retain(is_preempted);
    let mut names: Vec<_> = all.into_iter().map(|it| it.name.to_string()).collect();
    names.sort_unstable();
    names
}

#[tokio::test]
async fn the_latest_runs_of_the_lowest_priority_give_their_slots_to_urgent_ones() {
    let (mut cluster, folder) = full_cluster("preempt").await;
    let api = cluster.api.clone();
    let _second = cluster.another_manager("second").await;
    for number in 0..3 {
        api.create(beacon(&format!("urgent-{number}"), 10, &folder)).await;
    }
    // One of the two managers decides; neither counts what the other has decided twice.
    for number in 0..3 {
        api.until_status(&format!("urgent-{number}"), "Processing").await;
    }
    assert_eq!(waiting(&cluster).await, ["o7", "o8", "o9"]);
    let events = preempted(&cluster).await;
    assert_eq!(events.len(), 3, "{events:?}");
    let text = format!("{events:?}");
    assert!(text.contains("preempted by urgent-0, whose priority is 10; its own is 0"), "{text}");

    // An equal priority takes nothing, and a manager alone goes on.
    api.create(beacon("ordinary", 0, &folder)).await;
    cluster.kill("second");
    api.create(beacon("urgent-3", 10, &folder)).await;
    api.until_status("urgent-3", "Processing").await;
    assert_eq!(waiting(&cluster).await, ["o6", "o7", "o8", "o9"]);
    assert_eq!(api.observer("ordinary").await.status, Status::Created);
    assert_eq!(preempted(&cluster).await.len(), 4);

    // They return as soon as slots are free.
    for name in ["ordinary", "urgent-0", "urgent-1", "urgent-2", "urgent-3"] {
        let path = format!("/v1/observers/{name}?wait=20s");
        api.done::<Observer>("DELETE", &path, None, 200).await;
    }
    for number in 6..10 {
        api.until_status(&format!("o{number}"), "Processing").await;
    }
    let runs = beacons::read(&folder);
    let awake = runs.iter().flat_map(|(name, runs)| {
        runs.iter().flat_map(move |run| run.awake.iter().map(move |interval| (name, interval)))
    });
    let changes = awake
        .filter(|(_, (from, until))| from < until)
        .flat_map(|(name, (from, until))| [(*from, true, name.as_str()), (*until, false, name.as_str())]);
    let (most, begun) = beacons::most_at_once(changes.collect());
    assert!(most <= 2 * SLOTS as usize && begun >= 14, "{most} at once, {begun} runs");
}

#[tokio::test]
async fn after_the_death_of_a_service_its_ready_observers_are_recalled_before_a_run_ends() {
    let (mut cluster, folder) = full_cluster("preempt-recall").await;
    let api = cluster.api.clone();
    let on_b = async || {
        let mut all = api.observers().await;
        all.retain(|it| holder(it) == Some("b"));
        all.into_iter().map(|it| it.name.to_string()).collect::<Vec<_>>()
    };
    let held = on_b().await;
    assert_eq!(held.len(), SLOTS as usize);
    // A kill before the first sign of an observer would leave it without a run.
    wait_within(Duration::from_secs(20), "all on b to have begun", async || {
        let runs = beacons::read(&folder);
        let has_begun = |name: &String| runs.get(name).is_some_and(|runs| runs.len() == 1);
        if held.iter().all(has_begun) { Ok(()) } else { Err(format!("{runs:?}")) }
    })
    .await;
    cluster.kill("b");
    let forgotten = async || {
        let services = api.services().await;
        let living = services.iter().filter(|it| it.state == ServiceState::Active).count();
        let suspect = services.iter().any(|it| it.state == ServiceState::Suspect);
        if living == 1 && !suspect { Ok(()) } else { Err(format!("{services:?}")) }
    };
    wait_within(Duration::from_secs(60), "service b to be gone", forgotten).await;
    api.create(beacon("urgent", 10, &folder)).await;
    api.until_status("urgent", "Processing").await;

    let waits = waiting(&cluster).await;
    assert_eq!(waits.len(), 1 + SLOTS as usize, "{waits:?}");
    assert!(held.iter().all(|name| waits.contains(name)), "{held:?} {waits:?}");
    // None of them was started for a moment in a slot that another one had freed.
    let runs = beacons::read(&folder);
    assert!(held.iter().all(|name| runs.get(name).is_none_or(|runs| runs.len() == 1)), "{runs:?}");

    cluster.spawn_service("b", SLOTS);
    let full = async || {
        let all = api.observers().await;
        let running = all.iter().filter(|it| it.status == Status::Processing).count();
        if running == 2 * SLOTS as usize { Ok(()) } else { Err(format!("{running} run")) }
    };
    wait_within(Duration::from_secs(60), "all slots to be used again", full).await;
}
