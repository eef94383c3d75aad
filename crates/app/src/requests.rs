//! Requests and texts that several commands and the full-screen view share.

use crate::client::Client;
use crate::item::Item;
use crate::output::{self, TerminalStyle};
use everwatch_api::{Event, Listed, Observer, Run, Service};
use everwatch_core::clock;

/// The most observers of one page.
const PAGE: usize = 1000;

/// Reads all pages of a query, up to `most` observers.
pub(crate) async fn all(
    client: &Client,
    query: &[(&str, String)],
    most: usize,
) -> anyhow::Result<Vec<Item<Observer>>> {
    let query: String = query.iter().map(|(key, value)| format!("&{key}={}", Client::part(value))).collect();
    let (mut items, mut cursor) = (Vec::new(), String::new());
    loop {
        let limit = (most - items.len()).min(PAGE);
        let page: Listed<Item<Observer>> =
            client.read(&format!("/v1/observers?limit={limit}{query}{cursor}")).await?;
        items.extend(page.items);
        match page.next_cursor.filter(|_| items.len() < most) {
            Some(next) => cursor = format!("&cursor={}", Client::part(&next)),
            None => return Ok(items),
        }
    }
}

pub(crate) fn path(name: &str) -> String {
    format!("/v1/observers/{}", Client::part(name))
}

pub(crate) fn service_path(name: &str) -> String {
    format!("/v1/services/{}", Client::part(name))
}

/// How many runs, events and observers a description shows.
const TOLD: usize = 15;

/// Everything about an observer, as text.
pub(crate) async fn described_observer(
    client: &Client,
    name: &str,
    paper: TerminalStyle,
) -> anyhow::Result<String> {
    let path = path(name);
    let it: Observer = client.read(&path).await?;
    let runs: Listed<Item<Run>> = client.read(&format!("{path}/runs")).await?;
    let events: Listed<Item<Event>> = client.read(&format!("{path}/events?limit={TOLD}")).await?;
    let newest = &runs.items[..runs.items.len().min(TOLD)];
    Ok(output::describe_observer(&it, newest, &events.items, (paper, clock::now())))
}

/// Everything about a service, as text.
pub(crate) async fn described_service(
    client: &Client,
    name: &str,
    paper: TerminalStyle,
) -> anyhow::Result<String> {
    let it: Service = client.read(&service_path(name)).await?;
    let id = it.id;
    let held: Listed<Item<Observer>> =
        client.read(&format!("/v1/observers?service={id}&limit={TOLD}")).await?;
    let events: Listed<Item<Event>> = client.read(&format!("/v1/events?service={id}&limit={TOLD}")).await?;
    let on = (paper, clock::now());
    Ok(output::describe_service(&it, &held, &events.items, on))
}
