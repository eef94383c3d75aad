//! Receives the messages of a WebSocket server and emits each of them; connects again whenever the connection ends.

mod connection;
mod request;
#[cfg(test)]
mod tests;

use super::network::HttpSettings;
use super::pauses::{Connections, Pauses};
use super::spec::{Count, DAY, HOUR, MINUTE, SECOND, Span};
use crate::{Context, Error, Exit, Observer, Readiness};
use connection::{Buffered, Connection, Ended};
use request::{NotConnected, Prepared};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use tokio::sync::mpsc;
use tokio::time::Instant;

/// Receives the messages of a WebSocket server and emits each of them.
///
/// It emits a text message as a string, or as the JSON value in it if `json` is set, and a binary message as
/// `{"base64": "…"}`. When the receiver of the output is slow, it stops reading from the server.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("examples" = [{"url": "wss://example.org/feed"}]))]
pub struct WebSocket {
    /// URL of the server: `ws://` or `wss://`. A user and password in it are sent as HTTP basic authentication.
    #[schemars(extend("format" = "uri", "pattern" = "^wss?://", "examples" = ["wss://example.org/feed"]), length(max = 4096))]
    url: String,
    /// HTTP headers of the request that opens the connection, such as `Authorization`.
    #[serde(default)]
    #[schemars(extend("maxProperties" = 100))]
    headers: BTreeMap<String, String>,
    /// Subprotocols to offer, the preferred one first. If there are any, the server must select one of them.
    #[serde(default)]
    #[schemars(length(max = 20))]
    subprotocols: Vec<String>,
    /// Messages to send after each connect, in this order: a string is sent as it is, any other value as JSON.
    #[serde(default)]
    #[schemars(length(max = 100))]
    subscribe: Vec<Value>,
    /// When the observer is ready: after the `connect`, after the first `message`, or after the `answer` to
    /// `subscribe`.
    #[serde(default)]
    ready: ReadyWhen,
    /// How to recognize the answer for `"ready": "answer"`. It is emitted like every message.
    #[serde(default)]
    answer: Answer,
    /// How long a connect may take, and how long the answer may take after it.
    #[serde(default = "connect_timeout")]
    connect_timeout: Span<100, { 5 * MINUTE }>,
    /// Interval at which to send pings.
    #[serde(default = "ping")]
    ping: Span<100, HOUR>,
    /// How long the server may take to answer a ping; then the connection is closed and made again.
    #[serde(default = "pong_timeout")]
    pong_timeout: Span<100, HOUR>,
    /// How long no message may arrive; then the connection is closed and made again. Unset: no limit.
    #[serde(default)]
    silence: Option<Span<100, DAY>>,
    /// Whether to emit text messages that are JSON as JSON. Other text messages are emitted as strings.
    #[serde(default)]
    json: bool,
    /// Size of the largest message to accept, in bytes. After a larger one, the connection is closed and made again.
    #[serde(default = "max_message")]
    max_message: Count<1, { 8 << 20 }>,
    /// Number of messages that may wait to be emitted, of at most twice `max_message` bytes together; then no more
    /// are read from the server.
    #[serde(default = "buffer")]
    buffer: Count<1, 1000>,
    /// When to connect again.
    #[serde(default)]
    reconnect: Pauses,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
enum ReadyWhen {
    #[default]
    Connect,
    Message,
    Answer,
}

/// A message is the answer if all given conditions hold.
#[derive(Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline)]
struct Answer {
    /// A text that the message contains.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    contains: Option<String>,
    /// The message is JSON and has a value at this JSON pointer, such as `/type`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("pattern" = "^(/|$)"))]
    pointer: Option<String>,
    /// The value at `pointer` equals this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    equals: Option<Value>,
}

fn connect_timeout() -> Span<100, { 5 * MINUTE }> {
    Span::ms(10 * SECOND)
}
fn ping() -> Span<100, HOUR> {
    Span::ms(20 * SECOND)
}
fn pong_timeout() -> Span<100, HOUR> {
    Span::ms(10 * SECOND)
}
fn max_message() -> Count<1, { 8 << 20 }> {
    Count::new(1 << 20)
}
fn buffer() -> Count<1, 1000> {
    Count::new(16)
}

impl Answer {
    fn is_set(&self) -> bool {
        self.contains.is_some() || self.pointer.is_some()
    }
    fn is(&self, text: &str) -> bool {
        if self.contains.as_ref().is_some_and(|part| !text.contains(part)) {
            return false;
        }
        let Some(pointer) = &self.pointer else { return self.is_set() };
        let Ok(message) = serde_json::from_str::<Value>(text) else { return false };
        let found = message.pointer(pointer);
        found.is_some_and(|value| self.equals.as_ref().is_none_or(|wanted| wanted == value))
    }
}

impl Observer for WebSocket {
    const KIND: &'static str = "websocket";
    // The spec limits how many connections may fail, and how long the server may be silent.
    const READINESS: Readiness = Readiness::Announced;

    async fn run(self, ctx: Context) -> Result<Exit, Error> {
        let hosts = ctx.shared::<HttpSettings>().unwrap_or_default();
        let prepared = match self.check().and_then(|()| Prepared::new(&self, hosts)) {
            Ok(prepared) => prepared,
            Err(wrong) => return Ok(Exit::Failed(wrong)),
        };
        let mut connections = Connections::new(&self.reconnect);
        loop {
            let begun = Instant::now();
            let lost = match ctx.until_cancelled(prepared.connect(&self)).await {
                None => return Ok(Exit::Done),
                Some(Ok(socket)) => {
                    ctx.log(&format!("connected to {}", prepared.shown));
                    ctx.status("connected");
                    match self.receive(Connection::new(socket, &self), &ctx).await? {
                        Ended::Stopped => return Ok(Exit::Done),
                        Ended::Lost(reason) => reason,
                    }
                }
                Some(Err(NotConnected::Refused(reason))) => {
                    return Err(format!("{}: {reason}", prepared.shown).into());
                }
                Some(Err(NotConnected::Unreachable(reason))) => reason,
            };
            match connections.wait(&ctx, begun.elapsed(), &lost).await {
                Ok(Some(())) => {}
                Ok(None) => return Ok(Exit::Done),
                Err(error) => return Err(format!("{}: {error}", prepared.shown).into()),
            }
        }
    }
}

impl WebSocket {
    /// What the schema cannot say.
    fn check(&self) -> Result<(), String> {
        if self.ready == ReadyWhen::Answer && !self.answer.is_set() {
            return Err("`answer`: set `contains` or `pointer`, because `ready` is \"answer\"".to_owned());
        }
        if self.answer.equals.is_some() && self.answer.pointer.is_none() {
            return Err("`answer`: `equals` needs `pointer`, such as \"/type\"".to_owned());
        }
        Ok(())
    }

    /// Emits what the connection receives until it ends. The receiving half waits while the emitting half is behind.
    async fn receive(&self, mut connection: Connection<'_>, ctx: &Context) -> Result<Ended, Error> {
        let room = tokio::sync::Semaphore::new(2 * self.max_message.size());
        let (sender, mut received) = mpsc::channel::<Buffered<'_>>(self.buffer.size());
        let receiving = async {
            let ended = connection.receive(ctx, sender, &room).await;
            Ok::<_, Error>(ended)
        };
        let emitting = async {
            while let Some(Buffered { value, .. }) = received.recv().await {
                ctx.emit(value).await?;
            }
            Ok(())
        };
        let (ended, ()) = tokio::try_join!(receiving, emitting)?;
        Ok(ended)
    }
}
