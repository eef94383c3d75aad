//! Services and observers, as the database records them.

use super::{Facts, Finding, FleetFacts, NAMED_MAX, Severity, UnreadableRow, capacity, listed, stalls};
use crate::capacity::maintenance::{progress, room_by_pool};
use crate::clock::{Timestamp, show};
use crate::id::{Kind, Pool};
use crate::record::service::{ServiceRow, ServiceState};
use crate::record::taking::taking;
use crate::wording::counted_subject;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// A smaller clock difference is not reported.
const SKEW_MAX_MS: i64 = 2000;
/// A heartbeat that waited in the queue makes a clock look slow; up to this much is not reported as skew.
const HEARTBEAT_WAITS: i64 = 3000;
/// This long after the last registration, services of several versions no longer indicate a rollout in progress.
const DEPLOYMENT: Duration = Duration::from_secs(900);
/// A service that loses this many sessions within [`super::LATELY`] is reported.
const LOSSES_MANY: usize = 3;

pub(super) fn findings(fleet: &FleetFacts, facts: &Facts) -> Vec<Finding> {
    let mut findings = skew(fleet, facts.manager.clock_ahead_ms);
    findings.extend(namesakes(fleet));
    findings.extend(losing(fleet));
    findings.extend(versions(fleet, facts.now));
    findings.extend(drains(fleet, facts.now));
    findings.extend(stalls::findings(&fleet.services));
    findings.extend(paused(fleet));
    findings.extend(waiting(fleet, facts));
    findings.extend(disagreeing(fleet));
    findings.extend(capacity::findings(fleet, facts.now));
    findings
        .extend(fleet.unreadable.iter().take(NAMED_MAX).map(|row| unreadable(row, fleet.unreadable.len())));
    if let Some(why) = &fleet.safe_mode {
        let why = if why.is_empty() { String::new() } else { format!(": {why}") };
        findings.push(Finding {
            code: "safe-mode-on",
            severity: Severity::Warning,
            subject: "safe mode".to_owned(),
            what: format!("safe mode is on{why}{}", silent(fleet, facts.now)),
            why: "managers consider no service lost, republish no observer whose message is missing, and quarantine none"
                .to_owned(),
            cure: "`everwatch safe-mode off`".to_owned(),
        });
    }
    if fleet.parked > 0 {
        findings.push(Finding {
            code: "parked",
            severity: Severity::Warning,
            subject: "parked messages".to_owned(),
            what: format!("{} parked", counted_subject(fleet.parked, "message", ["is", "are"])),
            why: "each may be an observer that does not run or a report that was not applied".to_owned(),
            cure:
                "`everwatch parked list`, then `everwatch parked retry ID` or `everwatch parked discard ID`"
                    .to_owned(),
        });
    }
    findings
}

/// One finding per row, as each row has its own cure; rows beyond [`NAMED_MAX`] are only counted.
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
            let sent_at = service.heartbeat.as_ref()?.sent_at?;
            let ahead = sent_at.0 - service.heard_at.0;
            let differs = !(-(SKEW_MAX_MS + HEARTBEAT_WAITS)..=SKEW_MAX_MS).contains(&ahead);
            differs.then(|| {
                (format!("service {}", service.registration.name), service.registration.host.clone(), ahead)
            })
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
            why: "start times, gaps and overlaps are off by that much (no decision depends on them)"
                .to_owned(),
            cure: format!("`timedatectl set-ntp true` on {host}"),
        }
    };
    clocks.chain(manager).map(finding).collect()
}

/// The broker refuses a service that declares the work queue of a single pool as an ordinary one, or the reverse. It cannot
/// refuse one whose broker user may not declare queues.
fn disagreeing(fleet: &FleetFacts) -> Vec<Finding> {
    let is_single = |service: &ServiceRow| fleet.single_pools.contains(&service.registration.pool);
    let disagreeing = fleet.services.iter().filter(|it| it.registration.pool_single != is_single(it));
    let finding = |service: &ServiceRow| {
        let (name, pool) = (&service.registration.name, &service.registration.pool);
        let (is, setting) = if is_single(service) { ("single", "true") } else { ("not single", "false") };
        Finding {
            code: "pool-single",
            severity: Severity::Warning,
            subject: format!("service {name}"),
            what: format!("pool {pool} is {is}, but the service has another service.pool_single"),
            why: "managers and the service disagree about which slots of the pool are free".to_owned(),
            cure: format!("set service.pool_single = {setting} for {name}, and restart it"),
        }
    };
    disagreeing.take(NAMED_MAX).map(finding).collect()
}

/// The paused pools: a warning for those in which observers wait for a slot.
fn paused(fleet: &FleetFacts) -> Vec<Finding> {
    let mut waiting: BTreeMap<&Pool, u64> = BTreeMap::new();
    for row in fleet.waiting.iter().filter(|row| row.is_waiting()) {
        *waiting.entry(&row.definition.pool).or_default() += 1;
    }
    let finding = |pool: &Pool| {
        let count = waiting.get(pool).copied().unwrap_or(0);
        let (severity, waits, why) = match count {
            0 => (
                Severity::Info,
                String::new(),
                "observers that are created there do not start until a user resumes the pool",
            ),
            count => (
                Severity::Warning,
                format!(", and {} for a slot in it", counted_subject(count, "observer", ["waits", "wait"])),
                "they do not start until a user resumes the pool, even if slots are free",
            ),
        };
        Finding {
            code: "pool-paused",
            severity,
            subject: format!("pool {pool}"),
            what: format!("admission to pool {pool} is paused{waits}"),
            why: why.to_owned(),
            cure: format!("`everwatch pool resume {pool}`"),
        }
    };
    fleet.paused_pools.iter().take(NAMED_MAX).map(finding).collect()
}

fn namesakes(fleet: &FleetFacts) -> Vec<Finding> {
    let mut names: BTreeMap<&str, Vec<&ServiceRow>> = BTreeMap::new();
    // A newer service of the same name makes the older one suspect until the older one sends a heartbeat again.
    for service in fleet.services.iter().filter(|it| it.suspect_since.is_none() && it.heartbeat.is_some()) {
        names.entry(service.registration.name.as_str()).or_default().push(service);
    }
    let several = names.into_iter().filter(|(_, services)| services.len() > 1);
    let finding = |(name, services): (&str, Vec<&ServiceRow>)| {
        let hosts: Vec<&str> = services.iter().map(|service| service.registration.host.as_str()).collect();
        Finding {
            code: "same-name",
            severity: Severity::Warning,
            subject: format!("service {name}"),
            what: format!("{} living services share this name, on {}", services.len(), hosts.join(", ")),
            why: "cordon, drain and capacity apply to all services of a name, and each registration makes \
                  the others suspect"
                .to_owned(),
            cure: "give each its own `[service] name` (EVERWATCH_SERVICE__NAME) and restart it".to_owned(),
        }
    };
    several.map(finding).collect()
}

/// Services that repeatedly lose their session with the broker.
fn losing(fleet: &FleetFacts) -> Option<Finding> {
    let mut losses: BTreeMap<&str, Vec<&ServiceRow>> = BTreeMap::new();
    for service in fleet.registered_lately.iter().filter(|service| service.registration.predecessor.is_some())
    {
        losses.entry(service.registration.name.as_str()).or_default().push(service);
    }
    losses.retain(|_, registrations| registrations.len() >= LOSSES_MANY);
    let newest = losses.values().flatten().max_by_key(|service| service.registered_at)?;
    let reason = &newest.registration.predecessor.as_ref()?.ended;
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
            "lost the session with the broker up to {most} times in 10 minutes, last because {reason}"
        ),
        why: "each time, the service stops all its observers; they start elsewhere or wait".to_owned(),
        cure: format!(
            "if one service is affected, check its host and network ({}) and keep work away with \
             `everwatch service cordon {}`; if all services are affected, check the broker's log",
            newest.registration.host, newest.registration.name
        ),
    })
}

fn versions(fleet: &FleetFacts, now: Timestamp) -> Option<Finding> {
    let mut versions: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for service in &fleet.services {
        versions.entry(&service.registration.version).or_default().insert(service.registration.name.as_str());
    }
    if versions.len() < 2 {
        return None;
    }
    let under_way = fleet.services.iter().any(|service| now.since(service.registered_at) < DEPLOYMENT);
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
        why: "an observer may behave differently after it moves".to_owned(),
        cure: "upgrade the services of the older version and restart them".to_owned(),
    })
}

/// Which services are silent, and which a person killed. In safe mode, managers do not conclude that they are lost, so nothing else says
/// it. A service that a newer one of its name has replaced does not count.
fn silent(fleet: &FleetFacts, now: Timestamp) -> String {
    let suspects = fleet.services.iter().filter(|it| it.state() == ServiceState::Suspect);
    let is_replaced = |it: &ServiceRow| {
        let mut namesakes =
            fleet.services.iter().filter(|other| other.registration.name == it.registration.name);
        namesakes.any(|other| other.registered_at > it.registered_at)
    };
    let is_killed = |it: &&ServiceRow| fleet.killed_by_hand.iter().any(|killed| killed.id == it.id);
    let (killed, silent): (Vec<_>, Vec<_>) = suspects.filter(|it| !is_replaced(it)).partition(is_killed);
    let mut text = String::new();
    if !silent.is_empty() {
        let times = silent.iter().map(|it| {
            let time = show(Duration::from_secs(now.since(it.heard_at).as_secs()));
            format!("{} for {time}", it.registration.name)
        });
        let listed = listed(&times.collect::<Vec<_>>(), silent.len() as u64);
        text += &format!("; services are silent, and their observers may not run: {listed}");
    }
    if !killed.is_empty() {
        let names: Vec<String> = killed.iter().map(|it| it.registration.name.to_string()).collect();
        text += &format!("; killed on purpose: {}", listed(&names, names.len() as u64));
    }
    text
}

/// Drains that cannot go on. A pool of which no service takes observers has a finding of its own, which names the cure of all its drains.
fn drains(fleet: &FleetFacts, now: Timestamp) -> Vec<Finding> {
    let served: BTreeSet<&Pool> =
        taking(&fleet.services).into_iter().map(|it| &it.registration.pool).collect();
    let room = room_by_pool(&fleet.services, &fleet.reported);
    let living = fleet.services.iter().filter(|service| !service.state().is_over());
    let stuck = living.filter(|it| served.contains(&it.registration.pool)).filter_map(|service| {
        let name = service.registration.name.as_str();
        let drain = fleet.orders.get(name)?.drain.as_ref()?;
        let room = room.get(&service.registration.pool).copied().unwrap_or_default();
        let told = progress(drain, service, room, now);
        let cordoned = capacity::cordoned(&service.registration.pool, fleet);
        let cordoned = cordoned.first().filter(|it| it.held() < it.capacity() && it.id != service.id);
        let cordoned = cordoned.map_or_else(String::new, |it| {
            format!("`everwatch service uncordon {}`, ", it.registration.name)
        });
        Some(Finding {
            code: "drain-waits",
            severity: Severity::Warning,
            subject: format!("service {name}"),
            what: format!("its drain is stuck at {} of {}: {}", told.moved, told.of, told.waits?),
            why: match drain.until {
                Some(_) => "at its deadline, the service stops the rest, which waits until slots are free",
                None => "the drain ends only when the service holds no observer",
            }
            .to_owned(),
            cure: format!(
                "{cordoned}start another service of pool {}, raise the capacity of one (`everwatch service capacity NAME SLOTS`), or end the \
                 drain: `everwatch service uncordon {name}`. `everwatch service drain {name} --force` stops the remaining observers, \
                 which wait until slots are free",
                service.registration.pool
            ),
        })
    });
    stuck.collect()
}

/// Observers that no service of their pool takes. Pools without services have a finding of their own.
fn waiting(fleet: &FleetFacts, facts: &Facts) -> Vec<Finding> {
    let mut groups: BTreeMap<(&Pool, &Kind), (usize, &str, Option<Timestamp>)> = BTreeMap::new();
    for row in &fleet.waiting {
        let key = (&row.definition.pool, &row.definition.kind);
        let group = groups.entry(key).or_insert((0, row.definition.name.as_str(), None));
        group.0 += 1;
        group.2 = match (group.2, row.refused_since) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
    }
    let of_pool = |pool: &Pool| {
        let living = fleet.services.iter().filter(|service| !service.state().is_over());
        living.filter(|service| service.registration.pool == *pool).collect::<Vec<_>>()
    };
    let finding = |((pool, kind), (count, first, refused)): (
        (&Pool, &Kind),
        (usize, &str, Option<Timestamp>),
    )| {
        let services = of_pool(pool);
        let has_kind = |it: &&ServiceRow| it.registration.kinds.iter().any(|known| known.name == *kind);
        let waiting = match count {
            1 => format!("observer {first} of kind {kind} waits"),
            _ => format!("{count} observers of kind {kind} wait ({first} the longest)"),
        };
        if services.is_empty() {
            return None;
        }
        let (code, severity, what) = if !services.iter().any(has_kind) {
            let what = format!("{waiting}, and no service of the pool offers this kind");
            ("no-service-for-kind", Severity::Critical, what)
        } else if let Some(since) = refused {
            let what = format!(
                "{waiting}; services have been refusing {} for {}",
                if count == 1 { "it" } else { "them" },
                show(Duration::from_secs(facts.now.since(since).as_secs()))
            );
            ("refused", Severity::Warning, what)
        } else {
            return None;
        };
        let most = show(facts.manager.refused_max);
        Some(Finding {
            code,
            severity,
            subject: format!("pool {pool}"),
            what,
            why: format!(
                "waiting observers do not run; refused observers fail after {most} (`[manager] refused_max`)"
            ),
            cure: capacity::start_service(fleet, pool, Some((kind, first))),
        })
    };
    groups.into_iter().filter_map(finding).collect()
}
