//! Observers that fail although a service has room for them, and services that were lost and have not come back.

use super::capacity::{cordoned, missing_slots, returning};
use super::{Facts, Finding, FleetFacts, Severity, SomeRows, listed};
use crate::id::{Pool, ServiceId};
use crate::record::health::is_crash_looping;
use crate::record::observed::Settlement;
use crate::record::row::Row;
use crate::record::service::{ServiceRow, missing};
use crate::wording::counted;
use std::collections::BTreeSet;

/// An observer with this many restarts in a row is in a crash loop.
const LOOPS_FROM: u32 = 2;

pub(super) fn findings(fleet: &FleetFacts, facts: &Facts) -> Vec<Finding> {
    let services = [lost(fleet, facts), frozen(fleet, facts), killed(fleet, facts)];
    let observers = [looping(&fleet.restarting), failed(&fleet.failed)];
    observers.into_iter().chain(services).flatten().collect()
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
            "between two attempts, an observer does no work; the latest error of the first observer is: {}",
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
    let returning: Vec<ServiceId> = returning(fleet, facts.now).map(|it| it.id).collect();
    let mut missing = not_back(fleet, facts);
    missing.retain(|it| !returning.contains(&it.id) && !is_frozen(fleet, it));
    let (first, names) = (*missing.first()?, names(&missing));
    let (plural, have) = if names.len() == 1 { ("service was", "has") } else { ("services were", "have") };
    Some(Finding {
        code: "service-lost",
        severity: Severity::Warning,
        subject: "services".to_owned(),
        what: format!(
            "{} {plural} lost in the last 10 minutes and {have} not come back yet: {}{}",
            names.len(),
            listed(&names, names.len() as u64),
            start_cordoned(&ordered_cordoned(fleet, &names))
        ),
        why: "a lost service ended without unregistering: its process was killed, or its host or network failed"
            .to_owned(),
        cure: format!("check host {} and its log, and start the service again", first.registration.host),
    })
}

/// All services that were lost and have not come back, also those that a person killed or froze.
fn not_back<'a>(fleet: &'a FleetFacts, facts: &Facts) -> Vec<&'a ServiceRow> {
    let by_hand = fleet.killed_by_hand.iter().chain(&fleet.frozen_by_hand);
    missing(fleet.services.iter().chain(&fleet.ended_lately).chain(by_hand), facts.now)
}

fn is_frozen(fleet: &FleetFacts, service: &ServiceRow) -> bool {
    fleet.frozen_by_hand.iter().any(|it| it.id == service.id)
}

/// The names of these services, each once.
fn names(services: &[&ServiceRow]) -> Vec<String> {
    let mut names: Vec<String> = services.iter().map(|it| it.registration.name.to_string()).collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// Services as the subject of a sentence.
fn subject_of(names: &[String]) -> String {
    let noun = if names.len() == 1 { "service" } else { "services" };
    format!("{noun} {}", listed(names, names.len() as u64))
}

/// The names of these that a user cordoned or drained: their next processes take no observers until a user uncordons them.
fn ordered_cordoned(fleet: &FleetFacts, names: &[String]) -> Vec<String> {
    let is_cordoned = |name: &&String| fleet.orders.get(*name).is_some_and(|orders| orders.cordoned);
    names.iter().filter(is_cordoned).cloned().collect()
}

/// That the next processes of these services are cordoned, as the end of a sentence; empty if there are none.
fn start_cordoned(names: &[String]) -> String {
    match names.len() {
        0 => String::new(),
        1 => format!("; the next process of {} is cordoned", names[0]),
        all => format!("; the next processes of {} are cordoned", listed(names, all as u64)),
    }
}

/// Services that a person froze to try out failover, and that stay lost until they are thawed.
fn frozen(fleet: &FleetFacts, facts: &Facts) -> Option<Finding> {
    let mut lost = not_back(fleet, facts);
    lost.retain(|it| is_frozen(fleet, it));
    if lost.is_empty() {
        return frozen_yet_living(fleet);
    }
    let names = names(&lost);
    let (first, subject) = (names.first()?, subject_of(&names));
    let (were, have) = if names.len() == 1 { ("was", "has") } else { ("were", "have") };
    Some(Finding {
        code: "service-lost",
        severity: Severity::Warning,
        what: format!("{subject} {were} frozen on purpose, and {have} no session with the broker any more"),
        subject,
        why: "until the thaw, the pool has fewer slots".to_owned(),
        cure: format!("`everwatch chaos thaw {first}`: it registers again as a new incarnation"),
    })
}

/// Frozen services that the broker has not given up: their observers run nowhere, and managers count them as active.
fn frozen_yet_living(fleet: &FleetFacts) -> Option<Finding> {
    let living: Vec<&ServiceRow> = fleet.frozen_by_hand.iter().filter(|it| it.end.is_none()).collect();
    let names = names(&living);
    let (first, subject) = (names.first()?, subject_of(&names));
    let are = if names.len() == 1 { "is" } else { "are" };
    Some(Finding {
        code: "service-frozen",
        severity: Severity::Warning,
        what: format!("{subject} {are} frozen on purpose, and the broker has not noticed yet"),
        subject,
        why: "the broker notices only after two missed heartbeats that a client is silent: until then, the observers there stand \
              still, and count as running"
            .to_owned(),
        cure: format!("`everwatch chaos thaw {first}`, or wait until the broker notices: what it holds then runs elsewhere"),
    })
}

/// Services that a person killed to try out failover, and that start again by themselves. A warning if observers wait meanwhile.
fn killed(fleet: &FleetFacts, facts: &Facts) -> Option<Finding> {
    let killed: Vec<&ServiceRow> = returning(fleet, facts.now).collect();
    let names = names(&killed);
    let starts = match names.len() {
        0 => return None,
        1 => "was killed on purpose and starts again in a few seconds",
        _ => "were killed on purpose and start again in a few seconds",
    };
    let start_cordoned_ones = ordered_cordoned(fleet, &names);
    let pools: BTreeSet<&Pool> = killed.iter().map(|it| &it.registration.pool).collect();
    let short =
        pools.into_iter().map(|pool| (pool, missing_slots(pool, fleet))).find(|(_, slots)| *slots > 0);
    let has_room = |it: &&ServiceRow| it.held() < it.capacity();
    let idle = short.and_then(|(pool, _)| cordoned(pool, fleet).into_iter().find(has_room));
    let starts_again = "`everwatch dev` starts a killed service again as a new incarnation";
    let (severity, why) = match short {
        Some((pool, slots)) => (
            Severity::Warning,
            format!("until then, observers wait: pool {pool} has {} too few", counted(slots, "slot")),
        ),
        None => (Severity::Info, "until then, the pool has fewer slots".to_owned()),
    };
    let subject = subject_of(&names);
    Some(Finding {
        code: "service-killed",
        severity,
        what: format!("{subject} {starts}{}", start_cordoned(&start_cordoned_ones)),
        cure: match idle {
            _ if !start_cordoned_ones.is_empty() => {
                let names = start_cordoned_ones.join(" ");
                format!("`everwatch service uncordon {names}`, so that it takes observers again")
            }
            Some(it) => {
                format!("`everwatch service uncordon {}`, or wait: {starts_again}", it.registration.name)
            }
            None => format!("none is needed: {starts_again}"),
        },
        subject,
        why,
    })
}
