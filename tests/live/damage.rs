//! A stored row that cannot be read: everything else continues, and operators are told what to do.

use everwatch_api::{Observer, Service};
use everwatch_core::doctor::Severity;
use everwatch_core::record::status::Status;
use everwatch_tests::cluster::Cluster;
use everwatch_tests::http::holder;
use everwatch_tests::wait::wait_for;
use serde_json::json;

#[tokio::test]
async fn an_unreadable_row_affects_no_other_observer_and_its_reports_are_kept() {
    let mut cluster = Cluster::new("damage").with_postgres();
    cluster.manager().await;
    let api = cluster.api.clone();
    cluster.service("a", 20).await;
    for number in 0..10 {
        api.create(json!({"name": format!("o{number}"), "kind": "ticker"})).await;
    }
    for number in 0..10 {
        api.until_status(&format!("o{number}"), "Processing").await;
    }
    cluster.service("b", 20).await;
    let id = api.observer("o0").await.id.to_string();
    cluster.sql("create table kept as select s.id, s.state from observer_states s join observers o on o.id = s.id where o.name = 'o0'");
    cluster.sql("update observer_states set state = substr(state, 1, length(state) - 1), due_at = 0 where id = (select id from kept)");

    // Other observers can still be created, deleted and moved.
    api.create(json!({"name": "after", "kind": "ticker"})).await;
    api.until_status("after", "Processing").await;
    let deleted: Observer = api.done("DELETE", "/v1/observers/o1?wait=20s", None, 200).await;
    assert_eq!(deleted.status, Status::Deleted, "{deleted:?}");
    cluster.kill("a");
    for number in 2..10 {
        until_held_by(&cluster, &format!("o{number}"), "b").await;
    }
    // Managers also do what is due by the clock: no service reports the end of the killed service.
    wait_for("the killed service to be lost", || async {
        let services: Vec<Service> = api.list("/v1/services?name=a&state=lost").await;
        if services.len() == 1 { Ok(()) } else { Err(format!("{services:?}")) }
    })
    .await;
    assert_eq!(api.call("GET", "/readyz", None).await.0, 200);

    // A request for the observer returns the problem; the doctor and the metrics report it too.
    let problem = api.refused("GET", "/v1/observers/o0", None).await;
    let cure = format!("DELETE FROM observers WHERE id = '{id}'");
    assert!(problem.status == 500 && problem.detail.contains(&cure), "{problem:?}");
    let findings = api.findings().await;
    let found = findings.iter().find(|it| it.code == "unreadable-row").unwrap();
    assert_eq!(found.severity, Severity::Critical);
    assert!(found.subject.contains(&id) && found.cure.contains(&cure), "{found:?}");
    let (_, metrics) = api.call("GET", "/metrics", None).await;
    let metrics = metrics.as_str().unwrap().to_owned();
    assert!(metrics.contains("everwatch_unreadable_rows{table=\"observers\"} 1"), "{metrics}");

    // After the row is repaired, an operator sends its parked reports back to the queue.
    cluster.sql("update observer_states set state = kept.state from kept where observer_states.id = kept.id");
    let parked = api.parked().await;
    assert!(!parked.is_empty(), "the start of its run on the other service is kept");
    for message in parked {
        assert!(message.reason.contains(&id), "{message:?}");
        let path = format!("/v1/parked/{}/retry", message.id);
        assert_eq!(api.call("POST", &path, None).await.0, 202);
    }
    until_held_by(&cluster, "o0", "b").await;
    assert!(api.findings().await.iter().all(|it| it.code != "unreadable-row"));
}

async fn until_held_by(cluster: &Cluster, name: &str, service: &str) {
    let held = |it: &Observer| it.status == Status::Processing && holder(it) == Some(service);
    cluster.api.until_observer(name, held).await;
}
