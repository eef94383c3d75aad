//! Tests of `http` with a real server.

use super::*;
use crate::kinds::HttpSettings;
use crate::kinds::trial::Kept;
use crate::kinds::trial::{shared, start, until, until_logged, with};
use crate::testing::Trial;
use axum::body::Bytes;
use axum::http::{HeaderMap, Method as Asked, StatusCode, Uri};
use std::sync::{Arc, Mutex};

/// What a request was.
#[derive(Debug, Clone)]
struct Request {
    method: Asked,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
}

impl Request {
    fn header(&self, name: &str) -> &str {
        self.headers.get(name).map(|it| it.to_str().unwrap()).unwrap_or_default()
    }
}

type Reply = (StatusCode, Vec<(&'static str, &'static str)>, String);
type Replies = dyn Fn(usize, &Request) -> Reply + Send + Sync;

struct Server {
    address: String,
    requests: Arc<Mutex<Vec<Request>>>,
    _tasks: tokio::task::JoinSet<()>,
}

impl Server {
    /// Answers each request on a port of its own; the first has the number 0.
    async fn new(reply: impl Fn(usize, &Request) -> Reply + Send + Sync + 'static) -> Self {
        let _installed = rustls::crypto::ring::default_provider().install_default();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let requests = Arc::new(Mutex::new(Vec::new()));
        let (seen, reply): (_, Arc<Replies>) = (requests.clone(), Arc::new(reply));
        let router = axum::Router::new().fallback(
            move |method: Asked, uri: Uri, headers: HeaderMap, body: Bytes| async move {
                let request = Request { method, uri, headers, body };
                let number = {
                    let mut seen = seen.lock().unwrap();
                    seen.push(request.clone());
                    seen.len() - 1
                };
                let (status, headers, body) = reply(number, &request);
                let headers: HeaderMap = headers
                    .into_iter()
                    .map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()))
                    .collect();
                (status, headers, body)
            },
        );
        let mut tasks = tokio::task::JoinSet::new();
        tasks.spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { address, requests, _tasks: tasks }
    }
    async fn says(body: &'static str) -> Self {
        Self::new(move |_, _| (StatusCode::OK, vec![], body.to_owned())).await
    }
    fn request(&self, number: usize) -> Request {
        self.requests.lock().unwrap()[number].clone()
    }
    fn count(&self) -> usize {
        self.requests.lock().unwrap().len()
    }
    fn start(&self, more: Value) -> (Trial, Arc<Kept>) {
        let spec =
            with(json!({"url": format!("http://{}/", self.address), "every": "100ms", "jitter": 0}), more);
        let kept = Arc::new(Kept::default());
        (start::<Http>(spec, &kept, vec![shared(here())]), kept)
    }
}

fn polls(url: &str) -> Trial {
    let _installed = rustls::crypto::ring::default_provider().install_default();
    start::<Http>(json!({ "url": url, "every": "100ms" }), &Kept::default(), vec![shared(here())])
}

/// The clients of a service whose observers may connect to this machine.
fn here() -> HttpClients {
    HttpClients::new(HttpSettings { allow_private: true, ..HttpSettings::default() })
}

#[tokio::test]
async fn a_password_is_sent_to_the_server_and_to_no_one_else() {
    let server = Server::new(|_, request| {
        let body = if request.header("authorization").is_empty() { "kept out" } else { "let in" };
        (StatusCode::OK, vec![], body.to_owned())
    });
    let server = server.await;
    let mut trial = polls(&format!("http://me:hunter2@{}/x?token=hunter2&page=1", server.address));
    let emitted = trial.emitted().await.unwrap();
    assert_eq!(emitted["body"], "let in");
    assert_eq!(emitted["url"], format!("http://{}/x?token=…&page=1", server.address));
    let lines = trial.logged().join("\n");
    assert!(!lines.contains("hunter2"), "{lines}");
    assert_eq!(trial.stop().await.unwrap().unwrap(), Exit::Done);
}

#[tokio::test]
async fn no_error_names_a_password() {
    for url in ["http://me:hunter2@127.0.0.1:1/x?token=hunter2", "http://me:hunter2@no url"] {
        let ended = polls(url).ended().await.unwrap();
        let told = ended.map_or_else(|error| format!("{error} {error:?}"), |exit| format!("{exit:?}"));
        assert!(!told.contains("hunter2"), "{told}");
    }
}

#[tokio::test]
async fn the_request_is_as_the_spec_says() {
    let server = Server::says("ok").await;
    let spec = json!({"method": "POST", "headers": {"X-Of": "eur", "Authorization": "Bearer hunter2"},
        "body": {"ask": 1}});
    let (mut trial, kept) = server.start(spec);
    trial.emitted().await.unwrap();
    assert!(kept.is_ready());
    let request = server.request(0);
    assert_eq!(
        (request.method.as_str(), request.uri.path(), &*request.body),
        ("POST", "/", &b"{\"ask\":1}"[..])
    );
    assert_eq!(request.header("x-of"), "eur");
    assert_eq!(request.header("authorization"), "Bearer hunter2");
    assert_eq!(request.header("content-type"), "application/json");
    let (mut trial, _) = server.start(json!({"method": "PUT", "body": "as it is"}));
    trial.emitted().await.unwrap();
    let request = server.request(server.count() - 1);
    assert_eq!(&*request.body, b"as it is");
    assert_eq!(request.header("content-type"), "");
}

#[tokio::test]
async fn an_unexpected_status_is_an_error_and_never_ready() {
    let server = Server::new(|_, _| (StatusCode::NOT_FOUND, vec![], "gone".to_owned())).await;
    let (mut trial, kept) = server.start(json!({}));
    let error = trial.ended().await.unwrap().unwrap_err().to_string();
    assert!(error.contains("the server answered 404 Not Found; `expect` is 2xx"), "{error}");
    assert!(!kept.is_ready());
    for expect in [json!([404]), json!(["4xx", 200])] {
        let (mut trial, kept) = server.start(json!({ "expect": expect }));
        let emitted = trial.emitted().await.unwrap();
        assert_eq!((&emitted["status"], &emitted["body"]), (&json!(404), &json!("gone")));
        assert!(kept.is_ready());
    }
    let (mut trial, _) = server.start(json!({"expect": [200, 204]}));
    let error = trial.ended().await.unwrap().unwrap_err().to_string();
    assert!(error.contains("`expect` is 200, 204"), "{error}");
}

#[tokio::test]
async fn some_errors_in_a_row_are_tolerated() {
    let fails = |number: usize| number % 4 != 3;
    let server = Server::new(move |number, _| match fails(number) {
        true => (StatusCode::BAD_GATEWAY, vec![], String::new()),
        false => (StatusCode::OK, vec![], format!("{number}")),
    });
    let server = server.await;
    let (mut trial, _) = server.start(json!({"tolerate": 3}));
    assert_eq!(trial.emitted().await.unwrap()["body"], "3");
    assert_eq!(trial.emitted().await.unwrap()["body"], "7");
    until_logged(&trial, "502 Bad Gateway; `expect` is 2xx; error 3 in a row, 3 are tolerated").await;
    drop(trial);
    let (mut trial, _) = server.start(json!({"tolerate": 1}));
    assert!(trial.ended().await.unwrap().is_err());
}

#[tokio::test]
async fn a_server_is_asked_only_for_changes_and_its_304_is_no_change() {
    let server = Server::new(|_, request| {
        let tag = ("etag", "\"v1\"");
        let since = ("last-modified", "Wed, 21 Oct 2026 07:28:00 GMT");
        match request.header("if-none-match") {
            "\"v1\"" if request.header("if-modified-since") == since.1 => {
                (StatusCode::NOT_MODIFIED, vec![], String::new())
            }
            "" => (StatusCode::OK, vec![tag, since], "one".to_owned()),
            _ => (StatusCode::BAD_REQUEST, vec![], String::new()),
        }
    });
    let server = server.await;
    let (mut trial, _) = server.start(json!({}));
    assert_eq!(trial.emitted().await.unwrap()["body"], "one");
    until("three requests", || server.count() >= 3).await;
    assert_eq!(server.request(2).header("if-none-match"), "\"v1\"");
    assert_eq!(trial.logged().len(), 1, "{:?}", trial.logged());
    assert_eq!(trial.stop().await.unwrap().unwrap(), Exit::Done);
    for spec in [json!({"conditional": false}), json!({"emit": "always"}), json!({"method": "POST"})] {
        let first = server.count();
        let (trial, _) = server.start(spec);
        until("two requests", || server.count() >= first + 2).await;
        assert_eq!(server.request(first + 1).header("if-none-match"), "");
        trial.stop().await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn only_what_the_spec_watches_is_a_change() {
    let server = Server::new(|number, _| {
        (StatusCode::OK, vec![], json!({"at": number, "price": [number / 3]}).to_string())
    });
    let server = server.await;
    let (mut trial, _) = server.start(json!({"pointer": "/price/0", "json": true}));
    let (first, second) = (trial.emitted().await.unwrap(), trial.emitted().await.unwrap());
    assert_eq!((&first["value"], &first["body"]["at"]), (&json!(0), &json!(0)));
    assert_eq!((&second["value"], &second["body"]["at"]), (&json!(1), &json!(3)));
    drop(trial);
    let (mut trial, _) = server.start(json!({}));
    let first = trial.emitted().await.unwrap();
    assert!(first["body"].is_string() && first["value"].is_null(), "{first}");
    let (mut trial, _) = server.start(json!({"pointer": "/cost"}));
    let error = trial.ended().await.unwrap().unwrap_err().to_string();
    assert!(error.contains("the body has nothing at `pointer`, `/cost`"), "{error}");
    let server = Server::says("no JSON").await;
    let (mut trial, _) = server.start(json!({"pointer": "/cost"}));
    let error = trial.ended().await.unwrap().unwrap_err().to_string();
    assert!(error.contains("the body is not JSON, which `pointer` needs"), "{error}");
    let (mut trial, _) = server.start(json!({"emit": "always"}));
    trial.emitted().await.unwrap();
    trial.emitted().await.unwrap();
}

#[tokio::test]
async fn limits_hold() {
    let server = Server::says("12345").await;
    let (mut trial, _) = server.start(json!({"max_body": 4}));
    let error = trial.ended().await.unwrap().unwrap_err().to_string();
    assert!(error.contains("the body is larger than `max_body`, 4 bytes"), "{error}");
    let (mut trial, _) = server.start(json!({"max_body": 5}));
    assert_eq!(trial.emitted().await.unwrap()["body"], "12345");
    // A server that accepts and says nothing.
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let spec = json!({"url": format!("http://{}/", listener.local_addr().unwrap()), "timeout": "100ms"});
    let mut trial = start::<Http>(spec, &Arc::default(), vec![shared(here())]);
    let error = trial.ended().await.unwrap().unwrap_err().to_string();
    assert!(error.contains("timed out"), "{error}");
}

#[tokio::test]
async fn redirects_are_followed_unless_the_spec_says_otherwise() {
    let server = Server::new(|_, request| match request.uri.path() {
        "/" => (StatusCode::FOUND, vec![("location", "/there")], String::new()),
        _ => (StatusCode::OK, vec![], "there".to_owned()),
    });
    let server = server.await;
    let (mut trial, _) = server.start(json!({}));
    assert_eq!(trial.emitted().await.unwrap()["body"], "there");
    let (mut trial, _) = server.start(json!({"redirects": false}));
    let error = trial.ended().await.unwrap().unwrap_err().to_string();
    assert!(error.contains("302 Found"), "{error}");
}

#[test]
fn pauses_vary_by_the_jitter_of_the_spec() {
    let spec = |more: &str| -> Http {
        serde_json::from_str(&format!(r#"{{"url": "http://h/", "every": "10s"{more}}}"#)).unwrap()
    };
    let seconds = |spec: &Http, chance: f64| spec.pause(chance).as_secs_f64();
    let usual = spec("");
    assert_eq!([-1.0, 0.0, 1.0].map(|chance| seconds(&usual, chance)), [9.0, 10.0, 11.0]);
    assert_eq!(seconds(&spec(r#", "jitter": 0"#), 1.0), 10.0);
    assert_eq!(seconds(&spec(r#", "jitter": 100"#), -1.0), 0.0);
}

#[tokio::test]
async fn a_wrong_spec_names_its_member() {
    let _installed = rustls::crypto::ring::default_provider().install_default();
    for (spec, told) in [
        (json!({"url": "ftp://h/"}), "`url`: `ftp://h/` does not begin with http://"),
        (json!({"url": "http://h/", "headers": {"a b": "x"}}), "`headers`: `a b`"),
        (json!({"url": "http://h/", "headers": {"Host": "x"}}), "`headers`: `host` is the host of `url`"),
        (json!({"url": "http://127.0.0.1#hunter2@h/"}), "`url`: the host of `"),
        (json!({"url": "http://h/", "headers": {"x": "hunter2\n"}}), "`headers`: the value of `x`"),
    ] {
        let ended = start::<Http>(spec, &Arc::default(), Vec::new()).ended().await.unwrap().unwrap();
        let Exit::Failed(reason) = ended else { panic!("{told}: it is done") };
        assert!(reason.contains(told) && !reason.contains("hunter2"), "{reason}");
    }
    for (spec, told) in [
        (r#"{"url": "http://h/", "expect": [99]}"#, "99 is no status"),
        (r#"{"url": "http://h/", "expect": ["6xx"]}"#, "\"6xx\" is no status"),
        (r#"{"url": "http://h/", "every": "1 parsec"}"#, "`1 parsec` is not a duration"),
        (r#"{"url": "http://h/", "every": "1ms"}"#, "`1ms` must be from 100ms"),
    ] {
        let error = serde_json::from_str::<Http>(spec).unwrap_err().to_string();
        assert!(error.contains(told), "{error}");
    }
}

#[tokio::test]
async fn each_request_acquires_one_permit_of_its_rate() {
    let server = Server::says("x").await;
    let (trial, _) = server.start(json!({"rate": "openai"}));
    until("three requests", || server.count() >= 3).await;
    let before = server.count();
    let permits = usize::try_from(trial.acquired("openai")).unwrap();
    // The next request may have its permit already.
    assert!((before..=server.count() + 1).contains(&permits), "{permits} permits for {before} requests");
    assert_eq!(trial.acquired("other"), 0);
}

/// Each URL leads to the test server, which counts requests.
#[tokio::test]
async fn an_address_that_is_not_allowed_is_never_connected_to() {
    let server = Server::new(|_, request| match request.uri.path() {
        "/" => (StatusCode::OK, vec![], "secret".to_owned()),
        elsewhere => (StatusCode::FOUND, vec![("location", to(elsewhere))], String::new()),
    });
    let server = server.await;
    let port = server.address.rsplit_once(':').unwrap().1.to_owned();
    let ends = async |url: &str, settings: &HttpSettings| {
        let spec = json!({"url": url, "every": "100ms", "tolerate": 0});
        let mut trial =
            start::<Http>(spec, &Kept::default(), vec![shared(HttpClients::new(settings.clone()))]);
        match trial.ended().await.unwrap() {
            Ok(Exit::Failed(reason)) => reason,
            Ok(_) => panic!("{url}: it is done"),
            Err(error) => error.to_string(),
        }
    };
    let public = HttpSettings::default();
    for host in ["127.0.0.1", "0x7f000001", "[::ffff:127.0.0.1]", "localhost", "LOCALHOST"] {
        let told = ends(&format!("http://{host}:{port}/"), &public).await;
        assert!(told.contains("[service.http] allow_private_hosts"), "{host}: {told}");
    }
    let allow_hosts = vec!["other.example".to_owned()];
    let other = HttpSettings { allow_hosts, allow_private: true, ..HttpSettings::default() };
    let told = ends(&format!("http://localhost:{port}/"), &other).await;
    assert!(told.contains("host `localhost` is not in [service.http] allow_hosts"), "{told}");
    assert_eq!(server.count(), 0);

    // The first host is allowed, and redirects.
    let allow_private_hosts = vec!["localhost".to_owned()];
    let named = HttpSettings { allow_private_hosts, ..HttpSettings::default() };
    for (path, told) in [("/itself", "`127.0.0.1` is not public"), ("/address", "`127.0.0.2` is not public")]
    {
        let error = ends(&format!("http://localhost:{port}{path}"), &named).await;
        assert!(error.contains(told), "{error}");
    }
    assert_eq!(server.count(), 2);
}

/// The target of a redirect that the observer must not follow.
fn to(path: &str) -> &'static str {
    if path == "/itself" { "http://127.0.0.1:1/" } else { "http://127.0.0.2:1/" }
}
