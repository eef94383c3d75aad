//! The timeline over HTTP.

use super::caller;
use super::lookup::find;
use super::problem::Problem;
use super::query::{Params, bad};
use crate::context::Manager;
use axum::Json;
use axum::extract::State;
use everwatch_api::{NamedThing, ProblemBody, Timeline};
use everwatch_core::access::Verb;
use everwatch_core::clock::Timestamp;
use everwatch_core::id::ObserverId;
use everwatch_core::record::row::Row;
use everwatch_core::timeline::{COLUMNS_MAX, KEPT, LANES_MAX, Picture, Window};
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

type Shared = State<Arc<Manager>>;

/// The default span.
const SPAN: Duration = Duration::from_secs(15 * 60);
const COLUMNS: usize = 600;
/// The maximum number of observers that the incidents of a response name together.
const NAMED_MAX: usize = 1000;

/// Read the timeline: what each service held in the last 24 hours, observers that ran nowhere or twice, and incidents.
///
/// With `observer`, the lanes are the services on which this observer ran, each held 0 or 1, and the marks are its own events and
/// the ends of those services. Without `observer`, the timeline concerns the observers of all namespaces and needs `events:read`;
/// with it, the right to read that observer is sufficient.
///
/// The response is limited to 100 lanes (`others` is the sum of further ones), 60,000 columns of all lanes together (many lanes
/// have fewer columns each), the newest 1,000 marks, 1,000 incidents and 20 services in each.
#[utoipa::path(get, path = "/v1/timeline", tag = "events",
    security(("token" = ["events:read"]), ("token" = ["observers:read"])), params(
    ("since" = Option<String>, Query, description = "a time (RFC 3339), or how long before `until`, such as 15m (the default); at most 24h ago"),
    ("until" = Option<String>, Query, description = "a time (RFC 3339); default: now"),
    ("columns" = Option<u32>, Query, description = "the number of columns, 1 to 2000 (default 600), of at least one second"),
    ("service" = Option<String>, Query, description = "only the lanes, marks and incidents of services of this name; may be repeated, 100 times at most"),
    ("observer" = Option<String>, Query, description = "only what concerns this observer: id or name"),
    ("namespace" = Option<String>, Query, description = "the namespace of the name")),
    responses((status = 200, body = Timeline), (status = 404, body = ProblemBody, description = "not-found")))]
pub(crate) async fn read(State(manager): Shared, mut params: Params) -> Result<Json<Timeline>, Problem> {
    let records = &manager.records;
    let now = records.clock.now();
    let window = window(&mut params, now)?;
    let services: BTreeSet<String> = params.many("service").into_iter().collect();
    if services.len() > LANES_MAX {
        return Err(bad("service", format!("at most {LANES_MAX} names")));
    }
    let (namespace, key) = (params.namespace()?, params.one("observer")?);
    params.finish()?;
    let (store, timeline) = (records.store.as_ref(), &manager.requests.timeline);
    let known = (now, manager.settings.events_max);
    let picture = match key {
        Some(key) => {
            let row = find(records, (&namespace, &key)).await?;
            timeline.of_observer(store, &row, known).await?.picture(&window, &services, now)
        }
        None => {
            caller::check_deployment(Verb::EventsRead, " on all observers: name one with `observer`")?;
            timeline.read(store, known).await?.picture(&window, &services, now)
        }
    };
    let names = names(&manager, &picture).await?;
    Ok(Json(Timeline::of(picture, &window, &names)))
}

/// The observers that the incidents name, without those that the sender may not read.
async fn names(manager: &Manager, picture: &Picture) -> Result<HashMap<ObserverId, NamedThing>, Problem> {
    let ids: BTreeSet<ObserverId> =
        picture.incidents.iter().flat_map(|it| it.nowhere.iter().copied()).collect();
    if ids.is_empty() {
        return Ok(HashMap::new());
    }
    let ids: Vec<ObserverId> = ids.into_iter().take(NAMED_MAX).collect();
    let found = manager.records.store.load(&ids).await?.rows;
    let named = |row: Row| {
        let namespace = Some(row.definition.namespace.to_string());
        (row.id, NamedThing { id: row.id.0, name: row.definition.name.to_string(), namespace })
    };
    Ok(found.into_iter().filter(caller::may_see).map(named).collect())
}

fn window(params: &mut Params, now: Timestamp) -> Result<Window, Problem> {
    let until = params.parsed::<Timestamp>("until")?.unwrap_or(now).min(now);
    let since = params.since(until)?.unwrap_or_else(|| until.minus(SPAN));
    Params::check_span(since, until)?;
    if since < now.minus(KEPT) {
        return Err(bad("since", "at most 24h ago: earlier events are in GET /v1/events"));
    }
    let columns = params.parsed::<usize>("columns")?.unwrap_or(COLUMNS);
    if !(1..=COLUMNS_MAX).contains(&columns) {
        return Err(bad("columns", format!("1 to {COLUMNS_MAX}")));
    }
    Ok(Window { since, until, columns })
}
