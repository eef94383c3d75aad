//! Polls a URL and emits the answer, always or when it has changed.

mod answer;
mod request;
#[cfg(test)]
mod tests;

use super::spec::{Count, DAY, MINUTE, SECOND, Span};
use crate::{Context, Error, Exit, Observer, Readiness};
use answer::{Answer, Digest};
pub(crate) use request::HttpClients;
use request::Prepared;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use serde_json::{Value, json};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::Instant;

/// Polls a URL and emits `{"url", "status", "body"}`, at the first answer and whenever the answer has changed.
///
/// An answer with an unexpected status is an error, so that the observer counts as running only while its target
/// answers as it should.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("examples" = [{"url": "https://example.org/"}]))]
pub struct Http {
    /// URL to poll: `http://` or `https://`. A user and password in it are sent as HTTP basic authentication.
    #[schemars(extend("format" = "uri", "pattern" = "^https?://", "examples" = ["https://example.org/"]), length(max = 4096))]
    url: String,
    /// Time between two requests.
    #[serde(default = "five_seconds")]
    every: Span<100, { 7 * DAY }>,
    /// Random part of `every`, in percent: with 10, each pause is from 90 % to 110 % of it. It keeps observers that
    /// started together from polling together.
    #[serde(default = "jitter")]
    jitter: Count<0, 100>,
    /// Method of each request.
    #[serde(default)]
    method: Method,
    /// Headers of each request.
    #[serde(default)]
    #[schemars(extend("maxProperties" = 100))]
    headers: BTreeMap<String, String>,
    /// Body of each request: a string is sent as it is, any other value as JSON.
    #[serde(default)]
    body: Value,
    /// How long one request may take, from the connect to the last byte of the body.
    #[serde(default = "thirty_seconds")]
    timeout: Span<100, { 5 * MINUTE }>,
    /// The statuses that are no error: numbers such as 204, or classes such as `"2xx"`.
    #[serde(default = "successful")]
    #[schemars(length(min = 1, max = 100))]
    expect: Vec<Expected>,
    /// Number of errors in a row that are only logged. After one more, the attempt ends with an error, and the retry
    /// policy of the observer decides what follows.
    #[serde(default)]
    tolerate: Count<0, 1000>,
    /// Rate of which each request first acquires one permit (`everwatch rate set`). A redirect that is followed needs none.
    #[serde(default)]
    #[schemars(extend("pattern" = "^[A-Za-z0-9][A-Za-z0-9._-]*$"), length(max = 128))]
    rate: Option<String>,
    /// Whether to follow up to 10 redirects.
    #[serde(default = "yes")]
    redirects: bool,
    /// Whether to ask the server to answer only if the body has changed (`If-None-Match`, `If-Modified-Since`). Only
    /// for GET and HEAD, and only if `emit` is `changes`.
    #[serde(default = "yes")]
    conditional: bool,
    /// What to emit: only `changes` of the status or body, or the answer to each request (`always`).
    #[serde(default)]
    emit: Emit,
    /// JSON pointer such as `/data/price` to the part of the body whose changes count. The part is emitted as
    /// `value`, and an answer without it is an error.
    #[serde(default)]
    #[schemars(extend("pattern" = "^(/|$)"))]
    pointer: Option<String>,
    /// Whether to emit a body that is JSON as JSON instead of a string.
    #[serde(default)]
    json: bool,
    /// Size of the largest body to accept, in bytes; a larger one is an error.
    #[serde(default = "one_mebibyte")]
    max_body: Count<0, { 16 << 20 }>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "UPPERCASE")]
#[schemars(inline)]
enum Method {
    #[default]
    Get,
    Head,
    Post,
    Put,
    Patch,
    Delete,
    Options,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
enum Emit {
    #[default]
    Changes,
    Always,
}

/// A status, or a class of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Expected {
    Status(u16),
    Class(u16),
}

fn five_seconds() -> Span<100, { 7 * DAY }> {
    Span::ms(5 * SECOND)
}
fn thirty_seconds() -> Span<100, { 5 * MINUTE }> {
    Span::ms(30 * SECOND)
}
fn jitter() -> Count<0, 100> {
    Count::new(10)
}
fn one_mebibyte() -> Count<0, { 16 << 20 }> {
    Count::new(1 << 20)
}
fn successful() -> Vec<Expected> {
    vec![Expected::Class(2)]
}
fn yes() -> bool {
    true
}

impl Expected {
    fn includes(self, status: u16) -> bool {
        match self {
            Self::Status(one) => one == status,
            Self::Class(class) => class == status / 100,
        }
    }
    fn parse(text: &str) -> Option<Self> {
        match text.as_bytes() {
            [class @ b'1'..=b'5', b'x', b'x'] => Some(Self::Class(u16::from(class - b'0'))),
            _ => None,
        }
    }
}

impl std::fmt::Display for Expected {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Status(status) => write!(f, "{status}"),
            Self::Class(class) => write!(f, "{class}xx"),
        }
    }
}

impl Serialize for Expected {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Status(status) => serializer.serialize_u16(*status),
            Self::Class(_) => serializer.collect_str(self),
        }
    }
}

impl<'de> Deserialize<'de> for Expected {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(deserializer)?;
        let status =
            value.as_u64().and_then(|it| u16::try_from(it).ok()).filter(|it| (100..=599).contains(it));
        let expected = status.map(Self::Status).or_else(|| Self::parse(value.as_str()?));
        expected.ok_or_else(|| {
            de::Error::custom(format!(
                "{value} is no status: write one from 100 to 599, or a class as \"2xx\""
            ))
        })
    }
}

impl JsonSchema for Expected {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> Cow<'static, str> {
        "ExpectedStatus".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": ["integer", "string"], "minimum": 100, "maximum": 599, "pattern": "^[1-5]xx$" })
    }
}

impl Observer for Http {
    const KIND: &'static str = "http";
    // The first requests may fail, as many as the spec tolerates.
    const READINESS: Readiness = Readiness::Announced;

    async fn run(self, ctx: Context) -> Result<Exit, Error> {
        let clients = ctx.shared::<HttpClients>().unwrap_or_default();
        let mut prepared = match Prepared::new(&self, &clients) {
            Ok(prepared) => prepared,
            Err(wrong) => return Ok(Exit::Failed(wrong)),
        };
        let (mut last, mut failures) = (None, 0);
        loop {
            let begun = Instant::now();
            let Some(polled) = ctx.until_cancelled(self.poll(&ctx, &mut prepared)).await else { break };
            match polled {
                Ok(answer) => {
                    failures = 0;
                    ctx.ready();
                    self.take(answer, &mut last, (&ctx, &prepared.shown)).await?;
                }
                Err(error) => {
                    failures += 1;
                    if failures > self.tolerate.get() {
                        return Err(error);
                    }
                    ctx.log(&format!(
                        "{error}; error {failures} in a row, {} are tolerated",
                        self.tolerate.get()
                    ));
                }
            }
            let next = begun + self.pause(rand::random_range(-1.0..=1.0));
            if ctx.until_cancelled(tokio::time::sleep_until(next)).await.is_none() {
                break;
            }
        }
        Ok(Exit::Done)
    }
}

impl Http {
    /// The time from one request to the next; `chance` is from -1 to 1.
    fn pause(&self, chance: f64) -> Duration {
        self.every.get().mul_f64((1.0 + chance * f64::from(self.jitter.get()) / 100.0).max(0.0))
    }

    /// `None`: the server says that nothing has changed.
    async fn poll(&self, ctx: &Context, prepared: &mut Prepared<'_>) -> Result<Option<Answer>, Error> {
        if let Some(rate) = &self.rate {
            ctx.acquire(rate, 1).await?;
        }
        let received = prepared.fetch().await?;
        let Some(received) = received else { return Ok(None) };
        Ok(Some(Answer::new(received, self).map_err(|error| format!("{}: {error}", prepared.shown))?))
    }

    async fn take(
        &self,
        answer: Option<Answer>,
        last: &mut Option<Digest>,
        (ctx, shown): (&Context, &str),
    ) -> Result<(), Error> {
        let Some(answer) = answer else { return Ok(()) };
        let is_news = *last != Some(answer.digest);
        if is_news {
            let news = if last.is_some() { "changed" } else { "first seen" };
            ctx.log(&format!("{news}: status {}, {} bytes", answer.status, answer.size));
        }
        if is_news || self.emit == Emit::Always {
            let mut emitted = json!({ "url": shown, "status": answer.status, "body": answer.body });
            if let Some(value) = answer.value {
                emitted["value"] = value;
            }
            ctx.emit(emitted).await?;
            *last = Some(answer.digest);
        }
        Ok(())
    }
}
