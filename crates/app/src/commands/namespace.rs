//! `everwatch namespace …`

use super::access::document;
use super::operations::list;
use super::unknown::hinted;
use crate::cli::Namespace;
use crate::client::{Client, Failure};
use crate::item::Item;
use crate::output::{self, NAMESPACES, answer, print};
use crate::refusals::in_file;
use everwatch_api as api;
use everwatch_core::wording::counted;
use reqwest::Method;
use serde_json::json;

#[tokio::main(flavor = "current_thread")]
pub(crate) async fn run(server: &str, verb: Namespace) -> anyhow::Result<()> {
    let client = &Client::new(server)?;
    let path = |name: &str| format!("/v1/namespaces/{}", Client::part(name));
    match verb {
        Namespace::List(watched) => list(client, "/v1/namespaces?limit=1000", &NAMESPACES, &watched).await,
        Namespace::Describe { name, shown } => {
            let list = "/v1/namespaces?limit=1000";
            let path = path(&name);
            let found: Item<api::Namespace> = hinted(client, (list, &name), client.read(&path)).await?;
            if !output::structured(&found, &shown)? {
                print(&described(&found));
            }
            Ok(())
        }
        Namespace::Apply { name, file } => {
            let body = match &file {
                Some(file) => document(file)?,
                None => match client.read::<api::Namespace>(&path(&name)).await {
                    Ok(it) => {
                        answer(&format!("namespace {name} is unchanged: {}", in_a_line(&it)));
                        return Ok(());
                    }
                    Err(error) if matches!(error.downcast_ref(), Some(Failure::NotFound(_))) => json!({}),
                    Err(error) => return Err(error),
                },
            };
            let sent = client.send::<api::Namespace>(Method::PUT, &path(&name), Some(&body)).await;
            let place = file.unwrap_or_default();
            let it = sent.map_err(|error| in_file(error, &place))?;
            answer(&format!("namespace {name} is applied: {}", in_a_line(&it)));
            Ok(())
        }
        Namespace::Delete { name } => {
            let list = "/v1/namespaces?limit=1000";
            hinted(client, (list, &name), client.order(Method::DELETE, &path(&name), None)).await?;
            answer(&format!("namespace {name} is deleted"));
            Ok(())
        }
    }
}

fn described(it: &api::Namespace) -> String {
    format!("{}: {}", it.name, facts(it).join("\n"))
}

fn in_a_line(it: &api::Namespace) -> String {
    facts(it).join(", ")
}

fn facts(it: &api::Namespace) -> Vec<String> {
    let of = |max: Option<u32>| max.map_or_else(String::new, |max| format!(" of {max}"));
    let mut lines = vec![match it.quotas.observers {
        Some(max) => format!("{} of {}", it.observers, counted(max, "observer")),
        None => counted(it.observers, "observer"),
    }];
    if let Some(running) = it.running {
        lines.push(format!("{running}{} running", of(it.quotas.running)));
    }
    if let (Some(left), Some(max)) = (it.creates_left, it.quotas.creates_per_minute) {
        lines.push(format!("{left} of {max} creates a minute left"));
    }
    lines.push(format!("pools: {}", it.pools.as_ref().map_or("all".to_owned(), |pools| pools.join(" "))));
    lines
}
