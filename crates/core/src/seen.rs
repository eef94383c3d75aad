//! The observed half of an observer: a join over the set of reports of one generation.
//!
//! Naively, each report overwrites the row. But reports of two services arrive in any order, twice,
//! or late (a dead owner's last words after the new owner's first), and two managers apply them side
//! by side. So each part of this half is a register with a rule that does not depend on the order of
//! arrival: the highest key wins for what goes on, the lowest for a settlement, "ever" for begun.

use crate::clock::Timestamp;
use crate::id::ServiceId;
use crate::message::{Cause, RunEvent, is_false};
use crate::slots::reasons;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// Orders the reports of one generation: by run, then by the number that its service gave it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Key {
    pub acquisitions: u32,
    pub seq: u64,
}

/// One report about a run, with who said it and when.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Heard {
    pub service: ServiceId,
    pub key: Key,
    pub at: Timestamp,
    pub event: RunEvent,
}

/// What is known of the current generation.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Seen {
    /// How it ended: by itself, or else because it was stopped; of several such reports the one with the lowest key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub settled: Option<Settled>,
    /// Whether its code was ever started.
    #[serde(default)]
    pub begun: bool,
    /// The report with the highest key that was not a settlement.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latest: Option<Latest>,
    /// The newest word of the newest run whose code was started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ran: Option<Ran>,
    /// The same of the run before that one: where the observer came from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<Ran>,
    /// The newest runs whose code was started, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tenures: Vec<Tenure>,
    /// The newest runs that reported that they were refused, or that they wait as suspects.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub waited: BTreeSet<u32>,
    /// The newest error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<Told<String>>,
    /// When its code last failed and was to be started again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub erred_at: Option<Told<Timestamp>>,
    /// The newest start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started: Option<Told<Start>>,
    /// What the code last said of itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<Told<String>>,
}

/// A value with the key of the report that told it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Told<T> {
    pub key: Key,
    pub value: T,
}

/// What a run whose code was started said last.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ran {
    pub key: Key,
    pub service: ServiceId,
    pub at: Timestamp,
    /// Whether it said that its code has ended.
    pub over: bool,
}

/// A run on one service: what is to be known if that service dies.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tenure {
    pub acquisitions: u32,
    pub service: ServiceId,
    /// When its code was last started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started: Option<Told<Timestamp>>,
    /// Its code has ended there, by the service's own word.
    pub over: bool,
    /// When and why it was handed over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left: Option<Told<Left>>,
}

/// The end of a run that goes on elsewhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Left {
    pub at: Timestamp,
    /// `None`: its service ended.
    pub cause: Option<Cause>,
}

/// A start of the code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Start {
    pub attempt: u32,
    pub at: Timestamp,
}

/// How a generation ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settled {
    pub key: Key,
    pub service: ServiceId,
    pub at: Timestamp,
    pub how: Settlement,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Settlement {
    Stopped,
    Completed,
    Failed { error: String, attempts: u32 },
}

/// What goes on with a run that is not settled.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Latest {
    pub key: Key,
    pub service: ServiceId,
    pub at: Timestamp,
    pub doing: Doing,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Doing {
    /// `refuses`: by a service that cannot run it.
    Held {
        reason: String,
        #[serde(default, skip_serializing_if = "is_false")]
        refuses: bool,
    },
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

/// Runs that are remembered.
pub const TENURES_MAX: usize = 16;
/// Runs that waited and are remembered.
pub const WAITED_MAX: usize = 50;

impl Seen {
    /// Joins one report in. The result does not depend on the order or number of joins.
    pub fn join(&mut self, heard: &Heard) {
        let key = heard.key;
        match &heard.event {
            RunEvent::Stopped => self.settle(heard, Settlement::Stopped),
            RunEvent::Completed => self.settle(heard, Settlement::Completed),
            RunEvent::Failed { error, attempts } => {
                raise(&mut self.last_error, key, error.clone());
                self.settle(heard, Settlement::Failed { error: error.clone(), attempts: *attempts });
            }
            RunEvent::Taken { reason, refuses } => {
                if *refuses || reason == reasons::SUSPECTED {
                    self.note_wait(key);
                }
                self.advance(heard, Doing::Held { reason: reason.clone(), refuses: *refuses });
            }
            RunEvent::Started { attempt, started_at } => {
                self.begun = true;
                raise(&mut self.started, key, Start { attempt: *attempt, at: *started_at });
                self.note_run(heard, false);
                if let Some(tenure) = self.tenure(heard) {
                    raise(&mut tenure.started, key, *started_at);
                }
                self.advance(heard, Doing::Running);
            }
            RunEvent::Erred { error, next_at, .. } => {
                self.begun = true;
                raise(&mut self.last_error, key, error.clone());
                raise(&mut self.erred_at, key, heard.at);
                self.note_run(heard, false);
                self.advance(heard, Doing::Restarting { next_at: *next_at });
            }
            RunEvent::Progress { text } => raise(&mut self.progress, key, text.clone()),
            RunEvent::HandedOver => self.leave(heard, None),
            RunEvent::HandedOverFor { cause } => self.leave(heard, Some(*cause)),
            RunEvent::Refused { why } => {
                self.note_wait(key);
                self.advance(heard, Doing::Refused { why: why.clone() });
            }
        }
    }

    fn note_wait(&mut self, key: Key) {
        self.waited.insert(key.acquisitions);
        if self.waited.len() > WAITED_MAX {
            self.waited.pop_first();
        }
    }

    fn settle(&mut self, heard: &Heard, how: Settlement) {
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

    /// Keeps the two newest runs, of each its newest word.
    fn note_run(&mut self, heard: &Heard, over: bool) {
        let word = Ran { key: heard.key, service: heard.service, at: heard.at, over };
        match &self.ran {
            Some(ran) if heard.key.acquisitions < ran.key.acquisitions => {
                if self.before.as_ref().is_none_or(|before| heard.key > before.key) {
                    self.before = Some(word);
                }
            }
            Some(ran) if heard.key.acquisitions == ran.key.acquisitions => {
                if heard.key > ran.key {
                    self.ran = Some(word);
                }
            }
            Some(_) => self.before = self.ran.replace(word),
            None => self.ran = Some(word),
        }
    }

    /// The entry of this run; `None` if it is older than all that are kept.
    fn tenure(&mut self, heard: &Heard) -> Option<&mut Tenure> {
        let acquisitions = heard.key.acquisitions;
        let at = match self.tenures.binary_search_by_key(&acquisitions, |it| it.acquisitions) {
            Ok(at) => at,
            Err(0) if self.tenures.len() >= TENURES_MAX => return None,
            Err(at) => {
                let tenure =
                    Tenure { acquisitions, service: heard.service, started: None, over: false, left: None };
                self.tenures.insert(at, tenure);
                if self.tenures.len() > TENURES_MAX {
                    self.tenures.remove(0);
                    at - 1
                } else {
                    at
                }
            }
        };
        self.tenures.get_mut(at)
    }

    fn advance(&mut self, heard: &Heard, doing: Doing) {
        if self.latest.as_ref().is_none_or(|latest| heard.key > latest.key) {
            self.latest = Some(Latest { key: heard.key, service: heard.service, at: heard.at, doing });
        }
    }

    /// Whether this attempt of this run is known to go on, on this service.
    pub(crate) fn is_running(&self, service: ServiceId, acquisitions: u32, attempt: u32) -> bool {
        let latest = self.latest.as_ref().is_some_and(|it| {
            it.service == service && it.key.acquisitions == acquisitions && it.doing == Doing::Running
        });
        let started = self
            .started
            .as_ref()
            .is_some_and(|it| it.key.acquisitions == acquisitions && it.value.attempt == attempt);
        self.settled.is_none() && latest && started
    }

    /// Whether this run is known to have failed with this error on this service, and to start again then.
    pub(crate) fn is_restarting(
        &self,
        service: ServiceId,
        acquisitions: u32,
        (error, next_at): (&str, Timestamp),
    ) -> bool {
        let latest = self.latest.as_ref().is_some_and(|it| {
            it.service == service
                && it.key.acquisitions == acquisitions
                && it.doing == Doing::Restarting { next_at }
        });
        let told = self.last_error.as_ref();
        let same_error = told.is_some_and(|it| it.key.acquisitions == acquisitions && it.value == error);
        self.settled.is_none() && latest && same_error
    }

    /// The highest run heard of.
    #[must_use]
    pub fn acquisitions(&self) -> u32 {
        let latest = self.latest.as_ref().map_or(0, |latest| latest.key.acquisitions);
        let settled = self.settled.as_ref().map_or(0, |settled| settled.key.acquisitions);
        let progress = self.progress.as_ref().map_or(0, |progress| progress.key.acquisitions);
        latest.max(settled).max(progress)
    }

    fn leave(&mut self, heard: &Heard, cause: Option<Cause>) {
        self.note_run(heard, true);
        if let Some(tenure) = self.tenure(heard) {
            tenure.over = true;
            raise(&mut tenure.left, heard.key, Left { at: heard.at, cause });
        }
        self.advance(heard, cause.map_or(Doing::HandedOver, |cause| Doing::HandedOverFor { cause }));
    }

    /// Why the service that has the message, or had it last, cannot run it; `None` if it can.
    #[must_use]
    pub fn refusal(&self) -> Option<&str> {
        match &self.latest.as_ref()?.doing {
            Doing::Refused { why } | Doing::Held { reason: why, refuses: true } => Some(why),
            Doing::Held { refuses: false, .. }
            | Doing::Running
            | Doing::Restarting { .. }
            | Doing::HandedOver
            | Doing::HandedOverFor { .. } => None,
        }
    }
    /// The service that holds the message by its own word; the broker may have moved it since.
    #[must_use]
    pub fn holder(&self) -> Option<ServiceId> {
        if self.settled.is_some() {
            return None;
        }
        self.latest.as_ref().and_then(|latest| match latest.doing {
            Doing::Held { .. } | Doing::Running | Doing::Restarting { .. } => Some(latest.service),
            Doing::HandedOver | Doing::HandedOverFor { .. } | Doing::Refused { .. } => None,
        })
    }
}

fn raise<T>(register: &mut Option<Told<T>>, key: Key, value: T) {
    if register.as_ref().is_none_or(|told| key > told.key) {
        *register = Some(Told { key, value });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use uuid::Uuid;

    /// One report per key, as services number them: equal keys mean the same report sent twice.
    fn reports() -> impl Strategy<Value = Vec<Heard>> {
        let event = prop_oneof![
            Just(RunEvent::Taken { reason: "start rate".into(), refuses: false }),
            (1..4u32)
                .prop_map(|attempt| RunEvent::Started { attempt, started_at: Timestamp(attempt.into()) }),
            Just(RunEvent::Erred { attempt: 1, error: "e".into(), next_at: Timestamp(9) }),
            Just(RunEvent::Progress { text: "half".into() }),
            Just(RunEvent::HandedOver),
            Just(RunEvent::HandedOverFor { cause: Cause::Drain }),
            Just(RunEvent::Refused { why: "kind".into() }),
            Just(RunEvent::Stopped),
            Just(RunEvent::Completed),
            Just(RunEvent::Failed { error: "f".into(), attempts: 2 }),
        ];
        prop::collection::btree_map((0..3u32, 1..6u64), (event, 0..50i64), 1..12).prop_map(|reports| {
            let heard = |((acquisitions, seq), (event, at)): ((u32, u64), (RunEvent, i64))| Heard {
                service: ServiceId(Uuid::from_u128(u128::from(acquisitions))),
                key: Key { acquisitions, seq },
                at: Timestamp(at),
                event,
            };
            reports.into_iter().map(heard).collect()
        })
    }

    fn joined<'a>(reports: impl IntoIterator<Item = &'a Heard>) -> Seen {
        reports.into_iter().fold(Seen::default(), |mut seen, heard| {
            seen.join(heard);
            seen
        })
    }

    proptest! {
        #[test]
        fn the_observed_half_is_a_function_of_the_set_of_reports(
            (reports, shuffled) in reports().prop_flat_map(|reports| {
                // Each report comes once at least, some twice, in any order.
                let twice = reports.iter().chain(reports.iter().step_by(2)).cloned().collect::<Vec<_>>();
                (Just(reports), Just(twice).prop_shuffle())
            })
        ) {
            prop_assert_eq!(joined(&reports), joined(&shuffled));
        }
    }

    fn heard(acquisitions: u32, seq: u64, event: RunEvent) -> Heard {
        let service = ServiceId(Uuid::from_u128(u128::from(acquisitions)));
        Heard { service, key: Key { acquisitions, seq }, at: Timestamp(0), event }
    }

    #[test]
    fn last_words_of_a_dead_owner_do_not_undo_the_new_one() {
        let started = RunEvent::Started { attempt: 1, started_at: Timestamp(0) };
        let seen = joined(&[heard(1, 4, started.clone()), heard(0, 900, started)]);
        assert_eq!(seen.holder(), Some(ServiceId(Uuid::from_u128(1))));
        assert_eq!(seen.acquisitions(), 1);
    }

    #[test]
    fn of_two_settlements_the_first_run_s_stands() {
        let failed = RunEvent::Failed { error: "x".into(), attempts: 1 };
        let seen = joined(&[heard(2, 1, RunEvent::Stopped), heard(1, 7, failed)]);
        assert!(matches!(seen.settled.unwrap().how, Settlement::Failed { .. }));
        let seen = joined(&[heard(2, 1, RunEvent::Completed), heard(1, 7, RunEvent::Stopped)]);
        assert_eq!(seen.settled.unwrap().how, Settlement::Completed, "the next run has ended by itself");
    }
}
