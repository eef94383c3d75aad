//! I6: how long two runs of one observer executed at once, and how long they may by what went wrong.

use crate::check::Start;
use crate::net::Loss;
use crate::service::{FENCE_AFTER, FENCE_GRACE};
use crate::world::World;
use std::collections::{BTreeMap, BTreeSet};

/// How often the fence looks, and the way of a broker's word to a host and of an abort into code.
const LOOK: u64 = 100;
const WAY: u64 = 60;

#[derive(Default)]
pub(crate) struct Overlaps {
    since: u64,
    executing: Vec<usize>,
    lasted: BTreeMap<(usize, usize), u64>,
    /// Starts that were frozen for a while, or began at a thaw.
    pub(crate) frozen: BTreeSet<usize>,
}

impl World {
    fn executes(&self, start: &Start) -> bool {
        let host = &self.hosts[start.host];
        host.up && !host.frozen && host.life == start.life
    }

    /// To be called whenever code starts or ends, or a host freezes, thaws or dies.
    pub(crate) fn observe_executions(&mut self) {
        let mut overlaps = std::mem::take(&mut self.check.overlaps);
        let lasted = self.now - std::mem::replace(&mut overlaps.since, self.now);
        if lasted > 0 {
            for (index, first) in overlaps.executing.iter().enumerate() {
                for second in &overlaps.executing[index + 1..] {
                    if self.check.starts[*first].id == self.check.starts[*second].id {
                        let sum = overlaps.lasted.entry((*first, *second)).or_default();
                        *sum += lasted;
                        let sum = *sum;
                        self.judge_overlap((*first, *second), sum, &overlaps.frozen);
                    }
                }
            }
        }
        let (starts, hosts) = (&self.check.starts, &self.hosts);
        let died =
            |it: &usize| !hosts[starts[*it].host].up || hosts[starts[*it].host].life != starts[*it].life;
        let dead: Vec<usize> = self.check.alive.iter().copied().filter(|it| died(it)).collect();
        for start in dead {
            self.check.alive.remove(&start);
        }
        let alive = self.check.alive.iter().copied();
        let (executing, still): (Vec<usize>, Vec<usize>) =
            alive.partition(|start| self.executes(&self.check.starts[*start]));
        overlaps.executing = executing;
        overlaps.frozen.extend(still);
        self.check.overlaps = overlaps;
    }

    fn judge_overlap(&mut self, (first, second): (usize, usize), sum: u64, frozen: &BTreeSet<usize>) {
        let (a, b) = (&self.check.starts[first], &self.check.starts[second]);
        let (older, newer, was_frozen) = if a.epoch <= b.epoch {
            (a, b, frozen.contains(&first))
        } else {
            (b, a, frozen.contains(&second))
        };
        let Some(most) = self.may_overlap(older, newer) else { return };
        let most = if was_frozen { most.max(FENCE_GRACE + WAY) + LOOK } else { most };
        if sum > most {
            let loss = self.check.taken_away.get(&(older.id, older.epoch));
            let text = format!(
                "{} ran as {} and {} for {sum} ms at once; {most} ms is the most after {loss:?}",
                self.observer(older.id),
                older.epoch,
                newer.epoch,
            );
            self.check.fail("I6", text);
        }
    }

    /// The longest overlap by how the older run lost its message; `None` where a publish was in doubt,
    /// or the broker hands out again what it had handed out before.
    fn may_overlap(&self, older: &Start, newer: &Start) -> Option<u64> {
        if self.check.healthy {
            return Some(0);
        }
        let generation = older.epoch.generation();
        if generation != newer.epoch.generation() || self.check.is_turned_back(older.id, generation) {
            return None;
        }
        let told = if newer.forbids_overlap { 0 } else { FENCE_GRACE + WAY };
        Some(match self.check.taken_away.get(&(older.id, older.epoch)) {
            None | Some(Loss::Closed | Loss::Silent) => 0,
            Some(Loss::Told) => told,
            Some(Loss::Untold) => FENCE_AFTER + LOOK + FENCE_GRACE + WAY,
        })
    }
}
