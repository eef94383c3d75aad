//! Observers over HTTP: create, list, read, wait, delete.

use super::api::{Listed, NewObserver, Observer, ProblemBody, ServiceName};
use super::body::JsonBody;
use super::edits::{self, Draft};
use super::once::{self, Once};
use super::page::Part;
use super::precondition::Precondition;
use super::problem::{Code, Problem};
use super::query::{Params, bad};
use crate::shared::Manager;
use crate::{asked, creator, schemas, telling};
use axum::Json;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse as _, Response};
use everwatch_core::health::Health;
use everwatch_core::id::{Kind, Name, ObserverId, ObserverRef, Pool, ServiceId};
use everwatch_core::observer::{FieldError, Wanted};
use everwatch_core::row::Row;
use everwatch_core::service::ServiceRow;
use everwatch_core::status::Status;
use everwatch_door::quota::Permit;
use everwatch_store::{After, Created, Filter, Sort};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::collections::{BTreeMap, HashMap};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use tracing::info;
use uuid::Uuid;

/// How old what is known of services may be, where a mistake is checked again anyway.
const SERVICES_AGE: Duration = Duration::from_secs(1);
/// Other managers change rows too: a wait looks again this often.
const LOOK_EVERY: Duration = Duration::from_millis(250);
const WAIT_DEFAULT: Duration = Duration::from_secs(10);

type Shared = State<Arc<Manager>>;

/// Create an observer.
#[utoipa::path(post, path = "/v1/observers", tag = "observers", request_body = NewObserver,
    params(("idempotency-key" = Option<String>, Header, description = "sent again with its key, a create answers what the first one made")),
    responses((status = 201, body = Observer), (status = 400, body = ProblemBody, description = "bad-header"),
    (status = 409, body = ProblemBody, description = "name-exists"),
    (status = 422, body = ProblemBody, description = "no-service-for-kind, idempotency-key-reused"),
    (status = 503, body = ProblemBody, description = "no-capacity, name-ending, stopping")))]
pub(crate) async fn create(
    State(manager): Shared,
    params: Params,
    headers: HeaderMap,
    JsonBody(body): JsonBody,
) -> Result<Response, Problem> {
    params.finish()?;
    let draft = edits::draft(body.clone(), &made_up_name()?)?;
    match once::reserve(&manager, &headers, &body).await? {
        Once::Make { id, again } => create_as(&manager, (id, again), draft).await,
        Once::Made(row) => Ok(edits::created(&row, &one(&manager, &row).await?)),
    }
}

pub(super) async fn create_as(
    manager: &Arc<Manager>,
    identity: (ObserverId, bool),
    draft: Draft,
) -> Result<Response, Problem> {
    let (row, shown) = create_row(manager, identity, draft).await?;
    Ok(edits::created(&row, &shown))
}

/// `again`: an observer of this identity may have been created by the same request before.
pub(super) async fn create_row(
    manager: &Arc<Manager>,
    (id, again): (ObserverId, bool),
    Draft { wanted, paused }: Draft,
) -> Result<(Row, Observer), Problem> {
    check_kind(manager, &wanted).await?;
    let mut row = Row::created(id, wanted, manager.clock.now(), &manager.settings.row);
    row.trace = everwatch_trace::current();
    if paused == Some(true) {
        row = row.created_paused();
    }
    let outcome = creator::create(manager, row.clone()).await;
    let created = outcome.ok_or_else(|| Problem::new(Code::Stopping, "ask another manager"))?;
    let name = &row.wanted.name;
    match created.map_err(|error| Problem::from(error.as_ref()))? {
        Created::Done => {
            info!(observer = %id, %name, kind = %row.wanted.kind, "observer created");
            let shown = Observer::of(&row, None, (&[], manager.clock.now()));
            Ok((row, shown))
        }
        Created::NameTaken => {
            // By the same request, sent twice at once?
            if again && let Some(row) = manager.store.load(&[id]).await?.one()? {
                let shown = one(manager, &row).await?;
                return Ok((row, shown));
            }
            Err(Problem::new(Code::NameExists, format!("an observer named {name} exists already")))
        }
        Created::NameEnding => {
            let detail = format!("the observer named {name} is being deleted; its name is free after that");
            Err(Problem::new(Code::NameEnding, detail))
        }
        Created::NoCapacity => {
            let detail = without_room(&row.wanted.pool, &manager.services(SERVICES_AGE).await?);
            Err(Problem::new(Code::NoCapacity, detail))
        }
    }
}

/// Why a pool has no room, and what to do.
fn without_room(pool: &Pool, services: &[ServiceRow]) -> String {
    if services.iter().any(|it| it.birth.pool == *pool) {
        return format!("pool {pool} has no free slot; add a service, or create with on_full \"queue\"");
    }
    let pools: BTreeSet<&str> = services.iter().map(|it| it.birth.pool.as_str()).collect();
    let there = if pools.is_empty() { "none".to_owned() } else { Vec::from_iter(pools).join(", ") };
    format!(
        "no service of a pool named {pool} lives; pools with services: {there}. Name one of them, start a service of \
         pool {pool}, or create with on_full \"queue\""
    )
}

pub(super) fn made_up_name() -> Result<Name, Problem> {
    let random = Uuid::new_v4().simple().to_string();
    Name::new(&format!("observer-{}", &random[..12]))
        .map_err(|error| Problem::new(Code::Internal, error.to_string()))
}

/// Refuses a kind that the living services of the pool lack, all of them, and a spec that it does not want.
pub(super) async fn check_kind(manager: &Manager, wanted: &Wanted) -> Result<(), Problem> {
    let mut offered = BTreeSet::new();
    for age in [SERVICES_AGE, Duration::ZERO] {
        let services = manager.services(age).await?;
        let mut of_pool = services.iter().filter(|it| it.birth.pool == wanted.pool).peekable();
        let none_lives = of_pool.peek().is_none();
        if none_lives || of_pool.any(|it| it.birth.kinds.iter().any(|kind| kind.name == wanted.kind)) {
            return check_spec(manager, wanted, &services);
        }
        let of_pool = services.iter().filter(|it| it.birth.pool == wanted.pool);
        offered = of_pool.flat_map(|it| &it.birth.kinds).map(|kind| kind.name.to_string()).collect();
    }
    let (kind, pool) = (&wanted.kind, &wanted.pool);
    let offered = Vec::from_iter(offered).join(", ");
    let detail = format!("no living service of pool {pool} can run the kind {kind}; they offer: {offered}");
    let error = FieldError { pointer: "/kind".to_owned(), detail: "is not offered".to_owned() };
    Err(Problem::new(Code::NoServiceForKind, detail).with(vec![error]))
}

fn check_spec(manager: &Manager, wanted: &Wanted, services: &[ServiceRow]) -> Result<(), Problem> {
    let of_pool = services.iter().filter(|it| it.birth.pool == wanted.pool);
    let Some(schema) = schemas::of_kind(of_pool, &wanted.kind) else { return Ok(()) };
    let errors = manager.schemas.errors(&wanted.kind, schema, &wanted.spec);
    if errors.is_empty() { Ok(()) } else { Err(Problem::invalid(errors)) }
}

/// Where a page of observers starts.
#[derive(Debug, Serialize, Deserialize)]
struct Start {
    value: String,
    id: ObserverId,
}

/// List observers.
#[utoipa::path(get, path = "/v1/observers", tag = "observers", params(
    ("status" = Option<String>, Query, description = "one or several, comma-separated; default all but Deleted"),
    ("health" = Option<String>, Query, description = "one or several of running, restarting, waiting, moving, stopping, comma-separated"),
    ("kind" = Option<String>, Query), ("pool" = Option<String>, Query),
    ("service" = Option<String>, Query, description = "id or name of the holder"),
    ("label" = Option<String>, Query, description = "key=value; may be repeated, all must match"),
    ("q" = Option<String>, Query, description = "part of the name"),
    ("sort" = Option<String>, Query, description = "name, created_at; with - in front descending"),
    ("limit" = Option<u32>, Query), ("cursor" = Option<String>, Query)),
    responses((status = 200, body = Listed<Observer>)))]
pub(crate) async fn list(
    State(manager): Shared,
    mut params: Params,
) -> Result<Json<Listed<Observer>>, Problem> {
    let filter = Filter { service: holder(&manager, &mut params).await?, ..filter(&mut params)? };
    let part: Part<Start> = Part::read(&mut params)?;
    params.finish()?;
    let after = part.after.as_ref().map(|start| After { value: start.value.clone(), id: start.id });
    let page = manager.store.list(&filter, after.as_ref(), part.limit).await?;
    let next = page
        .rows
        .last()
        .filter(|_| page.more)
        .map(|row| Start { value: sort_value(&filter, row), id: row.id });
    let items = describe(&manager, &page.rows).await?;
    Ok(Json(Listed { items, next_cursor: next.and_then(|next| part.cursor(next)), total: page.total }))
}

pub(super) fn sort_value(filter: &Filter, row: &Row) -> String {
    match filter.sort {
        Sort::Name => row.wanted.name.to_string(),
        Sort::CreatedAt => row.created_at.0.to_string(),
    }
}

/// The holder that is asked for, by id or, the newest of it, by name.
pub(super) async fn holder(manager: &Manager, params: &mut Params) -> Result<Option<ServiceId>, Problem> {
    let Some(text) = params.one("service")? else { return Ok(None) };
    if let Ok(id) = text.parse::<ServiceId>() {
        return Ok(Some(id));
    }
    let name = Name::new(&text).map_err(|error| bad("service", error))?;
    let found = manager.store.service(None, Some(&name)).await?;
    // Nobody of that name holds nothing.
    Ok(Some(found.map_or(ServiceId(Uuid::nil()), |service| service.id)))
}

/// One or several words, comma-separated.
fn words<T: FromStr<Err = String>>(params: &mut Params, name: &'static str) -> Result<Vec<T>, Problem> {
    let all = params.many(name);
    let words = all.iter().flat_map(|text| text.split(','));
    words.map(|word| word.trim().parse().map_err(|error| bad(name, error))).collect()
}

pub(super) fn filter(params: &mut Params) -> Result<Filter, Problem> {
    let status = words::<Status>(params, "status")?;
    let health = words::<Health>(params, "health")?;
    let mut labels = BTreeMap::new();
    for text in params.many("label") {
        let (key, value) = text.split_once('=').ok_or_else(|| bad("label", "write it as key=value"))?;
        labels.insert(key.to_owned(), value.to_owned());
    }
    let sort = params.one("sort")?.unwrap_or_else(|| "name".to_owned());
    let (descending, field) = sort.strip_prefix('-').map_or((false, sort.as_str()), |field| (true, field));
    let sort = match field {
        "name" => Sort::Name,
        "created_at" => Sort::CreatedAt,
        _ => return Err(bad("sort", "name or created_at, with - in front for descending")),
    };
    Ok(Filter {
        status,
        health,
        kind: params.parsed::<Kind>("kind")?,
        pool: params.parsed::<Pool>("pool")?,
        service: None,
        labels,
        q: params.one("q")?,
        sort,
        descending,
    })
}

/// Read an observer, or wait until it has a status.
#[utoipa::path(get, path = "/v1/observers/{key}", tag = "observers", params(
    ("key" = String, Path, description = "id or name"),
    ("wait_for" = Option<String>, Query, description = "status=X: answer once it has this status"),
    ("wait" = Option<String>, Query, description = "how long at most, up to 60s (default 10s)"),
    ("if-none-match" = Option<String>, Header, description = "an ETag; answers 304 if the definition matches it")),
    responses((status = 200, body = Observer),
    (status = 304, description = "the definition matches the ETag in if-none-match"),
    (status = 400, body = ProblemBody, description = "bad-header"),
    (status = 404, body = ProblemBody, description = "not-found"),
    (status = 429, body = ProblemBody, description = "too-many-waits")))]
pub(crate) async fn read(
    State(manager): Shared,
    Path(key): Path<String>,
    mut params: Params,
    precondition: Precondition,
) -> Result<Response, Problem> {
    let status = params.one("wait_for")?.map(|text| wanted_status(&text)).transpose()?;
    let wait = params.wait()?;
    params.finish()?;
    let row = find(&manager, &key).await?;
    let row = match status {
        None => row,
        Some(status) => {
            let _permit = permit_to_wait(&manager)?;
            let is_over = |row: &Row| row.verdict().status == status || !row.may_become(status);
            await_row(&manager, row, wait.unwrap_or(WAIT_DEFAULT), is_over).await?
        }
    };
    if status.is_none() && precondition.is_known(&row) {
        return Ok((StatusCode::NOT_MODIFIED, edits::tag(&row)).into_response());
    }
    Ok((edits::tag(&row), Json(one(&manager, &row).await?)).into_response())
}

fn wanted_status(text: &str) -> Result<Status, Problem> {
    let status = text.strip_prefix("status=").ok_or_else(|| bad("wait_for", "write it as status=X"))?;
    status.parse().map_err(|error| bad("wait_for", error))
}

/// Taken before anything is changed.
fn permit_to_wait(manager: &Manager) -> Result<Permit, Problem> {
    let full = |full| Problem::too_many(Code::TooManyWaits, full, "wait");
    manager.waits.acquire(asked::client()).map_err(full)
}

/// Waits until there is nothing to wait for, the time is over or the manager stops; answers what is then.
async fn await_row(
    manager: &Manager,
    mut row: Row,
    wait: Duration,
    is_over: impl Fn(&Row) -> bool,
) -> Result<Row, Problem> {
    let deadline = Instant::now() + wait;
    let mut changes = manager.changes();
    while !is_over(&row) && Instant::now() < deadline {
        changes.mark_unchanged();
        let look_again = deadline.min(Instant::now() + LOOK_EVERY);
        tokio::select! {
            () = manager.stop.cancelled() => return Ok(row),
            () = tokio::time::sleep_until(look_again) => {}
            changed = changes.changed() => if changed.is_err() { return Ok(row) },
        }
        row = match manager.store.load(&[row.id]).await?.one()? {
            Some(now) => now,
            None => return Err(not_found(&row.id.to_string())),
        };
    }
    Ok(row)
}

/// Delete an observer: repeatable, in every status.
#[utoipa::path(delete, path = "/v1/observers/{key}", tag = "observers", params(
    ("key" = String, Path, description = "id or name"),
    ("wait" = Option<String>, Query, description = "wait for its end, up to 60s"),
    ("only_if" = Option<String>, Query, description = "Processing; answers 409 if the status differs"),
    ("if-match" = Option<String>, Header, description = "the ETag that the delete is meant for, or *")),
    responses((status = 200, body = Observer, description = "Deleted"),
    (status = 202, body = Observer, description = "OnDeleting"),
    (status = 400, body = ProblemBody, description = "bad-header"), (status = 412, body = ProblemBody, description = "observer-changed"), (status = 404, body = ProblemBody, description = "not-found"),
    (status = 409, body = ProblemBody, description = "observer-not-active: only with only_if"),
    (status = 429, body = ProblemBody, description = "too-many-waits: only with wait")))]
pub(crate) async fn delete(
    State(manager): Shared,
    Path(key): Path<String>,
    mut params: Params,
    precondition: Precondition,
) -> Result<Response, Problem> {
    let wait = params.wait()?.unwrap_or_default();
    let only_if = params.parsed::<Status>("only_if")?;
    if only_if.is_some_and(|status| status != Status::Processing) {
        return Err(bad("only_if", "only Processing"));
    }
    params.finish()?;
    let id = find(&manager, &key).await?.id;
    let _permit = if wait.is_zero() { None } else { Some(permit_to_wait(&manager)?) };
    let row = doom(&manager, id, &key, (only_if, &precondition)).await?;
    let row = await_row(&manager, row, wait, |row| row.verdict().status == Status::Deleted).await?;
    let status = if row.verdict().status == Status::Deleted { StatusCode::OK } else { StatusCode::ACCEPTED };
    Ok((status, edits::tag(&row), Json(one(&manager, &row).await?)).into_response())
}

/// Marks an observer for deletion; with `only_if` only if it has that status, and only if the precondition holds.
pub(super) async fn doom(
    manager: &Arc<Manager>,
    id: ObserverId,
    key: &str,
    (only_if, precondition): (Option<Status>, &Precondition),
) -> Result<Row, Problem> {
    let now = manager.clock.now();
    let (mut refused, mut unmet, mut fresh) = (None, None, false);
    let change = |row: &mut Row| {
        let status = row.verdict().status;
        unmet = precondition.check(row).err();
        if unmet.is_some() {
            return false;
        }
        refused = only_if.filter(|wanted| *wanted != status).map(|_| status);
        fresh = refused.is_none() && row.delete(now, &manager.settings.row);
        fresh
    };
    let row = manager.change(id, change).await?.ok_or_else(|| not_found(key))?;
    if let Some(problem) = unmet {
        return Err(problem);
    }
    if let Some(status) = refused {
        let detail = format!("observer {} is {status}, not Processing", row.wanted.name);
        return Err(Problem::new(Code::NotActive, detail));
    }
    if fresh {
        info!(observer = %id, name = %row.wanted.name, "observer is to be deleted");
        telling::floors_later(manager, vec![row.floor()]);
    }
    Ok(row)
}

pub(super) async fn find(manager: &Manager, key: &str) -> Result<Row, Problem> {
    // What cannot be a name cannot be there.
    let Ok(which) = key.parse::<ObserverRef>() else { return Err(not_found(key)) };
    manager.store.find(&which).await?.ok_or_else(|| not_found(key))
}

pub(super) fn not_found(key: &str) -> Problem {
    let key: String = key.chars().take(140).collect();
    Problem::new(Code::NotFound, format!("there is no observer `{key}`"))
}

/// How old what is said of a pool's room may be.
const SERVICES_MAX_AGE: Duration = Duration::from_secs(1);

pub(super) async fn one(manager: &Manager, row: &Row) -> Result<Observer, Problem> {
    let holder = match row.holder() {
        None => None,
        Some(id) => manager.store.service(Some(id), None).await?.filter(|service| service.end.is_none()),
    };
    let holder = holder.map(|it| ServiceName { id: it.id.0, name: it.birth.name.to_string() });
    let services = manager.services(SERVICES_MAX_AGE).await?;
    Ok(Observer::of(row, holder, (&services, manager.clock.now())))
}

async fn describe(manager: &Manager, rows: &[Row]) -> Result<Vec<Observer>, Problem> {
    let services = manager.services(Duration::ZERO).await?;
    let names: HashMap<ServiceId, ServiceName> = services
        .iter()
        .map(|it| (it.id, ServiceName { id: it.id.0, name: it.birth.name.to_string() }))
        .collect();
    let holder = |row: &Row| row.holder().and_then(|id| names.get(&id).cloned());
    let now = manager.clock.now();
    Ok(rows.iter().map(|row| Observer::of(row, holder(row), (&services, now))).collect())
}
