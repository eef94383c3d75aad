//! Several pools, and several versions of a service in one pool: observers wait for a service that can run
//! them, and find it.

use everwatch_api::{Event, Observer, Pool};
use everwatch_broker::{Broker, BrokerError, RabbitBroker, Topology};
use everwatch_core::record::events::EventKind;
use everwatch_core::record::reason::ReasonCode;
use everwatch_core::record::service::ServiceState;
use everwatch_core::record::status::Status;
use everwatch_tests::beacons;
use everwatch_tests::cluster::{Cluster, everwatch, test_service};
use everwatch_tests::http::{Api, holder};
use everwatch_tests::proxy::Proxy;
use everwatch_tests::wait::{wait_for, wait_within};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::time::Duration;

#[tokio::test]
async fn a_kind_that_only_the_new_version_knows_finds_the_service_that_knows_it() {
    let mut cluster = Cluster::new("kinds");
    cluster.manager().await;
    cluster.service_program = everwatch();
    for name in ["old1", "old2"] {
        cluster.service(name, 20).await;
    }
    let folder = cluster.folder("beacons");
    let body = |name: &str| json!({"name": name, "kind": "beacon", "spec": {"folder": folder}});
    let refused = cluster.api.refused("POST", "/v1/observers", Some(body("early"))).await;
    assert_eq!((refused.status, refused.code.as_str()), (422, "no-service-for-kind"), "{refused:?}");

    cluster.service_program = test_service();
    cluster.service("new", 6).await;
    for number in 0..6 {
        cluster.api.create(body(&format!("o{number}"))).await;
    }
    wait_for("all to run on the one that knows them", || async {
        let all: Vec<Observer> = cluster.api.list("/v1/observers?status=Processing&service=new").await;
        if all.len() == 6 { Ok(()) } else { Err(format!("{:?}", all.len())) }
    })
    .await;
    assert_eq!(cluster.api.parked().await, []);

    // While the new service is away, its observers wait. The old services hand them over and report why; no
    // observer fails.
    assert_eq!(cluster.terminate("new"), Some(0));
    wait_for("one to say why it waits", || async {
        let all = cluster.api.observers().await;
        if all.iter().any(|it| it.reason.contains("beacon")) { Ok(()) } else { Err(format!("{all:?}")) }
    })
    .await;
    cluster.service("new", 6).await;
    wait_for("all to run again", || async {
        let runs = beacons::read(&folder).values().filter(|runs| runs.len() == 2).count();
        if runs == 6 { Ok(()) } else { Err(format!("{runs} run")) }
    })
    .await;
    assert_eq!(cluster.api.parked().await, []);
    assert_eq!(cluster.api.list::<Observer>("/v1/observers?status=Failed").await, []);
    beacons::judge("a kind of the new version", &folder, |_| 0);
}

/// The services that a test starts in a pool: `old` does not offer the kind `beacon`, `new` does.
async fn old_and_new(name: &str) -> (Cluster, Proxy, PathBuf) {
    let mut cluster = Cluster::new(name);
    cluster.manager().await;
    cluster.service_program = everwatch();
    cluster.service("old", 8).await;
    cluster.service_program = test_service();
    let (proxy, url) = Proxy::before(&cluster.broker_url).await;
    cluster.spawn_service_at("new", 8, &url);
    cluster.until_active("new").await;
    let folder = cluster.folder("beacons");
    for number in 0..8 {
        let (name, spec) = (format!("o{number}"), json!({"folder": folder}));
        cluster.api.create(json!({"name": name, "kind": "beacon", "spec": spec})).await;
    }
    until_all_run(&folder, 1).await;
    (cluster, proxy, folder)
}

/// Waits until each beacon has had `runs` runs and its newest run is alive.
async fn until_all_run(folder: &Path, runs: usize) {
    wait_for("all beacons to run", || async {
        let now = jiff::Timestamp::now().as_millisecond();
        let all = beacons::read(folder);
        let lives = all.values().filter(|it| it.len() >= runs && it.iter().any(|run| run.last > now - 300));
        let count = lives.count();
        if count == 8 { Ok(()) } else { Err(format!("{count} of 8")) }
    })
    .await;
}

#[tokio::test]
async fn what_no_service_can_run_takes_no_slots_and_is_back_when_one_can() {
    let (mut cluster, _proxy, folder) = old_and_new("withdrawn").await;
    cluster.kill("new");
    let withdrawn = || async {
        let all: Vec<Observer> = cluster.api.list("/v1/observers?kind=beacon").await;
        all.iter().filter(|it| it.reason_code == Some(ReasonCode::NoServiceForKind)).count()
    };
    wait_within(Duration::from_secs(20), "all messages to leave the queue", || async {
        let (count, held) = (withdrawn().await, cluster.api.service("old").await.held);
        if (count, held) == (8, 0) { Ok(()) } else { Err(format!("{count} withdrawn, {held} held")) }
    })
    .await;
    // All slots are free for observers that this service can run.
    for number in 0..8 {
        let body = json!({"name": format!("t{number}"), "kind": "ticker", "on_full": "queue"});
        cluster.api.create(body).await;
    }
    wait_within(Duration::from_secs(3), "all tickers to run", || async {
        let all: Vec<Observer> = cluster.api.list("/v1/observers?kind=ticker&status=Processing").await;
        if all.len() == 8 { Ok(()) } else { Err(format!("{} of 8", all.len())) }
    })
    .await;
    // Users can still change the other observers.
    let gone: Observer = cluster.api.done("DELETE", "/v1/observers/o0?wait=5s", None, 200).await;
    assert_eq!(cluster.api.observer(&gone.id.to_string()).await.status, Status::Deleted);
    let again = json!({"name": "o8", "kind": "beacon", "spec": {"folder": folder}, "on_full": "queue"});
    let refused = cluster.api.refused("POST", "/v1/observers", Some(again.clone())).await;
    assert_eq!((refused.status, refused.code.as_str()), (422, "no-service-for-kind"), "{refused:?}");
    cluster.spawn_service("new", 8);
    cluster.until_active("new").await;
    cluster.api.create(again).await;
    until_all_run(&folder, 1).await;
    let told = |events: &[Event], what| events.iter().any(|it| it.kind == what);
    let both = |events: &[Event]| told(events, EventKind::Withdrawn) && told(events, EventKind::Admitted);
    cluster.api.until_events_of("o1", both).await;
    beacons::judge("a kind whose only service died", &folder, |_| 0);
}

#[tokio::test]
async fn the_only_service_that_can_run_it_gets_it_though_it_is_served_last() {
    let (_cluster, proxy, folder) = old_and_new("served-last").await;
    // After its short session, the broker serves this service last for a minute, and the other service has
    // free slots.
    proxy.reset();
    wait_within(Duration::from_secs(10), "all beacons to run again", || async {
        let again = beacons::read(&folder).values().filter(|runs| runs.len() >= 2).count();
        if again == 8 { Ok(()) } else { Err(format!("{again} of 8")) }
    })
    .await;
    until_all_run(&folder, 2).await;
    beacons::judge("a kind whose only service came back", &folder, |_| 500);
}

#[tokio::test]
async fn a_pool_without_a_service_refuses_or_lets_wait_and_says_so() {
    let mut cluster = Cluster::new("pools");
    cluster.manager().await;
    cluster.service("a", 5).await;
    let body = |name: &str, on_full: &str| json!({"name": name, "kind": "ticker", "pool": "gpu", "on_full": on_full});
    let refused = cluster.api.refused("POST", "/v1/observers", Some(body("now", "reject"))).await;
    assert_eq!((refused.status, refused.code.as_str()), (503, "no-capacity"), "{refused:?}");
    cluster.api.create(body("later", "queue")).await;
    let told = |it: &Observer| it.status == Status::Created && it.reason == "no service in pool gpu";
    cluster.api.until_observer("later", told).await;
    assert_eq!(cluster.api.read::<Pool>("/v1/pools/gpu").await.needed, 1);

    // The broker user of the service may not create the queue.
    assert_eq!(cluster.command(&["pool", "create", "gpu"]), (Some(0), "pool gpu exists\n".to_owned()));
    cluster.extra.push(("EVERWATCH_SERVICE__POOL".to_owned(), "gpu".to_owned()));
    cluster.service("g", 5).await;
    let runs_on = |it: &Observer, name: &str| it.status == Status::Processing && holder(it) == Some(name);
    cluster.api.until_observer("later", |it| runs_on(it, "g")).await;
    let (status, moved) =
        cluster.api.call("POST", "/v1/observers/later/move", Some(json!({"pool": "default"}))).await;
    assert_eq!(status, 202, "{moved}");
    cluster.api.until_observer("later", |it| runs_on(it, "a")).await;
}

/// A manager that has declared the queue of a pool would create a deleted one again if it did not look at what uses the pool.
#[tokio::test]
async fn a_pool_that_nothing_uses_is_deleted_by_all_managers() {
    let mut cluster = Cluster::new("delete-pool").with_postgres();
    cluster.manager().await;
    let second = cluster.another_manager("second").await;
    let first = cluster.api.clone();
    let refused = async |api: &Api| api.refused("DELETE", "/v1/pools/gpu", None).await;
    assert_eq!(refused(&first).await.status, 404);
    assert_eq!(cluster.command(&["pool", "delete", "gpu"]).0, Some(3));
    let configured = cluster.command(&["pool", "delete", "default"]);
    assert!(
        configured.0 == Some(4) && configured.1.contains("manager.pools lists pool default"),
        "{configured:?}"
    );

    assert_eq!(cluster.command(&["pool", "create", "gpu"]).0, Some(0));
    cluster.extra.push(("EVERWATCH_SERVICE__POOL".to_owned(), "gpu".to_owned()));
    cluster.service("g", 5).await;
    for name in ["one", "two"] {
        cluster.api.create(json!({"name": name, "kind": "ticker", "pool": "gpu"})).await;
        cluster.api.until_status(name, "Processing").await;
    }
    let told = async |what: &str| {
        let refused = refused(&first).await;
        assert_eq!((refused.status, refused.code.as_str()), (409, "pool-in-use"), "{refused:?}");
        assert!(refused.detail.contains(what), "{refused:?}");
    };
    told("has 1 service: stop all its services").await;
    assert_eq!(cluster.terminate("g"), Some(0));
    cluster.api.until_service("g", |it| it.state == ServiceState::Gone).await;
    told("has 2 observers: delete or move all").await;
    for name in ["one", "two"] {
        cluster.api.call("DELETE", &format!("/v1/observers/{name}?wait=20s"), None).await;
    }
    cluster.api.until_status("two", "Deleted").await;
    wait_for("the manager to delete the pool", || async {
        let deleted = cluster.command(&["pool", "delete", "gpu"]);
        if deleted == (Some(0), "pool gpu is deleted\n".to_owned()) {
            Ok(())
        } else {
            Err(format!("{deleted:?}"))
        }
    })
    .await;

    let queue = Topology::new(&cluster.prefix).work(&"gpu".parse().unwrap());
    let broker = RabbitBroker::new(&cluster.broker_url, &cluster.prefix, Duration::from_secs(5)).unwrap();
    let session = broker.connect("test").await.unwrap();
    for api in [&first, &second] {
        wait_for("each manager to forget the pool", || async {
            let (status, answer) = api.call("GET", "/v1/pools/gpu", None).await;
            if status == 404 { Ok(()) } else { Err(format!("{status} {answer}")) }
        })
        .await;
        assert_eq!(refused(api).await.status, 404, "no trace is left of it");
    }
    assert!(
        matches!(session.depth(&queue).await, Err(BrokerError::NoQueue(_))),
        "no manager has created it again"
    );

    // The name is free for a pool of the other setting, and its observers run.
    assert_eq!(cluster.command(&["pool", "create", "gpu", "--single"]).0, Some(0));
    cluster.extra.push(("EVERWATCH_SERVICE__POOL_SINGLE".to_owned(), "true".to_owned()));
    cluster.spawn_service("s", 5);
    cluster.api.until_service("s", |it| it.state == ServiceState::Standby).await;
    cluster.api.create(json!({"name": "three", "kind": "ticker", "pool": "gpu"})).await;
    cluster
        .api
        .until_observer("three", |it| it.status == Status::Processing && holder(it) == Some("s"))
        .await;
    session.close().await;
}
