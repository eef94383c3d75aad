//! Two teams in one deployment: the same names, tokens of their own, and quotas that two managers keep together.

use everwatch_api::{CreatedToken, Listed, Namespace, Observer};
use everwatch_tests::cluster::Cluster;
use everwatch_tests::http::Api;
use everwatch_tests::wait::wait_for;
use serde_json::{Value, json};
use std::path::Path;

/// The quota of observers of each team.
const OBSERVERS: usize = 4;
/// The quota of its observers that run at once.
const RUNNING: u64 = 2;

async fn team(api: &Api, namespace: &str) -> String {
    let settings = json!({ "quotas": { "observers": OBSERVERS, "running": RUNNING } });
    let path = format!("/v1/namespaces/{namespace}");
    api.done::<Namespace>("PUT", &path, Some(settings), 201).await;
    let body = json!({ "name": format!("of-{namespace}"), "role": "operator", "namespace": namespace });
    api.done::<CreatedToken>("POST", "/v1/tokens", Some(body), 201).await.token
}

/// An observer that leaves a file with its namespace and name, and then stays.
fn observer(name: &str, folder: &Path) -> Value {
    let script = r#"touch "$0/$EVERWATCH_OBSERVER_NAMESPACE.$EVERWATCH_OBSERVER_NAME"; exec sleep 1000"#;
    let argv = json!(["/bin/sh", "-c", script, folder.display().to_string()]);
    json!({ "name": name, "kind": "exec", "spec": { "argv": argv }, "on_full": "queue" })
}

/// The files of the observers that have started.
fn started(folder: &Path) -> Vec<String> {
    let names = std::fs::read_dir(folder).unwrap();
    names.map(|it| it.unwrap().file_name().into_string().unwrap()).collect()
}

#[tokio::test]
async fn two_teams_share_services_and_nothing_else() {
    let mut cluster = Cluster::new("namespaces").with_postgres().guarded();
    cluster.manager().await;
    let second = cluster.another_manager("second").await;
    cluster.service("a", 20).await;
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    for namespace in ["red", "blue"] {
        let token = team(&cluster.api, namespace).await;
        let managers = [cluster.api.with_token(&token), second.with_token(&token)];
        // Both managers create at once, more than the quota permits.
        let creates = (0..10).map(|number| {
            let (manager, body) = (&managers[number % 2], observer(&format!("o{number}"), folder));
            async move { manager.call("POST", "/v1/observers", Some(body)).await.0 }
        });
        let mut statuses = futures::future::join_all(creates).await;
        statuses.sort_unstable();
        let expected = [vec![201; OBSERVERS], vec![409; 10 - OBSERVERS]].concat();
        assert_eq!(statuses, expected, "{namespace}");
        let refused = managers[0].refused("POST", "/v1/observers", Some(observer("x", folder))).await;
        assert_eq!(refused.code, "quota-reached");
        assert_eq!(refused.quota.map(|it| (it.namespace, it.used)), Some((namespace.to_owned(), 4)));
        let own: Listed<Observer> = managers[1].read("/v1/observers").await;
        assert_eq!((own.total, own.items.iter().all(|it| it.namespace == namespace)), (4, true));
    }
    wait_for("two observers of each team run", || async {
        let started = started(folder);
        let of = |namespace: &str| started.iter().filter(|it| it.starts_with(namespace)).count();
        if (of("red."), of("blue.")) == (2, 2) { Ok(()) } else { Err(format!("{started:?}")) }
    })
    .await;
    for namespace in ["red", "blue"] {
        let it: Namespace = second.read(&format!("/v1/namespaces/{namespace}")).await;
        assert_eq!((it.running, it.observers), (Some(RUNNING), 4));
    }
    let all: Listed<Observer> = cluster.api.read("/v1/observers?limit=100").await;
    assert_eq!((all.total, started(folder).len()), (8, 4));
}
