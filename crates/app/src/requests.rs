//! Requests and texts that several commands and the full-screen view share.

use crate::client::Client;
use crate::output::{self, TerminalStyle, text};
use everwatch_core::clock;
use reqwest::Method;
use serde_json::Value;

/// Of one page.
const PAGE: usize = 1000;

pub(crate) fn told(name: &str, it: &Value) -> String {
    let (status, reason) = (text(it, "status"), text(it, "reason"));
    format!("{name} {status} {reason}").trim_end().to_owned()
}

/// Everything that a query finds, up to `most`.
pub(crate) async fn all(
    client: &Client,
    query: &[(&str, String)],
    most: usize,
) -> anyhow::Result<Vec<Value>> {
    let query: String = query.iter().map(|(key, value)| format!("&{key}={}", Client::part(value))).collect();
    let (mut items, mut cursor) = (Vec::new(), String::new());
    loop {
        let limit = (most - items.len()).min(PAGE);
        let path = format!("/v1/observers?limit={limit}{query}{cursor}");
        let (_, mut page) = client.call(Method::GET, &path, None).await?;
        if let Value::Array(found) = page["items"].take() {
            items.extend(found);
        }
        match page["next_cursor"].as_str().filter(|_| items.len() < most) {
            Some(next) => cursor = format!("&cursor={}", Client::part(next)),
            None => return Ok(items),
        }
    }
}

pub(crate) fn path(name: &str) -> String {
    format!("/v1/observers/{}", Client::part(name))
}

/// Runs, events and observers in one description.
const TOLD: usize = 15;

/// Everything about one, for a person.
pub(crate) async fn described_observer(
    client: &Client,
    name: &str,
    paper: TerminalStyle,
) -> anyhow::Result<String> {
    let path = path(name);
    let (_, it) = client.call(Method::GET, &path, None).await?;
    let (_, runs) = client.call(Method::GET, &format!("{path}/runs"), None).await?;
    let (_, events) = client.call(Method::GET, &format!("{path}/events?limit={TOLD}"), None).await?;
    let newest = |page: &Value| {
        let items = page["items"].as_array().into_iter().flatten();
        items.take(TOLD).cloned().collect::<Vec<_>>()
    };
    Ok(output::describe_observer(&it, (&newest(&runs), &newest(&events)), (paper, clock::now())))
}

/// Everything about one, for a person.
pub(crate) async fn described_service(
    client: &Client,
    name: &str,
    paper: TerminalStyle,
) -> anyhow::Result<String> {
    let (_, it) = client.call(Method::GET, &format!("/v1/services/{}", Client::part(name)), None).await?;
    let id = text(&it, "id");
    let (_, held) =
        client.call(Method::GET, &format!("/v1/observers?service={id}&limit={TOLD}"), None).await?;
    let (_, events) =
        client.call(Method::GET, &format!("/v1/events?service={id}&limit={TOLD}"), None).await?;
    let items = |page: &Value| page["items"].as_array().cloned().unwrap_or_default();
    let total = held["total"].as_u64().unwrap_or(0);
    let on = (paper, clock::now());
    Ok(output::describe_service(&it, ((&items(&held), total), &items(&events)), on))
}
