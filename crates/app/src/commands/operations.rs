//! `everwatch parked …`, `everwatch safe-mode …` and `everwatch pool …`

use super::unknown::{self, Named, hinted};
use super::watch;
use crate::cli::{OutputArgs, Parked, Pool, SafeMode, Watched};
use crate::client::Client;
use crate::item::Item;
use crate::output::{self, PARKED, POOLS, Root, TerminalStyle, View, answer, print};
use everwatch_api::{self as api, Listed};
use everwatch_core::clock;
use everwatch_core::wording::counted;
use reqwest::Method;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;

#[tokio::main(flavor = "current_thread")]
pub(crate) async fn parked(server: &str, verb: Parked) -> anyhow::Result<()> {
    let client = Client::new(server)?;
    match verb {
        Parked::List(watched) => list(&client, "/v1/parked?limit=1000", &PARKED, &watched).await?,
        Parked::Retry { id } => {
            client.order(Method::POST, &format!("/v1/parked/{id}/retry"), None).await?;
            answer(&format!("parked message {id} is sent back to its queue"));
        }
        Parked::Discard { id } => {
            client.order(Method::DELETE, &format!("/v1/parked/{id}"), None).await?;
            answer(&format!("parked message {id} is discarded"));
        }
    }
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
pub(crate) async fn safe_mode(server: &str, verb: SafeMode) -> anyhow::Result<()> {
    let client = Client::new(server)?;
    let definition = match verb {
        SafeMode::Show => None,
        SafeMode::On { reason } => Some(json!({ "on": true, "reason": reason })),
        SafeMode::Off => Some(json!({ "on": false })),
    };
    let is_off = definition.as_ref().is_some_and(|it| it["on"] == false);
    let was_off = is_off && client.read::<api::SafeMode>("/v1/safe-mode").await.is_ok_and(|it| !it.on);
    let method = if definition.is_some() { Method::PUT } else { Method::GET };
    let safe_mode: api::SafeMode = client.send(method, "/v1/safe-mode", definition.as_ref()).await?;
    answer(&match (safe_mode.on, safe_mode.reason.as_str()) {
        (false, _) if was_off => "safe mode is off already".to_owned(),
        (false, _) => "safe mode is off".to_owned(),
        (true, "") => "safe mode is on".to_owned(),
        (true, reason) => format!("safe mode is on: {reason}"),
    });
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
pub(crate) async fn pools(server: &str, verb: Pool) -> anyhow::Result<()> {
    let client = &Client::new(server)?;
    let (name, paused) = match verb {
        Pool::List(watched) => return list(client, "/v1/pools", &POOLS, &watched).await,
        Pool::Describe { name, shown } => return describe(client, &name, &shown).await,
        Pool::Create { name, single } => return create(client, &name, single).await,
        Pool::Delete { name } => {
            let path = format!("/v1/pools/{}", Client::part(&name));
            hinted(client, ("/v1/pools", &name), client.order(Method::DELETE, &path, None)).await?;
            answer(&format!("pool {name} is deleted"));
            return Ok(());
        }
        Pool::Pause { name } => (name, true),
        Pool::Resume { name } => (name, false),
    };
    // The manager would note a mistyped name as a new pool.
    unknown::check(client, Named { pool: Some(&name), ..Named::default() }).await?;
    let path = format!("/v1/pools/{}", Client::part(&name));
    let settings = serde_json::to_value(api::PoolSettings { paused: Some(paused), single: None })?;
    let pool: api::Pool = client.send(Method::PUT, &path, Some(&settings)).await?;
    let word = if pool.paused { "paused" } else { "open" };
    let wait = if pool.waiting == 1 { "waits" } else { "wait" };
    let waiting = format!("{} {wait}", counted(pool.waiting, "observer"));
    answer(&format!("pool {name} is {word}; {waiting} for a slot"));
    Ok(())
}

async fn describe(client: &Client, name: &str, shown: &OutputArgs) -> anyhow::Result<()> {
    let path = format!("/v1/pools/{}", Client::part(name));
    let it: Item<api::Pool> = hinted(client, ("/v1/pools", name), client.read(&path)).await?;
    let states = "active,standby,cordoned,draining,suspect";
    let query = format!("/v1/services?pool={}&limit=1000&state={states}", Client::part(name));
    let services: Listed<Item<api::Service>> = client.read(&query).await?;
    if !output::structured(&it, shown)? {
        print(&output::describe_pool(&it, &services.items, (TerminalStyle::stdout(), clock::now())));
    }
    Ok(())
}

/// A list that the manager sends as one page.
pub(super) async fn list<T: Clone + DeserializeOwned + Serialize>(
    client: &Client,
    path: &str,
    view: &View<T>,
    watched: &Watched,
) -> anyhow::Result<()> {
    number_of_listed(client, path, view, watched).await.map(drop)
}

/// As [`list`]. Returns the number of objects.
pub(super) async fn number_of_listed<T: Clone + DeserializeOwned + Serialize>(
    client: &Client,
    path: &str,
    view: &View<T>,
    watched: &Watched,
) -> anyhow::Result<usize> {
    let load = async |_| Ok(client.read::<Listed<Item<T>>>(path).await?.items);
    if watched.watch {
        watch::run(client, (view, Root::List), &watched.shown, load).await?;
        return Ok(0);
    }
    let found = load(0).await?;
    output::show(view, &found, &watched.shown)?;
    Ok(found.len())
}

async fn create(client: &Client, name: &str, single: bool) -> anyhow::Result<()> {
    let settings = serde_json::to_value(api::PoolSettings { single: Some(single), paused: None })?;
    let path = format!("/v1/pools/{}", Client::part(name));
    let is_known = client.read::<api::Pool>(&path).await.is_ok();
    let pool: api::Pool = client.send(Method::PUT, &path, Some(&settings)).await?;
    let done = if is_known { "exists" } else { "is created" };
    if single {
        answer(&format!("pool {} {done}; it is a single pool", pool.name));
        output::note("set service.pool_single on all its services");
    } else {
        answer(&format!("pool {} {done}", pool.name));
    }
    Ok(())
}
