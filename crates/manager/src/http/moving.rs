//! Moves an observer: to another pool, to a service that the user names, or to the next service with room.

use super::actions::{Acted, act_on, refused};
use super::body::OptionalJson;
use super::caller;
use super::creating::check_kind;
use super::idempotency;
use super::lookup::find;
use super::namespaces;
use super::problem::{Code, Problem};
use super::query::Params;
use crate::context::Manager;
use crate::fleet::moves::{self, mover};
use crate::fleet::shown_services;
use crate::outgoing::commands;
use axum::extract::{Path, State};
use axum::http::HeaderMap;
use axum::response::Response;
use everwatch_api::{Observer, ProblemBody};
use everwatch_core::capacity::transfer::{Obstacle, check_others, receiver, step_back};
use everwatch_core::id::{Name, Pool, ServiceId};
use everwatch_core::observer::definition::{FieldError, ObserverDefinition};
use everwatch_core::record::events::EventKind;
use everwatch_core::record::row::Row;
use everwatch_core::wire::command::{Cause, Command, HandOver};
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;
use utoipa::ToSchema;

/// A service that hands over an observer takes nothing before others do for this long, and neither do the services that step
/// back for it.
const RESTS: Duration = Duration::from_secs(2);

/// The destination of a move: without `pool` and `service`, the next service of the same pool that has room.
#[derive(Debug, ToSchema)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "it is read member by member, so that an error names its place")]
pub(super) struct MoveTo {
    /// The destination pool.
    pool: Option<String>,
    /// The name of the destination service, which takes observers of the same pool. If it has no room by the time the observer
    /// arrives, another service takes it.
    service: Option<String>,
    /// Without a destination: hand over the observer even if no other service of the pool can take it now. It can return to the
    /// service that it leaves.
    #[serde(default)]
    force: bool,
}

/// What a request says about the destination.
enum Destination {
    Any {
        /// Whether another service need not be able to take it now.
        force: bool,
    },
    Pool(Pool),
    Service(Name),
}

/// Move an observer to another pool or service, or let its queue choose another service.
///
/// Without a destination and `force`, another service of the pool must be able to take the observer, so that it does not return
/// to the service that it leaves.
#[utoipa::path(post, path = "/v1/observers/{key}/move", tag = "observers", security(("token" = ["observers:operate"])), request_body = Option<MoveTo>,
    params(("key" = String, Path, description = "id or name"), ("namespace" = Option<String>, Query, description = "the namespace of the name"),
    ("idempotency-key" = Option<String>, Header, description = "a request that is repeated with its key acts once")),
    responses((status = 200, body = Observer, description = "nothing to move"),
    (status = 400, body = ProblemBody, description = "bad-header"),
    (status = 202, body = Observer, description = "requested"),
    (status = 404, body = ProblemBody, description = "not-found"),
    (status = 409, body = ProblemBody, description = "observer-deleted, observer-paused (without a pool), observer-not-active (with a service), service-without-room"),
    (status = 422, body = ProblemBody, description = "invalid, no-service-for-kind, pool-not-allowed")))]
pub(crate) async fn relocate(
    State(manager): State<Arc<Manager>>,
    Path(key): Path<String>,
    mut params: Params,
    headers: HeaderMap,
    OptionalJson(body): OptionalJson,
) -> Result<Response, Problem> {
    let namespace = params.namespace()?;
    params.finish()?;
    let row = find(&manager.records, (&namespace, &key)).await?;
    let pool = match destination(body)? {
        Destination::Any { force } => {
            if !force {
                has_other(&manager, &row).await?;
            }
            return hand_over(&manager, row, None, &headers).await;
        }
        Destination::Service(name) => {
            caller::check_services(&row.definition.pool)?;
            return hand_over(&manager, row, Some(&name), &headers).await;
        }
        Destination::Pool(pool) => pool,
    };
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

async fn hand_over(
    manager: &Arc<Manager>,
    row: Row,
    to: Option<&Name>,
    headers: &HeaderMap,
) -> Result<Response, Problem> {
    let holder = row.leaves().map_err(|refusal| refused(&row, refusal))?;
    // One at a time: the next request counts this observer as one that moves to the service.
    let mut turn = None;
    let (others, receiver) = match to {
        None => (Some(Vec::new()), None),
        Some(to) => {
            turn = Some(manager.moves.checked.lock().await);
            others(manager, &row, holder, to).await?
        }
    };
    let (Some(holder), Some(others)) = (holder, others) else {
        return Acted::Unchanged(row).answer(manager).await;
    };
    if !idempotency::is_first(&manager.records, headers, ("move", row.id)).await? {
        return Acted::Accepted(row).answer(manager).await;
    }
    if let Some((receiver, to)) = receiver.zip(to) {
        moves::begins(&manager.records, &row, (holder, receiver)).await?;
        moves::tell_if_missed(manager, &row, (receiver, to));
    }
    drop(turn);
    // A service that does not hold the observer steps back, and hands over nothing.
    let order = |service| {
        let (ids, cause) = (vec![row.id], Cause::Move);
        Command::HandOver(HandOver { service, ids, down_to: None, rest: RESTS, cause })
    };
    let others = others.into_iter().map(|service| (service, order(service))).collect();
    commands::order_after(manager, others, (holder, order(holder)));
    let text = to.map_or_else(|| "to the next service with room".to_owned(), |to| format!("to service {to}"));
    manager.records.events.tell_observer(EventKind::MoveRequested, &row, text);
    Acted::Accepted(row).answer(manager).await
}

/// Checks that another service can take an observer that a service holds.
async fn has_other(manager: &Manager, row: &Row) -> Result<(), Problem> {
    let holder = row.leaves().map_err(|refusal| refused(row, refusal))?;
    if holder.is_none() {
        return Ok(());
    }
    let services = shown_services::living(manager).await?;
    check_others(mover(row, holder), &services)
        .map_err(|nowhere| Problem::new(Code::ServiceWithoutRoom, nowhere.to_string()))
}

/// The services that step back, and the one that takes the observer; `None` if the observer is on that service already.
async fn others(
    manager: &Manager,
    row: &Row,
    holder: Option<ServiceId>,
    to: &Name,
) -> Result<(Option<Vec<ServiceId>>, Option<ServiceId>), Problem> {
    let mut services = shown_services::living(manager).await?;
    // The sender may not learn of services in other pools.
    services.retain(|it| caller::may_see_services(&it.registration.pool));
    let others = match receiver(to, &services) {
        Ok(it) => {
            let coming = moves::coming(&manager.records, it.id).await?;
            step_back(mover(row, holder), (it, coming), &services).map(|others| (others, Some(it.id)))
        }
        Err(none) => Err(none),
    };
    if others.is_ok() && holder.is_none() {
        let name = &row.definition.name;
        let detail = format!("no service holds observer {name} now; move it once it runs");
        return Err(Problem::new(Code::NotActive, detail));
    }
    others.map_err(|obstacle| match obstacle {
        Obstacle::NotOffered(..) => Problem::new(Code::NoServiceForKind, obstacle.to_string()),
        _ if obstacle.may_pass() => Problem::new(Code::ServiceWithoutRoom, obstacle.to_string()),
        _ => wrong("/service", obstacle.to_string()),
    })
}

fn wrong(pointer: &str, detail: String) -> Problem {
    Problem::invalid(vec![FieldError { pointer: pointer.to_owned(), detail }])
}

fn destination(body: Option<Value>) -> Result<Destination, Problem> {
    let Some(body) = body else { return Ok(Destination::Any { force: false }) };
    let Value::Object(mut members) = body else { return Err(wrong("", "must be a JSON object".to_owned())) };
    let mut take = |member: &str| members.remove(member).filter(|value| !value.is_null());
    let (pool, service, force) = (take("pool"), take("service"), take("force"));
    let force = match force {
        None => false,
        Some(Value::Bool(force)) if pool.is_none() && service.is_none() => force,
        Some(Value::Bool(_)) => {
            return Err(wrong("/force", "cannot be set together with a destination".to_owned()));
        }
        Some(_) => return Err(wrong("/force", "must be true or false".to_owned())),
    };
    if let Some(member) = members.keys().next() {
        return Err(wrong(
            &format!("/{member}"),
            "is not known here; known: pool, service, force".to_owned(),
        ));
    }
    match (pool, service) {
        (None, None) => Ok(Destination::Any { force }),
        (Some(pool), None) => serde_json::from_value(pool)
            .map(Destination::Pool)
            .map_err(|error| wrong("/pool", error.to_string())),
        (None, Some(service)) => serde_json::from_value(service)
            .map(Destination::Service)
            .map_err(|error| wrong("/service", error.to_string())),
        (Some(_), Some(_)) => Err(wrong(
            "/service",
            "cannot be set together with pool: a service belongs to one pool".to_owned(),
        )),
    }
}
