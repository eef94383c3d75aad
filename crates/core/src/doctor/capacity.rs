//! Whether the services have enough slots, currently and after the loss of the largest ones.

use super::{Finding, FleetFacts, Severity};
use crate::id::Pool;
use crate::record::service::{ServiceRow, ServiceState};
use std::collections::BTreeMap;

/// How many of the largest services can be lost at once while the rest has a slot for every observer; `None` if
/// the slots do not suffice already.
#[must_use]
pub fn losses_survived(capacities: &[u32], definition: u64) -> Option<usize> {
    let mut sizes: Vec<u64> = capacities.iter().map(|size| u64::from(*size)).collect();
    sizes.sort_unstable_by(|a, b| b.cmp(a));
    let mut room: u64 = sizes.iter().sum();
    if room < definition {
        return None;
    }
    let mut lost = 0;
    for size in sizes {
        room -= size;
        if room < definition {
            break;
        }
        lost += 1;
    }
    Some(lost)
}

pub(super) fn findings(fleet: &FleetFacts) -> Vec<Finding> {
    let mut pools: BTreeMap<&Pool, Vec<&ServiceRow>> = BTreeMap::new();
    for service in fleet.services.iter().filter(|service| service.state() == ServiceState::Active) {
        pools.entry(&service.registration.pool).or_default().push(service);
    }
    let busy = fleet.definition.iter().filter(|(_, definition)| **definition > 0);
    busy.filter_map(|(pool, definition)| of_pool(pool, pools.get(pool)?, *definition)).collect()
}

fn two_largest(sizes: &[u32]) -> u64 {
    let mut sizes = sizes.to_vec();
    sizes.sort_unstable();
    sizes.iter().rev().take(2).map(|size| u64::from(*size)).sum()
}

fn of_pool(pool: &Pool, services: &[&ServiceRow], definition: u64) -> Option<Finding> {
    let sizes: Vec<u32> = services.iter().map(|service| service.capacity()).collect();
    let room: u64 = sizes.iter().map(|size| u64::from(*size)).sum();
    let largest = services.iter().max_by_key(|service| service.capacity())?;
    let (name, size) = (largest.registration.name.as_str(), u64::from(largest.capacity()));
    let missing = |after: u64| definition.saturating_sub(after);
    let more = |slots: u64| {
        let slots = if slots == 1 { "one slot".to_owned() } else { format!("{slots} slots") };
        format!("start another service of pool {pool} with at least {slots}")
    };
    Some(match losses_survived(&sizes, definition) {
        None => Finding {
            code: "pool-full",
            severity: Severity::Warning,
            subject: format!("pool {pool}"),
            what: format!("{definition} observers for {room} slots: {} wait", missing(room)),
            why: "waiting observers do not run, and creates are refused".to_owned(),
            cure: format!(
                "{}, or raise the capacity of one: `everwatch service capacity NAME SLOTS`",
                more(missing(room))
            ),
        },
        Some(0) => Finding {
            code: "too-big-to-lose",
            severity: Severity::Warning,
            subject: format!("service {name}"),
            what: format!(
                "if it is lost, {} of the {definition} observers of pool {pool} have no slot: it has {size} of {room}",
                missing(room - size)
            ),
            why: "those observers do not run until the service comes back".to_owned(),
            cure: more(missing(room - size)),
        },
        Some(1) => Finding {
            code: "headroom",
            severity: Severity::Info,
            subject: format!("pool {pool}"),
            what: format!(
                "the pool survives the loss of {name}, not of two services: {definition} of {room} slots are needed"
            ),
            why: "losing one service while another one restarts leaves observers without a slot".to_owned(),
            cure: more(missing(room - two_largest(&sizes))),
        },
        Some(_) => return None,
    })
}
