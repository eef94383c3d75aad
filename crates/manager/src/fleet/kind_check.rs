//! Whether the living services can run a definition: its kind, its weight, and its spec by the schema of the kind.

use crate::context::{Manager, schemas};
use everwatch_core::capacity::kind_offer::{KindOffer, kind_offer, too_heavy};
use everwatch_core::id::{Kind, Pool};
use everwatch_core::observer::definition::{FieldError, ObserverDefinition};
use everwatch_core::record::service::ServiceRow;
use everwatch_core::spelling::nearest;
use everwatch_store::StoreError;
use serde_json::Value;
use std::fmt;
use std::time::Duration;

/// The maximum age of cached services where a mistake is checked again anyway.
const SERVICES_AGE: Duration = Duration::from_secs(1);

/// Why no service can run a definition.
#[derive(Debug)]
pub(crate) enum Unfit {
    /// No living service of the pool offers the kind; what they offer, as a sentence.
    Kind(String),
    /// No living service of the pool takes the weight; why, as a sentence.
    Weight(String),
    /// The spec does not fit the schema.
    Spec(Vec<FieldError>),
}

impl fmt::Display for Unfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kind(detail) | Self::Weight(detail) => f.write_str(detail),
            Self::Spec(errors) => errors.iter().try_for_each(|error| error.fmt(f)),
        }
    }
}

/// Asks the services that were read within the last second and, if none of them offers the kind or takes the weight,
/// reads them again.
pub(crate) async fn check(
    manager: &Manager,
    definition: &ObserverDefinition,
) -> Result<Result<(), Unfit>, StoreError> {
    let services = manager.records.services(SERVICES_AGE).await?;
    let answer = against(manager, &services, definition);
    if !matches!(answer, Err(Unfit::Kind(_) | Unfit::Weight(_))) {
        return Ok(answer);
    }
    let services = manager.records.services(Duration::ZERO).await?;
    Ok(against(manager, &services, definition))
}

/// Whether a service of the pool lives. Without one, nothing is known about the kinds and weights that the pool takes.
pub(crate) async fn has_service(manager: &Manager, pool: &Pool) -> Result<bool, StoreError> {
    let services = manager.records.services(Duration::ZERO).await?;
    Ok(services.iter().any(|it| it.registration.pool == *pool))
}

/// Decides from these living services.
pub(crate) fn against(
    manager: &Manager,
    services: &[ServiceRow],
    definition: &ObserverDefinition,
) -> Result<(), Unfit> {
    let (pool, kind) = (&definition.pool, &definition.kind);
    if let KindOffer::NotOffered(offered) = kind_offer(services, pool, kind) {
        let offered: Vec<&str> = offered.iter().map(Kind::as_str).collect();
        let advice = match nearest(kind.as_str(), offered.iter().copied()) {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("they offer: {}", offered.join(", ")),
        };
        let detail = format!("no living service of pool {pool} can run the kind {kind}; {advice}");
        return Err(Unfit::Kind(detail));
    }
    let weight = definition.weight;
    if let Some(most) = too_heavy(services, pool, kind, weight) {
        let cure = if manager.records.is_single(pool) {
            "observers of a single pool weigh 1".to_owned()
        } else {
            format!("raise `[service] weight_max` of a service to {weight}")
        };
        let detail = format!(
            "is {weight}: the services of pool {pool} that run the kind {kind} take at most {most}; {cure}"
        );
        return Err(Unfit::Weight(detail));
    }
    let of_pool = services.iter().filter(|it| it.registration.pool == *pool);
    let Some(schema) = schemas::of_kind(of_pool, kind) else { return Ok(()) };
    let errors = manager.requests.schemas.errors(kind, schema, &definition.spec);
    if errors.is_empty() { Ok(()) } else { Err(Unfit::Spec(errors)) }
}

/// What is wrong with the spec of a definition that is refused for other reasons; nothing if no living service of the pool offers the kind.
pub(crate) async fn spec_errors(
    manager: &Manager,
    (pool, kind): (&Pool, &Kind),
    spec: &Value,
) -> Result<Vec<FieldError>, StoreError> {
    let services = manager.records.services(SERVICES_AGE).await?;
    let of_pool = services.iter().filter(|it| it.registration.pool == *pool);
    let Some(schema) = schemas::of_kind(of_pool, kind) else { return Ok(Vec::new()) };
    Ok(manager.requests.schemas.errors(kind, schema, spec))
}
