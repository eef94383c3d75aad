//! `everwatch observer logs`: prints the lines to standard output, and notices about them to standard error.

use crate::cli::{LogOutput, Logs};
use crate::client::{Client, Failure};
use crate::item::Item;
use crate::live;
use crate::output::{self, print};
use crate::requests::path;
use everwatch_api::{LogLine, LogNote, sse};
use serde::Deserialize;
use tokio::time::{sleep, timeout};

/// The recent lines.
#[derive(Debug, Deserialize)]
struct Recent {
    items: Vec<Item<LogLine>>,
    /// Why there are no lines, or currently no further ones; may be empty.
    reason: String,
}

pub(super) async fn run(client: &Client, asked: &Logs) -> anyhow::Result<()> {
    let path = format!("{}/logs?tail={}", path(&asked.name), asked.tail);
    if asked.follow {
        return follow(client, &path, asked.output).await;
    }
    let recent: Recent = client.read(&path).await?;
    for line in &recent.items {
        show(line, asked.output)?;
    }
    note(&recent.reason);
    Ok(())
}

/// Runs until the observer has ended. If the connection is lost, it reconnects and continues after the last
/// line.
async fn follow(client: &Client, path: &str, output: LogOutput) -> anyhow::Result<()> {
    let (mut last, mut reached) = (None, false);
    loop {
        let after = last.as_ref().map_or_else(String::new, |id| format!("&after={id}"));
        match client.follow(&format!("{path}&follow=true{after}"), None).await {
            Ok(stream) => {
                reached = true;
                if read(stream, &mut last, output).await? {
                    return Ok(());
                }
                note("connection lost; reconnecting");
            }
            Err(error) => match error.downcast_ref() {
                Some(Failure::Unreachable(_) | Failure::Failed(_)) if reached => {}
                _ => return Err(error),
            },
        }
        sleep(live::LOOK_EVERY).await;
    }
}

/// Prints the lines of one stream. Returns whether the observer has ended.
async fn read(
    mut stream: reqwest::Response,
    last: &mut Option<String>,
    output: LogOutput,
) -> anyhow::Result<bool> {
    let mut reader = sse::Reader::default();
    while let Ok(Ok(Some(chunk))) = timeout(live::SILENT_MAX, stream.chunk()).await {
        for message in reader.read(&chunk)? {
            if message.id.is_some() {
                last.clone_from(&message.id);
            }
            match message.event.as_str() {
                "line" => show(&serde_json::from_str(&message.data)?, output)?,
                "note" => note(&serde_json::from_str::<LogNote>(&message.data)?.text),
                "end" => {
                    note(&serde_json::from_str::<LogNote>(&message.data)?.text);
                    return Ok(true);
                }
                _ => {}
            }
        }
    }
    Ok(false)
}

fn show(line: &Item<LogLine>, output: LogOutput) -> anyhow::Result<()> {
    match output {
        LogOutput::Json => print(&serde_json::to_string(line)?),
        LogOutput::Raw => print(&line.text),
        LogOutput::Text => {
            print(&format!("{} {:6} {}", line.at, line.stream, line.text));
        }
    }
    Ok(())
}

/// Prints a notice that is not a line of the observer.
fn note(told: &str) {
    if !told.is_empty() {
        output::note(&format!("— {told} —"));
    }
}
