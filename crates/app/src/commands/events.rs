//! `everwatch events` and `everwatch observer events`: history, and what happens from now on.

use crate::cli::{EventPart, Events};
use crate::client::{Client, Failure};
use crate::live;
use crate::output::{self, EVENTS, Lines, Output, TerminalStyle, note, print, text};
use crate::requests::path as observer_path;
use everwatch_core::clock;
use reqwest::Method;
use serde_json::Value;

/// The longest event that is shown, in bytes; an unfinished one that is longer ends the stream.
const EVENT_MAX: usize = 1024 * 1024;

#[tokio::main(flavor = "current_thread")]
pub(crate) async fn everywhere(server: &str, asked: &Events) -> anyhow::Result<()> {
    let client = Client::new(server)?;
    let path = match (&asked.observer, &asked.service) {
        (Some(name), _) => format!("{}/events", observer_path(name)),
        (None, Some(name)) => {
            let (_, it) =
                client.call(Method::GET, &format!("/v1/services/{}", Client::part(name)), None).await?;
            format!("/v1/events?service={}", text(&it, "id"))
        }
        (None, None) => "/v1/events".to_owned(),
    };
    run(&client, &path, &asked.part).await
}

/// The events below `path`.
pub(super) async fn run(client: &Client, path: &str, part: &EventPart) -> anyhow::Result<()> {
    let with = |more: &[String]| {
        let query = more.iter().filter(|it| !it.is_empty()).map(String::as_str).collect::<Vec<_>>().join("&");
        let mark = if path.contains('?') { '&' } else { '?' };
        if query.is_empty() { path.to_owned() } else { format!("{path}{mark}{query}") }
    };
    let what = match part.kinds.join(",") {
        words if words.is_empty() => words,
        words => format!("type={}", Client::part(&words)),
    };
    // Before the history is read: what comes between the two is told once, by its number.
    let newest = newest(client).await?;
    let (_, page) =
        client.call(Method::GET, &with(&[format!("limit={}", part.limit), what.clone()]), None).await?;
    let mut history: Vec<Value> = page["items"].as_array().cloned().unwrap_or_default();
    history.reverse();
    let mut told = EventPrinter {
        lines: Lines::new(&EVENTS, part.output, TerminalStyle::stdout()),
        last: 0,
        begun: false,
    };
    if history.is_empty() && !part.follow {
        note("no events");
    }
    told.tell(&history, part.output)?;
    if !part.follow {
        return Ok(());
    }
    told.last = told.last.max(newest);
    follow(client, &with(&[what]), &mut told, part.output).await
}

/// The number of the newest event of all.
async fn newest(client: &Client) -> anyhow::Result<i64> {
    let (_, page) = client.call(Method::GET, "/v1/events?limit=1", None).await?;
    Ok(page["items"][0]["id"].as_i64().unwrap_or(0))
}

/// Goes on for ever; a lost connection is opened again after the last event.
async fn follow(client: &Client, path: &str, told: &mut EventPrinter, output: Output) -> anyhow::Result<()> {
    let mut reached = false;
    loop {
        match client.follow(path, Some(told.last)).await {
            Ok(mut stream) => {
                reached = true;
                read(&mut stream, told, output).await?;
                note("the connection is lost; trying again");
            }
            Err(error) if reached && matches!(error.downcast_ref(), Some(Failure::Unreachable(_))) => {}
            Err(error) => return Err(error),
        }
        tokio::time::sleep(live::LOOK_EVERY).await;
    }
}

/// Until the stream ends.
async fn read(stream: &mut reqwest::Response, told: &mut EventPrinter, output: Output) -> anyhow::Result<()> {
    let mut text = Vec::new();
    while let Ok(Ok(Some(chunk))) = tokio::time::timeout(live::SILENT_MAX, stream.chunk()).await {
        text.extend_from_slice(&chunk);
        while let Some(end) = text.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = text.drain(..=end).collect();
            let event =
                line.strip_prefix(b"data:").and_then(|data| serde_json::from_slice::<Value>(data).ok());
            if let Some(event) = event {
                told.tell(std::slice::from_ref(&event), output)?;
            }
        }
        anyhow::ensure!(text.len() < EVENT_MAX, "the manager sends an event without an end");
    }
    Ok(())
}

/// What was told so far.
struct EventPrinter {
    lines: Lines,
    last: i64,
    begun: bool,
}

impl EventPrinter {
    fn tell(&mut self, events: &[Value], output: Output) -> anyhow::Result<()> {
        if events.is_empty() {
            return Ok(());
        }
        let now = clock::now();
        match output {
            Output::Table | Output::Wide if !self.begun => print(&self.lines.page(events, now)),
            Output::Table | Output::Wide => self.lines.rows(events, now).iter().for_each(|row| print(row)),
            Output::Json => events.iter().for_each(|it| print(&it.to_string())),
            Output::Yaml => {
                for it in events {
                    print(&format!("---\n{}", output::yaml(it)?));
                }
            }
            Output::Name => events.iter().for_each(|it| print(&text(it, "id"))),
        }
        self.begun = true;
        let newest = events.iter().filter_map(|it| it["id"].as_i64()).max();
        self.last = self.last.max(newest.unwrap_or(0));
        Ok(())
    }
}
