//! One observer or service as a person reads it: what it is, why it is so, and how it came about.

use super::cells::{labels, line, moment, name_of, second, text};
use super::views::note;
use super::{Column, EVENTS, Lines, Output, TerminalStyle, View, age, yaml};
use everwatch_core::clock::Timestamp;
use serde_json::Value;

/// Everything about an observer: itself, its runs and its events, newest first.
pub(crate) fn observer(
    it: &Value,
    (runs, events): (&[Value], &[Value]),
    on: (TerminalStyle, Timestamp),
) -> String {
    let (_, now) = on;
    let service = match (name_of(it, "service"), text(&it["service"], "id")) {
        (name, _) if name.is_empty() => "none".to_owned(),
        (name, id) => format!("{name} ({id})"),
    };
    let attempt = it["attempt"].as_u64().filter(|attempt| *attempt > 0);
    let attempt = attempt.map_or_else(String::new, |attempt| format!(", attempt {attempt}"));
    let mut facts = vec![
        ("Name", text(it, "name")),
        ("Id", text(it, "id")),
        ("Kind", text(it, "kind")),
        ("Status", because(it, "status")),
        ("Health", health(it)),
        ("Wanted", text(it, "desired")),
        ("Pool", text(it, "pool")),
        ("Service", service),
        ("Epoch", format!("{}.{}{attempt}", text(it, "generation"), text(it, "acquisitions"))),
        ("Progress", line(&text(it, "progress"))),
        ("Labels", labels(it)),
        ("Created", when(it, "created_at", now)),
        ("Changed", when(it, "modified_at", now)),
        ("Started", when(it, "started_at", now)),
        ("Retry", retry(&it["retry"])),
        ("Overlap", text(it, "overlap")),
        ("Grace", text(it, "grace")),
        ("When full", text(it, "on_full")),
    ];
    facts.retain(|(_, told)| !told.is_empty());
    let mut blocks = vec![aligned(&facts)];
    if let Some(error) = it["last_error"].as_str() {
        blocks.push(block("Last error", error));
    }
    blocks.push(block("Spec", &yaml(&it["spec"]).unwrap_or_else(|_| it["spec"].to_string())));
    blocks.push(listed("Runs", &RUNS, runs, on));
    blocks.push(listed("Events", &EVENTS, &oldest_first(events), on));
    blocks.join("\n\n")
}

/// Everything about a service: itself, some that it holds, and its events, newest first.
pub(crate) fn service(
    it: &Value,
    (held, events): ((&[Value], u64), &[Value]),
    on: (TerminalStyle, Timestamp),
) -> String {
    let (_, now) = on;
    let kinds = it["kinds"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let mut facts = vec![
        ("Name", text(it, "name")),
        ("Id", text(it, "id")),
        ("State", text(it, "state")),
        ("Note", note(it)),
        ("Pool", text(it, "pool")),
        ("Capacity", format!("{} of {} held, {} free", it["held"], it["capacity"], it["free"])),
        ("Last heartbeat", when(it, "last_heartbeat_at", now)),
        ("Born", when(it, "created_at", now)),
        ("Host", text(it, "host")),
        ("Version", text(it, "version")),
        ("Kinds", kinds.collect::<Vec<_>>().join(", ")),
        ("Labels", labels(it)),
    ];
    facts.retain(|(_, told)| !told.is_empty());
    let (some, total) = held;
    let mut names = listed("Observers", &HELD, some, on);
    if total > some.len() as u64 {
        let name = text(it, "name");
        names.push_str(&format!("\n  … {total} in all: everwatch observer list --service {name}"));
    }
    let events = listed("Events", &EVENTS, &oldest_first(events), on);
    [aligned(&facts), names, events].join("\n\n")
}

const RUNS: View = View {
    noun: "runs",
    name: "epoch",
    columns: &[
        Column::new("EPOCH", |it, _| format!("{}.{}", it["generation"], it["acquisitions"])),
        Column::new("SERVICE", |it, _| name_of(it, "service")).least(8),
        Column::new("STARTED", |it, _| second(it, "started_at")),
        Column::new("LASTED", lasted).right(),
        Column::new("STARTS", |it, _| text(it, "attempts")).right(),
        Column::new("GAP BEFORE", |it, _| {
            it["gap_ms"].as_u64().map_or_else(|| "-".to_owned(), super::cells::millis)
        })
        .right(),
        Column::new("END", |it, _| it["ended"].as_str().unwrap_or("-").to_owned()).least(6),
    ],
};

const HELD: View = View {
    noun: "observers",
    name: "name",
    columns: &[
        Column::new("NAME", |it, _| text(it, "name")).least(16),
        Column::new("KIND", |it, _| text(it, "kind")).least(8),
        Column::new("STATUS", |it, _| text(it, "status")).toned(),
        Column::new("HEALTH", |it, _| text(it, "health")).toned(),
        Column::new("RESTARTS", |it, _| text(it, "restarts")).right(),
        Column::new("REASON", |it, _| text(it, "reason")).least(22),
    ],
};

fn lasted(run: &Value, now: Timestamp) -> String {
    let Some(started) = moment(run, "started_at") else { return String::new() };
    age(moment(run, "ended_at").unwrap_or(now).since(started))
}

/// The health, with the code of the reason and the restarts where there are any.
fn health(it: &Value) -> String {
    let mut told = text(it, "health");
    let restarts = it["restarts"].as_u64().filter(|restarts| *restarts > 0);
    let restarts =
        restarts.map(|restarts| format!("{restarts} restart{}", if restarts == 1 { "" } else { "s" }));
    let beside: Vec<String> =
        it["reason_code"].as_str().map(str::to_owned).into_iter().chain(restarts).collect();
    if told.is_empty() && !beside.is_empty() {
        "none".clone_into(&mut told);
    }
    if beside.is_empty() { told } else { format!("{told} ({})", beside.join(", ")) }
}

fn because(it: &Value, member: &str) -> String {
    let (word, reason) = (text(it, member), line(&text(it, "reason")));
    if reason.is_empty() { word } else { format!("{word}: {reason}") }
}

fn when(it: &Value, member: &str, now: Timestamp) -> String {
    let Some(then) = moment(it, member) else { return String::new() };
    format!("{} ({} ago)", second(it, member), age(now.since(then)))
}

fn retry(it: &Value) -> String {
    let attempts = match it["attempts"].as_u64() {
        Some(attempts) => format!("{attempts} starts"),
        None => "for ever".to_owned(),
    };
    let of = |member: &str| text(it, member);
    match it["kind"].as_str() {
        Some("exponential") => {
            let (first, max, reset) = (of("first"), of("max"), of("reset_after"));
            format!("after {first}, doubling to {max}, {attempts}; reset after {reset} of health")
        }
        Some("fixed") => format!("every {}, {attempts}", of("every")),
        Some("intervals") => {
            let delays = it["delays"].as_array().into_iter().flatten().filter_map(Value::as_str);
            format!("after {}, then it gives up", delays.collect::<Vec<_>>().join(", "))
        }
        _ => String::new(),
    }
}

fn aligned(facts: &[(&str, String)]) -> String {
    let width = facts.iter().map(|(name, _)| name.len()).max().unwrap_or(0) + 1;
    let told = facts.iter().map(|(name, told)| format!("{:width$}  {told}", format!("{name}:")));
    told.collect::<Vec<_>>().join("\n")
}

fn block(title: &str, text: &str) -> String {
    let lines = text.lines().map(|it| format!("  {}", line(it)));
    format!("{title}:\n{}", lines.collect::<Vec<_>>().join("\n"))
}

fn listed(title: &str, view: &View, items: &[Value], (paper, now): (TerminalStyle, Timestamp)) -> String {
    if items.is_empty() {
        return format!("{title}:\n  none");
    }
    let paper = TerminalStyle { width: paper.width.map(|width| width.saturating_sub(2)), ..paper };
    let table = Lines::new(view, Output::Table, paper).page(items, now);
    let lines: Vec<_> = table.lines().map(|it| format!("  {it}")).collect();
    format!("{title}:\n{}", lines.join("\n"))
}

fn oldest_first(events: &[Value]) -> Vec<Value> {
    events.iter().rev().cloned().collect()
}
