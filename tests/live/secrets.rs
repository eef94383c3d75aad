//! References to secrets in specs: the code gets the secrets, and nothing else does.

use axum::Router;
use axum::http::HeaderMap;
use axum::routing::get;
use everwatch_api::Logs;
use everwatch_core::record::status::Status;
use everwatch_tests::cluster::{Cluster, from_environment};
use everwatch_tests::http::holder;
use everwatch_tests::rabbitmq::Management;
use everwatch_tests::wait::wait_for;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Arc, Mutex};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

/// Tells its password in every way that a program has, then fails.
const LEAKS: &str = r#"
echo "out $PASSWORD"
echo "err $PASSWORD" >&2
echo "{\"emit\":{\"password\":\"$PASSWORD\"}}" >&"$EVERWATCH_FD"
echo "{\"status\":\"logged in with $PASSWORD\"}" >&"$EVERWATCH_FD"
sleep 0.3
exit 3
"#;

/// A server that repeats the secrets of each request in its answer.
struct Echo {
    url: String,
    tokens: Arc<Mutex<BTreeSet<String>>>,
    _server: JoinSet<()>,
}

impl Echo {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        let tokens = Arc::<Mutex<BTreeSet<String>>>::default();
        let heard = Arc::clone(&tokens);
        let answer = move |headers: HeaderMap| {
            let token =
                headers.get("authorization").map(|it| it.to_str().unwrap().to_owned()).unwrap_or_default();
            heard.lock().unwrap().insert(token.clone());
            std::future::ready(json!({ "you sent": token }).to_string())
        };
        let mut server = JoinSet::new();
        server.spawn(
            async move { axum::serve(listener, Router::new().route("/", get(answer))).await.unwrap() },
        );
        Self { url, tokens, _server: server }
    }

    async fn until(&self, token: &str) {
        wait_for(&format!("a request with {token}"), || async {
            let heard = self.tokens.lock().unwrap().clone();
            if heard.contains(token) { Ok(()) } else { Err(format!("{heard:?}")) }
        })
        .await;
    }
}

/// Everything that a deployment tells or stores.
async fn told(cluster: &Cluster, output: &[Value]) -> Vec<(String, String)> {
    let mut all = vec![("the output exchange".to_owned(), format!("{output:?}"))];
    for process in ["manager", "a", "b"] {
        all.push((format!("the log of {process}"), cluster.full_log(process)));
    }
    let metrics = reqwest::get(format!("http://{}/metrics", cluster.health_address("b"))).await.unwrap();
    all.push(("the metrics of b".to_owned(), metrics.text().await.unwrap()));
    let metrics = reqwest::get(format!("{}/metrics", cluster.api.url)).await.unwrap();
    all.push(("the metrics of the manager".to_owned(), metrics.text().await.unwrap()));
    for path in
        ["/v1/observers?limit=1000", "/v1/events?limit=1000&details=true", "/v1/services", "/v1/audit"]
    {
        all.push((path.to_owned(), cluster.api.get(path).await.to_string()));
    }
    for name in ["leaks", "polls"] {
        for part in ["", "/logs", "/events", "/versions", "/runs"] {
            let path = format!("/v1/observers/{name}{part}");
            all.push((path.clone(), cluster.api.call("GET", &path, None).await.1.to_string()));
        }
        all.push((format!("describe {name}"), cluster.command(&["observer", "describe", name]).1));
    }
    for file in std::fs::read_dir(cluster.scratch.path()).unwrap() {
        let path = file.unwrap().path();
        if path.is_file() && path.file_name().unwrap().to_str().unwrap().starts_with("everwatch.db") {
            let bytes = std::fs::read(&path).unwrap();
            all.push((path.display().to_string(), String::from_utf8_lossy(&bytes).into_owned()));
        }
    }
    all
}

fn secret(folder: &Path, name: &str, text: &str) {
    let file = folder.join(name);
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    std::fs::write(file, format!("{text}\n")).unwrap();
}

#[tokio::test]
async fn code_gets_secrets_and_nothing_else_tells_or_stores_them() {
    let mut cluster = Cluster::new("secrets");
    let (folder, echo) = (cluster.folder("secrets"), Echo::start().await);
    let (password, token, next) = ("correct-horse/battery", "Bearer staple-7d1f0e", "Bearer rotated-93ac55");
    secret(&folder, "db/password", password);
    secret(&folder, "api/token", token);
    cluster.extra.push(("EVERWATCH_SERVICE__SECRETS_DIR".to_owned(), folder.display().to_string()));
    cluster.extra.push(("EVERWATCH_SERVICE__EXEC__ENV_ALLOW".to_owned(), "PASSWORD".to_owned()));
    cluster.extra.push(("EVERWATCH_LOG__FILTER".to_owned(), "debug,lapin=off,sqlx=info".to_owned()));
    cluster.manager().await;
    cluster.service("a", 5).await;
    let management = Management::new(from_environment("EVERWATCH_TEST_MANAGEMENT_URL"));
    let queue = format!("{}heard", cluster.prefix);
    management.listen(&format!("{}output", cluster.prefix), &queue).await;

    let retry = json!({"kind": "fixed", "every": "200ms", "attempts": null});
    let env = json!({"PASSWORD": {"$secret": "file:db/password"}});
    let spec = json!({"argv": ["/bin/sh", "-c", LEAKS], "env": env, "channel": true});
    cluster.api.create(json!({"name": "leaks", "kind": "exec", "spec": spec, "retry": retry})).await;
    let headers = json!({"authorization": {"$secret": "file:api/token"}});
    let spec = json!({"url": echo.url, "headers": headers, "every": "100ms", "json": true});
    let polls =
        cluster.api.create(json!({"name": "polls", "kind": "http", "spec": spec, "retry": retry})).await;
    assert_eq!(polls.spec["headers"], headers, "the answer has the reference");
    echo.until(token).await;

    // The next attempt reads the secret again, here on the next service.
    secret(&folder, "api/token", next);
    cluster.kill("a");
    cluster.service("b", 5).await;
    echo.until(next).await;
    let is_moved = |it: &everwatch_api::Observer| it.status == Status::Processing && holder(it) == Some("b");
    cluster.api.until_observer("polls", is_moved).await;
    cluster.api.until_observer("leaks", |it| is_moved(it) && it.restarts >= 2).await;
    let logs = cluster
        .api
        .until_read("/v1/observers/leaks/logs", |logs: &Logs| {
            let has = |text: &str| logs.items.iter().any(|line| line.text == text);
            has("out ***") && has("err ***")
        })
        .await;
    assert!(logs.items.iter().any(|line| line.text.contains("ended with an error")), "{logs:?}");
    let output = management.take(&queue).await;
    let values: Vec<&str> = output.iter().filter_map(|it| it["payload"].as_str()).collect();
    assert!(values.iter().any(|it| it.contains(r#"{"password":"***"}"#)), "{values:?}");
    assert!(values.iter().any(|it| it.contains(r#""you sent":"***""#)), "{values:?}");
    for (place, text) in told(&cluster, &output).await {
        for secret in [password, "correct-horse", "staple-7d1f0e", "rotated-93ac55"] {
            assert!(!text.contains(secret), "{place} has {secret}: {}", &text[..text.len().min(20_000)]);
        }
    }
}

#[tokio::test]
async fn a_secret_that_cannot_be_read_is_told_and_cured_without_a_change() {
    let mut cluster = Cluster::new("missing");
    let (folder, echo) = (cluster.folder("secrets"), Echo::start().await);
    cluster.extra.push(("EVERWATCH_SERVICE__SECRETS_DIR".to_owned(), folder.display().to_string()));
    cluster.manager().await;
    cluster.service("a", 5).await;
    let retry = json!({"kind": "fixed", "every": "200ms", "attempts": null});
    let definition = |reference: &Value| {
        let spec =
            json!({"url": echo.url, "every": "100ms", "headers": {"authorization": {"$secret": reference}}});
        json!({"name": "polls", "kind": "http", "spec": spec, "retry": retry})
    };
    for (wrong, told) in [
        (json!("file:/etc/passwd"), "not a path below the folder of secrets"),
        (json!("file:../outside"), "not a path below the folder of secrets"),
        (json!("db/password"), "write \\\"file:PATH\\\""),
        (json!(7), "must be a string"),
    ] {
        let problem = cluster.api.refused("POST", "/v1/observers", Some(definition(&wrong))).await;
        assert_eq!(problem.status, 422);
        let told_of = format!("{problem:?}");
        assert!(told_of.contains("/spec/headers/authorization") && told_of.contains(told), "{told_of}");
    }
    let mut object = definition(&json!("file:api/token"));
    object["spec"]["every"] = json!(1);
    object["spec"]["headers"] = json!({"$secret": "file:api/token"});
    let problem = cluster.api.refused("POST", "/v1/observers", Some(object)).await;
    assert!(format!("{problem:?}").contains("/spec/headers"), "{problem:?}");

    cluster.api.create(definition(&json!("file:api/token"))).await;
    let failing = cluster.api.until_observer("polls", |it| it.last_error.is_some()).await;
    let error = failing.last_error.unwrap();
    assert!(error.contains("the secret at /spec/headers/authorization, file:api/token: "), "{error}");
    assert!(error.contains("No such file"), "{error}");
    secret(&folder, "api/token", "Bearer appeared");
    echo.until("Bearer appeared").await;
}
