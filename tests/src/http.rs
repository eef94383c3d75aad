//! An HTTP client of a manager for tests. It panics with the cause if a request fails, and parses answers as
//! types of the API.

use crate::wait::wait_for;
use everwatch_api::sse::{Message, Reader};
use everwatch_api::{Event, Finding, Listed, Observer, ParkedMessage, ProblemBody, SafeMode, Service};
use everwatch_core::record::status::Status;
use serde::de::{DeserializeOwned, IgnoredAny};
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
    /// With this token in every request.
    #[must_use]
    pub fn with_token(&self, token: &str) -> Self {
        let value = format!("Bearer {token}").parse().unwrap();
        let headers = [(reqwest::header::AUTHORIZATION, value)].into_iter().collect();
        let client = reqwest::Client::builder().default_headers(headers).build().unwrap();
        Self { url: self.url.clone(), client }
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
        self.try_call_with(method, path, &[], body).await
    }
    /// Sends a request with additional headers.
    pub async fn call_with(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, String)],
        body: Option<Value>,
    ) -> (u16, Value) {
        let answer = self.try_call_with(method, path, headers, body).await;
        answer.unwrap_or_else(|error| panic!("{method} {path}: {error}"))
    }
    /// Sends a request with additional headers; a connection that breaks is an error.
    pub async fn try_call_with(
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
    /// Waits until the manager is not ready; returns the problem.
    pub async fn until_not_ready(&self) -> ProblemBody {
        typed("/readyz", &self.until("/readyz", |status, _| status == 503).await)
    }
}

/// Typed answers.
impl Api {
    pub async fn read<T: DeserializeOwned>(&self, path: &str) -> T {
        typed(path, &self.get(path).await)
    }
    /// The same, from a manager that may not answer.
    pub async fn try_read<T: DeserializeOwned>(&self, path: &str) -> Result<T, String> {
        match self.try_call("GET", path, None).await {
            Ok((200, answer)) => Ok(typed(path, &answer)),
            other => Err(format!("{other:?}")),
        }
    }
    /// The items of a list, on one page.
    pub async fn list<T: DeserializeOwned>(&self, path: &str) -> Vec<T> {
        self.read::<Listed<T>>(path).await.items
    }
    /// By name or id.
    pub async fn observer(&self, key: &str) -> Observer {
        self.read(&format!("/v1/observers/{key}")).await
    }
    /// By name or id; the problem if the manager does not return it.
    pub async fn find_observer(&self, key: &str) -> Result<Observer, ProblemBody> {
        let path = format!("/v1/observers/{key}");
        let (status, answer) = self.call("GET", &path, None).await;
        if status == 200 { Ok(typed(&path, &answer)) } else { Err(typed(&path, &answer)) }
    }
    /// Up to 1,000 observers.
    pub async fn observers(&self) -> Vec<Observer> {
        self.list("/v1/observers?limit=1000").await
    }
    /// Up to 1,000 observers with the status Processing.
    pub async fn processing(&self) -> Vec<Observer> {
        self.list("/v1/observers?status=Processing&limit=1000").await
    }
    /// By name or id.
    pub async fn service(&self, key: &str) -> Service {
        self.read(&format!("/v1/services/{key}")).await
    }
    /// Up to 1,000 services, with those that have ended.
    pub async fn services(&self) -> Vec<Service> {
        self.list("/v1/services?limit=1000").await
    }
    /// The events of an observer, the newest first.
    pub async fn events_of(&self, key: &str) -> Vec<Event> {
        self.list(&format!("/v1/observers/{key}/events?limit=1000")).await
    }
    /// Waits until the events of an observer satisfy a condition; returns them, the newest first. Managers record events a moment
    /// after what they tell of.
    pub async fn until_events_of(&self, key: &str, are_right: impl Fn(&[Event]) -> bool) -> Vec<Event> {
        self.until_events(&format!("/v1/observers/{key}/events?limit=1000"), are_right).await
    }
    /// The same for the events at `path`.
    pub async fn until_events(&self, path: &str, are_right: impl Fn(&[Event]) -> bool) -> Vec<Event> {
        self.until_read(path, |list: &Listed<Event>| are_right(&list.items)).await.items
    }
    pub async fn safe_mode(&self) -> SafeMode {
        self.read("/v1/safe-mode").await
    }
    /// What the doctor finds.
    pub async fn findings(&self) -> Vec<Finding> {
        self.list("/v1/doctor").await
    }
    pub async fn parked(&self) -> Vec<ParkedMessage> {
        self.list("/v1/parked").await
    }
    /// Waits until what is at `path` satisfies a condition; returns it.
    pub async fn until_read<T: DeserializeOwned>(&self, path: &str, is_right: impl Fn(&T) -> bool) -> T {
        let right = |status: u16, it: &Value| status == 200 && is_right(&typed(path, it));
        typed(path, &self.until(path, right).await)
    }
    /// Waits until a list has so many items, over all pages.
    pub async fn until_total(&self, path: &str, total: u64) {
        self.until_read(path, |list: &Listed<IgnoredAny>| list.total == total).await;
    }
    /// Waits until an observer satisfies a condition; returns it.
    pub async fn until_observer(&self, key: &str, is_right: impl Fn(&Observer) -> bool) -> Observer {
        self.until_read(&format!("/v1/observers/{key}"), is_right).await
    }
    /// Waits until an observer has a status; returns it.
    pub async fn until_status(&self, key: &str, status: &str) -> Observer {
        let status: Status = status.parse().unwrap();
        self.until_observer(key, |it| it.status == status).await
    }
    /// Waits until a service satisfies a condition; returns it.
    pub async fn until_service(&self, key: &str, is_right: impl Fn(&Service) -> bool) -> Service {
        self.until_read(&format!("/v1/services/{key}"), is_right).await
    }
    /// Sends a request that must be answered with this status; returns the answer.
    pub async fn done<T: DeserializeOwned>(
        &self,
        method: &str,
        path: &str,
        body: Option<Value>,
        status: u16,
    ) -> T {
        let (answered, answer) = self.call(method, path, body).await;
        assert_eq!(answered, status, "{method} {path}: {answer}");
        typed(path, &answer)
    }
    pub async fn create(&self, body: Value) -> Observer {
        self.done("POST", "/v1/observers", Some(body), 201).await
    }
    /// Sends a request that must be refused; returns the problem.
    pub async fn refused(&self, method: &str, path: &str, body: Option<Value>) -> ProblemBody {
        let (status, answer) = self.call(method, path, body).await;
        assert!(status >= 400, "{method} {path} was not refused: {status} {answer}");
        let problem: ProblemBody = typed(path, &answer);
        assert_eq!(problem.status, status, "{method} {path}: {problem:?}");
        problem
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

/// The name of the service that holds an observer.
pub fn holder(it: &Observer) -> Option<&str> {
    it.service.as_ref().map(|service| service.name.as_str())
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
