//! Explains why a filter matches nothing: a kind or a pool that does not exist is probably misspelled.

use crate::cli::Filter;
use crate::client::Client;
use crate::output::note;
use crate::spelling::advice;
use everwatch_api::{Kind, Listed, Observer, Pool};

/// The parts of a filter that name something.
#[derive(Default)]
pub(super) struct Named<'a> {
    pub(super) kind: Option<&'a str>,
    pub(super) pool: Option<&'a str>,
}

impl<'a> Named<'a> {
    pub(super) fn of(filter: &'a Filter) -> Self {
        Self { kind: filter.kind.as_deref(), pool: filter.pool.as_deref() }
    }
}

/// Prints a notice for each name that no service and no observer has. Says nothing if the token may not read the names.
pub(super) async fn explain(client: &Client, named: Named<'_>) {
    for told in [kind(client, named.kind).await, pool(client, named.pool).await].into_iter().flatten() {
        note(&told);
    }
}

async fn kind(client: &Client, kind: Option<&str>) -> Option<String> {
    let kind = kind?;
    let known: Listed<Kind> = client.read("/v1/kinds").await.ok()?;
    let known: Vec<&str> = known.items.iter().map(|it| it.name.as_str()).collect();
    if known.contains(&kind) || is_used(client, "kind", kind).await? {
        return None;
    }
    let advice = advice(kind, "kinds", &known);
    Some(format!("no living service can run the kind `{kind}`, and no observer has it; {advice}"))
}

async fn pool(client: &Client, pool: Option<&str>) -> Option<String> {
    let pool = pool?;
    let known: Listed<Pool> = client.read("/v1/pools").await.ok()?;
    let known: Vec<&str> = known.items.iter().map(|it| it.name.as_str()).collect();
    if known.contains(&pool) || is_used(client, "pool", pool).await? {
        return None;
    }
    Some(format!("no service and no observer names the pool `{pool}`; {}", advice(pool, "pools", &known)))
}

/// Whether an observer has this value; `None` if that is unknown.
async fn is_used(client: &Client, member: &str, value: &str) -> Option<bool> {
    let query = format!("/v1/observers?limit=1&{member}={}", Client::part(value));
    client.read::<Listed<Observer>>(&query).await.ok().map(|found| found.total > 0)
}
