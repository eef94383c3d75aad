//! Services and observers, as the database has them.

use super::{Facts, Finding, FleetFacts, Severity, UnreadableRow, capacity};
use crate::clock::{Timestamp, show};
use crate::fleet::{progress, room_by_pool};
use crate::id::{Kind, Pool};
use crate::service::ServiceRow;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Clocks that differ by less are not worth a word.
const SKEW_MAX_MS: i64 = 2000;
/// A beat that says that a clock is behind may have waited; one that waited longer proves nothing.
const BEAT_WAITS: i64 = 3000;
/// So long after the last birth, services of several versions are no deployment under way any more.
const DEPLOYMENT: Duration = Duration::from_secs(900);
/// So many lost sessions of one service in a while are no accident.
const LOSSES_MANY: usize = 3;
/// Services that are named; of the others only the number is told.
const NAMED_MAX: usize = 5;

pub(super) fn findings(fleet: &FleetFacts, facts: &Facts) -> Vec<Finding> {
    let mut findings = skew(fleet, facts.manager.clock_ahead_ms);
    findings.extend(namesakes(fleet));
    findings.extend(losing(fleet));
    findings.extend(versions(fleet, facts.now));
    findings.extend(drains(fleet, facts.now));
    findings.extend(waiting(fleet, facts.now));
    findings.extend(capacity::findings(fleet));
    findings
        .extend(fleet.unreadable.iter().take(NAMED_MAX).map(|row| unreadable(row, fleet.unreadable.len())));
    if let Some(why) = &fleet.hold {
        findings.push(Finding {
            code: "hold-on",
            severity: Severity::Warning,
            subject: "hold".to_owned(),
            what: if why.is_empty() { "hold is on".to_owned() } else { format!("hold is on: {why}") },
            why: "no service is called lost, nothing is published anew and nothing is quarantined".to_owned(),
            cure: "`everwatch hold off`".to_owned(),
        });
    }
    if fleet.parked > 0 {
        findings.push(Finding {
            code: "parked",
            severity: Severity::Warning,
            subject: "parked messages".to_owned(),
            what: format!("{} messages that nobody could read are parked", fleet.parked),
            why: "each may be an observer that does not run, or a report that was not applied".to_owned(),
            cure:
                "`everwatch parked list`, then `everwatch parked retry ID` or `everwatch parked discard ID`"
                    .to_owned(),
        });
    }
    findings
}

/// One finding for each row, as each has a cure of its own; beyond [`NAMED_MAX`] only their number is told.
fn unreadable(row: &UnreadableRow, count: usize) -> Finding {
    let of = if count > NAMED_MAX { format!(" (one of {count} such rows)") } else { String::new() };
    Finding {
        code: "unreadable-row",
        severity: Severity::Critical,
        subject: format!("{} {}", row.table, row.id),
        what: format!("this stored row cannot be read{of}: {}", row.why),
        why:
            "managers skip this row: they conclude nothing from it, never change or delete it, and reports on it are \
              parked"
                .to_owned(),
        cure: format!("{}; then run `everwatch parked retry ID` for each report", row.cure),
    }
}

fn skew(fleet: &FleetFacts, manager_ahead_ms: i64) -> Vec<Finding> {
    let clocks =
        fleet.services.iter().filter(|service| service.suspect_since.is_none()).filter_map(|service| {
            let sent_at = service.beat.as_ref()?.sent_at?;
            let ahead = sent_at.0 - service.heard_at.0;
            let differs = !(-(SKEW_MAX_MS + BEAT_WAITS)..=SKEW_MAX_MS).contains(&ahead);
            differs.then(|| (format!("service {}", service.birth.name), service.birth.host.clone(), ahead))
        });
    let manager = (manager_ahead_ms.abs() > SKEW_MAX_MS)
        .then(|| ("this manager".to_owned(), "the manager's host".to_owned(), manager_ahead_ms));
    let finding = |(subject, host, ahead): (String, String, i64)| {
        let by = show(Duration::from_millis(ahead.unsigned_abs()));
        let way = if ahead > 0 { "ahead of" } else { "behind" };
        Finding {
            code: "clock-skew",
            severity: Severity::Warning,
            subject,
            what: format!("the clock of {host} is {by} {way} the database's"),
            why: "start times, gaps and overlaps are shown wrong by as much (no decision rests on them)"
                .to_owned(),
            cure: format!("`timedatectl set-ntp true` on {host}"),
        }
    };
    clocks.chain(manager).map(finding).collect()
}

fn namesakes(fleet: &FleetFacts) -> Vec<Finding> {
    let mut names: BTreeMap<&str, Vec<&ServiceRow>> = BTreeMap::new();
    // A younger one of its name makes the older one suspect, until that beats again.
    for service in fleet.services.iter().filter(|it| it.suspect_since.is_none() && it.beat.is_some()) {
        names.entry(service.birth.name.as_str()).or_default().push(service);
    }
    let several = names.into_iter().filter(|(_, services)| services.len() > 1);
    let finding = |(name, services): (&str, Vec<&ServiceRow>)| {
        let hosts: Vec<&str> = services.iter().map(|service| service.birth.host.as_str()).collect();
        Finding {
            code: "same-name",
            severity: Severity::Warning,
            subject: format!("service {name}"),
            what: format!("{} living services have this name, on {}", services.len(), hosts.join(", ")),
            why: "cordon, drain and capacity go by the name and meet all of them, and each birth makes the \
                  others suspect"
                .to_owned(),
            cure: "give each its own `[service] name` (EVERWATCH_SERVICE__NAME) and restart it".to_owned(),
        }
    };
    several.map(finding).collect()
}

/// Services that lose one session with the broker after the other.
fn losing(fleet: &FleetFacts) -> Option<Finding> {
    let mut losses: BTreeMap<&str, Vec<&ServiceRow>> = BTreeMap::new();
    for service in fleet.born_lately.iter().filter(|service| service.birth.predecessor.is_some()) {
        losses.entry(service.birth.name.as_str()).or_default().push(service);
    }
    losses.retain(|_, births| births.len() >= LOSSES_MANY);
    let newest = losses.values().flatten().max_by_key(|service| service.born_at)?;
    let reason = &newest.birth.predecessor.as_ref()?.ended;
    let most = losses.values().map(Vec::len).max()?;
    let named = losses.keys().copied().take(NAMED_MAX).collect::<Vec<_>>().join(", ");
    let more = losses.len().saturating_sub(NAMED_MAX);
    let others = if more > 0 { format!(" and {more} others") } else { String::new() };
    let plural = if losses.len() == 1 { "" } else { "s" };
    Some(Finding {
        code: "sessions-lost",
        severity: Severity::Warning,
        subject: format!("service{plural} {named}{others}"),
        what: format!(
            "lost the session with the broker up to {most} times in 10 minutes, at last because {reason}"
        ),
        why: "each time all observers of the service are stopped and run elsewhere, or wait".to_owned(),
        cure: format!(
            "if it is one service, its host or its network is to blame: look at {}, and keep work away with \
             `everwatch service cordon {}`; if it is all of them, look at the broker's log",
            newest.birth.host, newest.birth.name
        ),
    })
}

fn versions(fleet: &FleetFacts, now: Timestamp) -> Option<Finding> {
    let mut versions: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for service in &fleet.services {
        versions.entry(&service.birth.version).or_default().insert(service.birth.name.as_str());
    }
    if versions.len() < 2 {
        return None;
    }
    let under_way = fleet.services.iter().any(|service| now.since(service.born_at) < DEPLOYMENT);
    let all: Vec<String> = versions
        .iter()
        .map(|(version, names)| {
            format!("{version} ({})", names.iter().copied().take(5).collect::<Vec<_>>().join(", "))
        })
        .collect();
    Some(Finding {
        code: "versions-differ",
        severity: if under_way { Severity::Info } else { Severity::Warning },
        subject: "services".to_owned(),
        what: format!("services of {} versions run: {}", versions.len(), all.join("; ")),
        why: "an observer may behave differently after it moved".to_owned(),
        cure: "restart those of the older version with the newer program".to_owned(),
    })
}

fn drains(fleet: &FleetFacts, now: Timestamp) -> Vec<Finding> {
    let room = room_by_pool(&fleet.services);
    let living = fleet.services.iter().filter(|service| !service.state().is_over());
    let stuck = living.filter_map(|service| {
        let name = service.birth.name.as_str();
        let drain = fleet.orders.get(name)?.drain.as_ref()?;
        let room = room.get(&service.birth.pool).copied().unwrap_or(0);
        let told = progress(drain, service, room, now);
        Some(Finding {
            code: "drain-waits",
            severity: Severity::Warning,
            subject: format!("service {name}"),
            what: format!("its drain stands still at {} of {}: {}", told.moved, told.of, told.waits?),
            why: "it stays as long as it holds something".to_owned(),
            cure: format!(
                "start another service of pool {}, or `everwatch service drain {name} --force`",
                service.birth.pool
            ),
        })
    });
    stuck.collect()
}

/// Observers that no service would take.
fn waiting(fleet: &FleetFacts, now: Timestamp) -> Vec<Finding> {
    let mut groups: BTreeMap<(&Pool, &Kind), (usize, &str, Option<Timestamp>)> = BTreeMap::new();
    for row in &fleet.waiting {
        let key = (&row.wanted.pool, &row.wanted.kind);
        let group = groups.entry(key).or_insert((0, row.wanted.name.as_str(), None));
        group.0 += 1;
        group.2 = match (group.2, row.refused_since) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
    }
    let of_pool = |pool: &Pool| {
        let living = fleet.services.iter().filter(|service| !service.state().is_over());
        living.filter(|service| service.birth.pool == *pool).collect::<Vec<_>>()
    };
    let finding =
        |((pool, kind), (count, first, refused)): ((&Pool, &Kind), (usize, &str, Option<Timestamp>))| {
            let services = of_pool(pool);
            let has_kind = |it: &&ServiceRow| it.birth.kinds.iter().any(|known| known.name == *kind);
            let (code, severity, what) = if services.is_empty() {
                let what = format!(
                    "{count} observers of kind {kind} wait, {first} first, and the pool has no service"
                );
                ("no-service", Severity::Critical, what)
            } else if !services.iter().any(has_kind) {
                let what = format!(
                    "{count} observers wait, {first} first, for kind {kind}, which no service of the pool has"
                );
                ("no-service-for-kind", Severity::Critical, what)
            } else if let Some(since) = refused {
                let what = format!(
                    "{count} observers of kind {kind} wait, {first} first, and are refused since {}",
                    show(Duration::from_secs(now.since(since).as_secs()))
                );
                ("refused", Severity::Warning, what)
            } else {
                return None;
            };
            Some(Finding {
                code,
                severity,
                subject: format!("pool {pool}"),
                what,
                why: "they do not run; after `[manager] refused_max` those that are refused fail".to_owned(),
                cure: format!(
                    "start a service that has kind {kind} with `[service] pool = \"{pool}\"`, or \
                 `everwatch observer move NAME --pool POOL`"
                ),
            })
        };
    groups.into_iter().filter_map(finding).collect()
}
