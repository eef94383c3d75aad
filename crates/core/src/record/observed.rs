//! The observed half of an observer: a join over the set of reports of one generation.
//!
//! The obvious way overwrites the row with each report. But reports of two services arrive in any order, twice, or late
//! (the last reports of a dead owner after the first ones of the new owner), and two managers apply them concurrently.
//! Instead, each part of this half is a register with a rule that does not depend on the order of arrival: the highest
//! key wins for the current phase, the lowest for a settlement, and `begun` stays set once it is set.

use crate::clock::Timestamp;
use crate::id::ServiceId;
use crate::wire::command::Cause;
use crate::wire::hold_reasons;
use crate::wire::message::is_false;
use crate::wire::report::{HeldPhase, RunEvent};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// Orders the reports of one generation: by run, then by the number that the service assigned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Key {
    pub acquisitions: u32,
    pub seq: u64,
}

/// One report about a run, with its sender and time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReceivedReport {
    pub service: ServiceId,
    pub key: Key,
    pub at: Timestamp,
    pub event: RunEvent,
}

/// The observed state of the current generation.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Observed {
    /// How it ended: by itself, otherwise because it was stopped; of several such reports, the one with the lowest key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub settled: Option<Settled>,
    /// Whether its code was ever started.
    #[serde(default)]
    pub begun: bool,
    /// The report with the highest key that was not a settlement.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latest: Option<Latest>,
    /// The latest report of the newest run whose code was started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub newest_run: Option<RunEnding>,
    /// The same for the run before that one: where the observer came from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<RunEnding>,
    /// The newest runs whose code was started, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub runs: Vec<Run>,
    /// The newest runs that were refused, or that reported that they wait as suspects.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub waited: BTreeSet<u32>,
    /// The latest error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<Stamped<String>>,
    /// When its code last failed with a restart to follow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub errored_at: Option<Stamped<Timestamp>>,
    /// The latest start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started: Option<Stamped<Start>>,
    /// The latest progress report of the code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<Stamped<String>>,
}

/// A value with the key of the report that contained it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stamped<T> {
    pub key: Key,
    pub value: T,
}

/// The latest report of a run whose code was started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunEnding {
    pub key: Key,
    pub service: ServiceId,
    pub at: Timestamp,
    /// Whether it reported that its code has ended.
    pub over: bool,
}

/// A run on one service: the facts that matter if that service dies.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
    pub acquisitions: u32,
    pub service: ServiceId,
    /// When its code was first started on that service. Later starts are restarts after errors, which the service survived.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started: Option<Stamped<Timestamp>>,
    /// The code is known to have ended: its service reported it, or a person killed that service to try out failover.
    pub over: bool,
    /// When and why it was handed over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left: Option<Stamped<Handover>>,
}

/// The end of a run whose observer continues elsewhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Handover {
    pub at: Timestamp,
    /// `None` if its service ended.
    pub cause: Option<Cause>,
}

/// A start of the code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Start {
    pub attempt: u32,
    pub at: Timestamp,
}

/// An attempt that ended with an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailedAttempt {
    /// The number of the report about it: of several, the highest counts.
    pub seq: u64,
    /// Its number in its run, from 1.
    pub attempt: u32,
    pub at: Timestamp,
    /// The failed attempts of earlier runs that are no longer remembered one by one, unless their errors were forgotten by then.
    #[serde(default)]
    pub earlier: u32,
}

/// How a generation ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settled {
    pub key: Key,
    pub service: ServiceId,
    pub at: Timestamp,
    pub how: Settlement,
}

impl Settled {
    /// Whether a manager ended it, because no service could or because its time was over.
    #[must_use]
    pub fn is_by_manager(&self) -> bool {
        self.service.0.is_nil()
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Settlement {
    Stopped,
    Completed,
    /// The `finish_at` of its message had passed.
    Finished {
        at: Timestamp,
    },
    Failed {
        error: String,
        attempts: u32,
    },
    /// It waited for a slot longer than its `start_within`.
    NotStarted {
        error: String,
    },
}

/// The phase of a run that is not settled.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Latest {
    pub key: Key,
    pub service: ServiceId,
    pub at: Timestamp,
    pub phase: RunPhase,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunPhase {
    /// `refuses`: the service cannot run it.
    Held {
        reason: String,
        #[serde(default, skip_serializing_if = "is_false")]
        refuses: bool,
    },
    /// Its code was started and has not announced that it is ready.
    Starting,
    Running,
    Restarting {
        next_at: Timestamp,
    },
    HandedOver,
    HandedOverFor {
        cause: Cause,
    },
    Refused {
        why: String,
    },
}

/// The number of remembered runs.
pub const TENURES_MAX: usize = 16;
/// The number of remembered runs that waited.
pub const WAITED_MAX: usize = 50;

impl Observed {
    /// Joins one report. The result does not depend on the order or number of joins.
    pub fn join(&mut self, heard: &ReceivedReport) {
        let key = heard.key;
        match &heard.event {
            RunEvent::Stopped => self.settle(heard, Settlement::Stopped),
            // The result is stored apart from the row, so that lists do not load it.
            RunEvent::Completed | RunEvent::CompletedWith { .. } => self.settle(heard, Settlement::Completed),
            RunEvent::Finished { at } => self.settle(heard, Settlement::Finished { at: *at }),
            RunEvent::Failed { error, attempts } => {
                raise(&mut self.last_error, key, error.clone());
                self.settle(heard, Settlement::Failed { error: error.clone(), attempts: *attempts });
            }
            RunEvent::Held { reason, refuses } => {
                if *refuses || reason == hold_reasons::SUSPECTED {
                    self.note_wait(key);
                }
                self.advance(heard, RunPhase::Held { reason: reason.clone(), refuses: *refuses });
            }
            RunEvent::Starting { attempt, started_at } => {
                self.start(heard, Start { attempt: *attempt, at: *started_at }, RunPhase::Starting);
            }
            RunEvent::Started { attempt, started_at } => {
                self.start(heard, Start { attempt: *attempt, at: *started_at }, RunPhase::Running);
            }
            RunEvent::Errored { error, next_at, .. } => {
                self.begun = true;
                raise(&mut self.last_error, key, error.clone());
                raise(&mut self.errored_at, key, heard.at);
                self.note_run(heard, false);
                self.advance(heard, RunPhase::Restarting { next_at: *next_at });
            }
            RunEvent::Progress { text } => raise(&mut self.progress, key, text.clone()),
            // It concerns the places of the row, not its run.
            RunEvent::Released => {}
            RunEvent::HandedOver => self.leave(heard, None),
            RunEvent::HandedOverFor { cause } => self.leave(heard, Some(*cause)),
            RunEvent::Refused { why } => {
                self.note_wait(key);
                self.advance(heard, RunPhase::Refused { why: why.clone() });
            }
        }
    }

    fn start(&mut self, heard: &ReceivedReport, start: Start, phase: RunPhase) {
        self.begun = true;
        raise(&mut self.started, heard.key, start);
        self.note_run(heard, false);
        if let Some(run) = self.run(heard) {
            lower(&mut run.started, heard.key, start.at);
        }
        self.advance(heard, phase);
    }

    fn note_wait(&mut self, key: Key) {
        self.waited.insert(key.acquisitions);
        if self.waited.len() > WAITED_MAX {
            self.waited.pop_first();
        }
    }

    fn settle(&mut self, heard: &ReceivedReport, how: Settlement) {
        let rank = |how: &Settlement, key| (*how == Settlement::Stopped, key);
        let is_first = |settled: &Settled| rank(&how, heard.key) < rank(&settled.how, settled.key);
        if self.settled.as_ref().is_none_or(is_first) {
            self.settled = Some(Settled { key: heard.key, service: heard.service, at: heard.at, how });
        }
    }

    /// Whether a run reported its end after another service had started the next run of the same generation.
    pub(crate) fn is_settled_by_an_older_run(&self) -> bool {
        let (Some(settled), Some(latest)) = (&self.settled, &self.latest) else { return false };
        settled.key.acquisitions < latest.key.acquisitions
    }

    /// Whether it ended because it was told to.
    pub(crate) fn was_stopped(&self) -> bool {
        self.settled.as_ref().is_some_and(|settled| settled.how == Settlement::Stopped)
    }

    /// Keeps the latest report of each of the two newest runs.
    fn note_run(&mut self, heard: &ReceivedReport, over: bool) {
        let word = RunEnding { key: heard.key, service: heard.service, at: heard.at, over };
        match &self.newest_run {
            Some(newest_run) if heard.key.acquisitions < newest_run.key.acquisitions => {
                if self.before.as_ref().is_none_or(|before| heard.key > before.key) {
                    self.before = Some(word);
                }
            }
            Some(newest_run) if heard.key.acquisitions == newest_run.key.acquisitions => {
                if heard.key > newest_run.key {
                    self.newest_run = Some(word);
                }
            }
            Some(_) => self.before = self.newest_run.replace(word),
            None => self.newest_run = Some(word),
        }
    }

    /// The entry of this run; `None` if it is older than all stored runs.
    fn run(&mut self, heard: &ReceivedReport) -> Option<&mut Run> {
        let acquisitions = heard.key.acquisitions;
        let at = match self.runs.binary_search_by_key(&acquisitions, |it| it.acquisitions) {
            Ok(at) => at,
            Err(0) if self.runs.len() >= TENURES_MAX => return None,
            Err(at) => {
                let run =
                    Run { acquisitions, service: heard.service, started: None, over: false, left: None };
                self.runs.insert(at, run);
                if self.runs.len() > TENURES_MAX {
                    self.runs.remove(0);
                    at - 1
                } else {
                    at
                }
            }
        };
        self.runs.get_mut(at)
    }

    fn advance(&mut self, heard: &ReceivedReport, phase: RunPhase) {
        if self.latest.as_ref().is_none_or(|latest| heard.key > latest.key) {
            self.latest = Some(Latest { key: heard.key, service: heard.service, at: heard.at, phase });
        }
    }

    /// Whether this attempt of this run is known to be in this phase on this service.
    pub(crate) fn is_running(
        &self,
        service: ServiceId,
        acquisitions: u32,
        (phase, attempt): (&RunPhase, u32),
    ) -> bool {
        let latest = self.latest.as_ref().is_some_and(|it| {
            it.service == service && it.key.acquisitions == acquisitions && it.phase == *phase
        });
        let started = self
            .started
            .as_ref()
            .is_some_and(|it| it.key.acquisitions == acquisitions && it.value.attempt == attempt);
        self.settled.is_none() && latest && started
    }

    /// Whether this run is known to have failed with this error on this service, with its restart at that time.
    pub(crate) fn is_restarting(
        &self,
        service: ServiceId,
        acquisitions: u32,
        (error, next_at): (&str, Timestamp),
    ) -> bool {
        let latest = self.latest.as_ref().is_some_and(|it| {
            it.service == service
                && it.key.acquisitions == acquisitions
                && it.phase == RunPhase::Restarting { next_at }
        });
        let told = self.last_error.as_ref();
        let same_error = told.is_some_and(|it| it.key.acquisitions == acquisitions && it.value == error);
        self.settled.is_none() && latest && same_error
    }

    /// The run that a service holds, and its phase as an inventory tells it.
    pub(crate) fn held_phase(&self) -> Option<(u32, HeldPhase<'_>)> {
        let latest = self.latest.as_ref()?;
        let acquisitions = latest.key.acquisitions;
        let phase = match &latest.phase {
            RunPhase::Held { reason, refuses } => HeldPhase::Held { reason, refuses: *refuses },
            RunPhase::Starting => HeldPhase::Starting { attempt: self.attempt_of(acquisitions) },
            RunPhase::Running => HeldPhase::Running { attempt: self.attempt_of(acquisitions) },
            RunPhase::Restarting { next_at } => {
                let error = self.last_error.as_ref().filter(|it| it.key.acquisitions == acquisitions);
                HeldPhase::Restarting { error: error.map_or("", |it| &it.value), next_at: *next_at }
            }
            RunPhase::HandedOver | RunPhase::HandedOverFor { .. } | RunPhase::Refused { .. } => return None,
        };
        Some((acquisitions, phase))
    }

    fn attempt_of(&self, acquisitions: u32) -> u32 {
        let start = self.started.as_ref().filter(|it| it.key.acquisitions == acquisitions);
        start.map_or(0, |it| it.value.attempt)
    }

    /// The highest reported run.
    #[must_use]
    pub fn acquisitions(&self) -> u32 {
        let latest = self.latest.as_ref().map_or(0, |latest| latest.key.acquisitions);
        let settled = self.settled.as_ref().map_or(0, |settled| settled.key.acquisitions);
        let progress = self.progress.as_ref().map_or(0, |progress| progress.key.acquisitions);
        latest.max(settled).max(progress)
    }

    fn leave(&mut self, heard: &ReceivedReport, cause: Option<Cause>) {
        self.note_run(heard, true);
        if let Some(run) = self.run(heard) {
            run.over = true;
            raise(&mut run.left, heard.key, Handover { at: heard.at, cause });
        }
        self.advance(heard, cause.map_or(RunPhase::HandedOver, |cause| RunPhase::HandedOverFor { cause }));
    }

    /// Notes that the runs on these services have ended. Returns whether it was not known before.
    pub(crate) fn end_runs_on(&mut self, is_killed: impl Fn(ServiceId) -> bool) -> bool {
        let mut is_news = false;
        for run in self.runs.iter_mut().filter(|run| !run.over && is_killed(run.service)) {
            (run.over, is_news) = (true, true);
        }
        is_news
    }

    /// Why the current or last holder of the message cannot run it; `None` if it can.
    #[must_use]
    pub fn refusal(&self) -> Option<&str> {
        match &self.latest.as_ref()?.phase {
            RunPhase::Refused { why } | RunPhase::Held { reason: why, refuses: true } => Some(why),
            RunPhase::Held { refuses: false, .. }
            | RunPhase::Starting
            | RunPhase::Running
            | RunPhase::Restarting { .. }
            | RunPhase::HandedOver
            | RunPhase::HandedOverFor { .. } => None,
        }
    }
    /// The service that reports that it holds the message; the broker may have moved the message since.
    #[must_use]
    pub fn holder(&self) -> Option<ServiceId> {
        if self.settled.is_some() {
            return None;
        }
        self.latest.as_ref().and_then(|latest| match latest.phase {
            RunPhase::Held { .. } | RunPhase::Starting | RunPhase::Running | RunPhase::Restarting { .. } => {
                Some(latest.service)
            }
            RunPhase::HandedOver | RunPhase::HandedOverFor { .. } | RunPhase::Refused { .. } => None,
        })
    }
}

fn raise<T>(register: &mut Option<Stamped<T>>, key: Key, value: T) {
    if register.as_ref().is_none_or(|told| key > told.key) {
        *register = Some(Stamped { key, value });
    }
}

fn lower<T>(register: &mut Option<Stamped<T>>, key: Key, value: T) {
    if register.as_ref().is_none_or(|told| key < told.key) {
        *register = Some(Stamped { key, value });
    }
}

#[cfg(test)]
#[path = "observed_tests.rs"]
mod tests;
