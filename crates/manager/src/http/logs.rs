//! The logs of observers, recent and live. The service that runs an observer keeps its lines; the manager asks it
//! for them and keeps nothing.

mod follower;
mod former;

use self::follower::{Follower, LogItem};
use self::former::WhichRun;
use super::lookup::find;
use super::problem::{Code, Problem};
use super::query::{Params, bad};
use crate::context::Manager;
use crate::context::records::Records;
use crate::outgoing::log_requests::{self, ANSWER_WITHIN, Unanswered};
use axum::Json;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, header};
use axum::response::sse::{self, KeepAlive, Sse};
use axum::response::{IntoResponse as _, Response};
use everwatch_api::{LogLine, Logs, ProblemBody, ServiceName};
use everwatch_core::id::ServiceId;
use everwatch_core::record::row::Row;
use everwatch_core::wire::logs::{Lines, LogCursor};
use futures::{Stream, StreamExt as _};
use serde::Serialize;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tracing::debug;

const COMMENT_EVERY: Duration = Duration::from_secs(15);
const TAIL_DEFAULT: u32 = 100;
const TAIL_MAX: u32 = 1000;
const PLAIN: &str = "text/plain";

/// The format of lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    /// JSON; live as server-sent events.
    Structured,
    /// One line each: time, stream, text.
    Plain,
}

/// The newest log lines of an observer, or those after a given line.
///
/// With `follow`, or `Accept: text/event-stream`, new lines as they are written, across moves to other services. For an
/// observer that does not run, the remaining lines of its last run and a reason. `Accept: text/plain`: one line each,
/// without ids.
#[utoipa::path(get, path = "/v1/observers/{key}/logs", tag = "observers", security(("token" = ["logs:read"])), params(
    ("key" = String, Path, description = "id or name"), ("namespace" = Option<String>, Query, description = "the namespace of the name"),
    ("tail" = Option<u32>, Query, description = "the maximum number of lines: 1 to 1000 (default 100)"),
    ("after" = Option<String>, Query, description = "the id of a line: the lines after it, the oldest first"),
    ("run" = Option<String>, Query, description = "only the lines of this run: its epoch, such as 3.1, or `previous`, the run before the newest; not with after and follow"),
    ("follow" = Option<bool>, Query, description = "follow: events `line`, `note` (moved, waiting) and `end`"),
    ("last-event-id" = Option<String>, Header, description = "live: the last line that the client has, as `after`")),
    responses((status = 200, content((Logs = "application/json"), (String = "text/event-stream"), (String = "text/plain"))),
    (status = 400, body = ProblemBody, description = "bad-header"),
    (status = 404, body = ProblemBody, description = "not-found"),
    (status = 429, body = ProblemBody, description = "too-many-streams"),
    (status = 503, body = ProblemBody, description = "service-silent, broker-unavailable")))]
pub(crate) async fn read(
    State(manager): State<Arc<Manager>>,
    Path(key): Path<String>,
    mut params: Params,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let most = params.parsed::<u32>("tail")?.unwrap_or(TAIL_DEFAULT);
    if !(1..=TAIL_MAX).contains(&most) {
        return Err(bad("tail", format_args!("1 to {TAIL_MAX}")));
    }
    let after = params.parsed::<LogCursor>("after")?;
    let accepts = |kind: &str| {
        let accept = headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok());
        accept.is_some_and(|accept| accept.contains(kind))
    };
    let follow = match params.one("follow")?.as_deref() {
        None => accepts("text/event-stream"),
        Some("" | "true") => true,
        Some("false") => false,
        Some(_) => return Err(bad("follow", "true or false")),
    };
    let run = params.parsed::<WhichRun>("run")?;
    if run.is_some() && (follow || after.is_some()) {
        return Err(bad("run", "cannot be combined with follow or after"));
    }
    let namespace = params.namespace()?;
    params.finish()?;
    let form = if accepts(PLAIN) { Form::Plain } else { Form::Structured };
    let row = find(&manager.records, (&namespace, &key)).await?;
    if follow {
        let after = seen(&headers)?.or(after);
        return Ok(live(Follower::new(&manager, row.id, after, most)?, form));
    }
    let logs = match run {
        Some(run) => former::lines(&manager, &row, run, most as usize).await?,
        None => newest(&manager, &row, (after, most)).await?,
    };
    Ok(match form {
        Form::Structured => Json(logs).into_response(),
        Form::Plain => logs.items.iter().map(plain).collect::<String>().into_response(),
    })
}

fn seen(headers: &HeaderMap) -> Result<Option<LogCursor>, Problem> {
    let Some(id) = headers.get("last-event-id") else { return Ok(None) };
    let place = id.to_str().ok().and_then(|id| id.parse().ok());
    let wrong = || Problem::new(Code::BadHeader, "the header last-event-id is the id of a line, as 3.2.57");
    place.map(Some).ok_or_else(wrong)
}

async fn newest(
    manager: &Manager,
    row: &Row,
    (after, most): (Option<LogCursor>, u32),
) -> Result<Logs, Problem> {
    let Some(service) = row.log_holder() else {
        return Ok(Logs { items: Vec::new(), missed: 0, service: None, reason: standing(row) });
    };
    let name = name(&manager.records, service).await?;
    let (lines, reason) = match log_requests::logs(manager, service, (row.id, after, most)).await {
        Ok(lines) if row.holder().is_none() => (lines, standing(row)),
        Ok(lines) if lines.lines.is_empty() && after.is_none() => {
            (lines, format!("it has said nothing yet on service {}", name.name))
        }
        Ok(lines) => (lines, String::new()),
        Err(Unanswered::Gone) => match former::next_process(manager, row.id, &name, (after, most)).await? {
            Some(lines) => (lines, standing(row)),
            None => (Lines::default(), gone(row, &name)),
        },
        Err(other) => return Err(unanswered(other, &name)),
    };
    let Lines { lines, missed, .. } = lines;
    Ok(Logs { items: lines.into_iter().map(LogLine::of).collect(), missed, service: Some(name), reason })
}

fn unanswered(why: Unanswered, service: &ServiceName) -> Problem {
    match why {
        Unanswered::Gone | Unanswered::Silent => {
            let within = ANSWER_WITHIN.as_secs();
            let detail = format!("service {} has not answered within {within} s", service.name);
            Problem::new(Code::ServiceSilent, detail)
        }
        Unanswered::NoBroker => Problem::new(
            Code::BrokerUnavailable,
            "this manager has no connection to the broker, through which it reads logs; retry later, or use another manager",
        ),
        Unanswered::TooMany => Problem::new(
            Code::TooManyStreams,
            "too many clients ask for lines on this manager; use another one or retry later",
        ),
    }
}

/// Why it does not run, as a sentence.
fn standing(row: &Row) -> String {
    let verdict = row.verdict();
    let reason = verdict.reason.to_string();
    if reason.is_empty() {
        format!("the observer is {} and does not run", verdict.status.as_str().to_lowercase())
    } else {
        format!("the observer does not run: {reason}")
    }
}

fn gone(row: &Row, service: &ServiceName) -> String {
    let lines =
        format!("service {} has ended, and its lines are not kept (see service.log_dir)", service.name);
    if row.holder().is_some() { lines } else { format!("{}; {lines}", standing(row)) }
}

async fn name(records: &Records, id: ServiceId) -> Result<ServiceName, Problem> {
    let known = records.store.service(&id.into()).await?;
    let name = known.map_or_else(|| id.to_string(), |service| service.registration.name.to_string());
    Ok(ServiceName { id: id.0, name })
}

fn plain(line: &LogLine) -> String {
    format!("{} {:6} {}\n", line.at, line.stream, line.text)
}

fn live(follower: Follower, form: Form) -> Response {
    let told = follower.told();
    match form {
        Form::Plain => {
            let lines = told.map(|told| {
                Ok::<_, Infallible>(match told {
                    LogItem::Line(line) => plain(&line),
                    LogItem::Note(note) | LogItem::End(note) => format!("— {} —\n", note.text),
                })
            });
            ([(header::CONTENT_TYPE, "text/plain; charset=utf-8")], Body::from_stream(lines)).into_response()
        }
        Form::Structured => {
            let comments = KeepAlive::new().interval(COMMENT_EVERY).text("still here");
            Sse::new(events(told)).keep_alive(comments).into_response()
        }
    }
}

fn events(
    told: impl Stream<Item = LogItem> + Send,
) -> impl Stream<Item = Result<sse::Event, Infallible>> + Send {
    told.filter_map(async |told| {
        let event = match &told {
            LogItem::Line(line) => written(sse::Event::default().id(&line.id), "line", line),
            LogItem::Note(note) => written(sse::Event::default(), "note", note),
            LogItem::End(note) => written(sse::Event::default(), "end", note),
        };
        event.map(Ok)
    })
}

fn written(event: sse::Event, word: &str, body: &impl Serialize) -> Option<sse::Event> {
    let event = event.event(word).json_data(body);
    event.inspect_err(|error| debug!(%error, "a line cannot be written")).ok()
}
