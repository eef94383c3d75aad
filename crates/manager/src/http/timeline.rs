//! The timeline over HTTP.

use super::problem::Problem;
use super::query::{Params, bad};
use crate::context::Manager;
use axum::Json;
use axum::extract::State;
use everwatch_api::Timeline;
use everwatch_core::clock::{Timestamp, parse_duration};
use everwatch_core::id::ServiceId;
use everwatch_core::timeline::{COLUMNS_MAX, KEPT, Window};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

type Shared = State<Arc<Manager>>;

/// The span that is shown unless the request names one.
const SPAN: Duration = Duration::from_secs(15 * 60);
const COLUMNS: usize = 600;
/// The maximum age of cached services.
const SERVICES_AGE: Duration = Duration::from_secs(1);

/// Read the timeline: what each service held in the last 24 hours, observers that ran nowhere or twice, and incidents.
#[utoipa::path(get, path = "/v1/timeline", tag = "events", security(("token" = ["events:read"])), params(
    ("since" = Option<String>, Query, description = "a time (RFC 3339), or how long before `until`, such as 15m (the default); at most 24h ago"),
    ("until" = Option<String>, Query, description = "a time (RFC 3339); default: now"),
    ("columns" = Option<u32>, Query, description = "the number of columns, 1 to 2000 (default 600), of at least one second"),
    ("service" = Option<String>, Query, description = "only the lanes, marks and incidents of services of this name; may be repeated")),
    responses((status = 200, body = Timeline)))]
pub(crate) async fn read(State(manager): Shared, mut params: Params) -> Result<Json<Timeline>, Problem> {
    let records = &manager.records;
    let now = records.clock.now();
    let window = window(&mut params, now)?;
    let services: BTreeSet<String> = params.many("service").into_iter().collect();
    params.finish()?;
    let living = records.services(SERVICES_AGE).await?;
    let held: BTreeMap<ServiceId, u64> = living.iter().map(|it| (it.id, u64::from(it.held()))).collect();
    let (picture, names) =
        manager.requests.timeline.picture(records.store.as_ref(), (&window, now), &held).await?;
    let mut shown = Timeline::of(picture, &window, |id| names.get(&id).cloned());
    if !services.is_empty() {
        shown.lanes.retain(|lane| services.contains(&lane.service));
        shown.marks.retain(|mark| mark.service.as_ref().is_none_or(|name| services.contains(name)));
        let concerns = |name: &String| services.contains(name);
        shown.incidents.retain(|it| concerns(&it.from) || it.to.keys().any(concerns));
    }
    Ok(Json(shown))
}

fn window(params: &mut Params, now: Timestamp) -> Result<Window, Problem> {
    let until = params.parsed::<Timestamp>("until")?.unwrap_or(now).min(now);
    let since = match params.one("since")? {
        None => until.minus(SPAN),
        Some(text) => match (text.parse::<Timestamp>(), parse_duration(&text)) {
            (Ok(at), _) => at,
            (_, Ok(ago)) => until.minus(ago),
            _ => {
                return Err(bad(
                    "since",
                    format!(
                        "`{text}` is neither a time such as 2026-01-31T12:00:00Z nor a duration such as 15m"
                    ),
                ));
            }
        },
    };
    if since >= until {
        return Err(bad("since", format!("{since} is not before `until`, {until}")));
    }
    if since < now.minus(KEPT) {
        return Err(bad("since", "at most 24h ago: earlier events are in GET /v1/events"));
    }
    let columns = params.parsed::<usize>("columns")?.unwrap_or(COLUMNS);
    if !(1..=COLUMNS_MAX).contains(&columns) {
        return Err(bad("columns", format!("1 to {COLUMNS_MAX}")));
    }
    Ok(Window { since, until, columns })
}
