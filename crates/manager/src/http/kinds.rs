//! The kinds of observers that the living services offer.

use super::body::{JsonBody, parsed};
use super::problem::{Code, Problem};
use super::query::Params;
use crate::context::Manager;
use crate::context::schemas;
use axum::Json;
use axum::extract::{Path, State};
use everwatch_api::{Kind, Listed, MemberError, ProblemBody};
use everwatch_core::id as core;
use everwatch_core::observer::definition::{FieldError, spec_errors};
use everwatch_core::record::service::ServiceRow;
use everwatch_core::spelling::advice;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use utoipa::ToSchema;

/// List the kinds that living services can run.
#[utoipa::path(get, path = "/v1/kinds", tag = "services", security(("token" = ["kinds:read"])), responses((status = 200, body = Listed<Kind>)))]
pub(crate) async fn list(
    State(manager): State<Arc<Manager>>,
    params: Params,
) -> Result<Json<Listed<Kind>>, Problem> {
    params.finish()?;
    let items = gather(&manager.records.services(Duration::ZERO).await?);
    let total = items.len() as u64;
    Ok(Json(Listed { items, next_cursor: None, total }))
}

/// A spec to check.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SpecBody {
    /// The arguments of the kind, as in the definition of an observer.
    spec: Value,
}

/// The result of checking a spec.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Validity {
    /// Whether there are no errors.
    valid: bool,
    /// At most 20, each with a pointer from `/spec` on.
    #[schema(value_type = Vec<MemberError>)]
    errors: Vec<FieldError>,
}

/// Check a spec against the schema of the newest service that offers the kind, as a create does.
#[utoipa::path(post, path = "/v1/kinds/{kind}/validate", tag = "services", security(("token" = ["kinds:read"])), request_body = SpecBody,
    params(("kind" = String, Path, description = "its name")),
    responses((status = 200, body = Validity),
    (status = 404, body = ProblemBody, description = "not-found: no living service can run it")))]
pub(crate) async fn validate(
    State(manager): State<Arc<Manager>>,
    Path(kind): Path<String>,
    params: Params,
    JsonBody(body): JsonBody,
) -> Result<Json<Validity>, Problem> {
    params.finish()?;
    let SpecBody { spec } = parsed(body)?;
    let services = manager.records.services(Duration::ZERO).await?;
    let offered: BTreeSet<&str> = services
        .iter()
        .flat_map(|service| service.registration.kinds.iter().map(|info| info.name.as_str()))
        .collect();
    let Some(kind) = kind.parse::<core::Kind>().ok().filter(|kind| offered.contains(kind.as_str())) else {
        let advice = advice(&kind, "kinds", &offered.into_iter().collect::<Vec<_>>());
        return Err(Problem::new(
            Code::NotFound,
            format!("no living service offers kind `{kind}`; {advice}"),
        ));
    };
    let schema = schemas::of_kind(services.iter(), &kind);
    let mut errors = spec_errors(&spec);
    errors
        .extend(schema.into_iter().flat_map(|schema| manager.requests.schemas.errors(&kind, schema, &spec)));
    Ok(Json(Validity { valid: errors.is_empty(), errors }))
}

fn gather(services: &[ServiceRow]) -> Vec<Kind> {
    let mut kinds: BTreeMap<String, (Kind, &ServiceRow)> = BTreeMap::new();
    for service in services {
        for info in &service.registration.kinds {
            let fresh = || Kind { name: info.name.to_string(), ..Kind::default() };
            let (kind, youngest) = kinds.entry(info.name.to_string()).or_insert_with(|| (fresh(), service));
            kind.services += 1;
            let pool = service.registration.pool.to_string();
            if let Err(at) = kind.pools.binary_search(&pool) {
                kind.pools.insert(at, pool);
            }
            // In a rolling deploy the youngest service speaks for what is to come.
            if kind.schema.is_null() || service.registered_at >= youngest.registered_at {
                kind.schema = info.schema.as_ref().clone();
                *youngest = service;
            }
        }
    }
    kinds.into_values().map(|(kind, _)| kind).collect()
}
