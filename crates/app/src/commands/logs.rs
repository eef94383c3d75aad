//! `everwatch observer logs`: prints the lines to standard output, and notices about them to standard error.

use super::unknown::{self, hinted};
use super::{exit_code, fan_out};
use crate::cli::{LogOutput, Logs};
use crate::client::{Client, Failure};
use crate::item::Item;
use crate::live::logs::{self, LogFollower, LogPart};
use crate::output::{self, print};
use everwatch_api::{Listed, LogLine, Observer};
use everwatch_core::clock::{self, Timestamp};
use futures::future::join_all;
use serde::Deserialize;
use serde_json::Value;
use std::collections::{HashMap, HashSet};

/// The number of past lines to show if the user names none: without a time, and with one.
const TAIL: [u32; 2] = [100, 1000];

/// The recent lines.
#[derive(Debug, Deserialize)]
struct Recent {
    items: Vec<Item<LogLine>>,
    /// Why there are no lines, or currently no further ones; may be empty.
    reason: String,
}

/// An observer whose lines are shown.
struct Source {
    /// Its name or id.
    key: String,
    /// Stands before each line if several observers are shown.
    label: Option<String>,
}

/// Which lines of an observer are shown, and how.
#[derive(Clone, Copy)]
struct Shown<'a> {
    tail: u32,
    /// Only lines of this run.
    run: Option<&'a str>,
    since: Option<Timestamp>,
    output: LogOutput,
}

pub(super) async fn run(client: &Client, asked: &Logs) -> anyhow::Result<()> {
    let tail = asked.tail.unwrap_or(TAIL[usize::from(asked.since.is_some())]);
    let since = asked.since.map(|since| since.of(clock::now()));
    let run = if asked.previous { Some("previous") } else { asked.run.as_deref() };
    let shown = Shown { tail, run, since, output: asked.output };
    let sources = sources(client, asked).await?;
    if sources.is_empty() {
        output::note("no observers");
        return Ok(());
    }
    if asked.follow {
        follow_all(client, &sources, shown).await
    } else {
        recent(client, &sources, shown).await
    }
}

/// The observers that the user names or selects.
async fn sources(client: &Client, asked: &Logs) -> anyhow::Result<Vec<Source>> {
    let most = asked.max_log_requests;
    let too_many = |what: String, cure: &str| {
        let text =
            format!("{what}, and the limit is {most}: {cure}, or raise --max-log-requests to at most 100");
        anyhow::Error::from(Failure::Usage(text))
    };
    if asked.selectors.is_empty() {
        let mut seen = HashSet::new();
        let names: Vec<&String> = asked.names.iter().filter(|name| seen.insert(*name)).collect();
        if names.len() > most as usize {
            return Err(too_many(format!("{} observers are named", names.len()), "name fewer"));
        }
        let label = |name: &String| Some(name.clone()).filter(|_| names.len() > 1);
        return Ok(names.iter().map(|name| Source { key: (*name).clone(), label: label(name) }).collect());
    }
    let selector = asked.selectors.join(",");
    let query = format!("/v1/observers?limit={most}&sort=name&selector={}", Client::part(&selector));
    let found: Listed<Observer> = client.read(&query).await?;
    if found.total > u64::from(most) {
        let what = format!("{} observers match `{selector}`", found.total);
        return Err(too_many(what, "narrow the selector"));
    }
    let is_shared =
        found.items.iter().any(|it| Some(&it.namespace) != found.items.first().map(|it| &it.namespace));
    let label =
        |it: &Observer| if is_shared { format!("{}/{}", it.namespace, it.name) } else { it.name.clone() };
    Ok(found.items.iter().map(|it| Source { key: it.id.to_string(), label: Some(label(it)) }).collect())
}

/// Prints the recent lines of all observers, the oldest first.
async fn recent(client: &Client, sources: &[Source], shown: Shown<'_>) -> anyhow::Result<()> {
    let keys: Vec<String> = sources.iter().map(|it| it.key.clone()).collect();
    let one = |key| async move {
        let path = request(key, shown);
        let recent = client.read::<Recent>(&path);
        Ok((key, hinted(client, (unknown::OBSERVERS, key), recent).await?))
    };
    let (found, failed) = fan_out::read(&keys, one).await;
    let mut lines = Vec::new();
    let mut notes = Vec::new();
    for (key, Recent { items, reason }) in found {
        let Some(source) = sources.iter().find(|it| it.key == key) else { continue };
        let oldest = items.first().map(|line| line.at);
        let is_cut = items.len() >= shown.tail as usize && oldest > shown.since;
        if let Some(since) = shown.since.filter(|_| is_cut) {
            notes.push((source, format!("only the newest {} lines since {since} are shown", shown.tail)));
        }
        notes.push((source, reason));
        lines.extend(items.into_iter().map(|line| (source, line)));
    }
    lines.sort_by_key(|(_, line)| line.at);
    let mut runs: HashMap<&str, &str> = HashMap::new();
    for (source, line) in &lines {
        let former = run_of(line).and_then(|run| runs.insert(&source.key, run).zip(Some(run)));
        if let Some(told) = former.and_then(|(former, run)| next_run(former, run)) {
            source.note(&told);
        }
        source.show(line, shown)?;
    }
    notes.iter().for_each(|(source, text)| source.note(text));
    failed
}

/// The epoch of the run that wrote a line.
fn run_of(line: &LogLine) -> Option<&str> {
    line.id.rsplit_once('.').map(|(epoch, _)| epoch)
}

/// What stands between the lines of two runs. A service keeps the lines of its own runs only.
fn next_run(former: &str, run: &str) -> Option<String> {
    if former == run {
        return None;
    }
    let parts = |epoch: &str| -> Option<(u32, u32)> {
        let (generation, acquisitions) = epoch.split_once('.')?;
        Some((generation.parse().ok()?, acquisitions.parse().ok()?))
    };
    let follows = match (parts(former), parts(run)) {
        (Some((before, of)), Some((after, number))) if before == after => number == of + 1,
        (Some((before, _)), Some((after, number))) => after == before + 1 && number == 0,
        _ => true,
    };
    let more = if follows { "" } else { "; runs between them may have lines on other services: see --run" };
    Some(format!("run {run}{more}"))
}

/// Follows all observers until each has ended.
async fn follow_all(client: &Client, sources: &[Source], shown: Shown<'_>) -> anyhow::Result<()> {
    if let [source] = sources {
        return hinted(client, (unknown::OBSERVERS, &source.key), follow(client, source, shown)).await;
    }
    let one = async |source: &Source| {
        let ended = hinted(client, (unknown::OBSERVERS, &source.key), follow(client, source, shown)).await;
        if let Err(error) = &ended {
            output::note(&format!("{}: {error:#}", source.key));
        }
        ended
    };
    let errors = join_all(sources.iter().map(one)).await.into_iter().filter_map(Result::err);
    let errors: Vec<_> = errors.collect();
    let text =
        format!("the output of {} of {} observers was not followed to its end", errors.len(), sources.len());
    let worst = errors.into_iter().max_by_key(exit_code);
    worst.map_or(Ok(()), |error| Err(fan_out::replaced(error, text)))
}

/// The path of the recent lines.
fn request(key: &str, shown: Shown<'_>) -> String {
    let run = shown.run.map_or_else(String::new, |run| format!("&run={}", Client::part(run)));
    format!("{}{run}", logs::request(key, shown.tail))
}

/// Runs until the observer has ended.
async fn follow(client: &Client, source: &Source, shown: Shown<'_>) -> anyhow::Result<()> {
    let mut follower = LogFollower::new(client, &source.key, shown.tail);
    loop {
        for part in follower.next().await? {
            match part {
                LogPart::Opened => {}
                LogPart::Lost => source.note("connection lost; reconnecting"),
                LogPart::Line(line) => source.show(&line, shown)?,
                LogPart::Note(text) => source.note(&text),
                LogPart::End(text) => {
                    source.note(&text);
                    return Ok(());
                }
            }
        }
    }
}

impl Source {
    /// Prints a line, unless it is too old.
    fn show(&self, line: &Item<LogLine>, shown: Shown<'_>) -> anyhow::Result<()> {
        if shown.since.is_some_and(|since| line.at < since) {
            return Ok(());
        }
        let label = self.label.as_ref().map_or_else(String::new, |label| format!("[{label}] "));
        match (shown.output, &self.label) {
            (LogOutput::Json, Some(label)) => {
                let mut sent = line.sent().clone();
                if let Value::Object(members) = &mut sent {
                    members.insert("observer".to_owned(), Value::from(label.as_str()));
                }
                print(&sent.to_string());
            }
            (LogOutput::Json, None) => print(&serde_json::to_string(line)?),
            (LogOutput::Raw, _) => print(&format!("{label}{}", line.text)),
            (LogOutput::Text, _) => print(&format!("{label}{} {:6} {}", line.at, line.stream, line.text)),
        }
        Ok(())
    }

    /// Prints a notice that is not a line of the observer.
    fn note(&self, told: &str) {
        let label = self.label.as_ref().map_or_else(String::new, |label| format!("{label}: "));
        if !told.is_empty() {
            output::note(&format!("— {label}{told} —"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_stands_between_the_lines_of_two_runs() {
        let elsewhere = "; runs between them may have lines on other services: see --run";
        for (former, run, told) in [
            ("1.2", "1.2", None),
            ("1.2", "1.3", Some("run 1.3".to_owned())),
            ("1.2", "2.0", Some("run 2.0".to_owned())),
            ("1.2", "1.9", Some(format!("run 1.9{elsewhere}"))),
            ("1.2", "2.1", Some(format!("run 2.1{elsewhere}"))),
            ("1.2", "3.0", Some(format!("run 3.0{elsewhere}"))),
        ] {
            assert_eq!(next_run(former, run), told, "{former}, {run}");
        }
    }
}
