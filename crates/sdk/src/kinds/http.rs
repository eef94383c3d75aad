//! Polls a URL and emits its body whenever it has changed.

use crate::tasks::task::chain;
use crate::{Context, Error, Exit, Observer};
use everwatch_core::redact::{redacted, without_credentials};
use schemars::JsonSchema;
use serde::Deserialize;
use std::time::Duration;

/// The largest body that is read.
const BODY_MAX: usize = 1024 * 1024;

/// `{"url": "https://…", "every": "5s"}`
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Http {
    url: String,
    #[serde(default = "five_seconds", with = "everwatch_core::clock::friendly")]
    #[schemars(with = "String")]
    every: Duration,
}

fn five_seconds() -> Duration {
    Duration::from_secs(5)
}

impl Observer for Http {
    const KIND: &'static str = "http";

    async fn run(self, ctx: Context) -> Result<Exit, Error> {
        if self.every < Duration::from_millis(100) {
            return Ok(Exit::Failed("`every` is at least 100ms".to_owned()));
        }
        let Ok(url) = self.url.parse::<reqwest::Url>() else {
            return Ok(Exit::Failed(format!("`url`: `{}` is not a URL", redacted(&self.url))));
        };
        // What is polled with a password is told without it.
        let shown = without_credentials(url.as_str());
        let client = reqwest::Client::builder().timeout(Duration::from_secs(30)).build()?;
        let mut ticks = tokio::time::interval(self.every);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut last: Option<(u16, String)> = None;
        while ctx.until_cancelled(ticks.tick()).await.is_some() {
            let Some(seen) = ctx.until_cancelled(fetch(&client, url.clone())).await else { break };
            let seen = seen.map_err(|error| without_url(error, &shown))?;
            if last.as_ref() != Some(&seen) {
                let (status, body) = &seen;
                let news = if last.is_some() { "changed" } else { "first seen" };
                ctx.log(&format!("{news}: status {status}, {} bytes", body.len()));
                ctx.emit(serde_json::json!({ "url": shown, "status": status, "body": body })).await?;
                last = Some(seen);
            }
        }
        Ok(Exit::Done)
    }
}

/// The error of a request names its URL, with a query that may hold a secret.
fn without_url(error: Error, shown: &str) -> Error {
    match error.downcast::<reqwest::Error>() {
        Ok(error) => format!("{shown}: {}", chain(&error.without_url())).into(),
        Err(error) => error,
    }
}

async fn fetch(client: &reqwest::Client, url: reqwest::Url) -> Result<(u16, String), Error> {
    let mut response = client.get(url).send().await?;
    let status = response.status().as_u16();
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await? {
        body.extend_from_slice(&chunk);
        if body.len() > BODY_MAX {
            return Err(format!("the body is larger than {BODY_MAX} bytes").into());
        }
    }
    Ok((status, String::from_utf8_lossy(&body).into_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Trial;

    /// Answers every request on a port of its own.
    async fn server() -> (String, tokio::task::JoinSet<()>) {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let router = axum::Router::new().fallback(|headers: axum::http::HeaderMap| async move {
            if headers.contains_key("authorization") { "let in" } else { "kept out" }
        });
        let mut tasks = tokio::task::JoinSet::new();
        tasks.spawn(async move { axum::serve(listener, router).await.unwrap() });
        (address, tasks)
    }

    fn polls(url: &str) -> Http {
        serde_json::from_value(serde_json::json!({ "url": url, "every": "100ms" })).unwrap()
    }

    #[tokio::test]
    async fn a_password_is_sent_to_the_server_and_to_no_one_else() {
        let _installed = rustls::crypto::ring::default_provider().install_default();
        let (address, _server) = server().await;
        let mut trial = Trial::start(polls(&format!("http://me:hunter2@{address}/x?token=hunter2&page=1")));
        let emitted = trial.emitted().await.unwrap();
        assert_eq!(emitted["body"], "let in");
        assert_eq!(emitted["url"], format!("http://{address}/x?token=…&page=1"));
        let lines = trial.logged().join("\n");
        assert!(!lines.contains("hunter2"), "{lines}");
        assert_eq!(trial.stop().await.unwrap().unwrap(), Exit::Done);
    }

    #[tokio::test]
    async fn no_error_names_a_password() {
        let _installed = rustls::crypto::ring::default_provider().install_default();
        for url in ["http://me:hunter2@127.0.0.1:1/x?token=hunter2", "http://me:hunter2@no url"] {
            let ended = Trial::start(polls(url)).ended().await.unwrap();
            let told = ended.map_or_else(|error| format!("{error} {error:?}"), |exit| format!("{exit:?}"));
            assert!(!told.contains("hunter2"), "{told}");
        }
    }
}
