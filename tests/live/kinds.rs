//! Specs of the built-in kinds through the whole system: a wrong one is refused when it is created, with the name of
//! its member; one that its service does not permit fails with the name of the setting.

use everwatch_tests::cluster::Cluster;
use serde_json::json;

#[tokio::test]
async fn a_spec_that_does_not_fit_its_kind_is_refused_by_its_member() {
    let mut cluster = Cluster::new("specs");
    cluster.manager().await;
    cluster.service("a", 5).await;
    let url = "http://h/";
    for (kind, spec, pointer) in [
        ("http", json!("not a url"), "/spec"),
        ("http", json!({}), "/spec/url"),
        ("http", json!({"url": "not a url"}), "/spec/url"),
        ("http", json!({"url": "ftp://h/"}), "/spec/url"),
        ("http", json!({"url": url, "every": "1 parsec"}), "/spec/every"),
        ("http", json!({"url": url, "every": "1ms"}), "/spec/every"),
        ("http", json!({"url": url, "timeout": "1h"}), "/spec/timeout"),
        ("http", json!({"url": url, "method": "BREW"}), "/spec/method"),
        ("http", json!({"url": url, "expect": [200, 99]}), "/spec/expect/1"),
        ("http", json!({"url": url, "max_body": 1_u64 << 40}), "/spec/max_body"),
        ("http", json!({"url": url, "pointer": "data"}), "/spec/pointer"),
        ("ticker", json!({"every": "1 parsec"}), "/spec/every"),
        ("ticker", json!({"evry": "1s"}), "/spec"),
        ("websocket", json!({"url": url}), "/spec/url"),
        ("websocket", json!({"url": "ws://h/", "reconnect": {"first": "soon"}}), "/spec/reconnect/first"),
        ("exec", json!({"argv": []}), "/spec/argv"),
        ("exec", json!({"argv": ["x"], "cwd": "tmp"}), "/spec/cwd"),
        ("exec", json!({"argv": ["x"], "restart": "never"}), "/spec/restart"),
        ("exec", json!({"argv": ["x"], "live": {"silence": "0s"}}), "/spec/live"),
        ("tail", json!({"path": "relative"}), "/spec/path"),
        ("replicate", json!({"from": "/a"}), "/spec/to"),
        ("postgres-listen", json!({"url": "mysql://u@h/d"}), "/spec/url"),
    ] {
        let body = json!({"name": "wrong", "kind": kind, "spec": spec});
        let (status, answer) = cluster.api.call("POST", "/v1/observers", Some(body)).await;
        assert_eq!(status, 422, "{kind} {spec}: {answer}");
        let named = format!("\"pointer\":\"{pointer}");
        assert!(answer.to_string().contains(&named), "{kind} {spec}: {answer}");
    }
}

#[tokio::test]
async fn a_kind_does_what_its_service_permits_and_no_more() {
    let mut cluster = Cluster::new("permits");
    let folder = cluster.folder("allowed");
    let allowed = folder.to_str().unwrap().to_owned();
    cluster.extra.push(("EVERWATCH_SERVICE__FILES__READ".to_owned(), allowed.clone()));
    cluster.extra.push(("EVERWATCH_SERVICE__FILES__WRITE".to_owned(), format!("{allowed}/to,/nowhere")));
    cluster.manager().await;
    cluster.service("a", 5).await;
    std::fs::create_dir(folder.join("from")).unwrap();
    std::fs::write(folder.join("from/file"), "content").unwrap();
    let spec = json!({"from": folder.join("from"), "to": folder.join("to"), "every": "100ms"});
    cluster.api.create(json!({"name": "copies", "kind": "replicate", "spec": spec})).await;
    everwatch_tests::wait::wait_for("the copy", || async {
        std::fs::read_to_string(folder.join("to/file")).map_err(|error| error.to_string())
    })
    .await;
    for (kind, spec, told) in [
        ("tail", json!({"path": "/etc/passwd"}), "[service.files] read"),
        ("replicate", json!({"from": folder.join("from"), "to": "/etc/to"}), "[service.files] write"),
        (
            "postgres-listen",
            json!({"url": "postgres://u@h/d", "channels": ["x"]}),
            "[service.postgres] allow",
        ),
    ] {
        let made = cluster.api.create(json!({"kind": kind, "spec": spec})).await;
        let failed = cluster.api.until_status(&made.name, "Failed").await;
        assert!(failed.last_error.as_ref().is_some_and(|it| it.contains(told)), "{failed:?}");
    }
}
