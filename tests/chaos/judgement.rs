//! Reads the beacons as a history: nothing twice at once for longer than each fault allows, nothing that runs
//! after it was deleted, nothing that moves without a cause. Prints gaps and overlaps by fault.

use crate::faults::Fault;
use crate::world::{World, is_child, may_overlap};
use everwatch_tests::beacons::{self, percentiles};
use std::collections::BTreeMap;

/// When a fault was made and everything ran again.
pub(crate) struct Window {
    pub(crate) fault: Fault,
    pub(crate) from: i64,
    pub(crate) until: i64,
}

/// How late a beacon may be written down after it was made, in ms.
const WRITING: i64 = 200;

#[expect(clippy::print_stdout, reason = "the figures are the point")]
pub(crate) fn judge(world: &World, windows: &[Window]) {
    let histories = beacons::read(&world.folder);
    let mut figures: BTreeMap<Fault, (Vec<i64>, Vec<i64>)> = BTreeMap::new();
    let mut breaches = Vec::new();
    for (name, runs) in &histories {
        for pair in runs.windows(2) {
            let (gap, overlap) = (pair[0].gap_to(&pair[1]), pair[0].overlap(&pair[1]));
            let Some(window) = windows.iter().find(|it| (it.from..=it.until).contains(&pair[1].first)) else {
                breaches.push(format!("{name} moved with no fault at {}: {pair:?}", pair[1].first));
                continue;
            };
            let fault = window.fault;
            let (gaps, overlaps) = figures.entry(fault).or_default();
            gaps.push(gap);
            overlaps.push(overlap);
            let most = fault.may_overlap(is_child(name), may_overlap(name));
            if overlap > most {
                breaches
                    .push(format!("{fault:?}: {name} ran twice for {overlap} ms, {most} allowed: {pair:?}"));
            }
            if !fault.moves() {
                breaches.push(format!("{fault:?}: {name} moved: {pair:?}"));
            }
            if gap > fault.good_gap(may_overlap(name)) {
                breaches.push(format!("{fault:?}: {name} stood still for {gap} ms: {pair:?}"));
            }
        }
        if let (Some(deleted), Some(last)) = (world.deleted.get(name), runs.iter().map(|run| run.last).max())
            && last > deleted + WRITING
        {
            breaches.push(format!("{name} ran {} ms after it was deleted", last - deleted));
        }
    }
    for name in world.live.iter().filter(|name| !histories.contains_key(*name)) {
        breaches.push(format!("{name} never ran"));
    }
    println!("| fault | moves | gap p50, p99, max (ms) | overlap p50, p99, max (ms) |\n|---|---|---|---|");
    for (fault, (gaps, overlaps)) in &mut figures {
        println!("| {fault:?} | {} | {} | {} |", gaps.len(), percentiles(gaps), percentiles(overlaps));
    }
    assert!(breaches.is_empty(), "{}", breaches.join("\n"));
}
