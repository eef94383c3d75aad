//! `everwatch parked`, `safe_mode` and `pool`.

use super::watch;
use crate::cli::{Parked, Pool, SafeMode, Watched};
use crate::client::Client;
use crate::output::{self, PARKED, POOLS, View, print, text};
use reqwest::Method;
use serde_json::{Value, json};

#[tokio::main(flavor = "current_thread")]
pub(crate) async fn parked(server: &str, verb: Parked) -> anyhow::Result<()> {
    let client = Client::new(server)?;
    match verb {
        Parked::List(watched) => list(&client, "/v1/parked?limit=1000", &PARKED, watched).await?,
        Parked::Retry { id } => {
            client.call(Method::POST, &format!("/v1/parked/{id}/retry"), None).await?;
            print(&format!("{id} sent back to its queue"));
        }
        Parked::Discard { id } => {
            client.call(Method::DELETE, &format!("/v1/parked/{id}"), None).await?;
            print(&format!("{id} forgotten"));
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
    let method = if definition.is_some() { Method::PUT } else { Method::GET };
    let (_, safe_mode) = client.call(method, "/v1/safe-mode", definition.as_ref()).await?;
    let on = if safe_mode["on"] == true { "on" } else { "off" };
    print(format!("safe mode is {on} {}", text(&safe_mode, "reason")).trim_end());
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
pub(crate) async fn pools(server: &str, verb: Pool) -> anyhow::Result<()> {
    let Pool::List(watched) = verb;
    list(&Client::new(server)?, "/v1/pools", &POOLS, watched).await
}

/// One page that is all.
pub(super) async fn list(client: &Client, path: &str, view: &View, watched: Watched) -> anyhow::Result<()> {
    let load = async |_| {
        let (_, mut page) = client.call(Method::GET, path, None).await?;
        Ok(match page["items"].take() {
            Value::Array(items) => items,
            _ => Vec::new(),
        })
    };
    if watched.watch {
        return watch::run(client, view, watched.shown.output, load).await;
    }
    output::show(view, &load(0).await?, watched.shown.output)
}
