//! Actions on an existing observer: pause, resume, restart, retry, trigger, move.

use super::body::OptionalJson;
use super::caller;
use super::creating::check_kind;
use super::etag::tag;
use super::idempotency;
use super::lookup::{find, not_found, one};
use super::namespaces;
use super::precondition::Precondition;
use super::problem::{Code, Problem};
use super::query::Params;
use crate::commit::change_read_row;
use crate::context::Manager;
use crate::outgoing::commands;
use crate::outgoing::publish;
use axum::Json;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse as _, Response};
use everwatch_api::{Observer, ProblemBody};
use everwatch_core::clock::Timestamp;
use everwatch_core::id::{Namespace, Pool};
use everwatch_core::observer::definition::{FieldError, ObserverDefinition};
use everwatch_core::record::events::EventKind;
use everwatch_core::record::operations::Refusal;
use everwatch_core::record::row::Row;
use everwatch_core::record::row_policy::RowPolicy;
use everwatch_core::wire::command::{Cause, Command, HandOver};
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;
use tracing::info;
use utoipa::ToSchema;
use uuid::Uuid;

type Shared = State<Arc<Manager>>;
type Act = fn(&mut Row, Timestamp, &RowPolicy) -> Result<bool, Refusal>;

macro_rules! action {
    ($name:ident, $path:literal, $act:path, $refusals:literal, $doc:literal) => {
        #[doc = $doc]
        #[utoipa::path(post, path = $path, tag = "observers", security(("token" = ["observers:operate"])),
                            params(("key" = String, Path, description = "id or name"), ("namespace" = Option<String>, Query, description = "the namespace of the name"),
                            ("idempotency-key" = Option<String>, Header, description = "a request that is repeated with its key acts once"),
                            ("if-match" = Option<String>, Header, description = "the ETag that the observer must have, or *")),
                            responses((status = 400, body = ProblemBody, description = "bad-header"),
                            (status = 412, body = ProblemBody, description = "observer-changed"),
                            (status = 200, body = Observer, description = "nothing to change"),
                            (status = 202, body = Observer, description = "requested"),
                            (status = 404, body = ProblemBody, description = "not-found"),
                            (status = 409, body = ProblemBody, description = $refusals)))]
        pub(crate) async fn $name(
            State(manager): Shared,
            Path(key): Path<String>,
            mut params: Params,
            precondition: Precondition,
            headers: HeaderMap,
        ) -> Result<Response, Problem> {
            let namespace = params.namespace()?;
            params.finish()?;
            let once = idempotency::action(&headers, stringify!($name))?;
            plain(&manager, (&namespace, &key), (stringify!($name), $act, once), &precondition).await
        }
    };
}

action!(
    pause,
    "/v1/observers/{key}/pause",
    Row::pause,
    "observer-deleted",
    "Pause an observer: its run ends, and it does not run until it is resumed."
);
action!(
    resume,
    "/v1/observers/{key}/resume",
    Row::resume,
    "observer-deleted, finish-at-passed",
    "Resume a paused observer."
);
action!(
    restart,
    "/v1/observers/{key}/restart",
    Row::restart,
    "observer-deleted, finish-at-passed, observer-paused",
    "Restart an observer: its run ends, and another one starts."
);
action!(
    retry,
    "/v1/observers/{key}/retry",
    Row::retry,
    "observer-deleted, finish-at-passed, observer-not-failed",
    "Retry a failed observer."
);
action!(
    trigger,
    "/v1/observers/{key}/trigger",
    Row::trigger,
    "observer-deleted, finish-at-passed, observer-paused, no-schedule, observer-active",
    "Start an execution of an observer with a schedule now."
);

async fn plain(
    manager: &Arc<Manager>,
    (namespace, key): (&Namespace, &str),
    (what, act, once): (&str, Act, Option<Uuid>),
    precondition: &Precondition,
) -> Result<Response, Problem> {
    let row = find(&manager.records, (namespace, key)).await?;
    let mut unmet = None;
    let acted = act_on(manager, (row, once), key, |row, now, policy| {
        unmet = precondition.check(row).err();
        if unmet.is_some() { Ok(false) } else { act(row, now, policy) }
    })
    .await?;
    if let Some(problem) = unmet {
        return Err(problem);
    }
    if let Acted::Accepted(row) = &acted {
        info!(observer = %row.id, name = %row.definition.name, what, "requested by a user");
    }
    acted.answer(manager).await
}

/// The destination of a move.
#[derive(Debug, ToSchema)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "it is read member by member, so that an error names its place")]
pub(super) struct MoveTo {
    /// The destination pool; without it, another service of the same pool takes the observer.
    pool: Option<String>,
}

/// Move an observer to another pool, or let its queue choose another service.
#[utoipa::path(post, path = "/v1/observers/{key}/move", tag = "observers", security(("token" = ["observers:operate"])), request_body = Option<MoveTo>,
    params(("key" = String, Path, description = "id or name"), ("namespace" = Option<String>, Query, description = "the namespace of the name"),
    ("idempotency-key" = Option<String>, Header, description = "a request that is repeated with its key acts once")),
    responses((status = 200, body = Observer, description = "nothing to move"),
    (status = 400, body = ProblemBody, description = "bad-header"),
    (status = 202, body = Observer, description = "requested"),
    (status = 404, body = ProblemBody, description = "not-found"),
    (status = 409, body = ProblemBody, description = "observer-deleted, observer-paused (without a pool)"),
    (status = 422, body = ProblemBody, description = "no-service-for-kind, pool-not-allowed")))]
pub(crate) async fn relocate(
    State(manager): Shared,
    Path(key): Path<String>,
    mut params: Params,
    headers: HeaderMap,
    OptionalJson(body): OptionalJson,
) -> Result<Response, Problem> {
    let namespace = params.namespace()?;
    params.finish()?;
    let row = find(&manager.records, (&namespace, &key)).await?;
    let Some(pool) = pool_of(body)? else { return hand_over(&manager, row, &headers).await };
    let once = idempotency::action(&headers, "move")?;
    let mut definition = ObserverDefinition::clone(&row.definition);
    definition.pool = pool.clone();
    caller::check_observer(&definition)?;
    namespaces::check_pool(&manager.records, &definition, &row.definition).await?;
    check_kind(&manager, &definition).await?;
    let acted = act_on(&manager, (row, once), &key, |row, now, policy| {
        let mut definition = ObserverDefinition::clone(&row.definition);
        definition.pool = pool.clone();
        row.update(definition, now, policy)
    })
    .await?;
    acted.answer(&manager).await
}

/// The service takes nothing for this long, so that the queue delivers the message to another one.
const RESTS: Duration = Duration::from_secs(2);

async fn hand_over(manager: &Arc<Manager>, row: Row, headers: &HeaderMap) -> Result<Response, Problem> {
    let Some(service) = row.leaves().map_err(|refusal| refused(&row, refusal))? else {
        return Acted::Unchanged(row).answer(manager).await;
    };
    if !idempotency::is_first(&manager.records, headers, ("move", row.id)).await? {
        return Acted::Accepted(row).answer(manager).await;
    }
    let (ids, cause) = (vec![row.id], Cause::Move);
    let asked = HandOver { service, ids, down_to: None, rest: RESTS, cause };
    commands::order_later(manager, service, Command::HandOver(asked));
    manager.records.events.tell_observer(
        EventKind::MoveRequested,
        &row,
        "to the next service with room".to_owned(),
    );
    Acted::Accepted(row).answer(manager).await
}

fn pool_of(body: Option<Value>) -> Result<Option<Pool>, Problem> {
    let wrong = |pointer: &str, detail: String| {
        Problem::invalid(vec![FieldError { pointer: pointer.to_owned(), detail }])
    };
    let Some(body) = body else { return Ok(None) };
    let Value::Object(mut members) = body else { return Err(wrong("", "must be a JSON object".to_owned())) };
    let pool = members.remove("pool").filter(|pool| !pool.is_null());
    if let Some(member) = members.keys().next() {
        return Err(wrong(&format!("/{member}"), "is not known here; known: pool".to_owned()));
    }
    pool.map(serde_json::from_value).transpose().map_err(|error| wrong("/pool", error.to_string()))
}

/// The result of an action on an observer.
pub(super) enum Acted {
    /// The action is recorded, and its effect follows.
    Accepted(Row),
    /// There was nothing to do, or an earlier request with the same key has done it.
    Unchanged(Row),
}

impl Acted {
    pub(super) fn row(&self) -> &Row {
        let (Self::Accepted(row) | Self::Unchanged(row)) = self;
        row
    }

    pub(super) fn into_row(self) -> Row {
        let (Self::Accepted(row) | Self::Unchanged(row)) = self;
        row
    }

    pub(super) fn status(&self) -> StatusCode {
        match self {
            Self::Accepted(_) => StatusCode::ACCEPTED,
            Self::Unchanged(_) => StatusCode::OK,
        }
    }

    async fn answer(&self, manager: &Manager) -> Result<Response, Problem> {
        let row = self.row();
        Ok((self.status(), tag(row), Json(one(&manager.records, row).await?)).into_response())
    }
}

/// Changes a row that was just read, once for each idempotency key, then sends its revocation and publishes its new
/// generation.
pub(super) async fn act_on(
    manager: &Arc<Manager>,
    (row, once): (Row, Option<Uuid>),
    key: &str,
    mut act: impl FnMut(&mut Row, Timestamp, &RowPolicy) -> Result<bool, Refusal> + Send,
) -> Result<Acted, Problem> {
    let now = manager.records.clock.now();
    let (mut outcome, mut before) = (Ok(false), 0);
    let change = |row: &mut Row| {
        before = row.generation;
        outcome = row.act_once(once, |row| act(row, now, &manager.settings.row));
        outcome == Ok(true)
    };
    let row = change_read_row(&manager.records, row, change).await?.row().ok_or_else(|| not_found(key))?;
    let fresh = outcome.map_err(|refusal| refused(&row, refusal))?;
    if row.generation > before {
        // The revocation first: no run of the generations before may meet the new one.
        if row.generation > 1 {
            commands::revocations(manager, &[&row]).await;
        }
        publish::publish(manager, vec![row.clone()]);
    } else if fresh && row.awaits_end() {
        commands::revoke_later(manager, &row);
    }
    Ok(if fresh { Acted::Accepted(row) } else { Acted::Unchanged(row) })
}

fn refused(row: &Row, refusal: Refusal) -> Problem {
    let (name, status) = (&row.definition.name, row.verdict().status);
    let (code, cure) = match refusal {
        Refusal::Deleted => (Code::Deleted, "create a new one"),
        Refusal::NotFailed => (Code::NotFailed, "only a failed observer can be retried; use restart"),
        Refusal::Paused => (Code::Paused, "resume it first"),
        Refusal::Active => (
            Code::Active,
            "an execution is active, and if_running is skip: wait for its end, use restart, or change if_running",
        ),
        Refusal::NoSchedule => {
            let cure = "only an observer with a schedule can be triggered; use restart or retry";
            return Problem::new(Code::NoSchedule, format!("observer {name} has no schedule: {cure}"));
        }
        Refusal::FinishAtPassed(at) => {
            let cure = "change or remove it; that also starts the observer, unless it is paused";
            return Problem::new(
                Code::FinishAtPassed,
                format!("the finish_at of observer {name}, {at}, has passed: {cure}"),
            );
        }
    };
    Problem::new(code, format!("observer {name} is {status}: {cure}"))
}
