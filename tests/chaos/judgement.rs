//! Checks the beacons as a history: no overlap is longer than its fault allows, nothing runs after its
//! delete, and nothing moves without a cause. Prints gaps and overlaps for each fault.

use crate::faults::Fault;
use crate::users::Touched;
use crate::world::{World, is_child, lingers, may_overlap};
use everwatch_tests::beacons::{self, Run, percentiles};
use std::collections::BTreeMap;

/// A fault, and the time from its injection until everything ran again.
pub(crate) struct Window {
    pub(crate) fault: Fault,
    pub(crate) from: i64,
    pub(crate) until: i64,
    pub(crate) touched: Touched,
}

/// The maximum delay between a beacon and its write to the file, in ms.
const WRITING: i64 = 200;
/// How long an abort may take, in ms.
const ABORTING: i64 = 250;

/// How long a run may last whose message the broker had withheld and delivers late, in ms. A manager revokes
/// the run when it reads the report of its start.
const STALE: i64 = 2000;

/// Splits off the stale runs: those that began after a run of a higher generation, or after the delete.
fn without_stale(runs: &[Run], deleted: Option<i64>) -> (Vec<Run>, Vec<Run>) {
    let is_stale = |run: &Run| {
        let newer = |other: &Run| other.epoch >> 32 > run.epoch >> 32 && other.first < run.first;
        runs.iter().any(newer) || deleted.is_some_and(|at| run.first > at)
    };
    let (stale, rest) = runs.iter().cloned().partition(is_stale);
    (rest, stale)
}

#[expect(clippy::print_stdout, reason = "the figures are the point")]
pub(crate) fn judge(world: &World, windows: &[Window]) {
    let histories = beacons::read(&world.folder);
    let mut figures: BTreeMap<Fault, (Vec<i64>, Vec<i64>)> = BTreeMap::new();
    let mut breaches = Vec::new();
    for (name, runs) in &histories {
        let (runs, stale) = without_stale(runs, world.deleted.get(name).copied());
        for run in stale {
            let fault =
                windows.iter().find(|it| (it.from..=it.until).contains(&run.first)).map(|it| it.fault);
            if !fault.is_some_and(Fault::mislays) || run.last - run.first > STALE {
                breaches.push(format!("{fault:?}: {name} ran by an order that is over: {run:?}"));
            }
        }
        for pair in runs.windows(2) {
            let (gap, overlap) = (pair[0].gap_to(&pair[1]), pair[0].overlap(&pair[1]));
            let Some(window) = windows.iter().find(|it| (it.from..=it.until).contains(&pair[1].first)) else {
                breaches.push(format!("{name} moved with no fault at {}: {pair:?}", pair[1].first));
                continue;
            };
            let fault = window.fault;
            let by_users = window.touched.has(name);
            let (gaps, overlaps) = figures.entry(fault).or_default();
            if !by_users {
                gaps.push(gap);
            }
            overlaps.push(overlap);
            let most = fault.may_overlap(is_child(name), may_overlap(name));
            // Code that lingers runs until it is aborted, and an abort needs a thread on a busy machine.
            let most = if most > 0 && lingers(name) { most + ABORTING } else { most };
            if overlap > most {
                breaches
                    .push(format!("{fault:?}: {name} ran twice for {overlap} ms, {most} allowed: {pair:?}"));
            }
            if !fault.moves() && !by_users {
                breaches.push(format!("{fault:?}: {name} moved: {pair:?}"));
            }
            if gap > fault.good_gap(may_overlap(name)) && !by_users {
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
        let gaps = if gaps.is_empty() { "moved by users only".to_owned() } else { percentiles(gaps) };
        println!("| {fault:?} | {} | {gaps} | {} |", overlaps.len(), percentiles(overlaps));
    }
    assert!(breaches.is_empty(), "{}", breaches.join("\n"));
}
