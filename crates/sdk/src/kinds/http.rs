//! Polls a URL and emits its body whenever it has changed.

use crate::{Context, Error, Exit, Observer};
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
            return Ok(Exit::Failed(format!("`{}` is not a URL", self.url)));
        };
        let client = reqwest::Client::builder().timeout(Duration::from_secs(30)).build()?;
        let mut ticks = tokio::time::interval(self.every);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut last: Option<(u16, String)> = None;
        while ctx.until_cancelled(ticks.tick()).await.is_some() {
            let Some(seen) = ctx.until_cancelled(fetch(&client, url.clone())).await else { break };
            let seen = seen?;
            if last.as_ref() != Some(&seen) {
                let (status, body) = &seen;
                let news = if last.is_some() { "changed" } else { "first seen" };
                ctx.log(&format!("{news}: status {status}, {} bytes", body.len()));
                ctx.emit(serde_json::json!({ "url": self.url, "status": status, "body": body })).await?;
                last = Some(seen);
            }
        }
        Ok(Exit::Done)
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
