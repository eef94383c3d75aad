//! Observers that wait for a slot get it in their order, whoever dies meanwhile.

use everwatch_api::{Event, Observer, Pool};
use everwatch_core::record::events::EventKind;
use everwatch_core::record::status::Status;
use everwatch_tests::cluster::Cluster;
use everwatch_tests::http::Api;
use everwatch_tests::wait::{wait_for, wait_within};
use serde_json::json;
use std::time::{Duration, Instant};

const WAITING: usize = 50;
const PRIORITIES: [i8; 5] = [0, 90, -100, 7, 8];

async fn all(api: &Api) -> Vec<Observer> {
    api.list("/v1/observers?q=w-&limit=1000").await
}

/// Checks one read of all observers: no waiting observer comes before an admitted one. Returns how many wait.
fn is_in_order(all: &[Observer]) -> usize {
    let waiting: Vec<&Observer> = all.iter().filter(|it| it.waiting.is_some()).collect();
    let admitted = all.iter().filter(|it| it.waiting.is_none());
    let last_admitted = admitted.min_by_key(|it| it.priority);
    let first_waiting = waiting.iter().max_by_key(|it| it.priority);
    if let (Some(admitted), Some(waits)) = (last_admitted, first_waiting) {
        assert!(admitted.priority >= waits.priority, "{} before {}", admitted.name, waits.name);
    }
    waiting.len()
}

/// Fills two services of three slots; 50 of five priorities wait.
async fn full(cluster: &mut Cluster) {
    cluster.manager().await;
    cluster.service("a", 3).await;
    cluster.service("b", 3).await;
    for number in 0..6 {
        cluster.api.create(json!({"name": format!("f-{number}"), "kind": "ticker"})).await;
    }
    for number in 0..WAITING {
        let priority = PRIORITIES[number % PRIORITIES.len()];
        let body = json!({"name": format!("w-{number}"), "kind": "ticker", "on_full": "queue", "priority": priority});
        cluster.api.create(body).await;
    }
    assert_eq!(is_in_order(&all(&cluster.api).await), WAITING);
    let pool: Pool = cluster.api.read("/v1/pools/default").await;
    assert_eq!((pool.waiting, pool.needed, pool.capacity), (50, 56, 6));
}

/// Deletes one running observer after the other until nothing waits. Every read of all observers shows them in order.
async fn slots_become_free(cluster: &mut Cluster, mut after: impl FnMut(&mut Cluster, usize)) {
    let (begun, mut deleted) = (Instant::now(), 0);
    loop {
        let waiting = is_in_order(&all(&cluster.api).await);
        if waiting == 0 {
            break;
        }
        assert!(begun.elapsed() < Duration::from_secs(120), "{waiting} still wait");
        let running = cluster.api.processing().await;
        if let Some(it) = running.iter().max_by_key(|it| it.priority) {
            // One whose service was killed ends later.
            let path = format!("/v1/observers/{}?wait=100ms", it.id);
            let (status, body) = cluster.api.call("DELETE", &path, None).await;
            assert!(matches!(status, 200 | 202), "{body}");
            deleted += 1;
            after(cluster, deleted);
        }
    }
    // Several slots may have become free before the last one was admitted.
    let running = async || {
        let all: Vec<Observer> = cluster.api.list("/v1/observers?limit=1000").await;
        let run = all.iter().filter(|it| it.status == Status::Processing).count();
        if run == all.len() { Ok(all) } else { Err(format!("{run} of {} run", all.len())) }
    };
    let last = wait_within(Duration::from_secs(40), "all that are left to run", running).await;
    assert!(last.len() <= 6 && last.iter().all(|it| it.priority == -100), "the last in line: {last:?}");
}

#[tokio::test]
async fn slots_that_become_free_go_to_the_highest_priority() {
    let mut cluster = Cluster::new("backlog");
    full(&mut cluster).await;
    let second = cluster.api.observer("w-6").await;
    let waits = second.waiting.expect("it waits");
    assert_eq!((waits.place, waits.of), (Some(2), Some(50)), "the second of priority 90: {}", second.reason);
    // The obstacle is that of the newest heartbeats.
    let reason = "waiting for a slot in pool default: all 6 are in use; number 2 of 50 in line";
    cluster.api.until_observer("w-6", |it| it.reason == reason).await;
    // One without a message ends at once.
    let gone: Observer = cluster.api.done("DELETE", "/v1/observers/w-11", None, 200).await;
    assert_eq!(gone.status, Status::Deleted);
    slots_become_free(&mut cluster, |_, _| {}).await;
    let tell = |events: &[Event], kind| events.iter().any(|it| it.kind == kind);
    let both = |events: &[Event]| tell(events, EventKind::Waiting) && tell(events, EventKind::Admitted);
    cluster.api.until_events_of("w-6", both).await;
}

#[tokio::test]
async fn the_order_is_kept_while_services_and_managers_are_killed() {
    let mut cluster = Cluster::new("backlog-kills").with_postgres();
    full(&mut cluster).await;
    let second = cluster.another_manager("second").await;
    slots_become_free(&mut cluster, |cluster, deleted| match deleted {
        8 => cluster.kill("a"),
        10 => cluster.spawn_service("a", 3),
        // The requests go to the other manager from now on.
        20 => {
            cluster.kill("manager");
            cluster.api = second.clone();
        }
        30 => cluster.kill("b"),
        32 => cluster.spawn_service("b", 3),
        _ => {}
    })
    .await;
}

#[tokio::test]
async fn what_waits_runs_when_a_service_comes_and_a_resumed_observer_waits_for_its_turn() {
    let mut cluster = Cluster::new("backlog-turns");
    cluster.manager().await;
    for (name, priority) in [("low", 0), ("high", 5)] {
        let body = json!({"name": name, "kind": "ticker", "on_full": "queue", "priority": priority});
        assert_eq!(cluster.api.create(body).await.status, Status::Created);
    }
    cluster.service("a", 1).await;
    cluster.api.until_status("high", "Processing").await;
    assert!(cluster.api.observer("low").await.waiting.is_some());
    let (status, _) = cluster.api.call("POST", "/v1/observers/high/pause", None).await;
    assert_eq!(status, 202);
    cluster.api.until_status("low", "Processing").await;
    let (status, _) = cluster.api.call("POST", "/v1/observers/high/resume", None).await;
    assert_eq!(status, 202);
    let waits = cluster.api.until_observer("high", |it| it.waiting.is_some()).await;
    assert_eq!(waits.status, Status::Created);
    cluster.service("b", 1).await;
    cluster.api.until_status("high", "Processing").await;
    // Each observer has one slot: no further message is in the queue.
    wait_for("no message to wait", || async {
        let pool: Pool = cluster.api.read("/v1/pools/default").await;
        if (pool.waiting, pool.pending) == (0, 0) { Ok(()) } else { Err(format!("{pool:?}")) }
    })
    .await;
}
