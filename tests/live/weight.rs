//! Weights: the observers of a service never weigh more than its capacity, and heavy and light ones get their turn.

use everwatch_api::{Event, Listed, Observer};
use everwatch_core::record::status::Status;
use everwatch_tests::beacons;
use everwatch_tests::cluster::{As, Cluster};
use everwatch_tests::wait::wait_within;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

const CAPACITY: u32 = 12;
const OBSERVERS: u64 = 30;

/// Starts a service that takes weights up to 4. Its observers know its process by `mark`.
fn spawn(cluster: &mut Cluster, name: &str, mark: &str) {
    let environment = [
        ("EVERWATCH_SERVICE__WEIGHT_MAX", "4"),
        ("EVERWATCH_SERVICE__EXEC__ENV_PASS", "PROCESS"),
        ("PROCESS", mark),
    ];
    let url = cluster.broker_url.clone();
    let how = As { broker_url: &url, environment: &environment, ..As::default() };
    cluster.spawn_service_as(name, CAPACITY, how);
}

async fn service(cluster: &mut Cluster, name: &str) {
    spawn(cluster, name, name);
    cluster.until_active(name).await;
}

/// An observer that writes a beacon every 20 ms into the file `NAME.PROCESS`.
fn beacon(name: &str, weight: u16, folder: &Path) -> Value {
    let script = r#"while :; do echo "$EVERWATCH_EPOCH $(date +%s%3N)" >>"$0/$EVERWATCH_OBSERVER_NAME.$PROCESS"; sleep 0.02; done"#;
    let argv = json!(["/bin/sh", "-c", script, folder.display().to_string()]);
    json!({"name": name, "kind": "exec", "spec": {"argv": argv}, "weight": weight, "on_full": "queue"})
}

fn ticker(name: &str, weight: u16) -> Value {
    json!({"name": name, "kind": "ticker", "weight": weight, "on_full": "queue"})
}

/// The greatest weight that ran at once in each process. The name of an observer ends with its weight.
fn most_at_once(folder: &Path) -> BTreeMap<String, i64> {
    let mut changes: BTreeMap<String, Vec<(i64, i64)>> = BTreeMap::new();
    for (file, runs) in beacons::read(folder) {
        let (name, process) = file.rsplit_once('.').unwrap();
        let weight: i64 = name.rsplit_once('w').unwrap().1.parse().unwrap();
        for (from, until) in runs.iter().flat_map(|run| &run.awake).filter(|(from, until)| from < until) {
            // An end comes before a beginning at the same millisecond.
            changes.entry(process.to_owned()).or_default().extend([(*from, weight), (*until, -weight)]);
        }
    }
    let most = |mut changes: Vec<(i64, i64)>| {
        changes.sort_unstable();
        let mut sum = 0;
        changes
            .into_iter()
            .map(|(_, by)| {
                sum += by;
                sum
            })
            .max()
            .unwrap_or(0)
    };
    changes.into_iter().map(|(process, changes)| (process, most(changes))).collect()
}

/// Whether it waits in the backlog. Lists do not give places.
fn waits(observer: &Observer) -> bool {
    observer.status == Status::Created && observer.reason.starts_with("waiting for")
}

#[tokio::test]
async fn no_service_runs_more_than_its_capacity_while_services_and_managers_are_killed() {
    let mut cluster = Cluster::new("weight").with_postgres();
    cluster.manager().await;
    let second = cluster.another_manager("second").await;
    for name in ["a", "b", "c"] {
        service(&mut cluster, name).await;
    }
    let (api, folder) = (cluster.api.clone(), cluster.folder("runs"));
    let begun = Instant::now();
    let mut kills: Vec<(u64, &str)> =
        vec![(5, "a"), (10, "second"), (15, "b"), (20, "manager"), (25, "c"), (30, "second"), (35, "a")];
    kills.reverse();
    let (mut dice, mut created) = (7_u64, 0_u64);
    while begun.elapsed() < Duration::from_secs(50) {
        if kills.last().is_some_and(|(secs, _)| begun.elapsed() >= Duration::from_secs(*secs)) {
            let (secs, victim) = kills.pop().unwrap();
            cluster.kill(victim);
            match victim {
                "second" => drop(cluster.another_manager("second").await),
                "manager" => cluster.manager().await,
                service => spawn(&mut cluster, service, &format!("{service}-{secs}")),
            }
        }
        let api = if created.is_multiple_of(2) { &api } else { &second };
        let Ok(live) = api.try_read::<Listed<Observer>>("/v1/observers?limit=100").await else { continue };
        dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        if (live.items.len() as u64) < OBSERVERS {
            let weight = u16::try_from(1 + (dice >> 33) % 4).unwrap();
            let body = beacon(&format!("o{created}w{weight}"), weight, &folder);
            let _manager_may_be_dead = api.try_call("POST", "/v1/observers", Some(body)).await;
            created += 1;
        } else {
            let index = usize::try_from(dice >> 33).unwrap() % live.items.len();
            let path = format!("/v1/observers/{}?wait=5s", live.items[index].id);
            let _manager_may_be_dead = api.try_call("DELETE", &path, None).await;
        }
    }
    let all_run = async || {
        let all = api.observers().await;
        let admitted: Vec<&Observer> = all.iter().filter(|it| !waits(it)).collect();
        let weight = |all: &[&Observer]| all.iter().map(|it| u32::from(it.weight)).sum::<u32>();
        let is_full = !all.iter().any(waits) || weight(&admitted) >= 3 * CAPACITY - 12;
        if is_full && admitted.iter().all(|it| it.status == Status::Processing) {
            Ok(())
        } else {
            let shown = |it: &&Observer| format!("{} {} {}", it.name, it.status, it.reason);
            Err(format!("{:?}", admitted.iter().map(shown).collect::<Vec<_>>()))
        }
    };
    wait_within(Duration::from_secs(120), "every admitted observer to run", all_run).await;
    let most = most_at_once(&folder);
    assert!(most.len() >= 6 && most.values().all(|most| *most <= i64::from(CAPACITY)), "{most:?}");
    assert!(most.values().any(|most| *most > 8), "{most:?}");
    assert!(created > 40, "{created}");
    let refused: Vec<Event> = api.list("/v1/events?type=refused").await;
    assert_eq!(refused, [], "no service gave an observer back");
}

#[tokio::test]
async fn a_heavy_observer_gets_room_while_short_light_ones_come_and_go() {
    let mut cluster = Cluster::new("weight-turn").with_postgres();
    cluster.manager().await;
    service(&mut cluster, "a").await;
    let api = cluster.api.clone();
    let job = |number: usize| {
        let argv = json!(["/bin/sh", "-c", "sleep 1"]);
        json!({"name": format!("j{number}"), "kind": "exec", "spec": {"argv": argv}, "on_full": "queue"})
    };
    for number in 0..30 {
        api.create(job(number)).await;
    }
    api.until_observer("j8", |it| it.status != Status::Created).await;
    api.create(ticker("heavy", 4)).await;
    let (begun, mut next) = (Instant::now(), 30);
    loop {
        let heavy = api.observer("heavy").await;
        if heavy.status == Status::Processing {
            break;
        }
        assert!(begun.elapsed() < Duration::from_secs(120), "{heavy:?}");
        // More of them always wait than there are slots.
        let waiting = api.observers().await.iter().filter(|it| waits(it)).count();
        if waiting < 20 {
            api.create(job(next)).await;
            next += 1;
        }
    }
}

#[tokio::test]
async fn light_observers_pass_a_heavy_one_that_has_no_room() {
    let mut cluster = Cluster::new("weight-pass").with_postgres();
    cluster.manager().await;
    service(&mut cluster, "a").await;
    let api = cluster.api.clone();
    let refused = api.refused("POST", "/v1/observers", Some(ticker("x", 5))).await;
    assert_eq!(refused.status, 422, "{refused:?}");
    let error = &refused.errors[0];
    assert_eq!(error.pointer, "/weight");
    assert!(error.detail.contains("take at most 4; raise `[service] weight_max`"), "{}", error.detail);
    for number in 0..7 {
        api.create(ticker(&format!("t{number}"), 1)).await;
        api.until_status(&format!("t{number}"), "Processing").await;
    }
    api.create(ticker("heavy", 4)).await;
    api.create(ticker("light", 2)).await;
    let heavy = api.until_observer("heavy", |it| it.waiting.is_some()).await;
    assert!(heavy.reason.starts_with("waiting for 4 free slots in pool default"), "{}", heavy.reason);
    let light = async || {
        let light = api.observer("light").await;
        if light.status == Status::Processing { Ok(()) } else { Err(light.reason) }
    };
    wait_within(Duration::from_secs(75), "the light one to pass", light).await;
    assert_eq!(api.service("a").await.weight_max, 4);
    for number in 0..4 {
        api.done::<Observer>("DELETE", &format!("/v1/observers/t{number}?wait=20s"), None, 200).await;
    }
    api.until_status("heavy", "Processing").await;
    api.until_service("a", |it| it.held == 9).await;
}
