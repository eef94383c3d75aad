//! `everwatch observer logs`: lines to standard output, what is to be known about them to standard error.

use crate::cli::{LogOutput, Logs};
use crate::client::{Client, Failure};
use crate::live;
use crate::output::{self, print, text};
use crate::requests::path;
use reqwest::Method;
use serde_json::Value;
use tokio::time::{sleep, timeout};

/// The longest event, in bytes; an unfinished one that is longer ends the stream.
const EVENT_MAX: usize = 1024 * 1024;

pub(super) async fn run(client: &Client, asked: &Logs) -> anyhow::Result<()> {
    let path = format!("{}/logs?tail={}", path(&asked.name), asked.tail);
    if asked.follow {
        return follow(client, &path, asked.output).await;
    }
    let (_, logs) = client.call(Method::GET, &path, None).await?;
    for line in logs["items"].as_array().into_iter().flatten() {
        show(line, asked.output)?;
    }
    note(&text(&logs, "reason"));
    Ok(())
}

/// Goes on until the observer is over; a lost connection is opened again after the last line.
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
                note("the connection is lost; trying again");
            }
            Err(error) => match error.downcast_ref() {
                Some(Failure::Unreachable(_) | Failure::Failed(_)) if reached => {}
                _ => return Err(error),
            },
        }
        sleep(live::LOOK_EVERY).await;
    }
}

/// Shows one stream; whether the observer is over.
async fn read(
    mut stream: reqwest::Response,
    last: &mut Option<String>,
    output: LogOutput,
) -> anyhow::Result<bool> {
    let (mut unread, mut word) = (Vec::new(), String::new());
    while let Ok(Ok(Some(chunk))) = timeout(live::SILENT_MAX, stream.chunk()).await {
        unread.extend_from_slice(&chunk);
        while let Some(end) = unread.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = unread.drain(..=end).collect();
            let line = String::from_utf8_lossy(&line);
            let Some((member, value)) = line.trim_end().split_once(':') else { continue };
            match (member, value.trim_start()) {
                ("event", value) => value.clone_into(&mut word),
                ("id", id) => *last = Some(id.to_owned()),
                ("data", data) => {
                    let data: Value = serde_json::from_str(data)?;
                    match &*word {
                        "line" => show(&data, output)?,
                        "note" | "end" => note(&text(&data, "text")),
                        _ => {}
                    }
                    if word == "end" {
                        return Ok(true);
                    }
                }
                _ => {}
            }
        }
        anyhow::ensure!(unread.len() < EVENT_MAX, "the manager sends a line without an end");
    }
    Ok(false)
}

fn show(line: &Value, output: LogOutput) -> anyhow::Result<()> {
    match output {
        LogOutput::Json => print(&serde_json::to_string(line)?),
        LogOutput::Raw => print(&text(line, "text")),
        LogOutput::Text => {
            print(&format!("{} {:6} {}", text(line, "at"), text(line, "stream"), text(line, "text")));
        }
    }
    Ok(())
}

/// Not a line of the observer.
fn note(told: &str) {
    if !told.is_empty() {
        output::note(&format!("— {told} —"));
    }
}
