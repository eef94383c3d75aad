//! Kinds of observers: what the living services say that they can run.

use super::api::{Kind, Listed};
use super::problem::Problem;
use super::query::Params;
use crate::shared::Manager;
use axum::Json;
use axum::extract::State;
use everwatch_core::service::ServiceRow;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// List the kinds that living services can run.
#[utoipa::path(get, path = "/v1/kinds", tag = "services", responses((status = 200, body = Listed<Kind>)))]
pub(crate) async fn list(
    State(manager): State<Arc<Manager>>,
    params: Params,
) -> Result<Json<Listed<Kind>>, Problem> {
    params.finish()?;
    let items = gather(&manager.services(Duration::ZERO).await?);
    let total = items.len() as u64;
    Ok(Json(Listed { items, next_cursor: None, total }))
}

fn gather(services: &[ServiceRow]) -> Vec<Kind> {
    let mut kinds: BTreeMap<String, (Kind, &ServiceRow)> = BTreeMap::new();
    for service in services {
        for info in &service.birth.kinds {
            let fresh = || Kind { name: info.name.to_string(), ..Kind::default() };
            let (kind, youngest) = kinds.entry(info.name.to_string()).or_insert_with(|| (fresh(), service));
            kind.services += 1;
            let pool = service.birth.pool.to_string();
            if let Err(at) = kind.pools.binary_search(&pool) {
                kind.pools.insert(at, pool);
            }
            // In a rolling deploy the youngest service speaks for what is to come.
            if kind.schema.is_null() || service.born_at >= youngest.born_at {
                kind.schema = info.schema.clone();
                *youngest = service;
            }
        }
    }
    kinds.into_values().map(|(kind, _)| kind).collect()
}
