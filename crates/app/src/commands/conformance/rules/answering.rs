//! How a service answers managers: inventories, details of what it holds, log lines.

use super::{Rule, ensure};
use crate::commands::conformance::facts::Facts;
use crate::commands::conformance::stage::{SOON, Stage, Verdict};
use everwatch_core::wire::command::Command;
use everwatch_core::wire::logs::{Answer, AskLogs, Stream};
use everwatch_core::wire::message::decode;
use everwatch_core::wire::report::{
    HeldMessages, InventoryChunk, InventoryDigest, InventoryRange, Report, RunReport,
};
use everwatch_core::wire::work::{DecodedWork, Work};
use serde_json::json;

pub(super) const RULES: &[Rule] = &[
    Rule {
        name: "inventory",
        text: "answers requests for its inventory with right digests, and with the entries of ranges",
        check: |stage| Box::pin(inventory(stage)),
    },
    Rule {
        name: "describe",
        text: "describes held observers with their messages, and registers again on request",
        check: |stage| Box::pin(describe(stage)),
    },
    Rule {
        name: "logs",
        text: "answers requests for log lines in the queue that the request names",
        check: |stage| Box::pin(logs(stage)),
    },
];

fn find<T>(facts: &Facts, wanted: impl Fn(&Report) -> Option<T>) -> Option<T> {
    facts.reports.iter().rev().find_map(|told| wanted(&told.entry.report))
}

fn digest(report: &Report) -> Option<InventoryDigest> {
    match report {
        Report::InventoryDigest(digest) => Some(digest.clone()),
        _ => None,
    }
}

fn chunk(report: &Report) -> Option<InventoryChunk> {
    match report {
        Report::Inventory(chunk) => Some(chunk.clone()),
        _ => None,
    }
}

fn held_messages(report: &Report) -> Option<HeldMessages> {
    match report {
        Report::HeldMessages(held) => Some(held.clone()),
        _ => None,
    }
}

async fn inventory(stage: &mut Stage) -> Verdict {
    let service = stage.serving().await?;
    let mut ids = stage.running(3).await?;
    ids.sort();
    stage.command(Some(service), Command::Describe { service, ids: Vec::new() }).await?;
    let told = stage.until("the report inventory_digest", SOON, |facts| find(facts, digest)).await?;
    // The last report about each observer is its entry.
    let entry = |facts: &Facts, id| {
        let (epoch, event, _) = facts.events(id).pop()?;
        Some(RunReport { id, epoch, event: event.clone() })
    };
    let entries: Vec<RunReport> = ids.iter().filter_map(|id| entry(&stage.facts, *id)).collect();
    let expected = InventoryDigest::of(told.inventory, entries);
    ensure(told == expected, || format!("its digest is {told:?}, expected {expected:?}"))?;
    let range = InventoryRange { after: Some(ids[0]), upto: Some(ids[2]) };
    stage.command(Some(service), Command::ListHeld { service, ranges: vec![range] }).await?;
    let told = stage.until("the report inventory", SOON, |facts| find(facts, chunk)).await?;
    let listed: Vec<_> = told.entries.iter().map(|run| run.id).collect();
    ensure(told.range == Some(range) && listed == ids[1..], || {
        format!("for the range {range:?} it listed {told:?}, expected the entries of {:?}", &ids[1..])
    })
}

async fn describe(stage: &mut Stage) -> Verdict {
    let service = stage.serving().await?;
    let ids = stage.running(2).await?;
    stage.command(Some(service), Command::Describe { service, ids: vec![ids[1]] }).await?;
    let told = stage.until("the report held_messages", SOON, |facts| find(facts, held_messages)).await?;
    let [held] = told.held.as_slice() else {
        return Err(format!("it described {} observers, one was asked for", told.held.len()));
    };
    ensure(held.run.id == ids[1], || {
        "it described another observer than the one that was asked for".to_owned()
    })?;
    let work = match Work::read(held.work.as_bytes()) {
        Ok(DecodedWork::Ours(work)) => work,
        other => return Err(format!("the described message is no work message: {other:?}")),
    };
    ensure(work.id == ids[1] && work.spec.get().contains("wait"), || {
        format!("the described message is another one: {work:?}")
    })?;
    stage.command(Some(service), Command::Describe { service, ids: Vec::new() }).await?;
    let again = stage.registered(2).await?;
    ensure(again == service, || "it registered under another id".to_owned())
}

async fn logs(stage: &mut Stage) -> Verdict {
    let service = stage.serving().await?;
    let id = stage.new_work(json!({"do": "log", "text": "a line\nand another"})).await?;
    let epoch = stage.event(id, "started").await?;
    let to = stage.replies().await?;
    let ask = |number, after| Command::Logs(AskLogs { number, to, id, after, most: 10 });
    // The code may not have logged yet: a manager asks again, too.
    let answer = |facts: &Facts| facts.replies.last().cloned();
    let mut lines = Vec::new();
    for number in 1..=10 {
        stage.facts.replies.clear();
        stage.command(Some(service), ask(number, None)).await?;
        let body = stage.until("a reply to a request for log lines", SOON, answer).await?;
        match decode::<Answer>(&body) {
            Ok(Answer::Logs(answer)) if answer.number == number => lines = answer.lines.lines,
            other => return Err(format!("the reply to request {number} is {other:?}")),
        }
        if lines.len() >= 2 {
            break;
        }
        stage.pass(std::time::Duration::from_millis(100)).await;
    }
    let texts: Vec<&str> = lines.iter().map(|line| &*line.text).collect();
    ensure(texts == ["a line", "and another"], || format!("the lines are {texts:?}"))?;
    let places: Vec<_> = lines.iter().map(|line| (line.place.epoch, line.place.seq)).collect();
    ensure(places == [(epoch, 1), (epoch, 2)] && lines[0].stream == Stream::Log, || {
        format!("the lines have the places {places:?}, expected {epoch}.1 and {epoch}.2 of the stream `log`")
    })?;
    stage.facts.replies.clear();
    stage.command(Some(service), ask(99, Some(lines[0].place))).await?;
    let body = stage.until("a reply to a request for the lines after a place", SOON, answer).await?;
    let later = match decode::<Answer>(&body) {
        Ok(Answer::Logs(answer)) => answer.lines.lines.len(),
        other => return Err(format!("the reply is {other:?}")),
    };
    ensure(later == 1, || format!("{later} lines after the first of two, expected 1"))
}
