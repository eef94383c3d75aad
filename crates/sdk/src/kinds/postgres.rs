//! Emits the notifications of a PostgreSQL server, or the rows of a query beyond a watermark.

mod connection;
mod permit;
mod query;
#[cfg(test)]
mod tests;

pub use permit::PostgresSettings;

use super::checkpoints::Checkpoints;
use super::files::FilesSettings;
use super::pauses::{Connections, Pauses};
use super::spec::{Count, DAY, HOUR, MINUTE, SECOND, Span};
use crate::{Context, Error, Exit, Observer, Readiness};
use connection::{Lost, Target};
use futures::FutureExt as _;
use query::{Mark, Page};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sqlx::postgres::{PgListener, PgNotification};
use std::time::Duration;
use tokio::time::Instant;

/// Listens on channels of a PostgreSQL server and emits each notification as `{"channel", "payload"}`; or emits the
/// rows of a query beyond a watermark, which the next run continues.
///
/// With both, a notification is not emitted: it makes the query run at once. The service must allow the server.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend(
    "examples" = [{"url": "postgres://user@db.example.org/app", "channels": ["orders"]}],
    "anyOf" = [{"required": ["channels"]}, {"required": ["query"]}]
))]
pub struct PostgresListen {
    /// URL of the database, such as `postgres://user@host:5432/database?sslmode=verify-full`. `[service.postgres] allow`
    /// must list its host and port.
    #[schemars(extend("format" = "uri", "pattern" = "^postgres(ql)?://", "examples" = ["postgres://user@db.example.org/app"]), length(max = 4096))]
    url: String,
    /// Absolute path of a file with the password, in a folder that `[service.files] read` lists.
    #[serde(default)]
    #[schemars(extend("pattern" = "^/"))]
    password_file: Option<String>,
    /// Channels to listen on, as in `LISTEN`.
    #[serde(default)]
    #[schemars(length(max = 100))]
    channels: Vec<String>,
    /// Whether to emit payloads that are JSON as JSON.
    #[serde(default)]
    json: bool,
    /// A query whose new rows to emit.
    #[serde(default)]
    query: Option<Query>,
    /// How long a connect or a statement may take; then the connection is closed and made again.
    #[serde(default = "timeout")]
    timeout: Span<100, { 10 * MINUTE }>,
    /// Interval at which to check an idle connection.
    #[serde(default = "ping")]
    ping: Span<100, HOUR>,
    /// When to connect again.
    #[serde(default)]
    reconnect: Pauses,
}

/// A query that is repeated.
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline)]
struct Query {
    /// One SELECT with the watermark as `$1`, a text to cast, ordered by the watermark:
    /// `SELECT id, name FROM orders WHERE id > $1::bigint ORDER BY id`.
    #[schemars(length(min = 1, max = 100_000))]
    sql: String,
    /// The column of the result that is the watermark. No two rows may have the same value.
    #[schemars(length(min = 1, max = 63))]
    watermark: String,
    /// The watermark of the first run.
    #[serde(default = "zero")]
    start: String,
    /// Interval at which to run the query.
    #[serde(default = "ten_seconds")]
    every: Span<100, DAY>,
    /// Number of rows to read at once.
    #[serde(default = "hundred")]
    batch: Count<1, 1000>,
}

fn timeout() -> Span<100, { 10 * MINUTE }> {
    Span::ms(10 * SECOND)
}
fn ping() -> Span<100, HOUR> {
    Span::ms(30 * SECOND)
}
fn ten_seconds() -> Span<100, DAY> {
    Span::ms(10 * SECOND)
}
fn zero() -> String {
    "0".to_owned()
}
fn hundred() -> Count<1, 1000> {
    Count::new(100)
}

impl Observer for PostgresListen {
    const KIND: &'static str = "postgres-listen";
    // The spec limits how many connections may fail.
    const READINESS: Readiness = Readiness::Announced;

    async fn run(self, ctx: Context) -> Result<Exit, Error> {
        let servers = ctx.shared::<PostgresSettings>().unwrap_or_default();
        let files = ctx.shared::<FilesSettings>().unwrap_or_default();
        if self.channels.is_empty() && self.query.is_none() {
            return Ok(Exit::Failed("set `channels`, `query` or both".to_owned()));
        }
        let target = match Target::new(&self, &servers) {
            Ok(target) => target,
            Err(refused) => return Ok(Exit::Failed(refused)),
        };
        let password = match &self.password_file {
            None => None,
            Some(path) => Some(permit::password(path, &files).await?),
        };
        let target = target.with_password(password);
        let mark = match &self.query {
            Some(query) => Some(restored(&ctx).await?.unwrap_or_else(|| Mark::new(&query.start))),
            None => None,
        };
        let mut connections = Connections::new(&self.reconnect);
        let mut session = Session { spec: &self, ctx: &ctx, mark, checkpoints: Checkpoints::new(&ctx) };
        loop {
            let begun = Instant::now();
            let reason = match session.live(&target).await {
                Ok(()) => break,
                Err(Lost::Final(reason)) => return Err(format!("{}: {reason}", target.shown).into()),
                Err(Lost::Passes(reason)) => reason,
            };
            let waiting = connections.wait(&ctx, begun.elapsed(), &reason);
            match session.checkpoints.during(waiting).await {
                Ok(Some(())) => {}
                Ok(None) => break,
                Err(error) => return Err(format!("{}: {error}", target.shown).into()),
            }
        }
        session.checkpoints.finish().await;
        Ok(Exit::Done)
    }
}

/// What outlives a connection.
struct Session<'a> {
    spec: &'a PostgresListen,
    ctx: &'a Context,
    /// How far the query was read.
    mark: Option<Mark>,
    checkpoints: Checkpoints<Mark>,
}

/// What happened first.
enum Next {
    Stop,
    Notified(Result<Option<PgNotification>, sqlx::Error>),
    QueryDue,
    PingDue,
}

impl Session<'_> {
    /// Makes one connection and emits what it receives. `Ok`: the code must stop.
    async fn live(&mut self, target: &Target) -> Result<(), Lost> {
        let connecting = self.ctx.until_cancelled(target.connect(self.spec.timeout.get()));
        let Some(listener) = self.checkpoints.during(connecting).await else { return Ok(()) };
        let mut listener = listener?;
        let spec = self.spec;
        if !spec.channels.is_empty() {
            let listening = listener.listen_all(spec.channels.iter().map(String::as_str));
            let listening = self.ctx.until_cancelled(within(spec.timeout.get(), listening));
            let Some(listening) = self.checkpoints.during(listening).await else { return Ok(()) };
            listening?;
        }
        self.ctx.log(&format!("connected to {}", target.shown));
        self.ctx.status("connected");
        let far = Instant::now() + Duration::from_millis(365 * DAY);
        let mut query_at = if spec.query.is_some() { Instant::now() } else { far };
        if spec.query.is_none() {
            self.ctx.ready();
        }
        loop {
            let ping_at = Instant::now() + spec.ping.get();
            let next = async {
                tokio::select! {
                    biased;
                    () = self.ctx.cancelled() => Next::Stop,
                    () = tokio::time::sleep_until(query_at) => Next::QueryDue,
                    notified = listener.try_recv() => Next::Notified(notified),
                    () = tokio::time::sleep_until(ping_at) => Next::PingDue,
                }
            };
            match self.checkpoints.during(next).await {
                Next::Stop => return Ok(()),
                Next::PingDue => {
                    let ping = sqlx::query("SELECT 1").execute(&mut listener);
                    let ping = self.ctx.until_cancelled(within(spec.timeout.get(), ping));
                    let Some(ping) = self.checkpoints.during(ping).await else { return Ok(()) };
                    ping?;
                }
                Next::Notified(notified) => match notified.map_err(Lost::from)? {
                    None => return Err(Lost::Passes("the connection was lost".to_owned())),
                    Some(_) if spec.query.is_some() => query_at = Instant::now(),
                    Some(notification) => self.emit(spec.value(&notification)).await?,
                },
                Next::QueryDue => match self.page(&mut listener).await? {
                    None => return Ok(()),
                    Some(true) => query_at = Instant::now(),
                    Some(false) => {
                        self.ctx.ready();
                        query_at =
                            spec.query.as_ref().map_or(far, |query| Instant::now() + query.every.get());
                    }
                },
            }
        }
    }

    /// Emits one page of the query. Whether there is more; `None`: the code must stop.
    async fn page(&mut self, listener: &mut PgListener) -> Result<Option<bool>, Lost> {
        let (Some(query), Some(mark)) = (&self.spec.query, &self.mark) else { return Ok(Some(false)) };
        let reading = query.page(listener, mark.clone(), self.spec.timeout.get());
        let Some(page) = self.checkpoints.during(self.ctx.until_cancelled(reading)).await else {
            return Ok(None);
        };
        let Page { rows, has_more } = page?;
        for (value, mark) in rows {
            if self.ctx.cancelled().now_or_never().is_some() {
                return Ok(None);
            }
            self.emit(value).await?;
            self.checkpoints.note(mark.clone());
            self.mark = Some(mark);
        }
        Ok(Some(has_more))
    }

    async fn emit(&mut self, value: Value) -> Result<(), Lost> {
        let emitted = self.checkpoints.during(self.ctx.emit(value)).await;
        emitted.map_err(|error| Lost::Final(error.to_string()))
    }
}

impl PostgresListen {
    fn value(&self, notification: &PgNotification) -> Value {
        let payload = notification.payload();
        let parsed = self.json.then(|| serde_json::from_str(payload).ok()).flatten();
        let payload = parsed.unwrap_or_else(|| Value::String(payload.to_owned()));
        json!({ "channel": notification.channel(), "payload": payload })
    }
}

async fn within<T>(limit: Duration, work: impl Future<Output = Result<T, sqlx::Error>>) -> Result<T, Lost> {
    match tokio::time::timeout(limit, work).await {
        Ok(done) => done.map_err(Lost::from),
        Err(_elapsed) => Err(Lost::Passes(format!("no answer within `timeout`, {limit:?}"))),
    }
}

async fn restored(ctx: &Context) -> Result<Option<Mark>, Error> {
    Ok(ctx.restored::<Mark>().await?.map(|restored| restored.value))
}
