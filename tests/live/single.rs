//! A single pool: all its observers run on one service, and move together to one other service.

use everwatch_api::{Observer, Pool, Service};
use everwatch_core::record::reason::ReasonCode;
use everwatch_core::record::service::ServiceState;
use everwatch_core::record::status::Status;
use everwatch_tests::beacons;
use everwatch_tests::cluster::{As, Cluster, brokers};
use everwatch_tests::http::holder;
use everwatch_tests::wait::{wait_for, wait_within};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

const MEMBERS: usize = 50;
/// The longest time between the first and the last start of a common move, in ms.
const TOGETHER: i64 = 3000;

fn spawn(cluster: &mut Cluster, name: &str, single: bool) {
    let environment = [
        ("EVERWATCH_SERVICE__POOL", "feeds"),
        ("EVERWATCH_SERVICE__POOL_SINGLE", if single { "true" } else { "false" }),
    ];
    let url = cluster.broker_url.clone();
    cluster.spawn_service_as(name, 50, As { broker_url: &url, environment: &environment, ..As::default() });
}

/// A pool with services `a`, `b` and `c`, and its observers.
async fn pool(broker: &str, single: bool) -> (Cluster, PathBuf) {
    let mut cluster = Cluster::new("single").on(broker).with_test_kinds().with_postgres();
    cluster.manager().await;
    let made: Pool = cluster.api.done("PUT", "/v1/pools/feeds", Some(json!({"single": single})), 200).await;
    assert!(made.single == single && !made.paused, "{made:?}");
    for name in ["a", "b", "c"] {
        spawn(&mut cluster, name, single);
    }
    let state = if single { ServiceState::Standby } else { ServiceState::Active };
    for name in ["a", "b", "c"] {
        cluster.api.until_service(name, |it| it.state == state).await;
        cluster.until_ready(name).await;
    }
    let folder = cluster.folder("beacons");
    for number in 0..MEMBERS {
        cluster.api.create(member(&folder, number)).await;
    }
    (cluster, folder)
}

fn member(folder: &Path, number: usize) -> Value {
    json!({"name": format!("o{number}"), "kind": "beacon", "pool": "feeds", "on_full": "queue", "spec": {"folder": folder}})
}

/// Waits until all members run on one service other than `former`, as each has `runs` runs or more; returns its name.
async fn until_together(cluster: &Cluster, former: Option<&str>) -> String {
    let place = wait_within(Duration::from_secs(60), "all observers to run in one place", || async {
        let all = cluster.api.processing().await;
        let places: BTreeSet<_> = all.iter().map(|it| holder(it).unwrap_or("none").to_owned()).collect();
        let single = places.len() == 1 && all.len() == MEMBERS && !places.contains("none");
        let place = places.first().cloned().unwrap_or_default();
        if single && former != Some(place.as_str()) {
            Ok(place)
        } else {
            Err(format!("{} on {places:?}", all.len()))
        }
    })
    .await;
    cluster.api.until_service(&place, |it| it.state == ServiceState::Active && it.held == 50).await;
    place
}

/// The newest runs of all members that still exist began at about the same time.
fn moved_together(folder: &Path, what: &str) {
    let runs = beacons::read(folder);
    let firsts = runs.iter().filter(|(name, _)| *name != "o7").filter_map(|(_, runs)| runs.last());
    let firsts: Vec<i64> = firsts.map(|run| run.first).collect();
    let spread = firsts.iter().max().unwrap() - firsts.iter().min().unwrap();
    assert!(spread <= TOGETHER, "{what}: the members started within {spread} ms");
}

async fn states(cluster: &Cluster) -> Vec<ServiceState> {
    let all: Vec<Service> = cluster.api.list("/v1/services?state=active,standby&pool=feeds").await;
    let mut states: Vec<_> = all.into_iter().map(|it| it.state).collect();
    states.sort_unstable();
    states
}

#[tokio::test]
async fn the_observers_of_a_single_pool_run_and_move_together() {
    for (version, url) in brokers() {
        let (mut cluster, folder) = pool(&url, true).await;
        let first = until_together(&cluster, None).await;
        assert_eq!(
            states(&cluster).await,
            [ServiceState::Active, ServiceState::Standby, ServiceState::Standby]
        );
        full(&cluster, &folder).await;
        assert_eq!(until_together(&cluster, None).await, first, "a free slot is one of the active service");

        cluster.kill(&first);
        let second = until_together(&cluster, Some(&first)).await;
        moved_together(&folder, "a kill");
        let gap = beacons::judge(&format!("{version}, single pool, kill"), &folder, |_| 0);
        assert!(gap < 5000, "{version}: {gap} ms");
        spawn(&mut cluster, &first, true);
        cluster.api.until_service(&first, |it| it.state == ServiceState::Standby).await;

        cluster.api.done::<Service>("POST", &format!("/v1/services/{second}/cordon"), None, 202).await;
        let third = until_together(&cluster, Some(&second)).await;
        moved_together(&folder, "a cordon");
        cluster.api.done::<Service>("POST", &format!("/v1/services/{second}/uncordon"), None, 202).await;
        cluster.api.until_service(&second, |it| it.state == ServiceState::Standby).await;

        cluster.api.done::<Service>("POST", &format!("/v1/services/{third}/drain"), None, 202).await;
        let fourth = until_together(&cluster, Some(&third)).await;
        moved_together(&folder, "a drain");
        cluster.api.until_service(&third, |it| it.held == 0 && it.drain.is_none()).await;

        assert_eq!(cluster.terminate("manager"), Some(0));
        cluster.manager().await;
        assert_eq!(until_together(&cluster, None).await, fourth, "a manager moves nothing");
        assert_eq!(cluster.terminate(&fourth), Some(0));
        until_together(&cluster, Some(&fourth)).await;
        moved_together(&folder, "a stop");
        beacons::judge(&format!("{version}, single pool, all moves"), &folder, |_| 0);
        assert_eq!(cluster.api.parked().await, []);
    }
}

/// The 51st observer waits in the backlog until another one is deleted.
async fn full(cluster: &Cluster, folder: &Path) {
    let made: Observer = cluster.api.create(member(folder, MEMBERS)).await;
    assert_eq!((made.status, made.generation), (Status::Created, 0), "{made:?}");
    // The reason follows the heartbeats, which are up to a second older than what runs report.
    cluster.api.until_observer("o50", |it| it.reason_code == Some(ReasonCode::PoolIsFull)).await;
    let found: Pool = cluster.api.read("/v1/pools/feeds").await;
    assert_eq!(
        (found.single, found.capacity, found.free, found.needed, found.waiting),
        (true, 50, 0, 51, 1),
        "{found:?}"
    );
    let (status, body) = cluster.api.call("DELETE", "/v1/observers/o7?wait=10s", None).await;
    assert_eq!(status, 200, "{body}");
    cluster.api.until_status("o50", "Processing").await;
}

/// The same kill in an ordinary pool, for comparison.
#[tokio::test]
async fn an_ordinary_pool_spreads_its_observers_over_its_services() {
    let (mut cluster, folder) = pool(&brokers()[0].1, false).await;
    wait_for("all to run", || async {
        let all = cluster.api.processing().await;
        let places: BTreeSet<_> = all.iter().filter_map(holder).collect();
        if (all.len(), places.len()) == (MEMBERS, 3) {
            Ok(())
        } else {
            Err(format!("{} on {places:?}", all.len()))
        }
    })
    .await;
    cluster.kill("a");
    wait_for("all to run on two", || async {
        let all = cluster.api.processing().await;
        let left = all.iter().filter(|it| holder(it).is_some_and(|name| name != "a")).count();
        if left == MEMBERS { Ok(()) } else { Err(format!("{left}")) }
    })
    .await;
    beacons::judge("ordinary pool, kill", &folder, |_| 0);
}

/// The broker does not refuse a service whose user may not declare the queue.
#[tokio::test]
async fn the_doctor_finds_a_service_that_takes_a_single_pool_for_an_ordinary_one() {
    let mut cluster = Cluster::new("single-unlike").with_test_kinds();
    cluster.manager().await;
    assert_eq!(cluster.command(&["pool", "create", "feeds", "--single"]).0, Some(0));
    spawn(&mut cluster, "right", true);
    spawn(&mut cluster, "other", false);
    wait_for("the doctor to find it", || async {
        let found = cluster.api.findings().await;
        let named = found.iter().find(|it| it.code == "pool-single").map(|it| it.subject.clone());
        if named.as_deref() == Some("service other") { Ok(()) } else { Err(format!("{found:?}")) }
    })
    .await;
}

/// Managers and services must agree; the first declaration of the work queue decides.
#[tokio::test]
async fn a_pool_is_single_for_all_or_for_none() {
    let mut cluster = Cluster::new("single-or-not").with_test_kinds().with_one_broker_user();
    cluster.manager().await;
    let created = cluster.command(&["pool", "create", "feeds", "--single"]);
    assert!(created.0 == Some(0) && created.1.contains("set service.pool_single"), "{created:?}");
    spawn(&mut cluster, "other", false);
    wait_for("the service to say what is wrong", || async {
        let log = cluster.log("other");
        let named = ["work.feeds", "service.pool_single", "pool create NAME --single"];
        if named.iter().all(|part| log.contains(part)) { Ok(()) } else { Err(log) }
    })
    .await;
    cluster.kill("other");
    spawn(&mut cluster, "right", true);
    cluster.api.until_service("right", |it| it.state == ServiceState::Standby).await;
    // Services that register first make the pool single, too; it stays so without them.
    for (pool, single) in [("feeds", false), ("default", true)] {
        let path = format!("/v1/pools/{pool}");
        let refused = cluster.api.refused("PUT", &path, Some(json!({"single": single}))).await;
        assert_eq!((refused.status, refused.code.as_str()), (409, "pool-in-use"), "{refused:?}");
    }
    // An observer that waits in the queue of a single pool without services ends without them.
    cluster.api.create(json!({"name": "one", "kind": "ticker", "pool": "feeds"})).await;
    cluster.api.until_status("one", "Processing").await;
    cluster.kill("right");
    let gone: Observer = cluster.api.done("DELETE", "/v1/observers/one?wait=50s", None, 200).await;
    assert_eq!(cluster.api.observer(&gone.id.to_string()).await.status, Status::Deleted);
}
