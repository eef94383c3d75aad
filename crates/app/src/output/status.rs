//! The health of a deployment on one screen.

use super::cells::{self, in_words, line, or_dash, since};
use super::describe::{aligned, listed};
use super::prose::prose;
use super::{Column, TerminalStyle, Tone, View};
use crate::item::Item;
use everwatch_api::{Finding, Observer, Operation, Pool, SafeMode, Stats};
use everwatch_core::clock::Timestamp;
use everwatch_core::doctor::Severity;
use everwatch_core::record::health::Health;
use everwatch_core::wording::{counted, counted_subject};
use serde::Serialize;

/// The state of a deployment at one moment.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Condition {
    /// The version of the manager.
    pub(crate) version: String,
    pub(crate) stats: Stats,
    pub(crate) pools: Vec<Item<Pool>>,
    /// The first observers, by name, whose health is `restarting`: at most [`NAMED_MAX`].
    pub(crate) restarting: Vec<Item<Observer>>,
    /// The operations in progress.
    pub(crate) operations: Vec<Item<Operation>>,
    /// The findings of the doctor, the worst first.
    pub(crate) findings: Vec<Item<Finding>>,
    pub(crate) safe_mode: SafeMode,
}

/// How many restarting observers are named at most.
pub(crate) const NAMED_MAX: usize = 3;

/// The maximum number of findings in the output.
const FINDINGS: usize = 5;

/// The column at which the text about a problem begins.
const PROBLEM_AT: usize = 12;

/// The statuses of observers that should not run.
const AT_REST: [&str; 4] = ["Paused", "Scheduled", "Completed", "Failed"];

/// The state of a deployment as text.
pub(crate) fn status(it: &Condition, on: (TerminalStyle, Timestamp)) -> String {
    let stats = &it.stats;
    let mut facts = vec![
        ("Observers", or_none(observers(stats))),
        ("Restarting", restarting(it)),
        ("Services", or_none(in_words(stats.services.iter().map(|(state, count)| (*count, state))))),
        ("Slots", slots(stats, &it.pools)),
        ("Failure tolerance", tolerance(&it.pools)),
        ("Paused pools", paused(&it.pools)),
        ("Broker", if stats.broker { "connected" } else { "not connected" }.to_owned()),
        ("Safe mode", safe_mode(&it.safe_mode)),
        ("Version", it.version.clone()),
    ];
    facts.retain(|(_, told)| !told.is_empty());
    let mut blocks = vec![headline(it, on.0), aligned(&facts)];
    if it.pools.len() > 1 {
        blocks.push(listed("Pools", &POOLS, &it.pools, on));
    }
    if !it.operations.is_empty() {
        blocks.push(listed("In progress", &OPERATIONS, &it.operations, on));
    }
    if !it.findings.is_empty() {
        blocks.push(findings(&it.findings, on.0));
    }
    blocks.join("\n\n")
}

/// One sentence that says how many observers run, of those that should.
fn headline(it: &Condition, paper: TerminalStyle) -> String {
    let count = |health: Health| it.stats.health.get(health.as_str()).copied().unwrap_or(0);
    let of_status = |status: &str| it.stats.observers.get(status).copied().unwrap_or(0);
    let (running, limited, failed) = (count(Health::Running), it.stats.behind_limits, of_status("Failed"));
    let wanted =
        running + count(Health::Restarting) + count(Health::Waiting) + count(Health::Moving) + failed;
    let severity = it.findings.iter().map(|it| it.severity).max();
    let are_warned = severity >= Some(Severity::Warning);
    let run = if running == 1 { "runs" } else { "run" };
    // Those of a frozen service stand still, and those of a silent one may have ended: managers cannot tell.
    let is_silent = it.stats.services.get("suspect").is_some_and(|count| *count > 0);
    let is_doubted = is_silent || it.findings.iter().any(|it| it.code == "service-frozen");
    let doubt = if is_doubted { ", as far as managers can tell" } else { "" };
    let some = format!("{running} of {} {run}{doubt}", counted(wanted, "observer"));
    let (text, tone) = match wanted {
        _ if !it.stats.broker => {
            ("The broker is not connected: observers keep running, none starts".to_owned(), Tone::Bad)
        }
        0 => ("No observer is meant to run now".to_owned(), Tone::Plain),
        _ if running == wanted && is_doubted => (format!("All observers run{doubt}"), Tone::Wait),
        _ if running == wanted => ("All observers run".to_owned(), Tone::Good),
        _ if running == 0 => ("No observer runs".to_owned(), Tone::Wait),
        _ if running + limited == wanted => {
            let wait = if limited == 1 { "waits" } else { "wait" };
            (format!("{some}; {limited} {wait} for a limit"), Tone::Good)
        }
        _ if failed > 0 => {
            (format!("{some}; {failed} {} failed", if failed == 1 { "has" } else { "have" }), Tone::Wait)
        }
        _ => (some, Tone::Wait),
    };
    let (more, tone) = match severity {
        Some(Severity::Critical) if it.stats.broker => {
            (". Something is critical: see the problems", Tone::Bad)
        }
        _ if are_warned && tone == Tone::Good => (", but there are warnings", Tone::Wait),
        _ => ("", tone),
    };
    tone.paint(&format!("{text}{more}."), paper)
}

fn observers(stats: &Stats) -> String {
    // The health of these observers is `waiting`, too: count them only once.
    let health = stats.health.iter().map(|(health, count)| match health.as_str() {
        "waiting" => (count.saturating_sub(stats.behind_limits), health.clone()),
        _ => (*count, health.clone()),
    });
    let rest =
        AT_REST.iter().filter_map(|status| Some((*stats.observers.get(*status)?, status.to_lowercase())));
    let behind_limits = (stats.behind_limits, "waiting for a limit".to_owned());
    let mut all: Vec<_> = health.chain([behind_limits]).chain(rest).collect();
    // In the order of `Health`, the healthy ones first, as in all other output.
    let place = |word: &str| Health::ALL.iter().position(|it| it.as_str() == word).unwrap_or(usize::MAX);
    all.sort_by_key(|(_, word)| place(word));
    in_words(all)
}

/// The names of the observers that restart.
fn restarting(it: &Condition) -> String {
    let names: Vec<&str> = it.restarting.iter().map(|it| it.name.as_str()).collect();
    let all = it.stats.health.get(Health::Restarting.as_str()).copied().unwrap_or(0);
    match all.saturating_sub(names.len() as u64) {
        more if more > 0 && !names.is_empty() => format!("{} and {more} more", names.join(", ")),
        _ => names.join(", "),
    }
}

/// Whether a service in this state accepts observers, or takes over when another service of its pool ends.
pub(crate) fn is_able(state: &str) -> bool {
    matches!(state, "active" | "standby")
}

fn slots(stats: &Stats, pools: &[Item<Pool>]) -> String {
    let free = pools.iter().map(|it| u64::from(it.free)).sum();
    cells::slots(stats.held.into(), (free, stats.capacity.into()))
}

fn or_none(text: String) -> String {
    if text.is_empty() { "none".to_owned() } else { text }
}

/// The pools that admit no observer, and how many wait because of that.
fn paused(pools: &[Item<Pool>]) -> String {
    let all = pools.iter().filter(|it| it.paused).map(|it| match it.waiting {
        0 => it.name.clone(),
        waiting => format!("{} ({})", it.name, counted_subject(waiting, "observer", ["waits", "wait"])),
    });
    all.collect::<Vec<_>>().join(", ")
}

/// The failure tolerance of the pool with the smallest one; none if no observer needs a slot.
fn tolerance(pools: &[Item<Pool>]) -> String {
    let used = pools.iter().filter(|it| it.needed > 0);
    let known = used.filter_map(|it| Some((it.failure_tolerance?, it)));
    let Some((least, pool)) = known.min_by_key(|(tolerance, _)| *tolerance) else { return String::new() };
    if pool.services == 0 {
        return format!("none: pool {} has no service", pool.name);
    }
    let of = if pools.len() > 1 { format!(" of pool {}", pool.name) } else { String::new() };
    match least {
        0 if pool.services == 1 => format!("none: if the service{of} is lost, observers wait"),
        0 => format!("none: if the largest service{of} is lost, observers wait"),
        _ => {
            let without = if least == 1 { "it" } else { "them" };
            format!("{}{of}: without {without}, the others have enough slots", counted(least, "service"))
        }
    }
}

fn safe_mode(it: &SafeMode) -> String {
    match (it.on, it.reason.as_str()) {
        (false, _) => String::new(),
        (true, "") => "on".to_owned(),
        (true, reason) => format!("on: {}", line(reason)),
    }
}

fn findings(all: &[Item<Finding>], paper: TerminalStyle) -> String {
    // An `info` is no problem: the deployment is as it should be. The worst findings come first.
    let heading = |it: &Finding| if it.severity == Severity::Info { "Notes:" } else { "Problems:" };
    let mut lines = Vec::new();
    let mut above = "";
    for finding in all.iter().take(FINDINGS) {
        if heading(finding) != above {
            above = heading(finding);
            lines.push(above.to_owned());
        }
        let Finding { severity, subject, what, cure, .. } = &**finding;
        let (word, tone) = match severity {
            Severity::Critical => ("critical", Tone::Bad),
            Severity::Warning => ("warning", Tone::Wait),
            Severity::Info => ("info", Tone::Plain),
        };
        let (subject, what) = (line(subject), line(what));
        let what = if what.contains(&*subject) { what } else { format!("{subject}: {what}") };
        let told = [what, format!("cure: {}", line(cure))];
        let [what, cure] = told.map(|text| prose(&text, PROBLEM_AT, paper));
        lines.push(format!("  {}  {what}", tone.paint(&format!("{word:<8}"), paper)));
        lines.push(format!("{:PROBLEM_AT$}{cure}", ""));
    }
    if all.len() > FINDINGS {
        lines.push(format!("  … {} in all: everwatch doctor", all.len()));
    }
    lines.join("\n")
}

const POOLS: View<Pool> = View {
    noun: "pools",
    name: |it| it.name.clone(),
    key: |it| it.name.clone(),
    columns: &[
        Column::<Pool>::new("POOL", |it, _| it.name.clone()).least_of_name(16),
        Column::<Pool>::new("SERVICES", |it, _| it.services.to_string()).right(),
        Column::<Pool>::new("HELD", |it, _| it.held.to_string()).right(),
        Column::<Pool>::new("SLOTS", |it, _| it.capacity.to_string()).right(),
        Column::<Pool>::new("WAITING", |it, _| it.health.get("waiting").copied().unwrap_or(0).to_string())
            .right(),
        Column::<Pool>::new("TOLERANCE", |it, _| or_dash(it.failure_tolerance)).right(),
        Column::<Pool>::new("ADMISSION", |it, _| if it.paused { "paused" } else { "open" }.to_owned())
            .varied(),
    ],
};

const OPERATIONS: View<Operation> = View {
    noun: "operations",
    name: |it| it.name.clone(),
    key: |it| it.path.clone(),
    columns: &[
        Column::<Operation>::new("TYPE", |it, _| it.kind.to_string()),
        Column::<Operation>::new("NAME", |it, _| it.name.clone()).least_of_name(12),
        Column::<Operation>::new("STATE", |it, _| it.state.clone()).toned(),
        Column::<Operation>::new("DONE", |it, _| match (it.done, it.of) {
            (Some(done), Some(of)) => format!("{done} of {of}"),
            (None, Some(of)) => format!("{of} to move"),
            (done, None) => or_dash(done),
        })
        .right(),
        Column::<Operation>::new("AGE", |it, now| or_dash(it.since.map(|then| since(then, now)))).right(),
        Column::<Operation>::new("REASON", |it, _| it.reason.clone()).least(20),
    ],
};
