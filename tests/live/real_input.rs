//! Realistic observers, which watch RabbitMQ's HTTP API and a growing log, while services are killed.

use everwatch_tests::cluster::{Cluster, from_environment};
use everwatch_tests::rabbitmq::Management;
use everwatch_tests::wait::wait_for;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::io::Write as _;

const STEPS: usize = 12;

#[tokio::test]
async fn no_state_change_is_lost_while_services_are_killed() {
    let mut cluster = Cluster::new("real");
    cluster.manager().await;
    for name in ["a", "b", "c"] {
        cluster.service(name, 10).await;
    }
    let api = cluster.api.clone();
    let management_url = from_environment("EVERWATCH_TEST_MANAGEMENT_URL");
    let management = Management::new(management_url.clone());
    let heard = format!("{}heard", cluster.prefix);
    management.listen(&format!("{}output", cluster.prefix), &heard).await;

    // The input of `http`: a policy that this test changes.
    let policy = format!("{management_url}/api/policies/%2f/{}watched", cluster.prefix);
    change(&management, &cluster.prefix, 0).await;
    for number in 0..3 {
        let spec = json!({"url": policy, "every": "100ms"});
        api.create(json!({"name": format!("http{number}"), "kind": "http", "spec": spec})).await;
    }
    // The input of `exec`: a file, which each run reads from its beginning.
    let log = cluster.scratch.path().join("growing.log");
    let mut growing = std::fs::File::create(&log).unwrap();
    for number in 0..3 {
        let argv = json!(["tail", "-n", "+1", "-F", log]);
        api.create(json!({"name": format!("tail{number}"), "kind": "exec", "spec": {"argv": argv}})).await;
    }
    for name in ["http0", "http1", "http2", "tail0", "tail1", "tail2"] {
        api.until_status(name, "Processing").await;
    }
    for step in 1..=STEPS {
        writeln!(growing, "line {step} of the log").unwrap();
        change(&management, &cluster.prefix, step).await;
        if step % 4 == 0 {
            let victim = ["a", "b", "c"][step / 4 - 1];
            cluster.kill(victim);
            cluster.service(victim, 10).await;
        }
        until_heard(&management, &heard, &cluster, step).await;
    }
}

/// Puts `step` into the priority of a policy that matches nothing.
async fn change(management: &Management, prefix: &str, step: usize) {
    let body = json!({"pattern": "^matches-nothing$", "definition": {"max-length": 10}, "priority": step});
    management.expect("PUT", &format!("/api/policies/%2f/{prefix}watched"), body).await;
}

/// Waits until every observer has reported this step. Each run of `http` reports the state that it finds, so
/// an observer whose service was killed reports it after the move. All reported values are in the queue.
async fn until_heard(management: &Management, heard: &str, cluster: &Cluster, step: usize) {
    let told = std::sync::Mutex::new(BTreeSet::new());
    wait_for(&format!("step {step} to be told by all"), || async {
        for message in management.take(heard).await {
            let value: Value = serde_json::from_str(message["payload"].as_str().unwrap()).unwrap();
            let state: Value = serde_json::from_str(value["body"].as_str().unwrap()).unwrap();
            let key = message["routing_key"].as_str().unwrap().to_owned();
            assert!(message["properties"]["headers"]["everwatch-epoch"].as_u64() > Some(0), "{message}");
            if state["priority"] == json!(step) {
                told.lock().unwrap().insert(key);
            }
        }
        let logs = ["a", "b", "c"].map(|name| cluster.full_log(name)).concat();
        let line = format!("line {step} of the log");
        let followed = (0..3).filter(|number| {
            let name = format!("\"tail{number}\"");
            logs.lines().any(|it| it.contains(&line) && it.contains(&name))
        });
        let (told, followed) = (told.lock().unwrap().clone(), followed.count());
        if told.len() == 3 && followed == 3 {
            Ok(())
        } else {
            Err(format!("http {told:?}, {followed} of exec"))
        }
    })
    .await;
}
