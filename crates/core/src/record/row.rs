//! The managers' row of an observer: its definition, its publishes and its observed state. All changes of a row are
//! decided here, as functions of values.

mod backlog;
mod beside;
mod duplicate;
mod membership;
mod outbox;
mod places;
mod preemption;
mod revisions;
mod schedule;
mod times;

use crate::clock::Timestamp;
use crate::epoch::Epoch;
use crate::id::{LimitKey, ObserverId, Pool, ServiceId};
use crate::observer::definition::ObserverDefinition;
use crate::record::observed::{FailedAttempt, Key, Observed, ReceivedReport, Run, RunPhase, Settlement};
use crate::record::preemption::Preemption;
use crate::record::row_policy::{RowPolicy, doubled};
use crate::record::stored_observed;
use crate::wire::command::{Revocation, RevocationCause};
use crate::wire::report::{RunEvent, RunReport};
use crate::wire::trace::{self, TraceContext};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use uuid::Uuid;

pub use backlog::{Slot, Waiting};
pub use membership::Membership;
pub use places::{Places, Use};
pub use revisions::{REVISIONS_MAX, Revision};
pub use schedule::{Execution, Executions};

/// The most earlier pools that a row names.
pub const FORMER_POOLS_MAX: usize = 16;

/// The state of the observer that its user currently wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Desired {
    Running,
    Paused,
    Deleted,
}

/// An entry of the outbox: one manager has the lease to publish this generation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PublishLease {
    /// By the database's clock: after it, any manager may publish again, as the next generation.
    pub until: Timestamp,
    /// The number of leases that ended without a confirm.
    pub failures: u32,
}

/// A command that managers repeat until it is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResendTimer {
    pub last_at: Timestamp,
    pub next_at: Timestamp,
    pub times: u32,
}

/// The complete row of an observer. Its serialized form is the part that changes with every report: `id`, `version`
/// and `definition` are stored beside it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Row {
    #[serde(skip, default = "beside::id")]
    pub id: ObserverId,
    /// Counts the changes of this row: a save succeeds only on the version it was loaded with.
    #[serde(skip)]
    pub version: i64,
    /// Whether the digest that is stored beside the row is not [`Row::digest`]: an older version has written the row.
    #[serde(skip)]
    pub digest_is_stale: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch: Option<Membership>,
    /// What its user wants to run.
    #[serde(skip, default = "beside::definition")]
    pub definition: Arc<ObserverDefinition>,
    pub desired: Desired,
    /// The version of its definition; `None` for the first one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revised: Option<Revision>,
    pub generation: u32,
    /// Generations up to this one may have been published without the database's knowledge.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub reserve: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub publish_lease: Option<PublishLease>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resend: Option<ResendTimer>,
    /// When a manager last sent a command for it, settled it or raised its generation. Managers send its revocation to
    /// each service that registers in the next ten minutes, even if the run has ended: if the service of that run dies
    /// before it acknowledges the message, the broker redelivers it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commanded_at: Option<Timestamp>,
    /// When this generation's message was first known to be in its queue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub published_at: Option<Timestamp>,
    /// When its delete was requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delete_requested_at: Option<Timestamp>,
    /// This generation must end so that the next one can begin.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ending: Option<u32>,
    /// The next generation was promised: it begins however this one ends, even by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub promised: Option<u32>,
    /// When its next crash check is due: its services may have died of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub crash_check: Option<ResendTimer>,
    /// Since when its holder's inventories do not contain it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unlisted: Option<Timestamp>,
    /// Since when no service that took it could run it, by the database's clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused_since: Option<Timestamp>,
    /// When a manager withdrew its message because no service of its pool could run it. Managers publish its next
    /// generation when a service can.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub withdrawn_at: Option<Timestamp>,
    /// Since when it waits in the backlog: its message is not in the queue, and a manager publishes it when it has a
    /// slot. `None`: it is admitted, or not meant to run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting: Option<Waiting>,
    /// While it waits: the limit that has no free place for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub behind: Option<LimitKey>,
    /// The places of limits that it uses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub places: Option<Places>,
    /// When the window ends in which it waits for a slot, or in which its run must end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub closes_at: Option<Timestamp>,
    /// Which times of its schedule it has used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub executions: Option<Executions>,
    /// How often it failed and was retried since it last completed.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub failures: u32,
    /// This generation must end, and the observer must then wait for a slot: its pool or its limits have changed, or a
    /// manager enforces a limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub readmitted: Option<u32>,
    /// Why it gave up its slot, until it has one again: an observer of a higher priority needed it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preempted: Option<Preemption>,
    /// Its earlier pools: their services may still hold an earlier message. At most [`FORMER_POOLS_MAX`]; with so many,
    /// there may be others.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub former_pools: BTreeSet<Pool>,
    /// When two services reported the same run of it: its message existed twice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duplicated_at: Option<Timestamp>,
    /// For each run in which an attempt ended with an error: the latest such attempt, by the acquisitions of the run. This is no field of
    /// [`Observed`], because managers of version 0.1.0 could not read a longer stored form.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub errors: BTreeMap<u32, FailedAttempt>,
    /// The runs of the previous generation, as long as crash checks are due.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub former_runs: Vec<Run>,
    #[serde(default, with = "stored_observed")]
    pub observed: Observed,
    /// The idempotency keys of the newest requests that acted on it, the newest last.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub acted: Vec<Uuid>,
    /// The trace of the newest request that changed it; the next publish belongs to that trace.
    #[serde(default, with = "trace::carried", skip_serializing_if = "Option::is_none")]
    pub trace: Option<TraceContext>,
    pub created_at: Timestamp,
    pub modified_at: Timestamp,
    /// When its status became final.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Timestamp>,
}

/// The result of applying a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Applied {
    /// The row changed.
    Changed,
    /// The report contains nothing new.
    Same,
    /// The report belongs to a generation that is over.
    Stale,
}

impl Row {
    /// A new observer; the manager that creates it has the lease of its first publish.
    #[must_use]
    pub fn created(
        id: ObserverId,
        definition: ObserverDefinition,
        now: Timestamp,
        policy: &RowPolicy,
    ) -> Self {
        let row = Self {
            id,
            version: 1,
            digest_is_stale: false,
            batch: None,
            definition: Arc::new(definition),
            desired: Desired::Running,
            revised: None,
            generation: 1,
            reserve: 0,
            publish_lease: Some(PublishLease { until: now.plus(policy.lease), failures: 0 }),
            resend: None,
            commanded_at: None,
            published_at: None,
            delete_requested_at: None,
            ending: None,
            promised: None,
            crash_check: None,
            unlisted: None,
            refused_since: None,
            withdrawn_at: None,
            waiting: None,
            behind: None,
            places: None,
            closes_at: None,
            executions: None,
            failures: 0,
            readmitted: None,
            preempted: None,
            former_pools: BTreeSet::new(),
            duplicated_at: None,
            errors: BTreeMap::new(),
            former_runs: Vec::new(),
            observed: Observed::default(),
            acted: Vec::new(),
            trace: None,
            created_at: now,
            modified_at: now,
            ended_at: None,
        };
        Self { closes_at: row.window_end(now), ..row }
    }

    /// The stored form of the part that changes with every report, in MessagePack.
    ///
    /// # Errors
    /// If a value cannot be written (a bug).
    pub fn written(&self) -> Result<Vec<u8>, rmp_serde::encode::Error> {
        rmp_serde::to_vec_named(self)
    }

    /// A stored row: its stored form and what is stored beside it.
    ///
    /// # Errors
    /// Why the stored form is neither what this version of the program writes nor the JSON of earlier versions.
    pub fn read(
        id: ObserverId,
        version: i64,
        definition: ObserverDefinition,
        state: &[u8],
    ) -> Result<Self, String> {
        let read: Self = if state.first() == Some(&b'{') {
            serde_json::from_slice(state).map_err(|error| error.to_string())?
        } else {
            rmp_serde::from_slice(state).map_err(|error| error.to_string())?
        };
        Ok(Self { id, version, definition: Arc::new(definition), ..read })
    }

    /// The highest reported run of this generation.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        Epoch::new(self.generation, self.observed.acquisitions())
    }

    /// The service that holds its message according to that service's own reports.
    #[must_use]
    pub fn holder(&self) -> Option<ServiceId> {
        self.observed.holder().filter(|_| self.unlisted.is_none())
    }

    /// The digest of the entry that its holder's inventory must contain; `None` without a holder.
    #[must_use]
    pub fn digest(&self) -> Option<u64> {
        self.holder()?;
        let (acquisitions, phase) = self.observed.held_phase()?;
        Some(phase.digest(self.id, Epoch::new(self.generation, acquisitions)))
    }

    /// No run below this epoch may start or continue.
    #[must_use]
    pub fn revocation(&self) -> Revocation {
        let over = self.observed.settled.is_some() || self.is_to_end();
        let below = if over { Epoch::after_generation(self.generation) } else { self.epoch() };
        let cause = match self.desired {
            Desired::Deleted => Some(RevocationCause::Deleted),
            Desired::Paused => Some(RevocationCause::Paused),
            Desired::Running if self.is_to_end() => Some(RevocationCause::Restarted),
            Desired::Running => None,
        };
        Revocation { id: self.id, below, cause }
    }

    /// The service with the newest lines of the observer: its holder, otherwise the last service of this generation.
    #[must_use]
    pub fn log_holder(&self) -> Option<ServiceId> {
        let newest_run = || self.observed.newest_run.as_ref().map(|it| it.service);
        let former = || self.former_runs.last().map(|it| it.service);
        self.holder().or_else(newest_run).or_else(former)
    }
    /// Notes that a person killed these services to try out failover: their deaths count against no observer. Returns
    /// whether that changes anything.
    pub fn excuse(&mut self, is_killed: impl Fn(ServiceId) -> bool) -> bool {
        self.observed.end_runs_on(is_killed)
    }

    /// Applies one report. The observed half of the row depends only on the set of applied reports.
    pub fn apply(
        &mut self,
        service: ServiceId,
        seq: u64,
        at: Timestamp,
        report: &RunReport,
        now: Timestamp,
    ) -> Applied {
        let generation = report.epoch.generation();
        if generation < self.generation {
            return Applied::Stale;
        }
        let before = self.clone();
        if generation > self.generation {
            // The database was restored and does not know a publish: the running observer is authoritative.
            self.generation = generation;
            (self.observed, self.errors) = (Observed::default(), BTreeMap::new());
            (self.published_at, self.refused_since, self.withdrawn_at) = (None, None, None);
            self.waiting = None;
            self.take_places();
        }
        self.hear_release(report);
        self.end_duplicate(service, report, now);
        let key = Key { acquisitions: report.epoch.acquisitions(), seq };
        self.observed.join(&ReceivedReport { service, key, at, event: report.event.clone() });
        self.join_error((key, at), &report.event);
        // The obvious rule takes the end of an older run for the end of the generation. The next generation would then
        // start beside the newest run. Instead, the generation ends when the newest run reports its own end.
        let is_news = before.observed.settled.is_none();
        if is_news
            && self.observed.is_settled_by_an_older_run()
            && (self.observed.was_stopped() || self.wants_republish())
        {
            self.observed.settled = None;
        }
        if self.observed.latest != before.observed.latest {
            self.unlisted = None;
            let since = self.refused_since.unwrap_or(now);
            self.refused_since = self.observed.refusal().map(|_| since);
        }
        self.publish_lease = None;
        self.published_at = self.published_at.or(Some(now));
        if self.observed.acquisitions() > before.observed.acquisitions() {
            self.schedule_crash_check(now);
        }
        self.settle_into(now);
        if *self == before {
            return Applied::Same;
        }
        self.modified_at = now;
        Applied::Changed
    }

    /// Whether an inventory entry only repeats the state in the row.
    ///
    /// The obvious way applies each entry like the report that it repeats. But its number is higher, so managers would
    /// write every row once a minute. An attempt starts once in a run and fails once, so skipping the entry loses no
    /// report that arrived in between.
    #[must_use]
    pub fn repeats(&self, service: ServiceId, entry: &RunReport) -> bool {
        let same = self.publish_lease.is_none()
            && self.unlisted.is_none()
            && !self.digest_is_stale
            && entry.epoch.generation() == self.generation;
        let acquisitions = entry.epoch.acquisitions();
        same && match &entry.event {
            RunEvent::Starting { attempt, .. } => {
                self.observed.is_running(service, acquisitions, (&RunPhase::Starting, *attempt))
            }
            RunEvent::Started { attempt, .. } => {
                self.observed.is_running(service, acquisitions, (&RunPhase::Running, *attempt))
            }
            RunEvent::Errored { error, next_at, .. } => {
                self.observed.is_restarting(service, acquisitions, (error, *next_at))
            }
            _ => false,
        }
    }

    /// The revocation that answers a report if the reported run must not continue.
    #[must_use]
    pub fn answer(&self, report: &RunReport) -> Option<Revocation> {
        let revocation = self.revocation();
        let comes_again = matches!(report.event, RunEvent::Refused { .. });
        ((report.event.holds() || comes_again) && report.epoch < revocation.below).then_some(revocation)
    }

    /// The service that held this generation in `before`, if another service holds it now, and the revocation to send
    /// to it. The broker may have redelivered the messages of that service without its knowledge.
    #[must_use]
    pub fn taken_over_from(&self, before: &Self) -> Option<(ServiceId, Revocation)> {
        let (earlier, latest) = (before.holder()?, self.observed.latest.as_ref()?);
        let later_run = self.generation == before.generation && self.epoch() > before.epoch();
        (later_run && latest.service != earlier).then(|| (earlier, self.revocation()))
    }

    /// Records that the revocation is sent now, and when it is repeated.
    pub fn command(&mut self, now: Timestamp, policy: &RowPolicy) {
        let times = self.resend.map_or(0, |repeat| repeat.times);
        let pause = doubled(policy.resend_first, times, policy.resend_max);
        self.resend =
            Some(ResendTimer { last_at: now, next_at: now.plus(pause), times: times.saturating_add(1) });
        self.commanded_at = Some(now);
    }

    /// Whether an end was requested and is not reported yet.
    #[must_use]
    pub fn awaits_end(&self) -> bool {
        self.is_to_end() && self.generation > 0 && self.observed.settled.is_none()
    }

    fn is_to_end(&self) -> bool {
        self.desired != Desired::Running || self.ending == Some(self.generation)
    }

    /// Whether it must be republished: its last generation was stopped, or ended by itself after the next one was
    /// promised.
    #[must_use]
    pub fn wants_republish(&self) -> bool {
        let promised = self.promised == Some(self.generation);
        self.desired == Desired::Running
            && self.withdrawn_at.is_none()
            && self.waiting.is_none()
            && self.settlement().is_some_and(|how| promised || *how == Settlement::Stopped)
    }

    /// When the reconciler must check this row again; `None` if only a report or a request can change it.
    #[must_use]
    pub fn due_at(&self, policy: &RowPolicy) -> Option<Timestamp> {
        let mark = self.publish_lease.map(|mark| mark.until);
        let again = || self.resend.map_or(self.modified_at, |repeat| repeat.next_at);
        let repeat = self.awaits_end().then(again);
        let publishes = self.wants_republish() && !self.awaits_release();
        let republish = publishes.then_some(self.modified_at);
        let forget = self.forget_at(policy);
        let watch = self.crash_check.map(|watch| watch.next_at);
        let waits = [self.opens_at(), self.shut_at(), self.not_started_at()];
        let times = [self.finish_due_at(), self.restarts_at()];
        let steps = [mark, repeat, republish, forget, self.fails_at(policy), watch];
        steps.into_iter().chain(waits).chain(times).flatten().min()
    }

    /// Records that a manager settled it.
    pub(crate) fn note_settled(&mut self, now: Timestamp) {
        self.settle_into(now);
        self.modified_at = now;
    }

    pub(super) fn settle_into(&mut self, now: Timestamp) {
        if self.observed.settled.is_some() {
            // Its crash checks continue, so that no other observer is blamed for its deaths.
            self.resend = None;
            self.wait_for_next_execution(now);
        }
        let over = self.verdict().status.is_final();
        self.ended_at = if over { self.ended_at.or(Some(now)) } else { None };
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde wants it so")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}
