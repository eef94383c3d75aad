//! The error for a name that no object has: it names the object, and a similar name if there is one. Such names are probably
//! misspelled, also where a filter has them.

use crate::cli::Filter;
use crate::client::{Client, Failure};
use crate::output::note;
use crate::requests::service_path;
use everwatch_api::{Listed, Observer, Pool, Service};
use everwatch_core::spelling::{advice, nearest};
use serde::Deserialize;
use std::collections::BTreeSet;

/// The parts of a filter that name something.
#[derive(Default)]
pub(super) struct Named<'a> {
    pub(super) kind: Option<&'a str>,
    pub(super) pool: Option<&'a str>,
    pub(super) service: Option<&'a str>,
}

/// An object that the manager knows.
#[derive(Deserialize)]
struct Known {
    #[serde(alias = "key")]
    name: String,
    /// Of an observer or a batch.
    namespace: Option<String>,
}

/// The namespace of names if neither the command nor the token has one.
const DEFAULT_NAMESPACE: &str = "default";
/// The lists of objects by whose names users name them.
pub(super) const OBSERVERS: &str = "/v1/observers?limit=1000";
pub(super) const SERVICES: &str = "/v1/services?limit=1000";

/// If there is no object of this name, the error also names a similar one of this list, or the namespace that does not exist.
pub(super) async fn hinted<T>(
    client: &Client,
    (list, name): (&str, &str),
    read: impl Future<Output = anyhow::Result<T>>,
) -> anyhow::Result<T> {
    let error = match read.await {
        Ok(it) => return Ok(it),
        Err(error) => error,
    };
    let failure = match error.downcast::<Failure>() {
        Ok(failure @ Failure::NotFound(_)) => failure,
        Ok(failure) => return Err(failure.into()),
        Err(error) => return Err(error),
    };
    let is_of_namespace = list.starts_with("/v1/observers") || list.starts_with("/v1/batches");
    if let Some(told) = namespace(client, client.namespace().filter(|_| is_of_namespace)).await {
        return Err(failure.replaced(told).into());
    }
    let known = client.read::<Listed<Known>>(list).await.map_or_else(|_| Vec::new(), |known| known.items);
    let text = failure.to_string();
    let namesakes: Vec<&str> =
        known.iter().filter(|it| it.name == name).filter_map(|it| it.namespace.as_deref()).collect();
    let own = client.namespace().unwrap_or(DEFAULT_NAMESPACE);
    if let Some(namespace) = namesakes.first().filter(|_| !namesakes.contains(&own)) {
        return Err(failure
            .replaced(format!("{text}; namespace {namespace} has one: add `-n {namespace}`"))
            .into());
    }
    // It exists: something about it is missing.
    if namesakes.contains(&own) {
        return Err(failure.into());
    }
    let near = nearest(name, known.iter().map(|it| it.name.as_str()));
    Err(match near.filter(|_| !text.contains("did you mean")) {
        Some(near) => failure.replaced(format!("{text}; did you mean `{near}`?")).into(),
        None => failure.into(),
    })
}

/// As [`check`], as a note: what a watch names may be created later.
pub(super) async fn warn(client: &Client, named: Named<'_>) {
    if let Err(unknown) = check(client, named).await {
        note(&unknown.to_string());
    }
}

/// If the manager refuses a request that has names, and one of them does not exist, that is the error.
pub(super) async fn explained<T>(
    client: &Client,
    named: Named<'_>,
    answer: anyhow::Result<T>,
) -> anyhow::Result<T> {
    let Err(error) = &answer else { return answer };
    match error.downcast_ref() {
        Some(Failure::Usage(_) | Failure::Conflict(_) | Failure::Exists(_)) => check(client, named).await?,
        // The manager says what one can do if no service of the pool lives.
        Some(Failure::Failed(told)) if check(client, named).await.is_err() => {
            return Err(Failure::NotFound(told.clone()).into());
        }
        _ => {}
    }
    answer
}

/// Refuses a pool without services: observers that move to it stop, and wait. If the token may not read pools, the manager decides
/// alone.
pub(super) async fn check_served(client: &Client, pool: &str) -> Result<(), Failure> {
    let Some(served) = served(client).await.filter(|served| !served.contains(pool)) else { return Ok(()) };
    if let Some(told) = self::pool(client, Some(pool)).await {
        return Err(Failure::NotFound(told));
    }
    let advice = advice_on(pool, &served);
    Err(Failure::Conflict(format!(
        "pool {pool} has no services, so the observers would stop and wait; {advice}; to let them wait, change `pool` in their \
         definitions"
    )))
}

/// Says which of these pools have no service: their observers stop, and wait. If the token may not read pools, nothing is said.
pub(super) async fn warn_unserved(client: &Client, pools: BTreeSet<&str>) {
    if pools.is_empty() {
        return;
    }
    let Some(served) = served(client).await else { return };
    for pool in pools.into_iter().filter(|pool| !served.contains(*pool)) {
        let advice = advice_on(pool, &served);
        note(&format!("pool {pool} has no service: its observers wait until one starts; {advice}"));
    }
}

/// The pools with services; `None` if the token may not read pools.
async fn served(client: &Client) -> Option<BTreeSet<String>> {
    let known = client.read::<Listed<Pool>>("/v1/pools").await.ok()?;
    Some(known.items.into_iter().filter(|it| it.services > 0).map(|it| it.name).collect())
}

fn advice_on(pool: &str, served: &BTreeSet<String>) -> String {
    advice(pool, "pools with services", &served.iter().map(String::as_str).collect::<Vec<_>>())
}

impl<'a> Named<'a> {
    pub(super) fn of(filter: &'a Filter) -> Self {
        let Filter { kind, pool, service, .. } = filter;
        Self { kind: kind.as_deref(), pool: pool.as_deref(), service: service.as_deref() }
    }
}

/// Refuses names that no service and no observer has. Accepts all of them if the token may not read the names.
///
/// # Errors
/// [`Failure::NotFound`], with every such name.
pub(super) async fn check(client: &Client, named: Named<'_>) -> Result<(), Failure> {
    let told = [
        kind(client, named.kind).await,
        pool(client, named.pool).await,
        service(client, named.service).await,
        namespace(client, client.namespace()).await,
    ];
    let told: Vec<String> = told.into_iter().flatten().collect();
    if told.is_empty() { Ok(()) } else { Err(Failure::NotFound(told.join("\n"))) }
}

async fn service(client: &Client, service: Option<&str>) -> Option<String> {
    let key = service?;
    let found = client.read::<Service>(&service_path(key)).await;
    // A service that holds nothing is not misspelled.
    let error = found.err().filter(|error| matches!(error.downcast_ref(), Some(Failure::NotFound(_))))?;
    let known: Listed<Known> = client.read(SERVICES).await.ok()?;
    // There may be too many services to name all of them.
    let advice = match nearest(key, known.items.iter().map(|it| it.name.as_str())) {
        Some(near) => format!("did you mean `{near}`?"),
        None => "`everwatch service list` shows all services".to_owned(),
    };
    Some(format!("{error:#}; {advice}"))
}

async fn namespace(client: &Client, namespace: Option<&str>) -> Option<String> {
    let name = namespace?;
    let known: Listed<Known> = client.read("/v1/namespaces?limit=1000").await.ok()?;
    let known: Vec<&str> = known.items.iter().map(|it| it.name.as_str()).collect();
    let is_unknown = !known.contains(&name);
    is_unknown.then(|| format!("there is no namespace `{name}`; {}", advice(name, "namespaces", &known)))
}

async fn kind(client: &Client, kind: Option<&str>) -> Option<String> {
    let advice = advised(client, "kind", kind?).await?;
    Some(format!("no living service can run the kind `{}`, and no observer has it; {advice}", kind?))
}

async fn pool(client: &Client, pool: Option<&str>) -> Option<String> {
    let advice = advised(client, "pool", pool?).await?;
    Some(format!("no service and no observer names the pool `{}`; {advice}", pool?))
}

/// What to write instead of this kind or pool; nothing if it exists, or if that is unknown.
async fn advised(client: &Client, member: &str, name: &str) -> Option<String> {
    let nouns = format!("{member}s");
    let known: Listed<Known> = client.read(&format!("/v1/{nouns}")).await.ok()?;
    let known: Vec<&str> = known.items.iter().map(|it| it.name.as_str()).collect();
    let exists = known.contains(&name) || is_used(client, member, name).await?;
    (!exists).then(|| advice(name, &nouns, &known))
}

/// Whether an observer has this value; `None` if that is unknown.
async fn is_used(client: &Client, member: &str, value: &str) -> Option<bool> {
    let query = format!("/v1/observers?limit=1&{member}={}", Client::part(value));
    client.read::<Listed<Observer>>(&query).await.ok().map(|found| found.total > 0)
}
