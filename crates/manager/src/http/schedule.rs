//! The schedule of an observer.

use super::lookup::find;
use super::problem::{Code, Problem};
use super::query::{Params, bad};
use crate::context::Manager;
use axum::Json;
use axum::extract::{Path, State};
use everwatch_api::{ProblemBody, ScheduleTimes};
use everwatch_core::observer::schedule::PREVIEW_MAX;
use std::sync::Arc;

type Shared = State<Arc<Manager>>;

/// The number of times in an answer if the request does not say.
const NEXT_DEFAULT: usize = 10;

/// The next times of the schedule of an observer.
#[utoipa::path(get, path = "/v1/observers/{key}/schedule", tag = "observers", security(("token" = ["observers:read"])),
    params(("key" = String, Path, description = "id or name"), ("namespace" = Option<String>, Query, description = "the namespace of the name"),
    ("next" = Option<u32>, Query, description = "the number of times, 1 to 100 (default 10)")),
    responses((status = 200, body = ScheduleTimes),
        (status = 404, body = ProblemBody, description = "not-found"),
        (status = 409, body = ProblemBody, description = "no-schedule")))]
pub(crate) async fn read(
    State(manager): Shared,
    Path(key): Path<String>,
    mut params: Params,
) -> Result<Json<ScheduleTimes>, Problem> {
    let count = params.parsed("next")?.unwrap_or(NEXT_DEFAULT);
    if !(1..=PREVIEW_MAX).contains(&count) {
        return Err(bad("next", format!("1 to {PREVIEW_MAX}")));
    }
    let namespace = params.namespace()?;
    params.finish()?;
    let row = find(&manager.records, (&namespace, &key)).await?;
    let Some(schedule) = &row.definition.schedule else {
        let name = &row.definition.name;
        return Err(Problem::new(
            Code::NoSchedule,
            format!("observer {name} has no schedule: set its field `schedule`"),
        ));
    };
    Ok(Json(ScheduleTimes {
        description: schedule.description(),
        time_zone: schedule.time_zone.clone(),
        scheduled_for: row.executions.as_ref().and_then(|executions| executions.scheduled_for),
        next: row.next_executions(manager.records.clock.now(), count),
    }))
}
