//! Databases and messages that were recorded from earlier releases. Each test starts the current version on them and checks
//! that it keeps every observer and runs none twice.
//!
//! `EVERWATCH_TEST_RECORD=0.2.0 ./tests/run -E 'test(stored::)'` records those of the current version, before its tag.

use everwatch_api::{Listed, Observer};
use everwatch_core::observer::definition::MEMBERS;
use everwatch_core::record::events::EventKind;
use everwatch_core::record::status::Status;
use everwatch_tests::cluster::{Cluster, from_environment};
use everwatch_tests::rabbitmq::Management;
use everwatch_tests::wait::wait_for;
use serde_json::{Map, Value, json};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Reads and writes a SQLite database as text.
const SQLITE: &str = "
import sqlite3, sys
way, database, text = sys.argv[1:]
connection = sqlite3.connect(database)
if way == 'dump':
    open(text, 'w').write('\\n'.join(connection.iterdump()) + '\\n')
else:
    connection.executescript(open(text).read())
connection.close()
";

fn releases() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("live/releases")
}

fn ran(mut command: Command) {
    let done = command.output().unwrap();
    assert!(done.status.success(), "{command:?}: {}", String::from_utf8_lossy(&done.stderr));
}

fn sqlite(way: &str, cluster: &Cluster, file: &Path) {
    let mut python = Command::new(from_environment("EVERWATCH_TEST_PYTHON"));
    let database = cluster.store_url().strip_prefix("sqlite://").unwrap();
    python.args(["-c", SQLITE, way, database]).arg(file);
    ran(python);
}

/// The database of a cluster that no manager uses.
fn dump(cluster: &Cluster, folder: &Path) {
    if cluster.store_url().starts_with("sqlite:") {
        return sqlite("dump", cluster, &folder.join("sqlite.sql"));
    }
    let file = folder.join("postgres.sql");
    let mut pg_dump = Command::new("pg_dump");
    pg_dump.args(["--no-owner", "--no-privileges", "--inserts", "--dbname", cluster.store_url(), "--file"]);
    pg_dump.arg(&file);
    ran(pg_dump);
    // What depends on the version of the tools, and comments.
    let text = std::fs::read_to_string(&file).unwrap();
    let kept =
        |line: &&str| !line.is_empty() && !["SET ", "--", "\\"].iter().any(|start| line.starts_with(start));
    let lines: Vec<&str> = text.lines().filter(kept).collect();
    std::fs::write(file, lines.join("\n") + "\n").unwrap();
}

fn load(cluster: &Cluster, folder: &Path) {
    if cluster.store_url().starts_with("sqlite:") {
        return sqlite("load", cluster, &folder.join("sqlite.sql"));
    }
    let mut psql = Command::new("psql");
    psql.args([cluster.store_url(), "-q", "-v", "ON_ERROR_STOP=1", "-f"]).arg(folder.join("postgres.sql"));
    ran(psql);
}

/// Observers of many shapes, with the status that each keeps while a service runs.
fn bodies() -> Vec<(Value, Status)> {
    let open = json!([{"days": "mon-sun", "from": "00:00", "to": "24:00"}]);
    let argv = json!(["/bin/sh", "-c", "exec sleep 1000"]);
    let running = [
        json!({"name": "plain", "kind": "ticker"}),
        json!({"name": "labelled", "kind": "ticker", "spec": {"every": "5s"}, "labels": {"app": "feeds", "team": "x"}}),
        json!({"name": "patient", "kind": "exec", "spec": {"argv": argv}, "grace": "3s", "attempt_timeout": "1h",
            "retry": {"kind": "intervals", "delays": ["1m", "4m"]}, "overlap": "forbid", "priority": 7}),
        json!({"name": "open", "kind": "ticker", "windows": {"time_zone": "Europe/Berlin", "open": open}}),
        json!({"name": "heavy", "kind": "ticker", "weight": 3}),
        json!({"name": "one", "kind": "ticker", "limits": ["account"], "on_full": "queue"}),
        json!({"name": "plain", "namespace": "team", "kind": "ticker"}),
    ];
    let nightly = json!({"cron": "0 3 * * *", "time_zone": "Europe/Berlin"});
    let others = [
        (
            json!({"name": "two", "kind": "ticker", "limits": ["account"], "on_full": "queue"}),
            Status::Created,
        ),
        (json!({"name": "paused", "kind": "ticker", "desired": "paused"}), Status::Paused),
        (
            json!({"name": "nightly", "kind": "ticker", "schedule": nightly, "desired": "paused"}),
            Status::Paused,
        ),
        (json!({"name": "done", "kind": "exec", "spec": {"argv": ["/bin/true"]}}), Status::Completed),
        (
            json!({"name": "wrong", "kind": "exec", "spec": {"argv": ["/bin/false"]},
            "retry": {"kind": "intervals", "delays": []}}),
            Status::Failed,
        ),
    ];
    running.into_iter().map(|body| (body, Status::Processing)).chain(others).collect()
}

/// What users have stored of an observer, and its status.
fn kept(it: &Observer) -> Value {
    let Value::Object(all) = serde_json::to_value(it).unwrap() else { unreachable!() };
    let is_kept = |key: &String| {
        MEMBERS.contains(&key.as_str()) || ["id", "status", "desired", "created_at"].contains(&key.as_str())
    };
    Value::Object(all.into_iter().filter(|(key, _)| is_kept(key)).collect::<Map<_, _>>())
}

async fn all_kept(cluster: &Cluster) -> Vec<Value> {
    let all: Listed<Observer> = cluster.api.read("/v1/observers?limit=100&sort=created_at").await;
    all.items.iter().map(kept).collect()
}

fn management() -> Management {
    Management::new(from_environment("EVERWATCH_TEST_MANAGEMENT_URL"))
}

/// Stores the database, the messages and the observers of a deployment whose service has stopped.
async fn record(mut cluster: Cluster, folder: &Path) {
    std::fs::create_dir_all(folder).unwrap();
    cluster.manager().await;
    cluster.service("a", 40).await;
    let api = cluster.api.clone();
    api.done::<Value>("PUT", "/v1/limits/account", Some(json!({"max": 1})), 201).await;
    api.done::<Value>("PUT", "/v1/namespaces/team", Some(json!({"quotas": {"observers": 9}})), 201).await;
    for (body, status) in bodies() {
        let id = api.create(body).await.id.to_string();
        api.until_observer(&id, |it| it.status == status).await;
    }
    let observers = all_kept(&cluster).await;
    assert_eq!(cluster.terminate("a"), Some(0));
    let running = observers.iter().filter(|it| it["status"] == "Processing").count();
    api.until_total("/v1/observers?health=moving", running as u64).await;
    assert_eq!(cluster.terminate("manager"), Some(0));
    let mut messages = management().take(&format!("{}work.default", cluster.prefix)).await;
    for message in &mut messages {
        let Value::Object(it) = message else { unreachable!() };
        it.retain(|key, _| ["properties", "payload", "payload_encoding"].contains(&key.as_str()));
        if let Some(headers) = it["properties"]["headers"].as_object_mut() {
            // What the broker has added.
            headers.retain(|key, _| !key.starts_with("x-"));
        }
    }
    assert_eq!(messages.len(), running, "one message for each observer that ran");
    let write = |name: &str, value: &[Value]| {
        let lines: Vec<String> = value.iter().map(Value::to_string).collect();
        std::fs::write(folder.join(name), format!("[\n{}\n]\n", lines.join(",\n"))).unwrap();
    };
    let store = if cluster.store_url().starts_with("sqlite:") { "sqlite" } else { "postgres" };
    write(&format!("{store}-messages.json"), &messages);
    write(&format!("{store}-observers.json"), &observers);
    dump(&cluster, folder);
}

async fn serves(mut cluster: Cluster, folder: &Path) {
    let store = if cluster.store_url().starts_with("sqlite:") { "sqlite" } else { "postgres" };
    let read = |name: &str| -> Vec<Value> {
        let text = std::fs::read_to_string(folder.join(format!("{store}-{name}.json"))).unwrap();
        serde_json::from_str(&text).unwrap()
    };
    let (messages, observers) = (read("messages"), read("observers"));
    load(&cluster, folder);
    // The recording grows old, and a manager would delete what ended long ago.
    for ended in ["COMPLETED", "FAILED"] {
        cluster.extra.push((format!("EVERWATCH_MANAGER__RETENTION_{ended}"), "876000h".to_owned()));
    }
    cluster.manager().await;
    cluster.service("new", 40).await;
    let publish = "/api/exchanges/%2f/amq.default/publish";
    for message in messages {
        let mut body = message;
        body["routing_key"] = format!("{}work.default", cluster.prefix).into();
        assert_eq!(management().expect("POST", publish, body).await["routed"], true);
    }
    wait_for(&format!("the observers of {}", folder.display()), || async {
        let now = all_kept(&cluster).await;
        let differs = now.iter().zip(&observers).find(|(now, then)| now != then);
        match differs {
            None if now.len() == observers.len() => Ok(()),
            _ => Err(format!("{differs:?}; {}", cluster.log("new"))),
        }
    })
    .await;
    let running = observers.iter().filter(|it| it["status"] == "Processing").count() as u64;
    cluster.api.until_total("/v1/observers?health=running", running).await;
    let duplicated: Listed<Value> = cluster.api.read("/v1/events?type=duplicated").await;
    assert_eq!((duplicated.total, EventKind::Duplicated.as_str()), (0, "duplicated"));
    assert!(cluster.api.parked().await.is_empty());
    // They can be changed and deleted, by name and in their namespace.
    for key in ["plain", "plain?namespace=team"] {
        let path = format!("/v1/observers/{key}");
        let (status, answer) =
            cluster.api.call("PATCH", &path, Some(json!({"labels": {"new": "yes"}}))).await;
        assert_eq!(status, 200, "{answer}");
        let (status, answer) = cluster.api.call("DELETE", &path, None).await;
        assert_eq!(status, 202, "{answer}");
    }
    cluster.api.until_total("/v1/observers?status=Processing", running - 2).await;
}

async fn each_release(cluster: impl Fn() -> Cluster) {
    let cluster = || {
        let mut cluster = cluster();
        cluster.extra.push(("EVERWATCH_SERVICE__WEIGHT_MAX".to_owned(), "3".to_owned()));
        cluster
    };
    if let Some(release) = std::env::var_os("EVERWATCH_TEST_RECORD") {
        record(cluster(), &releases().join(release)).await;
    }
    let mut folders: Vec<PathBuf> =
        std::fs::read_dir(releases()).unwrap().map(|it| it.unwrap().path()).collect();
    folders.sort();
    assert!(!folders.is_empty(), "{} has no release", releases().display());
    for folder in folders {
        serves(cluster(), &folder).await;
    }
}

#[tokio::test]
async fn the_current_version_runs_what_each_release_stored_on_sqlite() {
    each_release(|| Cluster::new("stored")).await;
}

#[tokio::test]
async fn the_current_version_runs_what_each_release_stored_on_postgresql() {
    each_release(|| Cluster::new("stored").with_postgres()).await;
}
