//! `everwatch events` and `everwatch observer events`: prints past events and follows new ones.

use crate::cli::{EventPart, Events, OutputArgs};
use crate::client::{Client, Failure};
use crate::item::Item;
use crate::live;
use crate::output::{self, EVENTS, Lines, Output, Root, TerminalStyle, note, print};
use crate::requests::{path as observer_path, service_path};
use everwatch_api::sse;
use everwatch_api::{Event, Listed, Service};
use everwatch_core::clock;

#[tokio::main(flavor = "current_thread")]
pub(crate) async fn everywhere(server: &str, asked: &Events) -> anyhow::Result<()> {
    let client = Client::new(server)?;
    let path = match (&asked.observer, &asked.service) {
        (Some(name), _) => format!("{}/events", observer_path(name)),
        (None, Some(name)) => {
            let it: Service = client.read(&service_path(name)).await?;
            format!("/v1/events?service={}", it.id)
        }
        (None, None) => format!("/v1/events?details={}", asked.details),
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
    // Reads the number before the history. An event that arrives between the two reads is printed once,
    // because its number identifies it.
    let newest = newest(client).await?;
    let path = with(&[format!("limit={}", part.limit), what.clone()]);
    let mut history = client.read::<Listed<Item<Event>>>(&path).await?.items;
    history.reverse();
    let mut told = EventPrinter {
        lines: Lines::new(&EVENTS, &part.shown, TerminalStyle::stdout()),
        last: 0,
        begun: false,
    };
    if history.is_empty() && !part.follow {
        note("no events");
    }
    told.tell(&history, &part.shown)?;
    if !part.follow {
        return Ok(());
    }
    told.last = told.last.max(newest);
    follow(client, &with(&[what]), &mut told, &part.shown).await
}

/// The number of the newest event of all.
async fn newest(client: &Client) -> anyhow::Result<i64> {
    let page: Listed<Event> = client.read("/v1/events?limit=1").await?;
    Ok(page.items.first().map_or(0, |event| event.id))
}

/// Runs for ever. If the connection is lost, it reconnects and continues after the last event.
async fn follow(
    client: &Client,
    path: &str,
    told: &mut EventPrinter,
    shown: &OutputArgs,
) -> anyhow::Result<()> {
    let mut reached = false;
    loop {
        match client.follow(path, Some(told.last)).await {
            Ok(mut stream) => {
                reached = true;
                read(&mut stream, told, shown).await?;
                note("connection lost; reconnecting");
            }
            Err(error) if reached && matches!(error.downcast_ref(), Some(Failure::Unreachable(_))) => {}
            Err(error) => return Err(error),
        }
        tokio::time::sleep(live::LOOK_EVERY).await;
    }
}

/// Prints events until the stream ends.
async fn read(
    stream: &mut reqwest::Response,
    told: &mut EventPrinter,
    shown: &OutputArgs,
) -> anyhow::Result<()> {
    let mut reader = sse::Reader::default();
    while let Ok(Ok(Some(chunk))) = tokio::time::timeout(live::SILENT_MAX, stream.chunk()).await {
        for message in reader.read(&chunk)? {
            let event: Item<Event> = serde_json::from_str(&message.data)?;
            told.tell(std::slice::from_ref(&event), shown)?;
        }
    }
    Ok(())
}

/// Prints events, and remembers what it has printed.
struct EventPrinter {
    lines: Lines<Event>,
    last: i64,
    begun: bool,
}

impl EventPrinter {
    fn tell(&mut self, events: &[Item<Event>], shown: &OutputArgs) -> anyhow::Result<()> {
        if events.is_empty() {
            return Ok(());
        }
        let now = clock::now();
        match &shown.output {
            _ if shown.is_table() && !self.begun => print(&self.lines.page(events, now)),
            Output::Table | Output::Wide | Output::Columns(_) => {
                self.lines.rows(events, now).iter().for_each(|row| print(row));
            }
            Output::Json => events.iter().for_each(|it| print(&it.sent().to_string())),
            Output::Yaml => {
                for it in events {
                    print(&format!("---\n{}", output::yaml(it)?));
                }
            }
            Output::Name => events.iter().for_each(|it| print(&it.id.to_string())),
            Output::JsonPath(path) => {
                let values = events.iter().flat_map(|it| output::values(path, it, Root::Object));
                values.for_each(|value| print(&value));
            }
        }
        self.begun = true;
        let newest = events.iter().map(|it| it.id).max();
        self.last = self.last.max(newest.unwrap_or(0));
        Ok(())
    }
}
