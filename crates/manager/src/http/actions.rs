//! Actions on an existing observer: pause, resume, restart, retry, trigger.

use super::etag::tag;
use super::idempotency;
use super::lookup::{find, not_found, one};
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
use everwatch_core::id::Namespace;
use everwatch_core::record::operations::Refusal;
use everwatch_core::record::row::Row;
use everwatch_core::record::row_policy::RowPolicy;
use std::sync::Arc;
use tracing::info;
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

    pub(super) async fn answer(&self, manager: &Manager) -> Result<Response, Problem> {
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
    let missing = not_found(&row.definition.namespace, key);
    let row = change_read_row(&manager.records, row, change).await?.row().ok_or(missing)?;
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

pub(super) fn refused(row: &Row, refusal: Refusal) -> Problem {
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
