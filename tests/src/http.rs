//! A client that panics with what went wrong, and waits for states instead of sleeping.

use serde_json::Value;
use std::future::Future;
use std::time::{Duration, Instant};

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
    /// With headers of one's own.
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
    pub async fn items(&self, path: &str) -> Vec<Value> {
        self.get(path).await["items"].as_array().unwrap().clone()
    }
    /// Waits until the observer has the status, and answers it.
    pub async fn until_status(&self, name: &str, status: &str) -> Value {
        let path = format!("/v1/observers/{name}");
        wait_for(&format!("{name} to be {status}"), || async {
            let it = self.get(&path).await;
            if it["status"] == status { Ok(it) } else { Err(it.to_string()) }
        })
        .await
    }
}

/// Waits until `look` succeeds; after a minute it panics with what it last saw.
pub async fn wait_for<T, F: Future<Output = Result<T, String>>>(what: &str, look: impl Fn() -> F) -> T {
    wait_within(Duration::from_secs(60), what, look).await
}

/// Waits until `look` succeeds; after `limit` it panics with what it last saw.
pub async fn wait_within<T, F: Future<Output = Result<T, String>>>(
    limit: Duration,
    what: &str,
    look: impl Fn() -> F,
) -> T {
    let begun = Instant::now();
    let mut ticks = tokio::time::interval(Duration::from_millis(50));
    loop {
        ticks.tick().await;
        match look().await {
            Ok(seen) => return seen,
            Err(seen) => {
                assert!(begun.elapsed() < limit, "waited {limit:?} for {what}; saw {seen}");
            }
        }
    }
}
