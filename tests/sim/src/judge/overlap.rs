//! Checks overlap: how long two runs of one observer executed at the same time, compared with the maximum for
//! the fault that happened.

use super::{Exercised, Verdict, breach, knowledge::Knowledge};
use crate::record::{Loss, Start};
use everwatch_core::epoch::Epoch;
use everwatch_core::observer::definition::Overlap;
use std::collections::{BTreeMap, BTreeSet};

/// The fence timeout of the simulated services, in ms. `FENCE_GRACE`: its grace period.
const FENCE_AFTER: u64 = 5000;
const FENCE_GRACE: u64 = 500;
/// The interval of the fence's checks, in ms. `WAY`: how long a message of the broker takes to a host, or an
/// abort to the code.
const LOOK: u64 = 100;
const WAY: u64 = 60;
/// How long code may run after a revocation: the `grace` of the simulated observers, then the abort.
const GRACE: u64 = 3000 + FENCE_GRACE;
/// How long a manager takes, in ms, to read the start of the next run and revoke the previous run.
const REVOKED_WITHIN: u64 = 1000;
/// For how long after a thaw, in ms, a service may start a run because it has not yet read what the broker
/// sent in the meantime.
const JUST_THAWED: u64 = 100;

#[derive(Default)]
pub(super) struct Overlaps {
    since: u64,
    executing: Vec<u64>,
    lasted: BTreeMap<(u64, u64), u64>,
    /// Starts whose host was frozen in the meantime, or that began right after a thaw.
    frozen: BTreeSet<u64>,
}

impl Overlaps {
    /// Adds the time since the last call to the overlaps that exist, and checks them.
    pub(super) fn pass(&mut self, now: u64, known: &Knowledge, exercised: &mut Exercised) -> Verdict {
        let lasted = now - std::mem::replace(&mut self.since, now);
        if lasted == 0 {
            return Ok(());
        }
        let mut worst = Ok(());
        for (index, first) in self.executing.iter().enumerate() {
            for second in &self.executing[index + 1..] {
                let (a, b) = (&known.starts[first], &known.starts[second]);
                if a.id != b.id {
                    continue;
                }
                // Only a manager can revoke the older of two generations.
                if (in_doubt(known, a, b) || is_settled(known, a, b)) && !known.manages() {
                    continue;
                }
                let sum = self.lasted.entry((*first, *second)).or_default();
                *sum += lasted;
                *exercised.entry("overlaps").or_default() += 1;
                let (older, newer) = if a.epoch <= b.epoch { (a, b) } else { (b, a) };
                worst = worst.and(judge(known, (older, newer), *sum, self.frozen.contains(&older.number)));
            }
        }
        worst
    }

    /// Updates which starts execute now.
    pub(super) fn look(&mut self, known: &Knowledge) {
        let (executing, frozen): (Vec<u64>, Vec<u64>) =
            known.alive.iter().copied().partition(|start| known.executes(*start));
        let fresh = |start: &&u64| !self.executing.contains(start);
        let just_thawed = |start: &&u64| {
            let host = &known.hosts[known.starts[*start].host];
            host.thawed_at.is_some_and(|at| self.since - at <= JUST_THAWED)
        };
        let thawed: Vec<u64> = executing.iter().filter(fresh).filter(just_thawed).copied().collect();
        self.frozen.extend(frozen.into_iter().chain(thawed));
        self.executing = executing;
    }
}

fn judge(known: &Knowledge, (older, newer): (&Start, &Start), sum: u64, was_frozen: bool) -> Verdict {
    let Some(most) = may_overlap(known, older, newer) else { return Ok(()) };
    let most = if was_frozen { most.max(FENCE_GRACE + WAY) + LOOK } else { most };
    if sum <= most {
        return Ok(());
    }
    let loss = known.taken_back.get(&(older.id, older.epoch));
    let name = known.name(older.id);
    let text = format!(
        "{name} ran as {} and {} for {sum} ms at once; {most} ms is the most after {loss:?}",
        older.epoch, newer.epoch,
    );
    breach("overlap", text)
}

/// The longest allowed overlap, by how the older run lost its message, in ms. `None`: not checked, because
/// the broker redelivers old messages or the restored database does not know the runs.
fn may_overlap(known: &Knowledge, older: &Start, newer: &Start) -> Option<u64> {
    if known.healthy {
        return Some(0);
    }
    let generation = older.epoch.generation();
    if known.is_rewound(older.id, generation) || known.restored {
        return None;
    }
    let forbids = known.row(older.id).is_some_and(|row| row.definition.overlap == Overlap::Forbid);
    let told = if forbids { 0 } else { FENCE_GRACE + WAY };
    let loss = known.taken_back.get(&(older.id, older.epoch));
    let by_loss = match loss {
        None | Some(Loss::Closed | Loss::Silent) => 0,
        Some(Loss::Told) => told,
        Some(Loss::GivenAway) => REVOKED_WITHIN + GRACE,
        Some(Loss::Untold) => FENCE_AFTER + LOOK + FENCE_GRACE + WAY,
    };
    // Two generations can both be in the queue only if the publish of the older one was in doubt; a manager
    // revokes the older one as soon as it starts. A manager may also learn the end of an earlier run before
    // the start of this run; it then revokes this run later.
    let ended_earlier = |(id, epoch): &(_, Epoch)| {
        *id == older.id && epoch.generation() == generation && *epoch < older.epoch
    };
    let next = newer.epoch.generation() != generation;
    let is_over = known.finished.keys().any(ended_earlier) || is_settled(known, older, newer);
    let by_loss = if next && is_over { by_loss.max(REVOKED_WITHIN + GRACE) } else { by_loss };
    Some(if in_doubt(known, older, newer) { by_loss.max(GRACE + FENCE_AFTER) } else { by_loss })
}

/// Whether both generations are in the queue because the service settled the older one but could not
/// acknowledge its message.
fn is_settled(known: &Knowledge, a: &Start, b: &Start) -> bool {
    let older = a.epoch.generation().min(b.epoch.generation());
    let reports = known.reports.get(&a.id).into_iter().flatten();
    let settled = reports.filter(|it| it.3.epoch.generation() == older && it.3.event.settles()).count() > 0;
    a.epoch.generation() != b.epoch.generation() && settled
}

/// Whether both generations are in the queue because the publish of the older one was not confirmed.
fn in_doubt(known: &Knowledge, a: &Start, b: &Start) -> bool {
    let older = a.epoch.generation().min(b.epoch.generation());
    a.epoch.generation() != b.epoch.generation() && !known.confirmed.contains(&(a.id, older))
}
