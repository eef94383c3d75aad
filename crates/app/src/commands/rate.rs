//! `everwatch rate …`

use super::operations::list;
use super::unknown::hinted;
use crate::cli::Rate;
use crate::client::Client;
use crate::item::Item;
use crate::output::{self, RATES, answer, print};
use crate::refusals::as_flags;
use everwatch_api as api;
use everwatch_core::wording::counted;
use reqwest::Method;

#[tokio::main(flavor = "current_thread")]
pub(crate) async fn run(server: &str, verb: Rate) -> anyhow::Result<()> {
    let client = &Client::new(server)?;
    match verb {
        Rate::List(watched) => list(client, "/v1/rates?limit=1000", &RATES, &watched).await?,
        Rate::Describe { key, shown } => {
            let list = "/v1/rates?limit=1000";
            let it: Item<api::Rate> = hinted(client, (list, &key), client.read(&path(&key))).await?;
            if !output::structured(&it, &shown)? {
                print(&described(&it));
            }
        }
        Rate::Set { key, permits, per, burst } => {
            let settings = api::RateSettings { permits, per, burst };
            let body = serde_json::to_value(settings)?;
            let sent = client.send::<api::Rate>(Method::PUT, &path(&key), Some(&body)).await;
            let it = sent.map_err(as_flags)?;
            answer(&format!("rate {}", told(&it)));
        }
        Rate::Delete { key } => {
            let list = "/v1/rates?limit=1000";
            hinted(client, (list, &key), client.order(Method::DELETE, &path(&key), None)).await?;
            answer(&format!("rate {key} is deleted"));
        }
    }
    Ok(())
}

fn path(key: &str) -> String {
    format!("/v1/rates/{}", Client::part(key))
}

fn told(it: &api::Rate) -> String {
    let api::Rate { key, permits, per, burst, at_once, .. } = it;
    let permits = counted(*permits, "permit");
    format!(
        "{key}: {permits} per {per}, burst {burst}, at most {at_once} at once (the burst less 2 s of the rate)"
    )
}

fn described(it: &api::Rate) -> String {
    let (available, waiting) = (it.available, it.waiting);
    format!("{}\navailable now: {available}; code waits for {waiting}", told(it))
}
