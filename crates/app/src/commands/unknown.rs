//! Explains why a filter matches nothing: a kind or a pool that does not exist is probably misspelled.

use crate::cli::Filter;
use crate::client::Client;
use crate::output::note;
use crate::spelling::advice;
use everwatch_api::{Listed, Observer};
use serde::Deserialize;

/// The parts of a filter that name something.
#[derive(Default)]
pub(super) struct Named<'a> {
    pub(super) kind: Option<&'a str>,
    pub(super) pool: Option<&'a str>,
}

/// A kind or a pool that the manager knows.
#[derive(Deserialize)]
struct Known {
    name: String,
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
