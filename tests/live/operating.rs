//! Operations on running services: none loses or duplicates a run.

use everwatch_api::{Event, Observer, Rebalance, Service};
use everwatch_core::clock::Timestamp;
use everwatch_core::record::events::EventKind;
use everwatch_core::record::service::ServiceState;
use everwatch_core::record::status::Status;
use everwatch_tests::beacons;
use everwatch_tests::cluster::Cluster;
use everwatch_tests::http::holder;
use everwatch_tests::wait::{throughout, wait_for, wait_within};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

/// How long to wait for an automatic rebalance, which happens once a minute.
const TURN: Duration = Duration::from_secs(100);

async fn observers(cluster: &Cluster, count: usize) -> PathBuf {
    let folder = cluster.folder("beacons");
    for number in 0..count {
        let body = json!({"name": format!("o{number}"), "kind": "beacon", "spec": {"folder": folder}});
        cluster.api.create(body).await;
    }
    until_all_run(cluster, count).await;
    folder
}

async fn until_all_run(cluster: &Cluster, count: usize) {
    wait_for("all to run", || async {
        let running = cluster.api.processing().await;
        let held = running.iter().filter(|it| it.service.is_some()).count();
        if held == count { Ok(()) } else { Err(format!("{held} of {count} run")) }
    })
    .await;
}

async fn held(cluster: &Cluster) -> BTreeMap<String, u64> {
    let living: Vec<Service> = cluster.api.list("/v1/services?state=active,cordoned,draining").await;
    living.into_iter().map(|it| (it.name, u64::from(it.held))).collect()
}

async fn until_held(cluster: &Cluster, definition: impl Fn(&BTreeMap<String, u64>) -> bool) {
    wait_for("the services to hold what they should", || async {
        let held = held(cluster).await;
        if definition(&held) { Ok(()) } else { Err(format!("{held:?}")) }
    })
    .await;
}

async fn post<T: DeserializeOwned>(cluster: &Cluster, path: &str, status: u16) -> T {
    cluster.api.done("POST", path, None, status).await
}

/// Managers plan by the heartbeats, which are up to a second older than what runs report.
async fn rebalance(cluster: &Cluster) -> Rebalance {
    wait_for("a plan with moves", || async {
        match cluster.api.call("POST", "/v1/rebalance:apply", None).await {
            (200, plan) => Err(plan.to_string()),
            (status, plan) => {
                assert_eq!(status, 202, "{plan}");
                Ok(serde_json::from_value(plan).unwrap())
            }
        }
    })
    .await
}

async fn drain(cluster: &Cluster, name: &str) -> Service {
    post(cluster, &format!("/v1/services/{name}/drain"), 202).await
}

/// Runs of each observer so far.
fn runs(folder: &std::path::Path) -> Vec<usize> {
    beacons::read(folder).values().map(Vec::len).collect()
}

/// The longest gap of a move while slots are free, in ms.
const GAP_MAX: i64 = 1000;

/// The limits that a rebalance sets for services hold for ten seconds. A drain in that time must not wait
/// until they expire.
#[tokio::test]
async fn a_drain_soon_after_a_rebalance_leaves_no_observer_standing() {
    for pause in [0, 1, 3, 5].map(Duration::from_secs) {
        let mut cluster = Cluster::new("drain-after-rebalance").with_test_kinds();
        cluster.manager().await;
        for name in ["a", "b"] {
            cluster.service(name, 12).await;
        }
        let folder = observers(&cluster, 12).await;
        cluster.service("c", 12).await;
        until_held(&cluster, |held| held.get("c") == Some(&0) && held["a"] + held["b"] == 12).await;
        rebalance(&cluster).await;
        tokio::time::sleep(pause).await;
        drain(&cluster, "b").await;
        until_held(&cluster, |held| held["b"] == 0 && held["a"] + held["c"] == 12).await;
        until_all_run(&cluster, 12).await;
        let longest = beacons::judge(&format!("drain {pause:?} after a rebalance"), &folder, |_| 0);
        assert!(longest <= GAP_MAX, "{pause:?}: {longest} ms");
    }
}

/// A service that has restarted reports free slots while its former observers still wait for them.
#[tokio::test]
async fn a_drain_leaves_the_slots_of_a_restarted_service_to_its_observers() {
    let mut cluster = Cluster::new("drain-and-restart").with_test_kinds();
    cluster.manager().await;
    cluster.service("a", 10).await;
    let folder = observers(&cluster, 10).await;
    cluster.service("b", 6).await;
    drain(&cluster, "a").await;
    until_held(&cluster, |held| held["b"] == 6 && held["a"] == 4).await;
    for restarts in 1..=3 {
        cluster.kill("b");
        // The second and the third process start when managers know of the loss, as those of a supervisor that waits.
        if restarts > 1 {
            let is_gone = |all: &Value| all["total"] == 1;
            let living = "/v1/services?state=active,cordoned,draining,suspect";
            let _lost: Value = cluster.api.until_read(living, is_gone).await;
        }
        cluster.spawn_service("b", 6);
        until_held(&cluster, |held| held.get("b") == Some(&6)).await;
        // A pass of a manager may be under way, and heartbeats come once a second.
        throughout(Duration::from_secs(3), || async {
            let held = held(&cluster).await;
            if held["a"] == 4 { Ok(()) } else { Err(format!("after {restarts} restarts: {held:?}")) }
        })
        .await;
    }
    let stayed = runs(&folder).into_iter().filter(|runs| *runs == 1).count();
    assert_eq!(stayed, 4, "{:?}", runs(&folder));
    beacons::judge("drain and restart", &folder, |_| 0);
}

#[tokio::test]
async fn a_drain_moves_everything_once_and_nothing_comes_back() {
    let mut cluster = Cluster::new("drain").with_test_kinds();
    cluster.manager().await;
    cluster.service("a", 20).await;
    let folder = observers(&cluster, 20).await;
    let asked = drain(&cluster, "a").await;
    assert!(asked.cordoned && asked.drain.as_ref().is_some_and(|drain| drain.of == 20), "{asked:?}");
    let full = "no other service of pool default has a free slot";
    let is_held_up = |it: &Service| {
        let drain = it.drain.as_ref().filter(|drain| drain.moved == 0);
        drain.and_then(|drain| drain.waits.as_ref()).is_some_and(|waits| waits.contains(full))
    };
    cluster.api.until_service("a", is_held_up).await;
    cluster.service("b", 15).await;
    until_held(&cluster, |held| held["b"] == 15 && held["a"] == 5).await;
    cluster.service("c", 20).await;
    until_held(&cluster, |held| held["a"] == 0).await;
    until_all_run(&cluster, 20).await;
    cluster.api.until_service("a", |it| it.drain.is_none() && it.state == ServiceState::Cordoned).await;
    assert!(runs(&folder).iter().all(|runs| *runs == 2), "{:?}", runs(&folder));
    beacons::judge("drain", &folder, |_| 0);
    let moves = |events: &[Event]| events.iter().filter_map(|it| it.overlap_ms).count();
    let path = "/v1/events?type=started&limit=500";
    let started = cluster.api.until_events(path, |events| moves(events) >= 20).await;
    let overlaps: Vec<u64> = started.iter().filter_map(|it| it.overlap_ms).collect();
    assert!(overlaps.iter().all(|it| *it == 0), "{overlaps:?}");
    // A cordon applies to the service name: the next incarnation takes nothing either, even if others are
    // full.
    assert_eq!(cluster.terminate("a"), Some(0));
    cluster.spawn_service("a", 20);
    cluster.api.until_service("a", |it| it.state == ServiceState::Cordoned).await;
    post::<Service>(&cluster, "/v1/services/a/uncordon", 202).await;
    cluster.until_active("a").await;
    let caused = |events: &[Event]| {
        events.iter().filter(|it| it.kind == EventKind::HandedOver && it.text == "drain").count()
    };
    let events = cluster.api.until_events("/v1/events?limit=1000", |events| caused(events) >= 20).await;
    assert_eq!(caused(&events), 20, "every move has its cause");
    for what in [EventKind::ServiceDraining, EventKind::ServiceDrained, EventKind::ServiceUncordoned] {
        // Managers record events with a short delay, in batches.
        wait_for(&format!("{what:?} to be told"), || async {
            let events: Vec<Event> = cluster.api.list("/v1/events?limit=1000").await;
            if events.iter().any(|event| event.kind == what) { Ok(()) } else { Err(format!("{events:?}")) }
        })
        .await;
    }
}

#[tokio::test]
async fn a_capacity_is_changed_both_ways_while_everything_runs() {
    let mut cluster = Cluster::new("resize").with_test_kinds();
    cluster.manager().await;
    cluster.service("a", 12).await;
    let folder = observers(&cluster, 12).await;
    cluster.service("b", 12).await;
    let patch =
        |capacity: Value| cluster.api.call("PATCH", "/v1/services/a", Some(json!({"capacity": capacity})));
    assert_eq!(patch(json!(5)).await.0, 202);
    until_held(&cluster, |held| held["a"] == 5 && held["b"] == 7).await;
    until_all_run(&cluster, 12).await;
    assert_eq!(patch(json!(5)).await.0, 200, "it is so already");
    assert_eq!(patch(Value::Null).await.0, 202);
    assert_eq!(patch(json!(0)).await.0, 422);
    // Service b stops: all twelve observers fit on a again.
    assert_eq!(cluster.terminate("b"), Some(0));
    until_held(&cluster, |held| held["a"] == 12).await;
    until_all_run(&cluster, 12).await;
    beacons::judge("resize", &folder, |_| 0);
}

/// 31 observers on two services, and a third service that started later and holds none.
async fn a_third_that_holds_nothing(cluster: &mut Cluster) -> PathBuf {
    cluster.manager().await;
    for name in ["a", "b"] {
        cluster.service(name, 30).await;
        cluster.until_ready(name).await;
    }
    let folder = observers(cluster, 31).await;
    cluster.service("c", 30).await;
    until_held(cluster, |held| held.values().sum::<u64>() == 31 && held["c"] == 0).await;
    // Plans are based on heartbeats, which are up to a second older than what runs report.
    for name in ["a", "b"] {
        let heard_at = cluster.api.service(name).await.last_heartbeat_at;
        cluster.api.until_service(name, |it| it.last_heartbeat_at > heard_at).await;
    }
    folder
}

fn seconds(from: Timestamp, to: Timestamp) -> f64 {
    to.since(from).as_secs_f64()
}

fn even(held: &BTreeMap<String, u64>) -> bool {
    held.values().sum::<u64>() == 31 && held.values().all(|held| (10..=11).contains(held))
}

#[tokio::test]
async fn rebalancing_by_itself_waits_for_the_youngest_and_keeps_to_its_rate() {
    let mut cluster = Cluster::new("auto-rebalance").with_test_kinds();
    for (key, value) in [("", "auto"), ("_MOVES", "8"), ("_MIN_AGE", "8s")] {
        cluster.extra.push((format!("EVERWATCH_MANAGER__REBALANCE{key}"), value.to_owned()));
    }
    let folder = a_third_that_holds_nothing(&mut cluster).await;
    let told = "/v1/events?type=rebalanced";
    wait_within(TURN, "the first eight to move", || async {
        let held = held(&cluster).await;
        if held["c"] == 8 { Ok(()) } else { Err(format!("{held:?}")) }
    })
    .await;
    let registered = cluster.api.service("c").await.created_at;
    let first: Vec<Event> = cluster.api.list(told).await;
    assert!(first.len() == 1 && first[0].text.contains("by itself"), "{first:?}");
    assert!(seconds(registered, first[0].at) >= 8.0, "too soon: registered {registered}, {first:?}");
    wait_within(TURN, "the services to be even", || async {
        let held = held(&cluster).await;
        if even(&held) { Ok(()) } else { Err(format!("{held:?}")) }
    })
    .await;
    until_all_run(&cluster, 31).await;
    let turns: Vec<Event> = cluster.api.list(told).await;
    let apart = |pair: &[Event]| seconds(pair[1].at, pair[0].at);
    assert!(turns.len() == 2 && turns.windows(2).all(|pair| apart(pair) >= 59.0), "{turns:?}");
    let moved = runs(&folder).iter().map(|runs| runs - 1).sum::<usize>();
    let told = |turn: &Event| {
        let words = turn.text.split(", ").find_map(|it| it.strip_suffix(" observers"));
        words.unwrap().parse::<usize>().unwrap()
    };
    assert_eq!(moved, turns.iter().map(told).sum::<usize>(), "moves beside those that were told: {turns:?}");
    beacons::judge("rebalance by itself", &folder, |_| 0);
}

#[tokio::test]
async fn a_third_service_gets_its_share_by_a_rebalance() {
    let mut cluster = Cluster::new("rebalance").with_test_kinds();
    let folder = a_third_that_holds_nothing(&mut cluster).await;
    let plan: Rebalance = post(&cluster, "/v1/rebalance:plan", 200).await;
    let moves = plan.pools[0].moves;
    assert!(moves >= 10 && plan.pools[0].skew_after == 1, "{plan:?}");
    assert_eq!(held(&cluster).await["c"], 0, "a plan does nothing");
    rebalance(&cluster).await;
    until_held(&cluster, even).await;
    until_all_run(&cluster, 31).await;
    let moved = runs(&folder).iter().map(|runs| runs - 1).sum::<usize>();
    assert_eq!(moved, moves as usize, "no observer moved that had not to");
    beacons::judge("rebalance", &folder, |_| 0);
    wait_for("the next plan to find nothing to do", || async {
        let (status, plan) = cluster.api.call("POST", "/v1/rebalance:apply", Some(json!({}))).await;
        if status == 200 && plan == json!({"pools": []}) { Ok(()) } else { Err(format!("{status} {plan}")) }
    })
    .await;
}

/// While the limits of a rebalance hold, no observer is admitted: they end with its moves.
#[tokio::test]
async fn observers_that_wait_get_the_free_slots_once_a_rebalance_has_moved_all() {
    let mut cluster = Cluster::new("after-rebalance");
    cluster.manager().await;
    for name in ["a", "b"] {
        cluster.service(name, 6).await;
    }
    let _: Service = post(&cluster, "/v1/services/b/cordon", 202).await;
    cluster.api.until_service("b", |it| it.state == ServiceState::Cordoned).await;
    let create = async |names: std::ops::Range<u32>| {
        for number in names {
            let definition = json!({"name": format!("o{number}"), "kind": "ticker", "on_full": "queue"});
            cluster.api.create(definition).await;
        }
    };
    create(0..6).await;
    until_held(&cluster, |held| held["a"] == 6).await;
    let _: Service = post(&cluster, "/v1/services/b/uncordon", 202).await;
    // What is created now waits, and nothing but the rebalance keeps it from the free slots once the pool is resumed.
    let paused = async |paused: bool| {
        let body = Some(json!({ "paused": paused }));
        cluster.api.done::<Value>("PUT", "/v1/pools/default", body, 200).await;
    };
    paused(true).await;
    create(6..8).await;
    rebalance(&cluster).await;
    paused(false).await;
    until_all_run(&cluster, 8).await;
    let at = async |kind: &str| {
        let path = format!("/v1/events?type={kind}&limit=1000");
        let found = wait_for(kind, || async {
            let all: Vec<Event> = cluster.api.list(&path).await;
            all.iter().map(|it| it.at).max().ok_or_else(|| "no event".to_owned())
        });
        found.await
    };
    let took = at("admitted").await.since(at("rebalanced").await);
    println!("MEASURED admitted {took:?} after the rebalance");
    assert!(took < Duration::from_secs(8), "they waited until the limits expired: {took:?}");
}

#[tokio::test]
async fn a_move_goes_to_another_service_within_a_blink() {
    let mut cluster = Cluster::new("move").with_test_kinds();
    cluster.manager().await;
    cluster.service("a", 5).await;
    let folder = observers(&cluster, 3).await;
    cluster.service("b", 5).await;
    let before = cluster.api.observer("o1").await;
    post::<Observer>(&cluster, "/v1/observers/o1/move", 202).await;
    let runs_on = |it: &Observer, name: &str| it.status == Status::Processing && holder(it) == Some(name);
    let after = cluster.api.until_observer("o1", |it| runs_on(it, "b")).await;
    assert_eq!(after.generation, before.generation, "the message itself went over");
    assert!(runs_on(&cluster.api.observer("o0").await, "a"));
    beacons::judge("move", &folder, |_| 0);
}

/// Each request is checked before the reports show the observers of the former ones.
#[tokio::test]
async fn moves_to_a_service_use_its_room_before_they_arrive() {
    let mut cluster = Cluster::new("moves-to").with_test_kinds();
    cluster.manager().await;
    cluster.service("a", 5).await;
    let folder = observers(&cluster, 4).await;
    for (name, capacity) in [("b", 2), ("c", 50)] {
        cluster.service(name, capacity).await;
    }
    let (code, said) = cluster.command(&["observer", "move", "o0", "o1", "o2", "o3", "--to", "b"]);
    assert_eq!(said.matches("moves to service b").count(), 2, "{said}");
    assert_eq!(said.matches("service b has no room: it uses").count(), 2, "{said}");
    assert_eq!(code, Some(4), "{said}");
    until_held(&cluster, |held| held["b"] == 2 && held["a"] == 2).await;
    until_all_run(&cluster, 4).await;
    assert_eq!(held(&cluster).await["c"], 0, "none went elsewhere");
    beacons::judge("moves to a service", &folder, |_| 0);
}

/// Other services have more room, and the broker would serve them as well.
#[tokio::test]
async fn a_move_to_a_service_goes_to_that_one() {
    let mut cluster = Cluster::new("move-to").with_test_kinds();
    cluster.manager().await;
    cluster.service("a", 5).await;
    let folder = observers(&cluster, 3).await;
    for (name, capacity) in [("b", 50), ("c", 2), ("d", 50)] {
        cluster.service(name, capacity).await;
    }
    let runs_on = |it: &Observer, name: &str| it.status == Status::Processing && holder(it) == Some(name);
    for observer in ["o0", "o1"] {
        let (code, said) = cluster.command(&["observer", "move", observer, "--to", "c"]);
        assert_eq!(code, Some(0), "{said}");
        cluster.api.until_observer(observer, |it| runs_on(it, "c")).await;
    }
    let moved = |it: &Event| it.kind == EventKind::MoveRequested && it.text == "to service c";
    cluster.api.until_events_of("o0", |all| all.iter().any(moved)).await;
    // It is there already.
    cluster.api.done::<Observer>("POST", "/v1/observers/o0/move", Some(json!({"service": "c"})), 200).await;
    cluster.api.until_service("c", |it| it.held == 2).await;
    // Moves are checked against the heartbeats, which are up to a second older than what runs report; the next one may have been on
    // its way.
    for _ in 0..2 {
        let heard_at = cluster.api.service("c").await.last_heartbeat_at;
        cluster.api.until_service("c", |it| it.last_heartbeat_at > heard_at).await;
    }
    cluster.api.done::<Service>("POST", "/v1/services/d/cordon", None, 202).await;
    cluster.api.until_service("d", |it| it.state == ServiceState::Cordoned).await;
    for (to, code, told) in [
        ("c", 4, "service c has no room: it uses 2 of its 2 slots"),
        ("d", 4, "service d is cordoned, so it takes no observers"),
        ("nobody", 3, "there is no service `nobody`; `everwatch service list` shows all services"),
    ] {
        let (ended, said) = cluster.command(&["observer", "move", "o2", "--to", to]);
        assert!(ended == Some(code) && said.contains(told), "{ended:?} {said}");
    }
    let both = json!({"pool": "default", "service": "b"});
    let (status, problem) = cluster.api.call("POST", "/v1/observers/o2/move", Some(both)).await;
    assert_eq!((status, problem["errors"][0]["pointer"].as_str()), (422, Some("/service")), "{problem}");
    assert!(runs_on(&cluster.api.observer("o2").await, "a"));
    beacons::judge("move to", &folder, |_| 0);
}

#[tokio::test]
async fn a_move_that_misses_its_service_says_why() {
    let mut cluster = Cluster::new("move-missed").with_test_kinds();
    cluster.manager().await;
    cluster.service("a", 5).await;
    let _folder = observers(&cluster, 1).await;
    for name in ["b", "c"] {
        cluster.service(name, 5).await;
    }
    cluster.api.done::<Observer>("POST", "/v1/observers/o0/move", Some(json!({"service": "b"})), 202).await;
    cluster.api.done::<Service>("POST", "/v1/services/b/cordon", None, 202).await;
    let told = "to service c: service b is cordoned, so it takes no observers; run `everwatch service uncordon b`, or choose another \
                service";
    let missed = |it: &Event| it.kind == EventKind::MovedElsewhere && it.text == told;
    cluster.api.until_events_of("o0", |all| all.iter().any(missed)).await;
    assert_eq!(holder(&cluster.api.observer("o0").await), Some("c"));
}

#[tokio::test]
async fn a_rolling_restart_moves_each_observer_as_little_as_can_be() {
    const OBSERVERS: usize = 60;
    let names = ["a", "b", "c", "d", "e"];
    let mut cluster = Cluster::new("rolling").with_test_kinds();
    cluster.manager().await;
    for name in names {
        cluster.spawn_service(name, 20);
    }
    for name in names {
        cluster.until_active(name).await;
    }
    let folder = observers(&cluster, OBSERVERS).await;
    for name in names {
        assert_eq!(cluster.terminate(name), Some(0), "{}", cluster.log(name));
        cluster.spawn_service(name, 20);
        cluster.until_ready(name).await;
        until_all_run(&cluster, OBSERVERS).await;
    }
    let mut moves: Vec<usize> = runs(&folder).into_iter().map(|runs| runs - 1).collect();
    moves.sort_unstable();
    let (median, most) = (moves[OBSERVERS / 2], moves[OBSERVERS - 1]);
    let longest = beacons::judge("rolling restart", &folder, |_| 0);
    assert!(median <= 1 && most <= 2, "moves of each: {moves:?}");
    assert!(longest < 5000, "a gap of {longest} ms");
}

#[tokio::test]
async fn after_a_failover_the_starts_keep_to_their_rate_and_say_why_they_wait() {
    const OBSERVERS: usize = 20;
    let mut cluster = Cluster::new("start-rate").with_test_kinds();
    cluster.manager().await;
    cluster.service("fast", OBSERVERS as u32).await;
    let folder = observers(&cluster, OBSERVERS).await;
    cluster.extra.push(("EVERWATCH_SERVICE__START_RATE".to_owned(), "4".to_owned()));
    cluster.service("slow", OBSERVERS as u32).await;
    cluster.kill("fast");
    wait_for("one to wait for its turn", || async {
        let all = cluster.api.observers().await;
        let waits = all.iter().any(|it| it.reason.contains("start rate"));
        if waits { Ok(()) } else { Err(format!("{all:?}")) }
    })
    .await;
    wait_for("all to run again", || async {
        let runs = runs(&folder).iter().filter(|runs| **runs == 2).count();
        if runs == OBSERVERS { Ok(()) } else { Err(format!("{runs} run")) }
    })
    .await;
    let firsts: Vec<i64> = beacons::read(&folder).into_values().map(|runs| runs[1].first).collect();
    let took = firsts.iter().max().unwrap() - firsts.iter().min().unwrap();
    assert!((4000..9000).contains(&took), "20 starts at 4 a second took {took} ms");
    // As the service started them: a busy machine may run the code of one before that of another that started earlier.
    let mut starts = Vec::new();
    for number in 0..OBSERVERS {
        let is_reported = |it: &Observer| {
            it.status == Status::Processing && it.service.as_ref().is_some_and(|it| it.name == "slow")
        };
        let observer = cluster.api.until_observer(&format!("o{number}"), is_reported).await;
        starts.push((observer.started_at.unwrap(), number));
    }
    starts.sort();
    // The first observer started at once. Of those that waited, the oldest started first.
    assert!(starts[1..].is_sorted_by_key(|(_, number)| *number), "{starts:?}");
}
