//! Each change of a definition is a version: who changed what, and the way back.

use everwatch_api::{DefinitionVersion, Event, Listed, Observer};
use everwatch_core::record::events::EventKind;
use everwatch_core::record::status::Status;
use everwatch_tests::cluster::Cluster;
use everwatch_tests::http::holder;
use everwatch_tests::wait::wait_for;
use serde_json::json;

/// After two changes.
fn judge_diffs(cluster: &Cluster) {
    let (code, said) = cluster.command(&["observer", "diff", "one"]);
    assert!(code == Some(0) && said.contains("+ priority: 7") && !said.contains("every"), "{said}");
    let (code, said) = cluster.command(&["observer", "diff", "one", "--from", "1", "--to", "2"]);
    assert!(code == Some(0) && said.contains("- spec.every: \"1s\"\n+ spec.every: \"2s\""), "{said}");
    let (code, said) = cluster.command(&["observer", "diff", "one", "--to", "9"]);
    assert!(code != Some(0) && said.contains("no version 9: its versions from 1 to 3 are kept"), "{said}");

    let (code, said) = cluster.command(&["observer", "diff", "one", "--to", "1"]);
    assert!(code != Some(0) && said.contains("--from"), "{said}");
}

#[tokio::test]
async fn changes_are_kept_shown_and_taken_back_through_a_failover() {
    let mut cluster = Cluster::new("versions").with_postgres();
    cluster.manager().await;
    cluster.service("a", 5).await;
    let api = cluster.api.clone();
    let made = api.create(json!({"name": "one", "kind": "ticker", "spec": {"every": "1s"}})).await;
    assert_eq!(made.definition_version, 1);
    api.until_status("one", "Processing").await;
    for patch in [json!({"spec": {"every": "2s"}}), json!({"labels": {"team": "a/b"}, "priority": 7})] {
        api.done::<Observer>("PATCH", "/v1/observers/one", Some(patch), 200).await;
    }
    // A change that changes nothing is none.
    let same: Observer = api.done("PATCH", "/v1/observers/one", Some(json!({"priority": 7})), 200).await;
    assert_eq!(same.definition_version, 3);
    let versions: Vec<DefinitionVersion> = api.list("/v1/observers/one/versions").await;
    let told: Vec<(u32, Vec<String>)> = versions
        .iter()
        .map(|it| (it.version, it.changes.iter().flatten().map(|it| it.pointer.clone()).collect()))
        .collect();
    assert_eq!(
        told,
        [
            (3, vec!["/labels".to_owned(), "/priority".to_owned()]),
            (2, vec!["/spec/every".to_owned()]),
            (1, vec![])
        ]
    );
    assert_eq!(versions[2].definition["spec"], json!({"every": "1s"}));
    judge_diffs(&cluster);
    let part: Listed<DefinitionVersion> = api.read("/v1/observers/one/versions?limit=1").await;
    assert_eq!((part.items.len(), part.total, &part.items[0]), (1, 3, &versions[0]));
    let refused = api.refused("GET", "/v1/observers/one/versions?limit=102", None).await;
    assert_eq!((refused.status, refused.code.as_str()), (400, "bad-query"), "{refused:?}");

    // Another manager takes it back, after the first one and the service died.
    let second = cluster.another_manager("second").await;
    cluster.service("b", 5).await;
    cluster.kill("manager");
    cluster.kill("a");
    second.until_observer("one", |it| it.status == Status::Processing && holder(it) == Some("b")).await;
    let refused = second.refused("POST", "/v1/observers/one/revert", Some(json!({"to": 4}))).await;
    assert_eq!((refused.status, refused.errors[0].pointer.as_str()), (422, "/to"), "{refused:?}");
    let back: Observer = second.done("POST", "/v1/observers/one/revert", Some(json!({"to": 1})), 200).await;
    assert_eq!((back.definition_version, back.priority), (4, 0));
    assert_eq!(back.spec, json!({"every": "1s"}));
    let runs = second
        .until_observer("one", |it| it.status == Status::Processing && it.generation > back.generation)
        .await;
    assert!(runs.labels.is_empty());
    // The last change is undone in the same way.
    cluster.manager().await;
    let (code, said) = cluster.command(&["observer", "revert", "one", "--to", "3"]);
    assert!(code == Some(0) && said.contains("as version 5 ("), "{said}");
    let (code, said) = cluster.command(&["observer", "versions", "one"]);
    assert!(code == Some(0) && said.lines().count() == 6, "{said}");
    let versions: Vec<DefinitionVersion> = api.list("/v1/observers/one/versions").await;
    assert_eq!(versions[0].definition, versions[2].definition);
    let first = versions.last().unwrap();
    assert!(versions[0].by.is_some() && first.version == 1 && first.by.is_some(), "{versions:?}");
    wait_for("the events of the changes", || async {
        let events: Vec<Event> = api.events_of("one").await;
        let changes: Vec<String> =
            events.iter().filter(|it| it.kind == EventKind::Changed).map(|it| it.text.clone()).collect();
        let expected = [
            "version 5: labels, priority, spec.every",
            "version 4: labels, priority, spec.every",
            "version 3: labels, priority",
            "version 2: spec.every",
        ];
        if changes == expected { Ok(()) } else { Err(format!("{changes:?}")) }
    })
    .await;
}
