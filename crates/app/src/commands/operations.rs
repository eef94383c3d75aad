//! `everwatch parked`, `hold` and `pool`.

use super::watch;
use crate::cli::{Hold, Parked, Pool, Watched};
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
pub(crate) async fn hold(server: &str, verb: Hold) -> anyhow::Result<()> {
    let client = Client::new(server)?;
    let wanted = match verb {
        Hold::Show => None,
        Hold::On { reason } => Some(json!({ "on": true, "reason": reason })),
        Hold::Off => Some(json!({ "on": false })),
    };
    let method = if wanted.is_some() { Method::PUT } else { Method::GET };
    let (_, hold) = client.call(method, "/v1/hold", wanted.as_ref()).await?;
    let on = if hold["on"] == true { "on" } else { "off" };
    print(format!("hold is {on} {}", text(&hold, "reason")).trim_end());
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
