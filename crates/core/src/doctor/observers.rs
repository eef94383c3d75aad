//! Observers that fail although a service has room for them, and services that were lost and have not come back.

use super::capacity::returning;
use super::{Facts, Finding, FleetFacts, Severity, SomeRows};
use crate::record::health::is_crash_looping;
use crate::record::observed::Settlement;
use crate::record::row::Row;
use crate::record::service::missing;
use crate::wording::counted;

/// An observer with this many restarts in a row is in a crash loop.
const LOOPS_FROM: u32 = 2;
/// The number of names in one finding.
const NAMED_MAX: usize = 5;

pub(super) fn findings(fleet: &FleetFacts, facts: &Facts) -> Vec<Finding> {
    let found = [looping(&fleet.restarting), failed(&fleet.failed), lost(fleet, facts), killed(fleet, facts)];
    found.into_iter().flatten().collect()
}

fn listed(names: &[String], total: u64) -> String {
    let shown = names.iter().take(NAMED_MAX).cloned().collect::<Vec<_>>();
    let more = total.saturating_sub(shown.len() as u64);
    let more = if more == 0 { String::new() } else { format!(" and {more} more") };
    format!("{}{more}", shown.join(", "))
}

/// Observers that fail repeatedly.
fn looping(restarting: &SomeRows) -> Option<Finding> {
    let mut loops: Vec<&Row> = restarting
        .rows
        .iter()
        .filter(|row| row.restarts() >= LOOPS_FROM || is_crash_looping(&row.observed))
        .collect();
    loops.sort_by_key(|row| std::cmp::Reverse(row.restarts()));
    let first = loops.first()?;
    let name = |row: &&Row| match row.restarts() {
        0 => row.definition.name.to_string(),
        restarts => format!("{} ({})", row.definition.name, counted(restarts, "restart")),
    };
    let names: Vec<String> = loops.iter().map(name).collect();
    let count = loops.len() as u64;
    let unread = restarting.total > restarting.rows.len() as u64;
    let least = if unread { "at least " } else { "" };
    // The first one has the most restarts.
    if first.restarts() < LOOPS_FROM {
        return Some(cut_short(least, (count, &listed(&names, count)), first));
    }
    Some(Finding {
        code: "crash-loop",
        severity: Severity::Warning,
        subject: "observers".to_owned(),
        what: format!("{least}{} failed repeatedly: {}", counted(count, "observer"), listed(&names, count)),
        why: format!(
            "between two attempts they do no work; the latest error of the first observer is: {}",
            latest_error(first)
        ),
        cure: format!(
            "find the cause with `everwatch observer logs {0}`, and fix the spec or what it depends on; \
             `everwatch observer list --health restarting` lists all such observers",
            first.definition.arguments()
        ),
    })
}

/// The beginning of the error with which it failed, otherwise of its latest error.
fn latest_error(row: &Row) -> String {
    let last = || row.observed.last_error.as_ref().map_or("not known", |error| error.value.as_str());
    let error = match row.observed.settled.as_ref().map(|settled| &settled.how) {
        Some(Settlement::Failed { error, .. } | Settlement::NotStarted { error }) => error,
        _ => last(),
    };
    error.chars().take(200).collect()
}

/// Observers whose code has reported no error, but whose last runs ended soon after their starts, each with its service.
fn cut_short(least: &str, (count, names): (u64, &str), first: &Row) -> Finding {
    Finding {
        code: "crash-loop",
        severity: Severity::Warning,
        subject: "observers".to_owned(),
        what: format!(
            "{least}{} lost the service or the broker soon after the start, repeatedly: {names}",
            counted(count, "observer")
        ),
        why: "their services die or lose the broker again and again; an observer that ends its service can be the cause"
            .to_owned(),
        cure: format!(
            "`everwatch timeline` shows which services were lost: read their logs; if one of the observers ends its \
             service, pause it, as with `everwatch observer pause {}`",
            first.definition.arguments()
        ),
    }
}

fn failed(failed: &SomeRows) -> Option<Finding> {
    let first = failed.rows.first()?;
    let error = if failed.total == 1 { "error is:" } else { "error of the first one is:" };
    let names: Vec<String> = failed.rows.iter().map(|row| row.definition.name.to_string()).collect();
    Some(Finding {
        code: "failed",
        severity: Severity::Warning,
        subject: "observers".to_owned(),
        what: format!("{} failed: {}", counted(failed.total, "observer"), listed(&names, failed.total)),
        why: format!(
            "a failed observer does not run until a user retries it; the {error} {}",
            latest_error(first)
        ),
        cure: format!(
            "`everwatch observer list --status Failed` shows all with their errors; fix the cause, then `everwatch observer retry {}`, \
             or delete it",
            first.definition.arguments()
        ),
    })
}

/// Services that were lost recently and have not come back under their name.
fn lost(fleet: &FleetFacts, facts: &Facts) -> Option<Finding> {
    let all = fleet.services.iter().chain(&fleet.ended_lately).chain(&fleet.killed_by_hand);
    let mut missing = missing(all, facts.now);
    missing.retain(|it| fleet.killed_by_hand.iter().all(|killed| killed.id != it.id));
    let first = missing.first()?;
    let names: Vec<String> = missing.iter().map(|it| it.registration.name.to_string()).collect();
    let (plural, have) = if names.len() == 1 { ("service was", "has") } else { ("services were", "have") };
    Some(Finding {
        code: "service-lost",
        severity: Severity::Warning,
        subject: "services".to_owned(),
        what: format!(
            "{} {plural} lost in the last 10 minutes and {have} not come back yet: {}",
            names.len(),
            listed(&names, names.len() as u64)
        ),
        why: "a lost service ended without unregistering: its process was killed, or its host or network failed"
            .to_owned(),
        cure: format!("check host {} and its log, and start the service again", first.registration.host),
    })
}

/// Services that a person killed to try out failover, and that start again by themselves.
fn killed(fleet: &FleetFacts, facts: &Facts) -> Option<Finding> {
    let mut names: Vec<String> =
        returning(fleet, facts.now).map(|it| it.registration.name.to_string()).collect();
    names.sort_unstable();
    names.dedup();
    let listed = listed(&names, names.len() as u64);
    let (subject, were, start) = match names.len() {
        0 => return None,
        1 => (format!("service {listed}"), "was", "starts"),
        _ => (format!("services {listed}"), "were", "start"),
    };
    Some(Finding {
        code: "service-killed",
        severity: Severity::Info,
        what: format!("{subject} {were} killed by hand and {start} again in a few seconds"),
        subject,
        why: "until then, the pool has fewer slots".to_owned(),
        cure: "none is needed: `everwatch dev` starts a killed service again as a new incarnation".to_owned(),
    })
}
