//! The text of `describe` for one observer or service: its definition, its state with the reason, and its
//! history.

mod batch;
mod kind;
mod pool;
mod rollout;

pub(crate) use batch::batch;
pub(crate) use kind::kind;
pub(crate) use pool::pool;
pub(crate) use rollout::rollout;

use super::cells::{bytes, epoch, gap, labels, line, millis, or_dash, second, without_millis};
use super::views::note;
use super::{Column, EVENTS, Lines, OutputArgs, TerminalStyle, View, age, yaml};
use crate::item::Item;
use everwatch_api::{Event, Execution, Listed, Observer, Run, ScheduleTimes, Service};
use everwatch_core::clock::{Timestamp, show};
use everwatch_core::observer::definition::{OnFull, Overlap};
use everwatch_core::observer::retry::Retry;
use everwatch_core::record::health::Health;
use everwatch_core::wording::counted;

/// What the sign before a gap means.
pub(crate) const BOUND: &str =
    "≤ at most: counted from the last sign of life of the service before its death";

/// Everything about an observer: itself, its runs and its events, newest first.
pub(crate) fn observer(
    it: &Observer,
    runs: &[Item<Run>],
    events: &[Item<Event>],
    on: (TerminalStyle, Timestamp),
) -> String {
    let (_, now) = on;
    let service =
        it.service.as_ref().map_or_else(|| "none".to_owned(), |it| format!("{} ({})", it.name, it.id));
    let attempt = Some(it.attempt).filter(|attempt| *attempt > 0);
    let attempt = attempt.map_or_else(String::new, |attempt| format!(", attempt {attempt}"));
    let overlap = match it.overlap {
        Overlap::Allow => "allow",
        Overlap::Forbid => "forbid",
    };
    let on_full = match it.on_full {
        OnFull::Reject => "reject",
        OnFull::Queue => "queue",
    };
    let mut facts = vec![
        ("Name", it.name.clone()),
        ("Id", it.id.to_string()),
        ("Kind", it.kind.clone()),
        ("Status", because(it.status.as_str(), &without_millis(&it.reason))),
        ("Health", health(it)),
        ("Wanted", it.desired.as_str().to_owned()),
        ("Pool", it.pool.clone()),
        ("Service", service),
        ("Epoch", format!("{}{attempt}", epoch(it.epoch))),
        ("Progress", line(it.progress.as_deref().unwrap_or_default())),
        ("Labels", labels(&it.labels)),
        ("Definition", format!("version {}", it.definition_version)),
        ("Created", when(it.created_at, now)),
        ("Changed", when(it.modified_at, now)),
        ("Started", it.started_at.map_or_else(String::new, |then| when(then, now))),
        ("Retry", retry(&it.retry)),
        ("Overlap", overlap.to_owned()),
        ("Grace", it.grace.clone()),
        ("When full", on_full.to_owned()),
        ("Priority", if it.priority == 0 { String::new() } else { it.priority.to_string() }),
        ("Weight", if it.weight == 1 { String::new() } else { it.weight.to_string() }),
        ("Limits", it.limits.join(", ")),
        ("Starts", it.start_at.map_or_else(String::new, |at| when(at, now))),
        ("Windows", it.windows.as_ref().map_or_else(String::new, ToString::to_string)),
        ("Closes", it.closes_at.map_or_else(String::new, |at| when(at, now))),
        ("Schedule", it.schedule.as_ref().map_or_else(String::new, ToString::to_string)),
        (
            "Last execution",
            it.last_execution.as_ref().map_or_else(String::new, |run| last_execution(run, now)),
        ),
        ("Finishes", it.finish_at.map_or_else(String::new, |at| when(at, now))),
        ("Start within", it.start_within.clone().unwrap_or_default()),
        ("Attempt timeout", it.attempt_timeout.clone().unwrap_or_default()),
        ("Waiting since", it.waiting.as_ref().map_or_else(String::new, |waits| when(waits.since, now))),
    ];
    facts.retain(|(_, told)| !told.is_empty());
    let mut blocks = vec![aligned(&facts)];
    if let Some(error) = &it.last_error {
        blocks.push(block("Last error", error));
    }
    blocks.push(block("Spec", &yaml(&it.spec).unwrap_or_else(|_| it.spec.to_string())));
    let mut told = listed("Runs", &RUNS, runs, on);
    if runs.iter().any(|it| it.gap_is_bound) {
        told.push_str(&format!("\n  {BOUND}"));
    }
    blocks.push(told);
    blocks.push(listed("Events", &EVENTS, &oldest_first(events), on));
    blocks.join("\n\n")
}

/// Everything about a service: itself, some that it holds, and its events, newest first.
pub(crate) fn service(
    it: &Service,
    held: &Listed<Item<Observer>>,
    events: &[Item<Event>],
    on: (TerminalStyle, Timestamp),
) -> String {
    let (_, now) = on;
    let mut facts = vec![
        ("Name", it.name.clone()),
        ("Id", it.id.to_string()),
        ("State", it.state.as_str().to_owned()),
        ("Note", note(it)),
        ("Pool", it.pool.clone()),
        ("Capacity", format!("{} of {} held, {} free", it.held, it.capacity, it.free)),
        ("Greatest weight", if it.weight_max == 1 { String::new() } else { it.weight_max.to_string() }),
        ("Last heartbeat", when(it.last_heartbeat_at, now)),
        ("Memory", it.resident_bytes.map_or_else(String::new, bytes)),
        ("Loop lag", it.loop_lag_ms.map_or_else(String::new, |ms| millis(ms.into()))),
        ("Stalled", stalled(it)),
        ("Registered", when(it.created_at, now)),
        ("Host", it.host.clone()),
        ("Version", it.version.clone()),
        ("Kinds", it.kinds.join(", ")),
        ("Labels", labels(&it.labels)),
    ];
    facts.retain(|(_, told)| !told.is_empty());
    let mut names = listed("Observers", &HELD, &held.items, on);
    if held.total > held.items.len() as u64 {
        names
            .push_str(&format!("\n  … {} in all: everwatch observer list --service {}", held.total, it.name));
    }
    let events = listed("Events", &EVENTS, &oldest_first(events), on);
    [aligned(&facts), names, events].join("\n\n")
}

/// The observers whose code blocks a thread.
fn stalled(it: &Service) -> String {
    let each = it.stalled.iter().map(|it| format!("{} for {}", it.name, millis(it.stalled_ms)));
    each.collect::<Vec<_>>().join(", ")
}

const RUNS: View<Run> = View {
    noun: "runs",
    name: |it| epoch(it.epoch),
    key: |it| epoch(it.epoch),
    columns: &[
        Column::<Run>::new("EPOCH", |it, _| epoch(it.epoch)),
        Column::<Run>::new("SERVICE", |it, _| {
            it.service.as_ref().map_or_else(String::new, |it| it.name.clone())
        })
        .least_of_name(8),
        Column::<Run>::new("STARTED", |it, _| second(it.started_at)),
        Column::<Run>::new("LASTED", |it, now| age(it.ended_at.unwrap_or(now).since(it.started_at))).right(),
        Column::<Run>::new("ATTEMPTS", |it, _| it.attempts.to_string()).right(),
        Column::<Run>::new("GAP BEFORE", |it, _| or_dash(it.gap_ms.map(|ms| gap(ms, it.gap_is_bound))))
            .right(),
        Column::<Run>::new("END", |it, _| or_dash(it.ended.as_ref())).least(6),
    ],
};

const HELD: View<Observer> = View {
    noun: "observers",
    name: |it| it.name.clone(),
    key: |it| it.id.to_string(),
    columns: &[
        Column::<Observer>::new("NAME", |it, _| it.name.clone()).least_of_name(16),
        Column::<Observer>::new("KIND", |it, _| it.kind.clone()).least_of_name(8),
        Column::<Observer>::new("STATUS", |it, _| it.status.as_str().to_owned()).toned(),
        Column::<Observer>::new("HEALTH", |it, _| it.health.map_or("", |it| it.as_str()).to_owned()).toned(),
        Column::<Observer>::new("RESTARTS", |it, _| it.restarts.to_string()).right(),
        Column::<Observer>::new("REASON", |it, _| without_millis(&it.reason)).least(22),
    ],
};

/// The health, with the code of the reason and the restarts where there are any.
fn health(it: &Observer) -> String {
    let restarts = Some(it.restarts).filter(|restarts| *restarts > 0);
    let restarts = restarts.map(|restarts| counted(restarts, "restart"));
    let code = it.reason_code.map(|code| code.as_str().to_owned());
    let beside: Vec<String> = code.into_iter().chain(restarts).collect();
    match it.health.map(Health::as_str) {
        None if beside.is_empty() => String::new(),
        Some(health) if beside.is_empty() => health.to_owned(),
        health => format!("{} ({})", health.unwrap_or("none"), beside.join(", ")),
    }
}

fn because(word: &str, reason: &str) -> String {
    if reason.is_empty() { word.to_owned() } else { format!("{word}: {}", line(reason)) }
}

fn when(then: Timestamp, now: Timestamp) -> String {
    let apart = if then > now {
        format!("in {}", age(then.since(now)))
    } else {
        format!("{} ago", age(now.since(then)))
    };
    format!("{} ({apart})", second(then))
}

fn last_execution(run: &Execution, now: Timestamp) -> String {
    let outcome =
        run.error.as_ref().map_or_else(|| "completed".to_owned(), |error| format!("failed: {}", line(error)));
    let cause =
        run.scheduled_for.map_or_else(|| "by a request".to_owned(), |at| format!("for {}", second(at)));
    format!("{} {cause}, {outcome}", when(run.ended_at, now))
}

/// The next times of a schedule.
pub(crate) fn schedule(times: &ScheduleTimes, now: Timestamp) -> String {
    let mut lines = vec![format!("{} Time zone {}.", times.description, times.time_zone)];
    lines.extend(times.next.iter().map(|at| format!("  {}", when(*at, now))));
    if times.next.is_empty() {
        lines.push("  no further times".to_owned());
    }
    lines.join("\n")
}

fn retry(it: &Retry) -> String {
    let starts = |attempts: &Option<u32>| {
        attempts.map_or_else(
            || "without limit".to_owned(),
            |attempts| format!("at most {} in each run", counted(attempts, "start")),
        )
    };
    match it {
        Retry::Exponential { first, max, attempts, reset_after } => {
            let (first, max, reset) = (show(*first), show(*max), show(*reset_after));
            format!(
                "after {first}, doubling to {max} in each run, {}; reset after {reset} without an error",
                starts(attempts)
            )
        }
        Retry::Fixed { every, attempts } => format!("every {}, {}", show(*every), starts(attempts)),
        Retry::Intervals { delays } if delays.is_empty() => "never: it fails at its first error".to_owned(),
        Retry::Intervals { delays } => {
            let delays: Vec<_> = delays.iter().map(|delay| show(delay.0)).collect();
            format!("after {} in each run, then it gives up", delays.join(", "))
        }
    }
}

pub(super) fn aligned(facts: &[(&str, String)]) -> String {
    let width = facts.iter().map(|(name, _)| name.len()).max().unwrap_or(0) + 1;
    let told = facts.iter().map(|(name, told)| format!("{:width$}  {told}", format!("{name}:")));
    told.collect::<Vec<_>>().join("\n")
}

fn block(title: &str, text: &str) -> String {
    let lines = text.lines().map(|it| format!("  {}", line(it)));
    format!("{title}:\n{}", lines.collect::<Vec<_>>().join("\n"))
}

pub(super) fn listed<T>(
    title: &str,
    view: &View<T>,
    items: &[Item<T>],
    (paper, now): (TerminalStyle, Timestamp),
) -> String {
    if items.is_empty() {
        return format!("{title}:\n  none");
    }
    let paper = TerminalStyle { width: paper.width.map(|width| width.saturating_sub(2)), ..paper };
    let table = Lines::new(view, &OutputArgs::default(), paper).page(items, now);
    let lines: Vec<_> = table.lines().map(|it| format!("  {it}")).collect();
    format!("{title}:\n{}", lines.join("\n"))
}

fn oldest_first(events: &[Item<Event>]) -> Vec<Item<Event>> {
    events.iter().rev().cloned().collect()
}
