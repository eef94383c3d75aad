//! An HTTP client of a manager for tests. It panics with the cause if a request fails, and parses answers as
//! types of the API.

use crate::wait::wait_for;
use everwatch_api::sse::{Message, Reader};
use everwatch_api::{Event, Listed, Observer, ProblemBody, SafeMode, Service};
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::collections::VecDeque;

/// One manager, seen from a test.
#[derive(Debug, Clone)]
pub struct Api {
    pub url: String,
    client: reqwest::Client,
}

impl Api {
    pub fn new(url: String) -> Self {
        // A second install is refused and changes nothing.
        let _installed = rustls::crypto::ring::default_provider().install_default();
        Self { url, client: reqwest::Client::new() }
    }
    pub async fn call(&self, method: &str, path: &str, body: Option<Value>) -> (u16, Value) {
        self.try_call(method, path, body).await.unwrap_or_else(|error| panic!("{method} {path}: {error}"))
    }
    pub async fn try_call(
        &self,
        method: &str,
        path: &str,
        body: Option<Value>,
    ) -> reqwest::Result<(u16, Value)> {
        self.send(method, path, &[], body).await
    }
    /// Sends a request with additional headers.
    pub async fn call_with(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, String)],
        body: Option<Value>,
    ) -> (u16, Value) {
        let answer = self.send(method, path, headers, body).await;
        answer.unwrap_or_else(|error| panic!("{method} {path}: {error}"))
    }
    async fn send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, String)],
        body: Option<Value>,
    ) -> reqwest::Result<(u16, Value)> {
        let mut request = self.client.request(method.parse().unwrap(), format!("{}{path}", self.url));
        for (name, value) in headers {
            request = request.header(*name, value);
        }
        if let Some(body) = body {
            request = request.json(&body);
        }
        let response = request.send().await?;
        let status = response.status().as_u16();
        let text = response.text().await?;
        Ok((status, serde_json::from_str(&text).unwrap_or(Value::String(text))))
    }
    /// The answer as it was sent.
    pub async fn get(&self, path: &str) -> Value {
        let (status, body) = self.call("GET", path, None).await;
        assert_eq!(status, 200, "GET {path}: {body}");
        body
    }
    pub async fn create(&self, body: Value) -> Value {
        let (status, made) = self.call("POST", "/v1/observers", Some(body.clone())).await;
        assert_eq!(status, 201, "{body}: {made}");
        made
    }
    /// The items of a list as they were sent.
    pub async fn items(&self, path: &str) -> Vec<Value> {
        self.list(path).await
    }
    /// Waits until the observer has the status, and answers it.
    pub async fn until_status(&self, name: &str, status: &str) -> Value {
        self.until(&format!("/v1/observers/{name}"), |_, it| it["status"] == status).await
    }
    /// Waits until the status and the body at `path` satisfy a condition; returns the body.
    pub async fn until(&self, path: &str, is_right: impl Fn(u16, &Value) -> bool) -> Value {
        wait_for(path, || async {
            match self.try_call("GET", path, None).await {
                Ok((status, body)) if is_right(status, &body) => Ok(body),
                other => Err(format!("{other:?}")),
            }
        })
        .await
    }
    pub async fn until_ready(&self) {
        self.until("/readyz", |status, _| status == 200).await;
    }
}

/// Typed answers.
impl Api {
    pub async fn read<T: DeserializeOwned>(&self, path: &str) -> T {
        typed(path, &self.get(path).await)
    }
    /// The items of a list, on one page.
    pub async fn list<T: DeserializeOwned>(&self, path: &str) -> Vec<T> {
        self.read::<Listed<T>>(path).await.items
    }
    /// By name or id.
    pub async fn observer(&self, key: &str) -> Observer {
        self.read(&format!("/v1/observers/{key}")).await
    }
    /// Up to 1,000 observers.
    pub async fn observers(&self) -> Vec<Observer> {
        self.list("/v1/observers?limit=1000").await
    }
    /// By name or id.
    pub async fn service(&self, key: &str) -> Service {
        self.read(&format!("/v1/services/{key}")).await
    }
    /// The events of an observer, the newest first.
    pub async fn events_of(&self, key: &str) -> Vec<Event> {
        self.list(&format!("/v1/observers/{key}/events?limit=1000")).await
    }
    pub async fn safe_mode(&self) -> SafeMode {
        self.read("/v1/safe-mode").await
    }
    /// Waits until an observer satisfies a condition; returns it.
    pub async fn until_observer(&self, key: &str, is_right: impl Fn(&Observer) -> bool) -> Observer {
        let path = format!("/v1/observers/{key}");
        let right = |status: u16, it: &Value| status == 200 && is_right(&typed(&path, it));
        typed(&path, &self.until(&path, right).await)
    }
    /// Waits until a service satisfies a condition; returns it.
    pub async fn until_service(&self, key: &str, is_right: impl Fn(&Service) -> bool) -> Service {
        let path = format!("/v1/services/{key}");
        let right = |status: u16, it: &Value| status == 200 && is_right(&typed(&path, it));
        typed(&path, &self.until(&path, right).await)
    }
    /// Sends a request that must be refused; returns the problem.
    pub async fn refused(&self, method: &str, path: &str, body: Option<Value>) -> ProblemBody {
        let (status, answer) = self.call(method, path, body).await;
        assert!(status >= 400, "{method} {path} was not refused: {status} {answer}");
        typed(path, &answer)
    }
    /// A stream of server-sent events.
    pub async fn follow(&self, path: &str) -> Stream {
        let response = self.follow_as(path, "text/event-stream").await.error_for_status().unwrap();
        Stream { response, reader: Reader::default(), ready: VecDeque::new() }
    }
    /// The answer to a client that accepts this media type.
    pub async fn follow_as(&self, path: &str, accept: &str) -> reqwest::Response {
        self.client.get(format!("{}{path}", self.url)).header("accept", accept).send().await.unwrap()
    }
}

fn typed<T: DeserializeOwned>(path: &str, it: &Value) -> T {
    T::deserialize(it).unwrap_or_else(|error| panic!("{path}: {error} in {it}"))
}

/// A stream of server-sent events.
#[derive(Debug)]
pub struct Stream {
    response: reqwest::Response,
    reader: Reader,
    ready: VecDeque<Message>,
}

impl Stream {
    /// The next message; none once the stream has ended.
    pub async fn next(&mut self) -> Option<Message> {
        while self.ready.is_empty() {
            let chunk = self.response.chunk().await.ok().flatten()?;
            self.ready.extend(self.reader.read(&chunk).unwrap());
        }
        self.ready.pop_front()
    }
}
