//! Failover works without a manager; managers that return learn what happened; several managers work at the
//! same time.

use everwatch_core::clock;
use everwatch_tests::beacons;
use everwatch_tests::cluster::Cluster;
use everwatch_tests::faketime::WallClock;
use everwatch_tests::http::holder;
use everwatch_tests::wait::wait_for;
use serde_json::json;

#[tokio::test]
async fn without_a_manager_observers_move_all_the_same_and_its_tables_come_true_later() {
    let mut cluster = Cluster::new("no-manager").with_test_kinds();
    cluster.manager().await;
    for name in ["a", "b"] {
        cluster.service(name, 10).await;
    }
    let folder = cluster.folder("beacons");
    for number in 0..8 {
        let spec = json!({ "folder": folder });
        cluster.api.create(json!({"name": format!("o{number}"), "kind": "beacon", "spec": spec})).await;
    }
    for number in 0..8 {
        cluster.api.until_status(&format!("o{number}"), "Processing").await;
    }
    let all = cluster.api.observers().await;
    let on_a = all.iter().filter(|it| holder(it) == Some("a")).count();
    assert!(on_a > 0, "a runs something");
    cluster.kill("manager");
    cluster.kill("a");
    wait_for("what ran on a to run on b, without a manager", || async {
        let runs = beacons::read(&folder);
        let moved = runs.values().filter(|runs| runs.len() == 2).count();
        if moved == on_a { Ok(()) } else { Err(format!("{runs:?}")) }
    })
    .await;
    cluster.manager().await;
    wait_for("the manager to know that all run on b", || async {
        let all = cluster.api.processing().await;
        let on_b = all.iter().filter(|it| holder(it) == Some("b")).count();
        if on_b == 8 { Ok(()) } else { Err(format!("{all:?}")) }
    })
    .await;
    wait_for("the manager to know that a is lost", || async {
        let services = cluster.api.services().await;
        let lost = services.iter().filter(|it| it.name == "a").all(|it| it.is_deleted);
        if lost { Ok(()) } else { Err(format!("{services:?}")) }
    })
    .await;
    beacons::judge("kill -9 with no manager", &folder, |_| 0);
}

#[tokio::test]
async fn two_managers_on_one_postgres_are_killed_in_turn_and_nothing_is_lost_or_doubled() {
    let mut cluster = Cluster::new("two-managers").with_postgres().with_test_kinds();
    cluster.manager().await;
    let other = cluster.another_manager("other").await;
    for name in ["a", "b"] {
        cluster.service(name, 100).await;
    }
    let folder = cluster.folder("beacons");
    let spec = json!({ "folder": folder });
    let create = |number: usize| json!({"name": format!("o{number}"), "kind": "beacon", "spec": spec});
    for number in 0..30 {
        let api = if number % 2 == 0 { &cluster.api } else { &other };
        api.create(create(number)).await;
    }
    cluster.kill("other");
    for number in 30..40 {
        cluster.api.create(create(number)).await;
    }
    let other = cluster.another_manager("third").await;
    cluster.kill("manager");
    for number in 40..50 {
        other.create(create(number)).await;
    }
    for number in 0..50 {
        other.until_status(&format!("o{number}"), "Processing").await;
    }
    for number in 0..50 {
        let (status, it) = other.call("DELETE", &format!("/v1/observers/o{number}?wait=20s"), None).await;
        assert_eq!(status, 200, "{it}");
    }
    let runs = beacons::read(&folder);
    assert_eq!(runs.len(), 50, "each ran");
    for (name, runs) in runs {
        assert!(beacons::changes(&runs).iter().all(|change| *change >= 0), "{name}: {runs:?}");
    }
}

#[tokio::test]
async fn a_manager_whose_wall_clock_is_set_stores_the_time_of_the_database() {
    let mut cluster = Cluster::new("clock-set").with_postgres();
    let clock = WallClock::new(&cluster.folder("clock"));
    cluster.extra.extend(clock.environment());
    cluster.manager().await;
    clock.set("+600s");
    // The manager looks at the database's clock once a second. These come before that.
    for number in 0..10 {
        let name = format!("o{number}");
        let definition = json!({"name": name, "kind": "ticker", "on_full": "queue"});
        cluster.api.create(definition).await;
        let ahead = cluster.api.observer(&name).await.created_at.0 - clock::now().0;
        assert!(ahead.abs() < 60_000, "{name} was created {ahead} ms from now");
    }
    let found = cluster.api.findings().await;
    assert!(found.iter().any(|finding| finding.code == "clock-skew"), "the clock was set: {found:?}");
}
