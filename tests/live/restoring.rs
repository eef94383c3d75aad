//! A database that was restored from a backup while services kept running: its rows become correct again, and
//! nothing runs twice.

use everwatch_api::Observer;
use everwatch_core::record::events::EventKind;
use everwatch_core::record::status::Status;
use everwatch_tests::beacons;
use everwatch_tests::cluster::Cluster;
use everwatch_tests::http::holder;
use everwatch_tests::wait::{wait_for, wait_within};
use serde_json::json;
use std::path::Path;
use std::time::Duration;
use uuid::Uuid;

/// How long to wait for an inventory, which services send once a minute.
const LISTED: Duration = Duration::from_secs(150);

const KEPT: [&str; 6] = ["kept0", "kept1", "kept2", "kept3", "restarted", "paused"];
const DELETED: [&str; 3] = ["deleted0", "deleted1", "shared"];
const NEW: [&str; 4] = ["new0", "new1", "new2", "shared"];

#[tokio::test]
async fn a_restored_sqlite_file_comes_true_and_nothing_runs_twice() {
    restore(Cluster::new("restored")).await;
}

#[tokio::test]
async fn a_restored_postgres_comes_true_and_nothing_runs_twice() {
    restore(Cluster::new("restored-pg").with_postgres()).await;
}

async fn create(cluster: &Cluster, names: &[&str], folder: &Path) -> Vec<Uuid> {
    let mut ids = Vec::new();
    for name in names {
        let body = json!({"name": name, "kind": "beacon", "spec": {"folder": folder}});
        ids.push(cluster.api.create(body).await.id);
    }
    for name in names {
        cluster.api.until_status(name, "Processing").await;
    }
    ids
}

async fn post(cluster: &Cluster, path: &str) {
    let (status, body) = cluster.api.call("POST", path, None).await;
    assert_eq!(status, 202, "{path}: {body}");
}

async fn until(cluster: &Cluster, key: &str, is_right: impl Fn(&Observer) -> bool) -> Observer {
    wait_within(LISTED, key, || async {
        match cluster.api.find_observer(key).await {
            Ok(it) if is_right(&it) => Ok(it),
            other => Err(format!("{other:?}")),
        }
    })
    .await
}

async fn until_deleted(cluster: &Cluster, name: &str) {
    wait_within(LISTED, name, || async {
        match cluster.api.find_observer(name).await {
            Ok(Observer { status: Status::Deleted, .. }) => Ok(()),
            Err(problem) if problem.code == "not-found" => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
}

fn is_on_a_or_c(it: &Observer) -> bool {
    matches!(holder(it), Some("a" | "c"))
}

/// Makes changes that the backup does not contain. Returns the ids of the new observers.
async fn live_on(cluster: &mut Cluster, folder: &Path) -> Vec<Uuid> {
    for name in DELETED {
        let (status, it) = cluster.api.call("DELETE", &format!("/v1/observers/{name}?wait=20s"), None).await;
        assert_eq!(status, 200, "{it}");
    }
    post(cluster, "/v1/observers/paused/pause").await;
    cluster.api.until_status("paused", "Paused").await;
    for generation in 2..4 {
        post(cluster, "/v1/observers/restarted/restart").await;
        until(cluster, "restarted", |it| it.generation == generation && it.reason.is_empty()).await;
    }
    cluster.kill("b");
    cluster.service("c", 20).await;
    let ids = create(cluster, &NEW, folder).await;
    for name in &KEPT[..5] {
        until(cluster, name, is_on_a_or_c).await;
    }
    ids
}

/// Waits for the event of a republish: managers record events with a short delay, in batches.
async fn until_republished(cluster: &Cluster, name: &str) {
    wait_for("the event of its republish", || async {
        let events = cluster.api.events_of(name).await;
        let newest = events.iter().find(|it| it.kind == EventKind::Republished);
        match newest.map(|it| it.text.as_str()) {
            Some("its message was not found") => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
}

async fn restore(cluster: Cluster) {
    let mut cluster = cluster.with_test_kinds();
    cluster.extra.push(("EVERWATCH_MANAGER__ORPHAN_AFTER".to_owned(), "15s".to_owned()));
    let (old, new) = (cluster.folder("old"), cluster.folder("new"));
    cluster.manager().await;
    for name in ["a", "b"] {
        cluster.service(name, 20).await;
    }
    create(&cluster, &KEPT, &old).await;
    create(&cluster, &DELETED, &old).await;
    assert_eq!(cluster.terminate("manager"), Some(0));
    cluster.back_up();
    cluster.manager().await;
    let ids = live_on(&mut cluster, &new).await;
    assert_eq!(cluster.terminate("manager"), Some(0));
    let runs = |folder: &Path| beacons::read(folder).into_values().map(|runs| runs.len()).sum::<usize>();
    let before = runs(&old) + runs(&new);
    cluster.restore();
    let (code, said) = cluster.command(&["migrate", "--restored"]);
    assert!(code == Some(0) && said.contains("9 observers"), "{code:?}: {said}");

    cluster.manager().await;
    assert!(cluster.api.safe_mode().await.on);
    cluster.until_active("c").await;
    for (id, name) in ids.iter().zip(NEW) {
        let it = until(&cluster, &id.to_string(), |it| it.status == Status::Processing).await;
        assert!(it.name.starts_with(name), "adopted: {it:?}");
    }
    for name in &KEPT[..5] {
        let generation = if *name == "restarted" { 3 } else { 1 };
        let settled = |it: &Observer| it.generation == generation && it.reason.is_empty();
        until(&cluster, name, |it| is_on_a_or_c(it) && settled(it)).await;
    }
    // No service holds the observers that have ended since the backup. If their service has died too, only
    // the end of safe mode reveals that.
    for name in ["deleted0", "deleted1", "shared", "paused"] {
        let told = |it: &Observer| it.reason.contains("does not have it any more");
        until(&cluster, name, |it| holder(it) == Some("b") || told(it)).await;
    }
    assert_eq!(runs(&old) + runs(&new), before, "nothing has begun in safe mode");

    // As `migrate --restored` advises: delete the observers again that must not run again.
    for name in ["deleted0", "shared"] {
        assert_eq!(cluster.api.call("DELETE", &format!("/v1/observers/{name}"), None).await.0, 202);
    }
    let (code, said) = cluster.command(&["safe-mode", "off"]);
    assert_eq!(code, Some(0), "{said}");
    for name in ["deleted0", "shared"] {
        until_deleted(&cluster, name).await;
    }
    for name in ["deleted1", "paused"] {
        until(&cluster, name, |it| it.generation == 1002 && it.reason.is_empty()).await;
        until_republished(&cluster, name).await;
    }
    wait_for("all beacons to be those of runs that the database knows", || async {
        let all = cluster.api.processing().await;
        if all.len() == 11 { Ok(()) } else { Err(format!("{all:?}")) }
    })
    .await;
    assert_eq!(runs(&old) + runs(&new), before + 2, "the two that nobody deleted or paused again");
    assert!(!cluster.api.safe_mode().await.on);
    beacons::judge("restored from a backup", &old, |_| 0);
    for (name, runs) in beacons::read(&new) {
        assert_eq!(runs.len(), 1, "{name}: {runs:?}");
    }
}
