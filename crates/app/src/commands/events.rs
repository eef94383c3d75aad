//! `everwatch events` and `everwatch observer events`: prints past events and follows new ones.

use crate::cli::{EventPart as Asked, Events, OutputArgs};
use crate::client::Client;
use crate::item::Item;
use crate::live::events::{self, EventPart, EventQuery};
use crate::output::{self, EVENTS, Lines, Output, Root, TerminalStyle, note, print};
use crate::requests::{path as observer_path, service_path};
use everwatch_api::{Event, Service};
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
pub(super) async fn run(client: &Client, path: &str, asked: &Asked) -> anyhow::Result<()> {
    let query = EventQuery { path: path.to_owned(), types: asked.kinds.join(","), limit: asked.limit };
    let (history, mut follower) = events::read(client, &query).await?;
    let mut told =
        EventPrinter { lines: Lines::new(&EVENTS, &asked.shown, TerminalStyle::stdout()), begun: false };
    if history.is_empty() && !asked.follow {
        note("no events");
    }
    told.tell(&history, &asked.shown)?;
    output::warn_of_columns(&history, &asked.shown);
    if let Output::JsonPath(path) = &asked.shown.output
        && !history.is_empty()
        && history.iter().all(|it| output::values(path, it, Root::Object).is_empty())
    {
        note(
            "the path selects nothing; events are printed one by one, so a path begins with a field of an event, as in {.type}",
        );
    }
    if !asked.follow {
        return Ok(());
    }
    loop {
        for part in follower.next().await? {
            match part {
                EventPart::Opened => {}
                EventPart::Lost => note("connection lost; reconnecting"),
                EventPart::Event(event) => told.tell(std::slice::from_ref(&event), &asked.shown)?,
            }
        }
    }
}

/// Prints events, and remembers whether it has printed the head of the table.
struct EventPrinter {
    lines: Lines<Event>,
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
        Ok(())
    }
}
