//! Events: the history, and a live stream as server-sent events.

use super::lookup::find;
use super::pagination::Part;
use super::problem::{Code, Problem};
use super::query::{Params, bad};
use crate::context::Manager;
use crate::context::records::Records;
use crate::events::actor;
use crate::events::recent::PublishedEvent;
use crate::events::shown;
use crate::loops::event_feed::PAGE;
use axum::Json;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, header};
use axum::response::sse::{self, KeepAlive, Sse};
use axum::response::{IntoResponse as _, Response};
use everwatch_api::{Event, Listed, ProblemBody, Run};
use everwatch_core::clock::Timestamp;
use everwatch_core::id::{ObserverId, ServiceId};
use everwatch_core::record::events::EventKind;
use everwatch_door::quota::Permit;
use everwatch_store::{EventFilter, EventRange, StoreError};
use futures::Stream;
use std::collections::{BTreeMap, VecDeque};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tracing::debug;

type Shared = State<Arc<Manager>>;

const COMMENT_EVERY: Duration = Duration::from_secs(15);
/// The end of a run that its service did not report: the service died, or was cut off.
const LOST: &str = "lost";
/// Events of one observer that its runs are read from.
const RUNS_FROM: usize = 1000;

/// Events, the newest first; with `Accept: text/event-stream`, new events as they happen.
#[utoipa::path(get, path = "/v1/events", tag = "events", security(("token" = ["events:read"])), params(
    ("observer" = Option<String>, Query, description = "id"), ("service" = Option<String>, Query, description = "id"),
    ("type" = Option<String>, Query, description = "one or several, comma-separated"),
    ("details" = Option<bool>, Query, description = "true: also the events that a summary stands for"),
    ("since" = Option<String>, Query, description = "a time (RFC 3339), or how long before `until`, such as 15m; not with `Accept: text/event-stream`"),
    ("until" = Option<String>, Query, description = "a time (RFC 3339), inclusive; default: now; not with `Accept: text/event-stream`"),
    ("limit" = Option<u32>, Query, description = "1 to 1,000, 100 by default"),
    ("cursor" = Option<String>, Query, description = "where the page starts: next_cursor of the page before"),
    ("last-event-id" = Option<i64>, Header, description = "live: the last event that the client has")),
    responses((status = 200, content((Listed<Event> = "application/json"), (String = "text/event-stream"))),
    (status = 400, body = ProblemBody, description = "bad-header"),
    (status = 410, body = ProblemBody, description = "events-gone"),
    (status = 429, body = ProblemBody, description = "too-many-streams")))]
pub(crate) async fn list(
    State(manager): Shared,
    mut params: Params,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let filter = EventFilter {
        observer: params.parsed::<ObserverId>("observer")?,
        service: params.parsed::<ServiceId>("service")?,
        kinds: words(&mut params)?,
        details: params.parsed("details")?.unwrap_or(false),
        ..EventFilter::default()
    };
    page_or_stream(&manager, params, &headers, filter).await
}

/// Events of one observer, the newest first; with `Accept: text/event-stream`, new events as they happen.
#[utoipa::path(get, path = "/v1/observers/{key}/events", tag = "events", security(("token" = ["observers:read"])), params(
    ("key" = String, Path, description = "id or name"), ("namespace" = Option<String>, Query, description = "the namespace of the name"),
    ("type" = Option<String>, Query, description = "one or several, comma-separated"),
    ("since" = Option<String>, Query, description = "a time (RFC 3339), or how long before `until`, such as 15m; not with `Accept: text/event-stream`"),
    ("until" = Option<String>, Query, description = "a time (RFC 3339), inclusive; default: now; not with `Accept: text/event-stream`"),
    ("limit" = Option<u32>, Query, description = "1 to 1,000, 100 by default"),
    ("cursor" = Option<String>, Query, description = "where the page starts: next_cursor of the page before"),
    ("last-event-id" = Option<i64>, Header, description = "live: the last event that the client has")),
    responses((status = 200, content((Listed<Event> = "application/json"), (String = "text/event-stream"))),
    (status = 400, body = ProblemBody, description = "bad-header"),
    (status = 404, body = ProblemBody, description = "not-found"),
    (status = 410, body = ProblemBody, description = "events-gone"),
    (status = 429, body = ProblemBody, description = "too-many-streams")))]
pub(crate) async fn of_observer(
    State(manager): Shared,
    Path(key): Path<String>,
    mut params: Params,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let namespace = params.namespace()?;
    let observer = Some(find(&manager.records, (&namespace, &key)).await?.id);
    let filter = EventFilter { observer, kinds: words(&mut params)?, ..EventFilter::default() };
    page_or_stream(&manager, params, &headers, filter).await
}

fn words(params: &mut Params) -> Result<Vec<EventKind>, Problem> {
    let words = params.many("type");
    let words = words.iter().flat_map(|text| text.split(','));
    words.map(|word| word.trim().parse().map_err(|error: String| bad("type", error))).collect()
}

async fn page_or_stream(
    manager: &Arc<Manager>,
    mut params: Params,
    headers: &HeaderMap,
    mut filter: EventFilter,
) -> Result<Response, Problem> {
    let live = headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok());
    if live.is_some_and(|accept| accept.contains("text/event-stream")) {
        params.finish()?;
        return stream(manager, headers, filter).await;
    }
    filter.until = params.parsed("until")?;
    filter.since = params.since(filter.until.unwrap_or_else(|| manager.records.clock.now()))?;
    if let (Some(since), Some(until)) = (filter.since, filter.until) {
        Params::check_span(since, until)?;
    }
    let part: Part<i64> = Part::read(&mut params)?;
    params.finish()?;
    let before = EventRange::Before(part.after.unwrap_or(i64::MAX));
    let mut page = manager.records.store.events(&filter, before, part.limit + 1).await?;
    let more = page.events.len() > part.limit;
    page.events.truncate(part.limit);
    let next_cursor = page.events.last().filter(|_| more).and_then(|last| part.cursor(last.id));
    let items = page.events.into_iter().map(shown::event).collect();
    Ok(Json(Listed { items, next_cursor, total: page.total }).into_response())
}

async fn stream(
    manager: &Arc<Manager>,
    headers: &HeaderMap,
    filter: EventFilter,
) -> Result<Response, Problem> {
    let permit = manager
        .requests
        .limits
        .streams
        .acquire(actor::client())
        .map_err(|full| Problem::too_many(Code::TooManyStreams, full, "follow the events"))?;
    let (oldest, newest) = manager.records.store.event_ends().await?;
    let last = match headers.get("last-event-id") {
        None => newest,
        Some(id) => {
            let id = id.to_str().ok().and_then(|id| id.parse::<i64>().ok());
            id.ok_or_else(|| {
                Problem::new(Code::BadHeader, "the header last-event-id is the number of an event")
            })?
        }
    };
    if last.saturating_add(1) < oldest || last > newest {
        let detail = format!("events after {last} are not kept any more; read the list, then follow again");
        return Err(Problem::new(Code::EventsGone, detail));
    }
    let live = manager.requests.recent.watch();
    // The first to follow wakes who reads for all.
    manager.records.events.written.send_modify(|count| *count = count.wrapping_add(1));
    let manager = Arc::clone(manager);
    let follower = Follower { manager, filter, last, ready: VecDeque::new(), live, _permit: permit };
    let comments = KeepAlive::new().interval(COMMENT_EVERY).text("still here");
    Ok(Sse::new(follow(follower)).keep_alive(comments).into_response())
}

struct Follower {
    manager: Arc<Manager>,
    filter: EventFilter,
    last: i64,
    ready: VecDeque<Arc<PublishedEvent>>,
    live: watch::Receiver<i64>,
    _permit: Permit,
}

fn follow(follower: Follower) -> impl Stream<Item = Result<sse::Event, Infallible>> {
    futures::stream::unfold(follower, |mut follower| async move {
        loop {
            if let Some(told) = follower.ready.pop_front() {
                return Some((Ok(told.message.clone()), follower));
            }
            follower.live.mark_unchanged();
            follower.look().await;
            if follower.ready.is_empty() {
                tokio::select! {
                    () = follower.manager.stop.cancelled() => return None,
                    _ = follower.live.changed() => {}
                }
            }
        }
    })
}

impl Follower {
    async fn look(&mut self) {
        if let Some((newest, told)) = self.manager.requests.recent.since(self.last) {
            self.last = newest.max(self.last);
            self.ready.extend(told.into_iter().filter(|it| self.filter.keeps(&it.event)));
        } else if let Err(error) = self.catch_up().await {
            debug!(%error, "a follower waits for the database");
        }
    }

    /// Too far behind, or the first read: reads the database.
    async fn catch_up(&mut self) -> Result<(), StoreError> {
        let store = &self.manager.records.store;
        let (_, newest) = store.event_ends().await?;
        let events = store.events(&self.filter, EventRange::After(self.last), PAGE).await?.events;
        let last = events.last().map_or(self.last, |event| event.id);
        // What the filter leaves out need not be looked at again.
        self.last = if events.len() < PAGE { last.max(newest) } else { last };
        self.ready.extend(events.into_iter().filter_map(PublishedEvent::new).map(Arc::new));
        Ok(())
    }
}

/// The runs of an observer, as far as its events are kept, newest first.
#[utoipa::path(get, path = "/v1/observers/{key}/runs", tag = "events", security(("token" = ["observers:read"])),
    params(("key" = String, Path, description = "id or name"), ("namespace" = Option<String>, Query, description = "the namespace of the name")),
    responses((status = 200, body = Listed<Run>), (status = 404, body = ProblemBody, description = "not-found")))]
pub(crate) async fn runs(
    State(manager): Shared,
    Path(key): Path<String>,
    mut params: Params,
) -> Result<Json<Listed<Run>>, Problem> {
    let namespace = params.namespace()?;
    params.finish()?;
    let observer = find(&manager.records, (&namespace, &key)).await?.id;
    let items = runs_of_observer(&manager.records, observer).await?;
    let total = items.len() as u64;
    Ok(Json(Listed { items, next_cursor: None, total }))
}

/// The runs of an observer, as far as its events are kept, newest first.
pub(super) async fn runs_of_observer(
    records: &Records,
    observer: ObserverId,
) -> Result<Vec<Run>, StoreError> {
    let filter = EventFilter { observer: Some(observer), ..EventFilter::default() };
    let mut page = records.store.events(&filter, EventRange::Before(i64::MAX), RUNS_FROM).await?;
    page.events.reverse();
    let mut runs = runs_of(&page.events);
    end_superseded(&mut runs);
    if let Some(newest) = runs.values_mut().next_back()
        && let Some(service) = &newest.service
        && let Some(row) = records.store.service(&ServiceId(service.id).into()).await?
        && let Some(end) = row.end
        && is_lost(newest, &page.events, end.at)
    {
        newest.end(end.at.max(newest.started_at), LOST);
    }
    Ok(runs.into_values().rev().collect())
}

/// Whether the run ended with its service, which ended at this time. A manager that fails or stops an observer does so after
/// its service died; a service reports only ends that precede its own, by another clock.
fn is_lost(run: &Run, events: &[everwatch_store::Event], service_ended: Timestamp) -> bool {
    let ends_it = |event: &everwatch_store::Event| {
        event.epoch == Some(run.epoch)
            && matches!(event.kind, EventKind::Stopped | EventKind::Completed | EventKind::Failed)
    };
    run.ended_at.is_none_or(|at| {
        at > service_ended && events.iter().any(|event| ends_it(event) && event.service.is_none())
    })
}

/// Runs by epoch, as far as these events tell, oldest event first.
fn runs_of(events: &[everwatch_store::Event]) -> BTreeMap<u64, Run> {
    let mut runs: BTreeMap<u64, Run> = BTreeMap::new();
    for event in events {
        let Some(epoch) = event.epoch else { continue };
        match event.kind {
            EventKind::Started => {
                runs.insert(epoch, shown::run(epoch.into(), event));
            }
            EventKind::Restarted => {
                if let Some(run) = runs.get_mut(&epoch) {
                    run.attempts += 1;
                }
            }
            EventKind::HandedOver | EventKind::Stopped | EventKind::Completed | EventKind::Failed => {
                if let Some(run) = runs.get_mut(&epoch) {
                    run.end(event.at, event.kind.as_str());
                }
            }
            _ => {}
        }
    }
    runs
}

/// Ends runs whose service died before it reported their end. The next run shows that such a run is over, and the gap
/// before the next run shows since when.
fn end_superseded(runs: &mut BTreeMap<u64, Run>) {
    let mut next: Option<(Timestamp, Option<u64>)> = None;
    for run in runs.values_mut().rev() {
        if let Some((started, gap_ms)) = next
            && run.ended.is_none()
        {
            let ended = started.minus(Duration::from_millis(gap_ms.unwrap_or(0)));
            run.end(ended.max(run.started_at), LOST);
        }
        next = Some((run.started_at, run.gap_ms));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use everwatch_core::epoch::Epoch;
    use everwatch_store::Event;

    fn event(kind: EventKind, acquisitions: u32, at: i64, gap_ms: Option<u64>) -> Event {
        let epoch = Some(Epoch::new(1, acquisitions).into());
        Event { epoch, gap_ms, ..crate::events::log::plain(kind, Timestamp(at), String::new()) }
    }

    #[test]
    fn a_run_that_a_manager_ended_after_its_service_died_was_lost() {
        let by_manager = event(EventKind::Failed, 0, 9000, None);
        let service = Some(everwatch_store::Named::service(ServiceId(uuid::Uuid::from_u128(1)), "s"));
        let by_service = everwatch_store::Event { service, ..by_manager.clone() };
        for (ended, service_ended, expected) in
            [(by_manager.clone(), 5000, true), (by_manager, 9500, false), (by_service, 5000, false)]
        {
            let events = [event(EventKind::Started, 0, 1000, None), ended];
            let runs = runs_of(&events);
            assert_eq!(is_lost(runs.values().next().unwrap(), &events, Timestamp(service_ended)), expected);
        }
    }

    #[test]
    fn a_run_whose_service_died_ends_where_the_gap_before_the_next_one_begins() {
        let mut runs = runs_of(&[
            event(EventKind::Started, 0, 1000, None),
            event(EventKind::HandedOver, 0, 5000, None),
            event(EventKind::Started, 1, 5000, Some(0)),
            event(EventKind::Restarted, 1, 6000, None),
            event(EventKind::Started, 2, 9000, Some(1500)),
        ]);
        end_superseded(&mut runs);
        let ends: Vec<_> = runs.values().map(|run| (run.ended.as_deref(), run.ended_at)).collect();
        let at = |ms| Some(Timestamp(ms));
        assert_eq!(ends, [(Some("handed_over"), at(5000)), (Some(LOST), at(7500)), (None, None)]);
    }
}
