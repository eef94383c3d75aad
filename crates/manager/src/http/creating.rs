//! Creates one observer: checks its kind and spec, saves it, and explains a refusal.

use super::caller;
use super::draft::Draft;
use super::etag::tag;
use super::idempotency::Identity;
use super::limits;
use super::lookup::{one, without_secrets};
use super::namespaces;
use super::problem::{Code, Problem};
use crate::context::Manager;
use crate::events::actor;
use crate::fleet::kind_check::{self, Unfit};
use axum::Json;
use axum::http::{HeaderName, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use everwatch_api::Observer;
use everwatch_core::access::Verb;
use everwatch_core::capacity::create_admission::Created;
use everwatch_core::clock::Timestamp;
use everwatch_core::id::{Name, ObserverId, ObserverRef, Pool};
use everwatch_core::observer::definition::{FieldError, ObserverDefinition, OnFull};
use everwatch_core::record::row::{Row, Slot};

use everwatch_core::record::service::ServiceRow;
use everwatch_core::record::status::Status;
use everwatch_core::record::taking::taking;
use everwatch_core::spelling::nearest;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tracing::info;
use uuid::Uuid;

/// The maximum age of cached services where a mistake is checked again anyway.
const SERVICES_AGE: Duration = Duration::from_secs(1);

/// The response to a create.
pub(super) fn created(row: &Row, observer: &Observer) -> Response {
    let place: [(HeaderName, String); 1] = [(header::LOCATION, format!("/v1/observers/{}", observer.id))];
    (StatusCode::CREATED, place, tag(row), Json(observer)).into_response()
}

pub(super) async fn create_as(
    manager: &Arc<Manager>,
    identity: Identity,
    draft: Draft,
) -> Result<Response, Problem> {
    let (row, shown) = create_row(manager, identity, draft).await?;
    Ok(created(&row, &shown))
}

/// The definition as it is stored, if an observer can be created from it.
async fn checked(
    manager: &Manager,
    mut definition: ObserverDefinition,
    now: Timestamp,
) -> Result<ObserverDefinition, Problem> {
    caller::check_verb(Verb::ObserversCreate, &definition)?;
    limits::drop_own(&mut definition);
    if let Err(problem) = check_kind(manager, &definition).await {
        // What other pools offer does not concern a namespace that may not use them.
        namespaces::check_new(&manager.records, &definition).await?;
        return Err(problem);
    }
    limits::check_free(&definition)?;
    limits::check_known(&manager.records, &definition).await?;
    limits::add_own(&mut definition)?;
    definition.check_at(now).map_err(|error| Problem::invalid(vec![error]))?;
    Ok(definition)
}

/// Checks what services, limits and the role of the sender permit, without the other observers.
pub(super) async fn check(manager: &Manager, draft: &Draft) -> Result<(), Problem> {
    checked(manager, draft.definition.clone(), manager.records.clock.now()).await.map(drop)
}

/// The response to a dry run of a create: the observer that the request would create, without room being reserved for it.
pub(super) async fn create_dry(
    manager: &Arc<Manager>,
    Draft { definition, paused }: Draft,
) -> Result<Response, Problem> {
    let now = manager.records.clock.now();
    let definition = checked(manager, definition, now).await?;
    let namespace = &definition.namespace;
    if !namespace.is_default() && manager.records.store.namespace(namespace).await?.is_none() {
        return Err(namespaces::refusal(&manager.records, &definition, Created::NamespaceMissing).await?);
    }
    namespaces::check_new(&manager.records, &definition).await?;
    let which = ObserverRef::Name(definition.namespace.clone(), definition.name.clone());
    let mut row = Row::created(ObserverId(Uuid::nil()), definition, now, &manager.settings.row);
    if let Some(holder) = manager.records.store.find(&which).await? {
        match holder.verdict().status {
            Status::Deleted => {}
            Status::OnDeleting => return Err(name_ending(&row.definition.name)),
            _ => return Err(name_exists(&row.definition.name)),
        }
    }
    row = begun(manager, row, paused, now).await?;
    if row.slot() == Slot::Admitted && row.definition.on_full == OnFull::Reject {
        let (pool, services) = (&row.definition.pool, manager.records.services(SERVICES_AGE).await?);
        if services.iter().all(|it| it.registration.pool != *pool) {
            return Err(Problem::new(Code::NoCapacity, without_room(pool, &services)));
        }
    }
    Ok(Json(Observer::of(&row, None, (&[], now))).into_response())
}

fn name_exists(name: &Name) -> Problem {
    Problem::new(Code::NameExists, format!("an observer named {name} exists already"))
}

fn name_ending(name: &Name) -> Problem {
    let detail = format!("the observer named {name} is being deleted; its name is free after that");
    Problem::new(Code::NameEnding, detail)
}

pub(super) async fn create_row(
    manager: &Arc<Manager>,
    identity: Identity,
    Draft { definition, paused }: Draft,
) -> Result<(Row, Observer), Problem> {
    let now = manager.records.clock.now();
    let definition = checked(manager, definition, now).await?;
    let id = identity.id();
    let mut row = Row::created(id, definition, now, &manager.settings.row).created_by(actor::name());
    row.trace = everwatch_trace::current();
    row = begun(manager, row, paused, now).await?;
    let outcome = manager.requests.creates.create(row.clone(), actor::by()).await;
    let created = outcome.ok_or_else(|| Problem::new(Code::Stopping, "ask another manager"))?;
    let name = &row.definition.name;
    match created.map_err(|error| Problem::from(error.as_ref()))? {
        Created::Done => {
            info!(observer = %id, %name, kind = %row.definition.kind, "observer created");
            if row.is_waiting() {
                let shown = one(&manager.records, &row).await?;
                return Ok((row, shown));
            }
            let shown = Observer::of(&row, None, (&[], manager.records.clock.now()));
            let shown = without_secrets(shown, &row);
            Ok((row, shown))
        }
        Created::Waits => {
            info!(observer = %id, %name, kind = %row.definition.kind, waits_for_slot = true, "observer created");
            let row = row.created_waiting();
            let shown = one(&manager.records, &row).await?;
            Ok((row, shown))
        }
        refused => refused_create(manager, identity, &row, refused).await,
    }
}

/// The answer to a create that was refused. The same request, sent twice at once, may have created the observer.
async fn refused_create(
    manager: &Manager,
    identity: Identity,
    row: &Row,
    refused: Created,
) -> Result<(Row, Observer), Problem> {
    let (records, name) = (&manager.records, &row.definition.name);
    let problem = match refused {
        Created::NameTaken => {
            if let Identity::Reserved(id) = identity
                && let Some(row) = records.store.load(&[id]).await?.one()?
            {
                let shown = one(records, &row).await?;
                return Ok((row, shown));
            }
            name_exists(name)
        }
        Created::NameEnding => name_ending(name),
        Created::LimitReached => limits::reached(records, &row.definition).await?,
        Created::NoCapacityForKind => {
            let (pool, kind) = (&row.definition.pool, &row.definition.kind);
            let detail = format!(
                "no service of pool {pool} that runs kind {kind} has a free slot; add such a service, or create with \
                 on_full \"queue\""
            );
            Problem::new(Code::NoCapacity, detail)
        }
        Created::Done | Created::Waits | Created::NoCapacity => {
            let detail = without_room(&row.definition.pool, &records.services(SERVICES_AGE).await?);
            Problem::new(Code::NoCapacity, detail)
        }
        Created::NamespaceMissing
        | Created::PoolNotAllowed
        | Created::ObserversQuota
        | Created::CreatesQuota => namespaces::refusal(records, &row.definition, refused).await?,
    };
    Err(problem)
}

/// A new observer that is paused, or waits for its time or its pool, if it has to; whether it has a slot is decided when it is stored.
async fn begun(manager: &Manager, row: Row, paused: Option<bool>, now: Timestamp) -> Result<Row, Problem> {
    if paused == Some(true) {
        Ok(row.created_paused())
    } else if row.starts_later(now).is_some() {
        Ok(row.created_waiting())
    } else if manager.records.paused_pools(SERVICES_AGE).await?.contains(&row.definition.pool) {
        waits_for_pool(manager, row).await
    } else {
        Ok(row)
    }
}

/// A new observer of a paused pool.
async fn waits_for_pool(manager: &Manager, row: Row) -> Result<Row, Problem> {
    let (name, pool) = (&row.definition.name, &row.definition.pool);
    if row.definition.on_full == OnFull::Queue {
        return Ok(row.created_waiting());
    }
    // A name that is taken is the more lasting obstacle: the create then says so.
    let holder = manager
        .records
        .store
        .find(&ObserverRef::Name(row.definition.namespace.clone(), name.clone()))
        .await?;
    if holder.is_some_and(|holder| holder.verdict().status != Status::Deleted) {
        return Ok(row);
    }
    let cure = "or create with on_full \"queue\"";
    let text = format!("pool {pool} is paused: resume it with `everwatch pool resume {pool}`, {cure}");
    Err(Problem::new(Code::PoolPaused, text))
}

/// Why a pool has no room, and what to do.
fn without_room(pool: &Pool, services: &[ServiceRow]) -> String {
    let of_pool = |it: &&ServiceRow| it.registration.pool == *pool;
    let is_taking = taking(services).iter().any(of_pool);
    if let Some(it) = services.iter().find(of_pool).filter(|_| !is_taking) {
        return format!(
            "no service of pool {pool} takes observers now: all are cordoned, draining or silent; run everwatch service uncordon \
             {}, add a service, or create with on_full \"queue\"",
            it.registration.name
        );
    }
    if is_taking {
        return format!(
            "pool {pool} has no free slot for another observer: its slots are in use, or observers wait for them; add \
             a service, or create with on_full \"queue\""
        );
    }
    let pools: BTreeSet<&str> = services.iter().map(|it| it.registration.pool.as_str()).collect();
    let near = nearest(pool.as_str(), pools.iter().copied());
    let meant = near.map_or_else(String::new, |near| format!(" (did you mean {near}?)"));
    let otherwise = format!("start a service of pool {pool}, or create with on_full \"queue\"");
    if pools.is_empty() {
        return format!("there is no service: {otherwise}");
    }
    let there = Vec::from_iter(pools).join(", ");
    format!("pool {pool} has no service; pools with services: {there}. Name one of them{meant}, {otherwise}")
}

pub(super) fn made_up_name() -> Result<Name, Problem> {
    let random = Uuid::new_v4().simple().to_string();
    Name::new(&format!("observer-{}", &random[..12]))
        .map_err(|error| Problem::new(Code::Internal, error.to_string()))
}

/// Refuses a kind that no living service of the pool offers, a weight that none of them takes, and a spec that does not fit its schema.
pub(super) async fn check_kind(manager: &Manager, definition: &ObserverDefinition) -> Result<(), Problem> {
    kind_check::check(manager, definition).await?.map_err(|unfit| match unfit {
        Unfit::Spec(errors) => Problem::invalid(errors),
        Unfit::Weight(detail) => Problem::invalid(vec![FieldError { pointer: "/weight".to_owned(), detail }]),
        Unfit::Kind(detail) => {
            let error = FieldError { pointer: "/kind".to_owned(), detail: "is not offered".to_owned() };
            Problem::new(Code::NoServiceForKind, detail).with(vec![error])
        }
    })
}
