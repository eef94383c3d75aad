//! A proxy in front of a manager that records all requests and responses.

use axum::Router;
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{Request, State};
use axum::response::Response;
use serde_json::Value;
use std::sync::{Arc, Mutex};
use tokio::task::JoinSet;

/// The largest body that is remembered.
const BODY_MAX: usize = 16 * 1024 * 1024;

/// A body with its media type.
pub(super) type Told = (String, Value);

#[derive(Debug, Clone)]
pub(super) struct Exchange {
    pub(super) method: String,
    pub(super) uri: String,
    pub(super) request: Option<Told>,
    pub(super) status: u16,
    pub(super) answer: Told,
}

pub(super) struct Recorder {
    pub(super) url: String,
    exchanges: Arc<Mutex<Vec<Exchange>>>,
    _server: JoinSet<std::io::Result<()>>,
}

#[derive(Clone)]
struct Passing {
    manager: String,
    client: reqwest::Client,
    exchanges: Arc<Mutex<Vec<Exchange>>>,
}

impl Recorder {
    pub(super) async fn before(manager: &str) -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let exchanges = Arc::<Mutex<Vec<Exchange>>>::default();
        let (manager, client) = (manager.to_owned(), reqwest::Client::new());
        let passing = Passing { manager, client, exchanges: Arc::clone(&exchanges) };
        let app = Router::new().fallback(pass).with_state(passing);
        let mut server = JoinSet::new();
        server.spawn(async move { axum::serve(listener, app).await });
        Self { url, exchanges, _server: server }
    }

    pub(super) fn exchanges(&self) -> Vec<Exchange> {
        self.exchanges.lock().unwrap().clone()
    }
}

async fn pass(State(passing): State<Passing>, request: Request) -> Response {
    let (head, body) = request.into_parts();
    let sent = to_bytes(body, BODY_MAX).await.unwrap();
    let (method, uri) = (head.method.to_string(), head.uri.to_string());
    let mut headers = head.headers.clone();
    headers.remove("host");
    let request = (!sent.is_empty()).then(|| told(&head.headers, &sent));
    let passed = passing.client.request(head.method, format!("{}{uri}", passing.manager));
    let response = passed.headers(headers).body(sent).send().await.unwrap();
    let (status, headers) = (response.status(), response.headers().clone());
    let is_stream = media_type(&headers) == "text/event-stream";
    let (answer, body) = if is_stream {
        ((media_type(&headers), Value::String(String::new())), Body::from_stream(response.bytes_stream()))
    } else {
        let bytes = response.bytes().await.unwrap();
        (told(&headers, &bytes), Body::from(bytes))
    };
    let exchange = Exchange { method, uri, request, status: status.as_u16(), answer };
    passing.exchanges.lock().unwrap().push(exchange);
    let mut answered = Response::new(body);
    (*answered.status_mut(), *answered.headers_mut()) = (status, headers);
    answered
}

fn media_type(headers: &axum::http::HeaderMap) -> String {
    let text = headers.get("content-type").map_or("", |it| it.to_str().unwrap());
    text.split(';').next().unwrap().to_owned()
}

fn told(headers: &axum::http::HeaderMap, bytes: &Bytes) -> Told {
    let text = || Value::String(String::from_utf8_lossy(bytes).into_owned());
    (media_type(headers), serde_json::from_slice(bytes).unwrap_or_else(|_| text()))
}
