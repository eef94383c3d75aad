//! `everwatch limit …`

use super::operations::list;
use super::unknown::hinted;
use crate::cli::Limit;
use crate::client::Client;
use crate::item::Item;
use crate::output::{self, LIMITS, answer, print};
use crate::refusals::as_flags;
use everwatch_api::{self as api, NamedThing};
use everwatch_core::wording::counted;
use reqwest::Method;

#[tokio::main(flavor = "current_thread")]
pub(crate) async fn limit(server: &str, verb: Limit) -> anyhow::Result<()> {
    let client = Client::new(server)?;
    let path = |key: &str| format!("/v1/limits/{}", Client::part(key));
    match verb {
        Limit::List(watched) => list(&client, "/v1/limits?limit=1000", &LIMITS, &watched).await?,
        Limit::Describe { key, shown } => {
            let list = "/v1/limits?limit=1000";
            let found: Item<api::LimitUsers> =
                hinted(&client, (list, &key), client.read(&path(&key))).await?;
            if !output::structured(&found, &shown)? {
                print(&described(&found));
            }
        }
        Limit::Set { key, max, enforce } => {
            let settings = serde_json::to_value(api::LimitSettings { max, enforce })?;
            let sent = client.send::<api::Limit>(Method::PUT, &path(&key), Some(&settings)).await;
            let it = sent.map_err(as_flags)?;
            answer(&format!("limit {}", told(&it.key, it.max, (it.used, it.waiting))));
        }
        Limit::Delete { key } => {
            let list = "/v1/limits?limit=1000";
            hinted(&client, (list, &key), client.order(Method::DELETE, &path(&key), None)).await?;
            answer(&format!("limit {key} is deleted"));
        }
    }
    Ok(())
}

fn told(key: &str, max: u32, (used, waiting): (u64, u64)) -> String {
    let wait = if waiting == 1 { "waits" } else { "wait" };
    format!("{key}: {used} of {max} in use, {} {wait}", counted(waiting, "observer"))
}

fn described(it: &api::LimitUsers) -> String {
    let names = |them: &[NamedThing]| them.iter().map(|it| format!("  {}", it.name)).collect::<Vec<_>>();
    let mut lines = vec![told(&it.key, it.max, (it.used, it.waiting))];
    if it.applies != it.key {
        lines.push(format!("the limit {} applies to it", it.applies));
    }
    for (title, them) in [("In use by:", &it.users), ("Waiting, in order:", &it.waiters)] {
        if !them.is_empty() {
            lines.push(title.to_owned());
            lines.extend(names(them));
        }
    }
    lines.join("\n")
}
