//! Many observers at once: a batch of different requests, or one request for all observers that match a filter.

use super::actions::act_on;
use super::body;
use super::caller;
use super::creating::{create_row, made_up_name};
use super::deleting::request_delete;
use super::draft::{draft, namespace_of};
use super::filter::{ObserverFilter, StatusFilter, filter, sort_value};
use super::idempotency::{self, Identities, Once};
use super::lookup::{find, one};
use super::precondition::Precondition;
use super::problem::{Code, Problem};
use super::query::{Params, bad};
use crate::context::Manager;
use crate::context::records::Records;
use axum::Json;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode};
use everwatch_api::{NewObserver, Observer, Outcome, Outcomes, ProblemBody};
use everwatch_core::access::Verb;
use everwatch_core::clock::Timestamp;
use everwatch_core::id::{Namespace, ObserverId};
use everwatch_core::observer::definition::FieldError;
use everwatch_core::record::operations::Refusal;
use everwatch_core::record::row::Row;
use everwatch_core::record::row_policy::RowPolicy;
use everwatch_core::record::status::Status;
use everwatch_core::wording::counted_subject;
use everwatch_store::{Filter, ListCursor};
use futures::StreamExt as _;
use serde::Deserialize;
use serde_json::Value;
use std::collections::HashSet;
use std::sync::Arc;
use tracing::info;
use utoipa::ToSchema;
use uuid::Uuid;

/// The most observers in one request.
const MOST: usize = 10_000;
/// The largest body of a batch, in bytes.
pub(super) const BODY_MAX: usize = 16 * 1024 * 1024;
/// Requests of a batch in progress at once.
const AT_ONCE: usize = 256;
const PAGE: usize = 1000;

type Shared = State<Arc<Manager>>;

/// One request of a batch.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(tag = "op", rename_all = "snake_case", deny_unknown_fields)]
enum Wish {
    /// The body of a create.
    Create {
        #[schema(value_type = NewObserver)]
        observer: Value,
    },
    Delete {
        /// Id or name.
        id: String,
    },
    Pause {
        /// Id or name.
        id: String,
    },
    Resume {
        /// Id or name.
        id: String,
    },
    Restart {
        /// Id or name.
        id: String,
    },
    Retry {
        /// Id or name.
        id: String,
    },
}

/// The result of one request as an item of the answer.
fn outcome(done: Result<(StatusCode, Observer), Problem>) -> Outcome {
    match done {
        Ok((status, observer)) => {
            Outcome { status: status.as_u16(), observer: Some(observer), problem: None }
        }
        Err(problem) => {
            let body = problem.body("/v1/observers:batch");
            Outcome { status: body.status, observer: None, problem: Some(body) }
        }
    }
}

/// Create, delete, pause, resume, restart and retry up to 10,000 observers; a failure stops no other request.
///
/// Requests for the same observer, by the same name or id, are processed in order.
#[utoipa::path(post, path = "/v1/observers:batch", tag = "observers", security(("token" = ["observers:create"]), ("token" = ["observers:delete"]), ("token" = ["observers:operate"])), request_body = Vec<Wish>,
    params(("namespace" = Option<String>, Query, description = "the namespace of the names and of the bodies that name none"),
    ("idempotency-key" = Option<String>, Header, description = "a batch that is repeated with its key creates and acts once")),
    responses((status = 422, body = ProblemBody, description = "idempotency-key-reused"),
    (status = 400, body = ProblemBody, description = "bad-header"), (status = 200, body = Outcomes, description = "each with its own status, in order")))]
pub(crate) async fn batch(
    State(manager): Shared,
    mut params: Params,
    request: Request,
) -> Result<Json<Outcomes>, Problem> {
    let given = params.given_namespace()?;
    params.finish()?;
    let headers = request.headers().clone();
    let body = body::read(request, &manager.requests.limits.bodies, BODY_MAX).await?;
    let (given, namespace) = (given.as_ref(), &given.clone().unwrap_or_else(caller::namespace));
    let identities = &Identities::reserve(&manager.records, &headers, (namespace, &body)).await?;
    let wrong = |detail: String| Problem::invalid(vec![FieldError { pointer: String::new(), detail }]);
    let Value::Array(wishes) = body else {
        return Err(wrong("must be an array of {\"op\": …}".to_owned()));
    };
    if wishes.len() > MOST {
        return Err(wrong(format!("{} items: at most {MOST} in one batch", wishes.len())));
    }
    info!(wishes = wishes.len(), "a batch");
    let (manager, mut items) = (&manager, Vec::with_capacity(wishes.len()));
    for wave in waves(wishes) {
        let done = futures::stream::iter(wave)
            .map(|wish| async move { outcome(fulfil(manager, (identities, given), wish).await) })
            .buffered(AT_ONCE);
        items.extend(done.collect::<Vec<_>>().await);
    }
    Ok(Json(Outcomes { items }))
}

/// Splits a batch into waves, so that no wave names an observer twice: the result of one request is visible to the
/// next.
fn waves(wishes: Vec<Value>) -> Vec<Vec<(usize, Value)>> {
    let (mut waves, mut met) = (vec![Vec::new()], HashSet::new());
    for (place, wish) in wishes.into_iter().enumerate() {
        let subject = wish.pointer("/observer/name").or_else(|| wish.get("id")).and_then(Value::as_str);
        if let Some(subject) = subject
            && !met.insert(subject.to_owned())
        {
            met = HashSet::from([subject.to_owned()]);
            waves.push(Vec::new());
        }
        waves.last_mut().expect("one is there from the start").push((place, wish));
    }
    waves
}

async fn fulfil(
    manager: &Arc<Manager>,
    (identities, given): (&Identities, Option<&Namespace>),
    (place, wish): (usize, Value),
) -> Result<(StatusCode, Observer), Problem> {
    let (id, act): (String, Act) = match body::parsed(wish)? {
        Wish::Create { observer } => {
            let namespace = namespace_of(given.cloned(), &observer)?;
            let draft = draft(observer, (&namespace, &made_up_name()?))?;
            let made = match identities.of(&manager.records, place).await? {
                Once::Make(identity) => create_row(manager, identity, draft).await?.1,
                Once::Made(row) => one(&manager.records, &row).await?,
            };
            return Ok((StatusCode::CREATED, made));
        }
        Wish::Delete { id } => {
            let namespace = given.cloned().unwrap_or_else(caller::namespace);
            return deleted(manager, (&namespace, &id)).await;
        }
        Wish::Pause { id } => (id, Row::pause),
        Wish::Resume { id } => (id, Row::resume),
        Wish::Restart { id } => (id, Row::restart),
        Wish::Retry { id } => (id, Row::retry),
    };
    let namespace = given.cloned().unwrap_or_else(caller::namespace);
    acted(manager, (&namespace, &id), (identities.action(place), act)).await
}

type Act = fn(&mut Row, Timestamp, &RowPolicy) -> Result<bool, Refusal>;

async fn deleted(
    manager: &Arc<Manager>,
    (namespace, key): (&Namespace, &str),
) -> Result<(StatusCode, Observer), Problem> {
    let row = find(&manager.records, (namespace, key)).await?;
    caller::check_verb(Verb::ObserversDelete, &row.definition)?;
    let row = request_delete(manager, row, key, (None, &Precondition::default())).await?;
    let over = row.verdict().status == Status::Deleted;
    let status = if over { StatusCode::OK } else { StatusCode::ACCEPTED };
    Ok((status, one(&manager.records, &row).await?))
}

async fn acted(
    manager: &Arc<Manager>,
    (namespace, key): (&Namespace, &str),
    (once, act): (Option<Uuid>, Act),
) -> Result<(StatusCode, Observer), Problem> {
    let row = find(&manager.records, (namespace, key)).await?;
    caller::check_verb(Verb::ObserversOperate, &row.definition)?;
    let acted = act_on(manager, (row, once), key, act).await?;
    Ok((acted.status(), one(&manager.records, acted.row()).await?))
}

/// Delete all observers that match the filter, which must not be empty.
#[utoipa::path(delete, path = "/v1/observers", tag = "observers", security(("token" = ["observers:delete"])), params(
    ("expect" = u32, Query, description = "the expected number of observers; if it differs, 409 and no change"),
    StatusFilter, ObserverFilter),
    responses((status = 200, body = Outcomes), (status = 409, body = ProblemBody, description = "count-differs")))]
pub(crate) async fn delete(State(manager): Shared, params: Params) -> Result<Json<Outcomes>, Problem> {
    let ids = found(&manager.records, params).await?;
    let manager = &manager;
    let done = futures::stream::iter(ids)
        .map(|id| async move { outcome(deleted(manager, (&Namespace::default(), &id.to_string())).await) })
        .buffered(AT_ONCE);
    Ok(Json(Outcomes { items: done.collect().await }))
}

macro_rules! for_all {
    ($name:ident, $path:literal, $act:path, $doc:literal) => {
        #[doc = $doc]
        #[utoipa::path(post, path = $path, tag = "observers", security(("token" = ["observers:operate"])), params(
            ("expect" = u32, Query, description = "the expected number of observers; if it differs, 409 and no change"),
            ("idempotency-key" = Option<String>, Header, description = "a request that is repeated with its key acts once on each observer"),
            StatusFilter, ObserverFilter),
            responses((status = 200, body = Outcomes), (status = 400, body = ProblemBody, description = "bad-header"),
            (status = 409, body = ProblemBody, description = "count-differs")))]
        pub(crate) async fn $name(
            State(manager): Shared,
            params: Params,
            headers: HeaderMap,
        ) -> Result<Json<Outcomes>, Problem> {
            let once = idempotency::action(&headers, $path)?;
            let ids = found(&manager.records, params).await?;
            let manager = &manager;
            let done = futures::stream::iter(ids)
                .map(|id| async move { outcome(acted(manager, (&Namespace::default(), &id.to_string()), (once, $act)).await) })
                .buffered(AT_ONCE);
            Ok(Json(Outcomes { items: done.collect().await }))
        }
    };
}

for_all!(
    pause,
    "/v1/observers:pause",
    Row::pause,
    "Pause all observers that match the filter, which must not be empty."
);
for_all!(
    resume,
    "/v1/observers:resume",
    Row::resume,
    "Resume all observers that match the filter, which must not be empty."
);
for_all!(
    restart,
    "/v1/observers:restart",
    Row::restart,
    "Restart all observers that match the filter, which must not be empty."
);
for_all!(
    retry,
    "/v1/observers:retry",
    Row::retry,
    "Retry all observers that match the filter, which must not be empty."
);

/// The observers that match the filter, if their number is as expected.
async fn found(records: &Records, mut params: Params) -> Result<Vec<ObserverId>, Problem> {
    let expected = params.parsed::<usize>("expect")?;
    let filter = filter(records, &mut params).await?;
    params.finish()?;
    let Some(expected) = expected else {
        return Err(bad("expect", "say how many observers you expect this to be about"));
    };
    let (sort, descending, scope) = (filter.sort, filter.descending, filter.scope.clone());
    let every = Filter { sort, descending, scope, ..Filter::default() };
    if filter == every {
        return Err(bad(
            "label",
            "give at least one filter: label, selector, kind, namespace, pool, service, status, health, reason_code or q",
        ));
    }
    let (mut ids, mut after): (Vec<ObserverId>, Option<ListCursor>) = (Vec::new(), None);
    loop {
        let page = records.store.list(&filter, after.as_ref(), PAGE).await?;
        let total = usize::try_from(page.total).unwrap_or(usize::MAX);
        if total != expected || total > MOST {
            let matching = counted_subject(total, "observer", ["matches", "match"]);
            let detail = match total {
                0..=MOST => format!("{matching}, not {expected}: nothing was done"),
                _ => format!("{matching}: at most {MOST} at once; nothing was done"),
            };
            return Err(Problem::new(Code::CountDiffers, detail));
        }
        ids.extend(page.rows.iter().map(|row| row.id));
        let Some(last) = page.rows.last().filter(|_| page.more) else { return Ok(ids) };
        after = Some(ListCursor { value: sort_value(&filter, last), id: last.id });
    }
}
