//! Whether the services have enough slots, currently and after the loss of the largest ones.

use super::{Finding, FleetFacts, Severity, listed};
use crate::capacity::headroom::{losses_survived, offered_slots};
use crate::capacity::rebalance::plan_unasked;
use crate::clock::Timestamp;
use crate::id::{Kind, Pool};
use crate::record::service::{ServiceRow, ServiceState};
use crate::record::taking::taking;
use crate::wording::counted;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::Duration;

/// How long a service that was killed on purpose takes to come back, at most.
const BACK_WITHIN: Duration = Duration::from_secs(15);

/// A service younger than this may still take the observers that are created.
const SETTLED: Duration = Duration::from_secs(60);

pub(super) fn findings(fleet: &FleetFacts, now: Timestamp) -> Vec<Finding> {
    let mut pools: BTreeMap<&Pool, Vec<&ServiceRow>> = BTreeMap::new();
    for service in taking(&fleet.services) {
        pools.entry(&service.registration.pool).or_default().push(service);
    }
    // The slots that are missing come back with such a service, unless it starts cordoned.
    let takes = |it: &&ServiceRow| {
        fleet.orders.get(it.registration.name.as_str()).is_none_or(|orders| !orders.cordoned)
    };
    let has_returning =
        |pool: &Pool| returning(fleet, now).filter(takes).any(|it| it.registration.pool == *pool);
    let busy = fleet.needed.iter().filter(|(pool, needed)| **needed > 0 && !has_returning(pool));
    let found = busy.filter_map(|(pool, needed)| match pools.get(pool).map_or(&[][..], Vec::as_slice) {
        [] => Some(without_active(pool, fleet, *needed)),
        [taking] if taking.registration.pool_single => of_single_pool(taking, &fleet.services, *needed),
        services => of_pool(pool, (services, &cordoned(pool, fleet)), *needed),
    });
    found.chain(uneven(fleet, now)).collect()
}

/// Pools whose services use different parts of their capacity: new observers go to the emptiest service, but those that run stay where
/// they are.
fn uneven(fleet: &FleetFacts, now: Timestamp) -> impl Iterator<Item = Finding> {
    plan_unasked(&fleet.services, u32::MAX, SETTLED, now).into_iter().map(|plan| Finding {
        code: "uneven-pool",
        severity: Severity::Info,
        subject: format!("pool {}", plan.pool),
        what: format!(
            "the services of pool {} use different parts of their capacity: a rebalance would move {}",
            plan.pool,
            counted(plan.moves(), "observer")
        ),
        why: "if the fullest service is lost, more observers move than if all were equally full".to_owned(),
        cure: "`everwatch rebalance apply`, or `manager.rebalance = \"auto\"` in the configuration of the managers"
            .to_owned(),
    })
}

/// A pool without a service that takes observers.
fn without_active(pool: &Pool, fleet: &FleetFacts, needed: u64) -> Finding {
    let living: Vec<&ServiceRow> =
        fleet.services.iter().filter(|it| it.registration.pool == *pool && !it.state().is_over()).collect();
    let waiting = fleet.waiting.iter().map(|row| &row.definition).find(|it| it.pool == *pool);
    let start = start_service(fleet, pool, waiting.map(|it| (&it.kind, it.name.as_str())));
    let held_back = |it: &&&ServiceRow| matches!(it.state(), ServiceState::Cordoned | ServiceState::Draining);
    let slots = counted(needed, "slot");
    let held_back = living.iter().filter(held_back).min_by_key(|it| Reverse(free(it)));
    let (code, what, cure) = match (living.len(), held_back) {
        (0, _) => ("no-service", format!("pool {pool} needs {slots} and has no service"), start),
        (count, first) => (
            "no-active-service",
            format!(
                "pool {pool} needs {slots}, and {}: cordoned, draining or silent",
                if count == 1 {
                    "its service takes no observer".to_owned()
                } else {
                    format!("none of its {count} services takes observers")
                }
            ),
            first.map_or(start, |it| format!("`everwatch service uncordon {}`", it.registration.name)),
        ),
    };
    Finding {
        code,
        severity: Severity::Critical,
        subject: format!("pool {pool}"),
        what,
        why:
            "observers that wait do not start, and the observers of a service that ends do not run elsewhere"
                .to_owned(),
        cure,
    }
}

/// The cure for a pool that lacks a service: one for the kind of an observer that waits, or a move of that observer.
pub(super) fn start_service(fleet: &FleetFacts, pool: &Pool, waiting: Option<(&Kind, &str)>) -> String {
    let of_pool = format!("with `[service] pool = \"{pool}\"`");
    let Some((kind, first)) = waiting else { return format!("start a service {of_pool}") };
    let start = format!("start a service that offers kind {kind} {of_pool}");
    match elsewhere(fleet, kind) {
        Some(other) => format!("{start}, or `everwatch observer move {first} --pool {other}`"),
        None => start,
    }
}

/// A pool with a service that offers this kind.
fn elsewhere<'a>(fleet: &'a FleetFacts, kind: &Kind) -> Option<&'a Pool> {
    let offers = |it: &&ServiceRow| it.registration.kinds.iter().any(|known| known.name == *kind);
    taking(&fleet.services).into_iter().filter(offers).map(|it| &it.registration.pool).min()
}

/// One service has a slot for every observer, or some wait. Each of the others must have as many.
fn of_single_pool(taking: &ServiceRow, all: &[ServiceRow], needed: u64) -> Option<Finding> {
    let pool = &taking.registration.pool;
    let able = |it: &&ServiceRow| {
        let state = matches!(it.state(), ServiceState::Active | ServiceState::Standby);
        it.registration.pool == *pool && it.id != taking.id && state
    };
    let others: Vec<&ServiceRow> = all.iter().filter(able).collect();
    let smallest = others.iter().min_by_key(|it| it.capacity());
    let missing = |service: &ServiceRow| needed.saturating_sub(u64::from(service.capacity()));
    let another = format!("start another service of pool {pool} with at least {}", counted(needed, "slot"));
    Some(match (missing(taking), smallest) {
        (lacks @ 1.., _) => Finding {
            code: "pool-full",
            severity: severity_of_lack(lacks, needed),
            subject: format!("pool {pool}"),
            what: format!(
                "pool {pool} needs {}, and its active service has {}",
                counted(needed, "slot"),
                taking.capacity()
            ),
            why: "one service runs all observers of a single pool; observers without a slot do not run"
                .to_owned(),
            cure: "raise the capacity of each service of the pool: `everwatch service capacity NAME SLOTS`"
                .to_owned(),
        },
        (0, None) => Finding {
            code: "too-big-to-lose",
            severity: Severity::Warning,
            subject: format!("service {}", taking.registration.name),
            what: format!(
                "losing {} leaves the single pool {pool} without a service",
                taking.registration.name
            ),
            why: "observers without a slot do not run until the service comes back".to_owned(),
            cure: another,
        },
        (0, Some(small)) if missing(small) > 0 => Finding {
            code: "too-big-to-lose",
            severity: Severity::Warning,
            subject: format!("service {}", small.registration.name),
            what: format!(
                "as the active service of the single pool {pool}, {} lacks {} of {}",
                small.registration.name,
                missing(small),
                counted(needed, "slot")
            ),
            why: "the broker chooses the active service, whatever its capacity".to_owned(),
            cure: format!("`everwatch service capacity {} {needed}`", small.registration.name),
        },
        (0, Some(other)) if others.len() == 1 => Finding {
            code: "headroom",
            severity: Severity::Info,
            subject: format!("pool {pool}"),
            what: format!(
                "only service {} can replace the active service of pool {pool}",
                other.registration.name
            ),
            why: "losing one service while another one restarts leaves observers without a service"
                .to_owned(),
            cure: another,
        },
        (0, Some(_)) => return None,
    })
}

fn two_largest(sizes: &[u32]) -> u64 {
    let mut sizes = sizes.to_vec();
    sizes.sort_unstable();
    sizes.iter().rev().take(2).map(|size| u64::from(*size)).sum()
}

/// A pool in which most observers have no slot is as bad as one without services.
fn severity_of_lack(missing: u64, needed: u64) -> Severity {
    if missing > needed / 2 { Severity::Critical } else { Severity::Warning }
}

/// How many slots the services of a pool that take observers have too few.
pub(super) fn missing_slots(pool: &Pool, fleet: &FleetFacts) -> u64 {
    let of_pool = taking(&fleet.services).into_iter().filter(|it| it.registration.pool == *pool);
    let cordoned = cordoned(pool, fleet);
    let offered: u64 = of_pool.chain(cordoned).map(|it| u64::from(offered_slots(it))).sum();
    fleet.needed.get(pool).copied().unwrap_or(0).saturating_sub(offered)
}

/// The services that were killed on purpose a moment ago and are not back yet.
pub(super) fn returning(fleet: &FleetFacts, now: Timestamp) -> impl Iterator<Item = &ServiceRow> {
    let is_back =
        |row: &ServiceRow| fleet.services.iter().any(|it| it.registration.name == row.registration.name);
    let is_late = move |row: &ServiceRow| row.end.is_none_or(|end| now.since(end.at) >= BACK_WITHIN);
    fleet.killed_by_hand.iter().filter(move |it| !is_late(it) && !is_back(it))
}

/// The slots that become free for others if the service takes observers again.
fn free(it: &ServiceRow) -> u32 {
    it.capacity().saturating_sub(it.held())
}

/// The cordoned services of a pool, those with the most free slots first.
pub(super) fn cordoned<'a>(pool: &Pool, fleet: &'a FleetFacts) -> Vec<&'a ServiceRow> {
    let is_it = |it: &&ServiceRow| it.registration.pool == *pool && it.state() == ServiceState::Cordoned;
    let mut all: Vec<&ServiceRow> = fleet.services.iter().filter(is_it).collect();
    all.sort_by_key(|it| Reverse((free(it), it.capacity())));
    all
}

/// The words with which a sentence about the loss of the largest service begins.
fn loss_of(name: &str, sizes: &[u32], (largest, room): (u64, u64)) -> String {
    match sizes.iter().filter(|it| u64::from(**it) == largest).count() {
        0 | 1 => format!("losing {name} ({largest} of {room} slots)"),
        all if all == sizes.len() => {
            format!("losing any of the {all} services ({largest} of {room} slots each)")
        }
        all => format!("losing one of the {all} largest services ({largest} of {room} slots each)"),
    }
}

/// The cure for a pool that lacks `most` slots: an operator uncordons a service, restores its capacity, or starts another one.
fn more_slots(pool: &Pool, most: u64, (services, cordoned): (&[&ServiceRow], &[&ServiceRow])) -> String {
    let start = format!("start another service of pool {pool} with at least {}", counted(most, "slot"));
    if let Some((it, free)) =
        cordoned.first().map(|it| (it, u64::from(free(it)))).filter(|(_, free)| *free > 0)
    {
        let adds =
            if free >= most { String::new() } else { format!(", which adds {}", counted(free, "slot")) };
        return format!("`everwatch service uncordon {}`{adds}, or {start}", it.registration.name);
    }
    let reduced = |it: &&&ServiceRow| it.registration.capacity.saturating_sub(it.capacity());
    let is_cordoned = |it: &ServiceRow| it.state() == ServiceState::Cordoned;
    let all = services.iter().chain(cordoned).filter(|it| reduced(it) > 0);
    let Some(it) = all.max_by_key(|it| (reduced(it), !is_cordoned(it))) else { return start };
    let (name, restores) = (&it.registration.name, counted(reduced(&it), "slot"));
    let uncordon =
        if is_cordoned(it) { format!(", then `everwatch service uncordon {name}`") } else { String::new() };
    format!("`everwatch service capacity {name} default`{uncordon}, which restores {restores}, or {start}")
}

fn of_pool(
    pool: &Pool,
    (services, cordoned): (&[&ServiceRow], &[&ServiceRow]),
    needed: u64,
) -> Option<Finding> {
    let all = || services.iter().chain(cordoned);
    let sizes: Vec<u32> = all().map(|it| offered_slots(it)).collect();
    let room: u64 = sizes.iter().map(|size| u64::from(*size)).sum();
    let largest = all().max_by_key(|it| offered_slots(it))?;
    let (name, size) = (largest.registration.name.as_str(), u64::from(offered_slots(largest)));
    let is_one = sizes.iter().filter(|it| u64::from(**it) == size).count() == 1;
    let missing = |after: u64| needed.saturating_sub(after);
    let more = |most: u64| more_slots(pool, most, (services, cordoned));
    let names: Vec<String> = cordoned.iter().map(|it| it.registration.name.to_string()).collect();
    let beside = match names.len() {
        0 => String::new(),
        all => format!("; cordoned: {}", listed(&names, all as u64)),
    };
    Some(match losses_survived(&sizes, needed) {
        None => Finding {
            code: "pool-full",
            severity: severity_of_lack(missing(room), needed),
            subject: format!("pool {pool}"),
            what: format!("pool {pool} needs {} and has {room}{beside}", counted(needed, "slot")),
            why: "observers without a slot do not run, and creates without `on_full: queue` are refused"
                .to_owned(),
            cure: format!(
                "{}, or raise the capacity of one: `everwatch service capacity NAME SLOTS`",
                more(missing(room))
            ),
        },
        Some(0) => Finding {
            code: "too-big-to-lose",
            severity: Severity::Warning,
            subject: if is_one { format!("service {name}") } else { format!("pool {pool}") },
            what: format!(
                "{} leaves pool {pool} {} short of the {needed} that it needs{beside}",
                loss_of(name, &sizes, (size, room)),
                counted(missing(room - size), "slot")
            ),
            why: "observers without a slot do not run until the service comes back".to_owned(),
            cure: more(missing(room - size)),
        },
        Some(1) => Finding {
            code: "headroom",
            severity: Severity::Info,
            subject: format!("pool {pool}"),
            what: format!(
                "pool {pool} survives the loss of any one service, but not of two: it needs {needed} of its {}",
                counted(room, "slot")
            ),
            why: "losing one service while another one restarts leaves observers without a slot".to_owned(),
            cure: more(missing(room - two_largest(&sizes))),
        },
        Some(_) => return None,
    })
}
