//! Invalid messages: Everwatch parks them with a reason, hands them over, or drops them, and everything else
//! continues.

use everwatch_tests::cluster::{Cluster, from_environment};
use everwatch_tests::rabbitmq::{Management, publish};
use everwatch_tests::wait::wait_for;
use serde_json::json;

/// 10 MB.
const HUGE: usize = 10_000_000;
const ID: &str = "0190a1b2-0000-7000-8000-000000000001";

#[tokio::test]
async fn garbage_is_parked_with_its_reason_and_everything_else_goes_on() {
    let mut cluster = Cluster::new("garbage");
    cluster.manager().await;
    cluster.service("a", 5).await;
    let api = cluster.api.clone();
    let management = Management::new(from_environment("EVERWATCH_TEST_MANAGEMENT_URL"));
    let (work, state) = (format!("{}work.default", cluster.prefix), format!("{}state", cluster.prefix));
    api.create(json!({"name": "before", "kind": "ticker"})).await;
    let before = api.until_status("before", "Processing").await;

    let huge = vec![0; HUGE];
    for queue in [&work, &state] {
        for body in [&b"\xff\xfe\x00"[..], br#"{"v": 1, "kind": "ticker"}"#, &huge] {
            publish(&cluster.broker_url, queue, body).await;
        }
    }
    let parked = wait_for("six messages to be parked", || async {
        let parked = api.parked().await;
        if parked.len() == 6 { Ok(parked) } else { Err(format!("{} parked", parked.len())) }
    })
    .await;
    for it in &parked {
        assert!(!it.reason.is_empty(), "message {} of {} has no reason", it.id, it.queue);
    }
    let huge = parked.iter().filter(|it| it.size == HUGE as u64);
    assert_eq!(huge.count(), 2, "both large bodies are kept as they came");

    // On the heartbeats queue and the command exchange garbage is dropped.
    management.publish(&format!("{}heartbeats", cluster.prefix), "?!", "string").await;
    let command = json!({"properties": {}, "routing_key": "", "payload": "?!", "payload_encoding": "string"});
    let exchange = format!("/api/exchanges/%2f/{}commands/publish", cluster.prefix);
    management.expect("POST", &exchange, command).await;
    wait_for("the service to say that it dropped a command", || async {
        let log = cluster.full_log("a");
        if log.contains("unreadable command") { Ok(()) } else { Err(log) }
    })
    .await;

    api.create(json!({"name": "after", "kind": "ticker"})).await;
    api.until_status("after", "Processing").await;
    assert_eq!(api.observer("before").await.epoch, before.epoch, "the one from before ran on");
    assert_eq!(api.parked().await.len(), 6);
}

#[tokio::test]
async fn an_unknown_version_or_kind_is_handed_over_again_and_again_ever_more_slowly() {
    let mut cluster = Cluster::new("foreign");
    cluster.manager().await;
    cluster.service("a", 5).await;
    // A manager would withdraw the message of the unknown kind before its pauses grow.
    cluster.kill("manager");
    let management = Management::new(from_environment("EVERWATCH_TEST_MANAGEMENT_URL"));
    let work = format!("{}work.default", cluster.prefix);
    let version = json!({"v": 99, "id": ID, "generation": 1, "kind": "ticker", "news": true}).to_string();
    let kind = json!({"v": 1, "id": ID.replace("0001", "0002"), "generation": 1, "kind": "other", "name": "x",
        "spec": {}, "grace": "1s"});
    let kind = kind.to_string();
    management.publish(&work, &version, "string").await;
    management.publish(&work, &kind, "string").await;
    for word in ["version", "`other`"] {
        wait_for("eight pauses of 1 s between refusals, then 2 and 4 s", || async {
            let log = cluster.full_log("a");
            let refusals = log.lines().filter(|line| line.contains("refused") && line.contains(word));
            let at: Vec<i64> = refusals.map(|line| millis(line.split(' ').next().unwrap())).collect();
            let pauses: Vec<i64> = at.windows(2).map(|pair| pair[1] - pair[0]).collect();
            // Each time, the message passes every consumer of this service at once; then there is a pause.
            let long: Vec<_> = pauses.iter().filter(|pause| **pause > 500).collect();
            let least = [900; 8].into_iter().chain([1800, 3600]);
            let doubled = long.len() >= 10 && long.iter().zip(least).all(|(it, least)| **it >= least);
            if doubled { Ok(()) } else { Err(format!("{word}: {pauses:?}: {log}")) }
        })
        .await;
    }
    cluster.manager().await;
    cluster.api.create(json!({"name": "after", "kind": "ticker"})).await;
    cluster.api.until_status("after", "Processing").await;
    assert_eq!(cluster.api.parked().await, []);
}

/// The time at the beginning of a line of the log.
fn millis(time: &str) -> i64 {
    time.parse::<jiff::Timestamp>().unwrap().as_millisecond()
}
