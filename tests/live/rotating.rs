//! New passwords of the broker and the database while everything runs: nothing is restarted.

use everwatch_core::record::status::Status;
use everwatch_tests::cluster::{Cluster, from_environment};
use everwatch_tests::http::holder;
use everwatch_tests::postgres::Server;
use everwatch_tests::rabbitmq::Management;
use everwatch_tests::wait::wait_for;
use serde_json::json;
use std::path::Path;
use std::process::Command;

/// Writes a file as a rotation does: nobody sees half of it.
fn replace(file: &Path, text: &str) {
    let new = file.with_extension("new");
    std::fs::write(&new, format!("{text}\n")).unwrap();
    std::fs::rename(new, file).unwrap();
}

fn file_of(cluster: &mut Cluster, key: &str, text: &str) -> std::path::PathBuf {
    let file = cluster.scratch.path().join(key.to_lowercase());
    replace(&file, text);
    cluster.extra.push((format!("EVERWATCH_{key}__URL_FILE"), file.display().to_string()));
    file
}

#[tokio::test]
async fn a_new_password_of_the_broker_needs_no_restart() {
    let mut cluster = Cluster::new("rotating");
    let management = Management::new(from_environment("EVERWATCH_TEST_MANAGEMENT_URL"));
    let user = cluster.prefix.trim_end_matches('.').to_owned();
    let (_, place) = cluster.broker_url.split_once('@').unwrap();
    let (place, path) = (place.to_owned(), format!("/api/users/{user}"));
    let url = |password: &str| format!("amqp://{user}:{password}@{place}");
    let set = async |password: &str| {
        let body = json!({"password": password, "tags": "management"});
        management.expect("PUT", &path, body).await;
    };
    set("first-password").await;
    let all = json!({"configure": ".*", "write": ".*", "read": ".*"});
    management.expect("PUT", &format!("/api/permissions/%2f/{user}"), all).await;
    let file = file_of(&mut cluster, "BROKER", &url("first-password"));
    cluster.manager().await;
    cluster.service("a", 5).await;
    cluster.api.create(json!({"name": "o", "kind": "ticker"})).await;
    let before = cluster.api.until_status("o", "Processing").await;

    // The password first, the file later: in between, nothing can connect.
    set("second-password").await;
    let connections = format!("/api/connections/username/{user}");
    wait_for("the broker to close the connections", || async {
        let (status, _) = management.call("DELETE", &connections).await;
        if status == 204 { Ok(()) } else { Err(status.to_string()) }
    })
    .await;
    for process in ["a", "manager"] {
        wait_for(&format!("{process} to be refused"), || async {
            let log = cluster.full_log(process);
            if log.contains("refuses user") { Ok(()) } else { Err(log) }
        })
        .await;
    }
    replace(&file, &url("second-password"));
    let is_back = |it: &everwatch_api::Observer| it.status == Status::Processing && it.epoch > before.epoch;
    let after = cluster.api.until_observer("o", is_back).await;
    assert_eq!(holder(&after), Some("a"));
    cluster.api.create(json!({"name": "later", "kind": "ticker"})).await;
    cluster.api.until_status("later", "Processing").await;
    for process in ["a", "manager"] {
        assert!(!cluster.has_ended(process), "{}", cluster.log(process));
        assert!(!cluster.full_log(process).contains("-password"), "{}", cluster.full_log(process));
    }
    cluster.kill_all();
    management.call("DELETE", &path).await;
}

#[tokio::test]
async fn a_new_password_of_the_database_needs_no_restart() {
    let mut cluster = Cluster::new("rotated");
    let folder = cluster.folder("server");
    let lines = ["host all owner 127.0.0.1/32 scram-sha-256", "host all everwatch 127.0.0.1/32 trust"];
    let server = Server::configured(&folder, &lines);
    let sql = |statement: &str| {
        let done = Command::new("psql").args([&server.url, "-qc", statement]).status().unwrap();
        assert!(done.success(), "psql: {statement}");
    };
    sql("create role owner login password 'first-password'");
    sql("create database rotated owner owner");
    let (_, place) = server.url.split_once('@').unwrap();
    let (place, _) = place.split_once('/').unwrap();
    let url = |password: &str| format!("postgres://owner:{password}@{place}/rotated");
    let file = file_of(&mut cluster, "STORE", &url("first-password"));
    cluster.manager().await;
    cluster.service("a", 5).await;
    cluster.api.create(json!({"name": "o", "kind": "ticker"})).await;
    cluster.api.until_status("o", "Processing").await;

    sql("alter role owner password 'second-password'");
    sql("select pg_terminate_backend(pid) from pg_stat_activity where usename = 'owner'");
    wait_for("requests to fail", || async {
        let (status, answer) = cluster.api.call("GET", "/v1/observers/o", None).await;
        if status >= 500 { Ok(()) } else { Err(answer.to_string()) }
    })
    .await;
    replace(&file, &url("second-password"));
    cluster.api.until("/v1/observers/o", |status, _| status == 200).await;
    cluster.api.create(json!({"name": "later", "kind": "ticker"})).await;
    cluster.api.until_status("later", "Processing").await;
    let log = cluster.full_log("manager");
    assert!(log.contains("new connections use them") && !log.contains("-password"), "{log}");
    assert!(!cluster.has_ended("manager"), "{log}");
}
