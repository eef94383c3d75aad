//! Whether there is room: now, and after the largest services are lost.

use super::{Finding, FleetFacts, Severity};
use crate::id::Pool;
use crate::service::{ServiceRow, ServiceState};
use std::collections::BTreeMap;

/// How many of the largest services can be lost at once so that the rest still has room for all that is
/// wanted; `None` if there is no room as it is.
#[must_use]
pub fn losses_survived(capacities: &[u32], wanted: u64) -> Option<usize> {
    let mut sizes: Vec<u64> = capacities.iter().map(|size| u64::from(*size)).collect();
    sizes.sort_unstable_by(|a, b| b.cmp(a));
    let mut room: u64 = sizes.iter().sum();
    if room < wanted {
        return None;
    }
    let mut lost = 0;
    for size in sizes {
        room -= size;
        if room < wanted {
            break;
        }
        lost += 1;
    }
    Some(lost)
}

pub(super) fn findings(fleet: &FleetFacts) -> Vec<Finding> {
    let mut pools: BTreeMap<&Pool, Vec<&ServiceRow>> = BTreeMap::new();
    for service in fleet.services.iter().filter(|service| service.state() == ServiceState::Active) {
        pools.entry(&service.birth.pool).or_default().push(service);
    }
    let busy = fleet.wanted.iter().filter(|(_, wanted)| **wanted > 0);
    busy.filter_map(|(pool, wanted)| of_pool(pool, pools.get(pool)?, *wanted)).collect()
}

fn two_largest(sizes: &[u32]) -> u64 {
    let mut sizes = sizes.to_vec();
    sizes.sort_unstable();
    sizes.iter().rev().take(2).map(|size| u64::from(*size)).sum()
}

fn of_pool(pool: &Pool, services: &[&ServiceRow], wanted: u64) -> Option<Finding> {
    let sizes: Vec<u32> = services.iter().map(|service| service.capacity()).collect();
    let room: u64 = sizes.iter().map(|size| u64::from(*size)).sum();
    let largest = services.iter().max_by_key(|service| service.capacity())?;
    let (name, size) = (largest.birth.name.as_str(), u64::from(largest.capacity()));
    let missing = |after: u64| wanted.saturating_sub(after);
    let more = |slots: u64| {
        let slots = if slots == 1 { "one slot".to_owned() } else { format!("{slots} slots") };
        format!("start another service of pool {pool} with at least {slots}")
    };
    Some(match losses_survived(&sizes, wanted) {
        None => Finding {
            code: "pool-full",
            severity: Severity::Warning,
            subject: format!("pool {pool}"),
            what: format!("{wanted} observers for {room} slots: {} wait", missing(room)),
            why: "those that wait do not run, and new ones are refused".to_owned(),
            cure: format!(
                "{}, or give one more room: `everwatch service capacity NAME SLOTS`",
                more(missing(room))
            ),
        },
        Some(0) => Finding {
            code: "too-big-to-lose",
            severity: Severity::Warning,
            subject: format!("service {name}"),
            what: format!(
                "if it is lost, {} of the {wanted} observers of pool {pool} have no slot: it has {size} of {room}",
                missing(room - size)
            ),
            why: "they do not run until it comes back".to_owned(),
            cure: more(missing(room - size)),
        },
        Some(1) => Finding {
            code: "headroom",
            severity: Severity::Info,
            subject: format!("pool {pool}"),
            what: format!(
                "it survives the loss of its largest service ({name}), not of two: {wanted} of {room} slots are wanted"
            ),
            why: "a service that is lost while another one is restarted leaves observers without a slot"
                .to_owned(),
            cure: more(missing(room - two_largest(&sizes))),
        },
        Some(_) => return None,
    })
}
