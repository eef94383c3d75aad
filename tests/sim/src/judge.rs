//! Checks the rules at each step, with knowledge that no part of the system has: which code runs, what the
//! broker holds, which commits were made. Each rule has its own file. A history ends at the first rule that
//! is broken.

mod backlog;
mod capacity;
mod checkpoints;
mod conclusions;
mod convergence;
mod epochs;
mod gaps;
mod knowledge;
mod limits;
mod overlap;
mod preemption;
mod quiet;
mod refusals;
mod settlements;
mod times;

use crate::database::Database;
use crate::history::{Fault, History};
use crate::record::Fact;
use capacity::Capacity;
use checkpoints::Checkpoints;
use conclusions::Conclusions;
use epochs::Epochs;
use gaps::Gaps;
pub(crate) use gaps::LOOK;
use knowledge::Knowledge;
pub(crate) use knowledge::MISSED_WITHIN;
use overlap::Overlaps;
pub(crate) use quiet::Quiet;
use refusals::Refusals;
use settlements::Settlements;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A rule that did not hold.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) struct Breach {
    pub(crate) rule: String,
    pub(crate) text: String,
}

/// The first breach that one fact shows.
type Verdict = Result<(), Breach>;

fn breach(rule: &str, text: String) -> Verdict {
    Err(Breach { rule: rule.to_owned(), text })
}

/// How often each rule was checked. A rule that is never checked proves nothing.
pub(crate) type Exercised = BTreeMap<&'static str, u64>;

pub(crate) struct Judge {
    pub(crate) breach: Option<Breach>,
    pub(crate) knowledge: Knowledge,
    pub(crate) exercised: Exercised,
    pub(crate) faults_met: BTreeMap<String, u64>,
    epochs: Epochs,
    settlements: Settlements,
    schedules: times::Schedules,
    overlaps: Overlaps,
    capacity: Capacity,
    checkpoints: Checkpoints,
    conclusions: Conclusions,
    gaps: Gaps,
    refusals: Refusals,
    /// Whether this is the quiet time, in which nothing may happen.
    pub(crate) is_quiet: bool,
}

impl Judge {
    pub(crate) fn new(history: &History, database: Arc<Database>) -> Self {
        Self {
            breach: None,
            knowledge: Knowledge::new(history, database),
            exercised: Exercised::new(),
            faults_met: BTreeMap::new(),
            epochs: Epochs::default(),
            settlements: Settlements::default(),
            schedules: times::Schedules::default(),
            overlaps: Overlaps::default(),
            capacity: Capacity::default(),
            checkpoints: Checkpoints::default(),
            conclusions: Conclusions::default(),
            gaps: Gaps::default(),
            refusals: Refusals::default(),
            is_quiet: false,
        }
    }

    pub(crate) fn fail(&mut self, rule: &str, text: String) {
        self.breach.get_or_insert(Breach { rule: rule.to_owned(), text });
    }

    /// Records a fact and checks the rules.
    pub(crate) fn hear(&mut self, now: u64, fact: &Fact) {
        if self.breach.is_some() {
            return;
        }
        // Account for the time that has passed before this fact changes the state.
        let outcome = self.overlaps.pass(now, &self.knowledge, &mut self.exercised);
        let outcome = outcome.and_then(|()| self.judge(now, fact));
        self.knowledge.learn(now, fact);
        self.overlaps.look(&self.knowledge);
        if let Err(broken) = outcome {
            self.breach = Some(broken);
        }
    }

    fn judge(&mut self, now: u64, fact: &Fact) -> Verdict {
        let (known, exercised) = (&self.knowledge, &mut self.exercised);
        self.epochs.hear(now, fact, known, exercised)?;
        self.settlements.hear(fact, known, exercised)?;
        self.capacity.hear(now, fact, known, exercised)?;
        backlog::hear(fact, known, exercised)?;
        preemption::hear(fact, known, exercised)?;
        limits::hear(fact, known, exercised)?;
        times::hear(now, fact, known, exercised)?;
        self.schedules.hear(now, fact, exercised)?;
        self.checkpoints.hear(fact, known, exercised)?;
        self.conclusions.hear(now, fact, known, exercised)?;
        if self.is_quiet { Quiet::hear(fact, known) } else { Ok(()) }
    }

    /// Whether any order of an operator keeps a service from using all its slots.
    pub(crate) fn has_orders(&self) -> bool {
        convergence::Standing::read(&self.knowledge).hold_anything_up()
    }

    /// Runs the checks that are due every 250 ms.
    pub(crate) fn tick(&mut self, now: u64) {
        if self.breach.is_some() {
            return;
        }
        let (known, capacity, exercised) = (&self.knowledge, &self.capacity, &mut self.exercised);
        let outcome = self.gaps.tick(now, known, capacity, exercised);
        let outcome = outcome.and_then(|()| self.refusals.tick(now, known, capacity, exercised));
        self.breach = outcome.and_then(|()| times::tick(now, known, exercised)).err();
    }

    pub(crate) fn on_fault(&mut self, now: u64, fault: &Fault) {
        *self.faults_met.entry(fault.name()).or_default() += 1;
        self.knowledge.on_fault(now, fault);
    }
    pub(crate) fn on_order(&mut self, now: u64) {
        self.knowledge.acted_at = now;
    }
    pub(crate) fn on_calm(&mut self, now: u64) {
        self.knowledge.calm_since = Some(now);
    }
    pub(crate) fn on_stop(&mut self, host: usize) {
        if self.knowledge.hosts[host].up {
            self.knowledge.hosts[host].stopping = true;
        }
    }
    pub(crate) fn is_stopping(&self, host: usize) -> bool {
        self.knowledge.hosts[host].stopping
    }
    /// Whether the faults have been over for so long, in ms.
    pub(crate) fn is_calm_for(&self, now: u64, ms: u64) -> bool {
        self.knowledge.calm_since.is_some_and(|since| now - since >= ms)
    }
    /// Checks that no response of a manager is an internal error.
    pub(crate) fn on_answer(&mut self, path: &str, status: u16, body: &serde_json::Value) {
        *self.exercised.entry("answers").or_default() += 1;
        if status == 500 {
            self.fail("answers", format!("{path} is answered with {status}: {body}"));
        }
    }
}
