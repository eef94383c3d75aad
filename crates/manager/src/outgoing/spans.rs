//! What a manager does, as spans: requests, whose traces go on in what they publish, and what runs report.

use axum::extract::{MatchedPath, Request};
use axum::http::{HeaderMap, Method};
use axum::middleware::Next;
use axum::response::Response;
use everwatch_core::id::ServiceId;
use everwatch_core::record::row::Row;
use everwatch_core::wire::report::{RunEvent, RunReport};
use everwatch_core::wire::trace::{TRACEPARENT, TRACESTATE, TraceContext};
use everwatch_trace::{Kind, Span};

/// A span for the request. One that only reads begins no trace by itself: consoles, probes and scrapes would
/// bury the others.
pub(crate) async fn follow(request: Request, next: Next) -> Response {
    let parent = trace_of(request.headers());
    let method = request.method();
    if parent.is_none() && (method.is_safe() || method == Method::OPTIONS) {
        return next.run(request).await;
    }
    let method = if is_known(method) { method.as_str() } else { "_OTHER" };
    let route = request.extensions().get::<MatchedPath>().map_or("", MatchedPath::as_str);
    let span = Span::begin(format!("{method} {route}").trim_end().to_owned(), Kind::Server, parent.as_ref());
    span.set("http.request.method", method.to_owned());
    span.set("http.route", route.to_owned());
    span.set("url.path", request.uri().path().to_owned());
    let response = span.around(next.run(request)).await;
    let status = response.status();
    span.set("http.response.status_code", i64::from(status.as_u16()));
    if status.is_server_error() {
        span.fail("");
    }
    response
}

/// Two of one are none.
fn trace_of(headers: &HeaderMap) -> Option<TraceContext> {
    let mut parents = headers.get_all(TRACEPARENT).iter();
    let parent = parents.next()?.to_str().ok().filter(|_| parents.next().is_none());
    let states = headers.get_all(TRACESTATE).iter().map(|state| state.to_str().ok());
    let state = states.collect::<Option<Vec<_>>>().map(|states| states.join(","));
    TraceContext::read(parent, state.as_deref())
}

fn is_known(method: &Method) -> bool {
    [Method::GET, Method::HEAD, Method::POST, Method::PUT, Method::PATCH, Method::DELETE, Method::OPTIONS]
        .contains(method)
}

/// The publish of a generation, in the trace of who asked for it.
pub(crate) fn send(row: &Row, queue: String) -> Span {
    let span = Span::begin("send work", Kind::Producer, row.trace.as_ref());
    span.set("messaging.system", "rabbitmq");
    span.set("messaging.destination.name", queue);
    span.set("everwatch.observer.id", row.id.to_string());
    span.set("everwatch.observer.name", row.definition.name.to_string());
    span.set("everwatch.generation", i64::from(row.generation));
    span
}

/// The handling of a report, in the trace of its run.
pub(crate) fn report(service: ServiceId, run: &RunReport, trace: &TraceContext) -> Span {
    let span = Span::begin("report", Kind::Consumer, Some(trace));
    span.set("everwatch.report", word(&run.event));
    span.set("everwatch.observer.id", run.id.to_string());
    span.set("everwatch.epoch", i64::try_from(u64::from(run.epoch)).unwrap_or(i64::MAX));
    span.set("everwatch.service.id", service.to_string());
    span
}

fn word(event: &RunEvent) -> &'static str {
    match event {
        RunEvent::Held { .. } => "taken",
        RunEvent::Starting { .. } => "starting",
        RunEvent::Started { .. } => "started",
        RunEvent::Errored { .. } => "errored",
        RunEvent::Progress { .. } => "progress",
        RunEvent::HandedOver | RunEvent::HandedOverFor { .. } => "handed_over",
        RunEvent::Refused { .. } => "refused",
        RunEvent::Stopped => "stopped",
        RunEvent::Completed | RunEvent::CompletedWith { .. } => "completed",
        RunEvent::Finished { .. } => "finished",
        RunEvent::Failed { .. } => "failed",
        RunEvent::Released => "released",
    }
}
