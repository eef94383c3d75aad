//! `everwatch events`, `parked`, `hold` and `pool`.

use super::observer::{field, print, table};
use crate::cli::{Events, Hold, Output, Parked, Pool};
use crate::client::Client;
use reqwest::Method;
use serde_json::{Value, json};

/// The longest event that is shown, in bytes; an unfinished one that is longer ends the stream.
const EVENT_MAX: usize = 1024 * 1024;

#[tokio::main(flavor = "current_thread")]
pub(crate) async fn events(server: &str, arguments: &Events) -> anyhow::Result<()> {
    let client = Client::new(server)?;
    let (_, page) = client.call(Method::GET, &format!("/v1/events?limit={}", arguments.limit), None).await?;
    show_events(&page, arguments.output)?;
    if !arguments.follow {
        return Ok(());
    }
    let newest = page["items"][0]["id"].as_i64().unwrap_or(0);
    let mut stream = client.follow("/v1/events", newest).await?;
    let mut text = Vec::new();
    while let Some(chunk) = stream.chunk().await? {
        text.extend_from_slice(&chunk);
        while let Some(end) = text.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = text.drain(..=end).collect();
            if let Some(event) =
                line.strip_prefix(b"data:").and_then(|data| serde_json::from_slice(data).ok())
            {
                show_event(&event, arguments.output)?;
            }
        }
        anyhow::ensure!(text.len() < EVENT_MAX, "the manager sends an event without an end");
    }
    anyhow::bail!("the manager has ended the stream; it is over or restarting")
}

/// A page of events, newest first as it came, shown newest last.
pub(super) fn show_events(page: &Value, output: Output) -> anyhow::Result<()> {
    for event in page["items"].as_array().into_iter().flatten().rev() {
        show_event(event, output)?;
    }
    Ok(())
}

fn show_event(event: &Value, output: Output) -> anyhow::Result<()> {
    let name = |thing: &str| event[thing]["name"].as_str().unwrap_or_default().to_owned();
    match output {
        Output::Json => print(&serde_json::to_string(event)?),
        Output::Name => print(&field(event, "id")),
        Output::Table => {
            let by = field(&event["by"], "who");
            let by = if by.is_empty() { by } else { format!("by {by}") };
            let about: Vec<_> = [name("observer"), name("service"), field(event, "text"), by]
                .into_iter()
                .filter(|text| !text.is_empty())
                .collect();
            print(&format!("{}  {:18} {}", field(event, "at"), field(event, "what"), about.join("  ")));
        }
    }
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
pub(crate) async fn parked(server: &str, verb: Parked) -> anyhow::Result<()> {
    let client = Client::new(server)?;
    match verb {
        Parked::List { output } => {
            let (_, page) = client.call(Method::GET, "/v1/parked?limit=1000", None).await?;
            show(&page, output, &["ID", "AT", "QUEUE", "SIZE", "REASON"])?;
        }
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
    print(format!("hold is {on} {}", field(&hold, "reason")).trim_end());
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
pub(crate) async fn pools(server: &str, verb: Pool) -> anyhow::Result<()> {
    let Pool::List { output } = verb;
    let (_, page) = Client::new(server)?.call(Method::GET, "/v1/pools", None).await?;
    show(&page, output, &["NAME", "SERVICES", "CAPACITY", "HELD", "FREE"])
}

fn show<const N: usize>(page: &Value, output: Output, head: &[&str; N]) -> anyhow::Result<()> {
    let items = page["items"].as_array().map(Vec::as_slice).unwrap_or_default();
    match output {
        Output::Json => print(&serde_json::to_string_pretty(items)?),
        Output::Name => items.iter().for_each(|it| print(&field(it, &head[0].to_lowercase()))),
        Output::Table => {
            let row = |it: &Value| head.map(|column| field(it, &column.to_lowercase()));
            table(head, items.iter().map(row));
        }
    }
    Ok(())
}
