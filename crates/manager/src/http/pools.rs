//! Pools over HTTP.

use super::body::{JsonBody, parsed};
use super::caller;
use super::problem::{Code, Problem};
use super::query::Params;
use super::{pool_creation, pool_deletion};
use crate::context::Manager;
use crate::fleet::{pool_pause, shown_services};
use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use everwatch_api::{self as api, Listed, ProblemBody};
use everwatch_core::capacity::headroom::{failure_tolerance, needed_slots};
use everwatch_core::id::Pool;
use everwatch_core::observer::definition::FieldError;
use everwatch_core::record::service::ServiceState;
use everwatch_core::record::status::Status;
use everwatch_core::record::taking::slots_by_pool;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

type Shared = State<Arc<Manager>>;

/// List pools.
#[utoipa::path(get, path = "/v1/pools", tag = "services", security(("token" = ["pools:read"])),
    responses((status = 200, body = Listed<api::Pool>)))]
pub(crate) async fn list(State(manager): Shared, params: Params) -> Result<Json<Listed<api::Pool>>, Problem> {
    params.finish()?;
    let pools = by_pool(&manager).await?.into_iter();
    let may_see = |name: &str| Pool::new(name).is_ok_and(|pool| caller::may_see_pool(&pool));
    let items: Vec<_> =
        pools.filter(|(name, _)| may_see(name)).map(|(name, pool)| api::Pool { name, ..pool }).collect();
    let total = items.len() as u64;
    Ok(Json(Listed { items, next_cursor: None, total }))
}

/// Read a pool: `needed` is the number of slots to scale by.
///
/// Do not scale by the length of the work queue: observers without a slot wait in the database, so the queue is
/// usually empty.
#[utoipa::path(get, path = "/v1/pools/{pool}", tag = "services", security(("token" = ["pools:read"])),
    params(("pool" = String, Path, description = "its name")),
    responses((status = 200, body = api::Pool), (status = 404, body = ProblemBody, description = "not-found")))]
pub(crate) async fn read(
    State(manager): Shared,
    Path(name): Path<String>,
    params: Params,
) -> Result<Json<api::Pool>, Problem> {
    params.finish()?;
    let may_see = Pool::new(&name).is_ok_and(|pool| caller::may_see_pool(&pool));
    match by_pool(&manager).await?.remove(&name) {
        Some(pool) if may_see => Ok(Json(api::Pool { name, ..pool })),
        _ => Err(unknown(&name)),
    }
}

/// Create a pool, or pause or resume one: all managers follow within a second.
///
/// `single` creates the work queue of the pool. With `false`, that is necessary only for services whose broker user may not
/// create it. A pool is single from its creation on: a request that would change that is refused.
#[utoipa::path(put, path = "/v1/pools/{pool}", tag = "services", security(("token" = ["pools:write"])), request_body = api::PoolSettings,
    params(("pool" = String, Path, description = "its name")),
    responses((status = 200, body = api::Pool), (status = 409, body = ProblemBody, description = "pool-in-use"),
    (status = 422, body = ProblemBody, description = "invalid"), (status = 503, body = ProblemBody, description = "not-ready")))]
pub(crate) async fn put(
    State(manager): Shared,
    Path(name): Path<String>,
    params: Params,
    JsonBody(body): JsonBody,
) -> Result<Json<api::Pool>, Problem> {
    params.finish()?;
    let settings: api::PoolSettings = parsed(body)?;
    let pool = Pool::new(&name).map_err(|error| {
        Problem::invalid(vec![FieldError { pointer: String::new(), detail: error.to_string() }])
    })?;
    caller::check_pool(&pool)?;
    if settings == api::PoolSettings::default() {
        let detail = "name a setting: paused, single".to_owned();
        return Err(Problem::invalid(vec![FieldError { pointer: String::new(), detail }]));
    }
    if let Some(single) = settings.single {
        pool_creation::create(&manager, &pool, single).await?;
    }
    // Before a pause ends: it admits the observers that this response counts.
    let known = by_pool(&manager).await?.remove(&name).unwrap_or_default();
    if let Some(paused) = settings.paused {
        pool_pause::set(&manager.records, &pool, paused).await?;
    }
    Ok(Json(api::Pool { name, paused: settings.paused.unwrap_or(known.paused), ..known }))
}

/// Delete a pool that has no services and no observers, with its work queue.
///
/// Managers create the pools of their setting `manager.pools` again when they connect, so a manager refuses to delete those of
/// its own setting. The exchange for commands to the services of the pool remains on the broker.
#[utoipa::path(delete, path = "/v1/pools/{pool}", tag = "services", security(("token" = ["pools:write"])),
    params(("pool" = String, Path, description = "its name")),
    responses((status = 204, description = "deleted"), (status = 404, body = ProblemBody, description = "not-found"),
    (status = 409, body = ProblemBody, description = "pool-in-use"), (status = 503, body = ProblemBody, description = "not-ready")))]
pub(crate) async fn delete(
    State(manager): Shared,
    Path(name): Path<String>,
    params: Params,
) -> Result<StatusCode, Problem> {
    params.finish()?;
    let pool = Pool::new(&name).map_err(|_| unknown(&name))?;
    caller::check_pool(&pool)?;
    let is_known = by_pool(&manager).await?.contains_key(pool.as_str());
    if !pool_deletion::delete(&manager, &pool).await? && !is_known {
        return Err(unknown(&name));
    }
    Ok(StatusCode::NO_CONTENT)
}

fn unknown(name: &str) -> Problem {
    let shown: String = name.chars().take(140).collect();
    Problem::new(Code::NotFound, format!("no service and no observer names a pool `{shown}`"))
}

async fn by_pool(manager: &Manager) -> Result<BTreeMap<String, api::Pool>, Problem> {
    let mut pools: BTreeMap<String, api::Pool> = BTreeMap::new();
    for pool in manager.link.pools.all() {
        pools.entry(pool.to_string()).or_default();
    }
    let services = shown_services::living(manager).await?;
    for service in &services {
        let pool = pools.entry(service.registration.pool.to_string()).or_default();
        pool.services += 1;
        let is_able = matches!(service.state(), ServiceState::Active | ServiceState::Standby);
        pool.active += u32::from(is_able);
        pool.held = pool.held.saturating_add(service.held());
    }
    for (pool, slots) in slots_by_pool(&services) {
        let pool = pools.entry(pool.to_string()).or_default();
        (pool.capacity, pool.free) = (slots.capacity, slots.free);
    }
    let store = &manager.records.store;
    let (counts, behind_limits) = (store.counts().await?, store.behind_limits().await?);
    let weights = counts.iter().map(|((pool, status), count)| (pool, *status, count.weight));
    let behind = behind_limits.iter().map(|(pool, load)| (pool, load.weight));
    for (pool, slots) in needed_slots(weights, behind) {
        pools.entry(pool.to_string()).or_default().needed = slots;
    }
    for (pool, _) in counts.keys().filter(|(_, status)| *status != Status::Deleted) {
        pools.entry(pool.to_string()).or_default();
    }
    for ((pool, status), count) in counts {
        // Observers that are deleted keep no pool alive.
        if let Some(pool) = pools.get_mut(pool.as_str()) {
            pool.observers.insert(status.to_string(), count.number);
        }
    }
    for (pool, count) in manager.records.store.waiting_pools().await?.pools {
        pools.entry(pool.to_string()).or_default().waiting = count.waiting();
    }
    for ((pool, health), count) in manager.records.store.health_counts().await? {
        pools.entry(pool.to_string()).or_default().health.insert(health.to_string(), count);
    }
    for pool in manager.records.paused_pools(Duration::ZERO).await?.iter() {
        pools.entry(pool.to_string()).or_default().paused = true;
    }
    for pool in manager.records.single_pools().iter() {
        pools.entry(pool.to_string()).or_default().single = true;
    }
    for (name, pool) in &mut pools {
        pool.pending = pool.needed.saturating_sub(u64::from(pool.held));
        let of = services.iter().filter(|it| it.registration.pool.as_str() == name);
        pool.failure_tolerance = u32::try_from(failure_tolerance(of, pool.needed, pool.single)).ok();
    }
    Ok(pools)
}
