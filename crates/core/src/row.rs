//! An observer as the managers keep it: what is wanted, what was published, what was seen.
//! Every change of a row is decided here, as a function of values.

use crate::clock::Timestamp;
use crate::epoch::Epoch;
use crate::id::{ObserverId, ServiceId};
use crate::message::{Floor, RunEvent, RunReport};
use crate::observer::Wanted;
use crate::seen::{Heard, Key, Seen, Tenure};
use crate::status::{Status, Verdict, status_of};
use crate::trace::{self, TraceContext};
use serde::{Deserialize, Serialize};
use std::time::Duration;
use uuid::Uuid;

/// A lease is renewed when less than this part of it is left.
const RENEW_BELOW: f64 = 0.7;

/// What the person wants of the observer now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Desired {
    Running,
    Paused,
    Deleted,
}

/// An outbox mark: this generation is to be published, and until then one manager has the lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mark {
    /// By the database's clock: past it, any manager publishes again, under the next generation.
    pub until: Timestamp,
    /// How many leases ended without a confirm.
    pub failures: u32,
}

/// A command that is repeated until the answer comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Repeat {
    pub last_at: Timestamp,
    pub next_at: Timestamp,
    pub times: u32,
}

/// An observer, whole.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Row {
    pub id: ObserverId,
    /// Counts the changes of this row: a save succeeds only on the version it was loaded with.
    pub version: i64,
    pub wanted: Wanted,
    pub desired: Desired,
    pub generation: u32,
    /// Up to this, generations may have been published that the database has forgotten.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub reserve: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mark: Option<Mark>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repeat: Option<Repeat>,
    /// When a manager last sent a command for it, settled it or raised its generation. Managers tell its floor to each
    /// service that is born in the next ten minutes, even if the run has ended: if the service of that run dies before it
    /// acknowledges the message, the broker redelivers it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commanded_at: Option<Timestamp>,
    /// When this generation's message was first known to be in its queue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub published_at: Option<Timestamp>,
    /// When its delete was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub doomed_at: Option<Timestamp>,
    /// This generation is to end so that the next one can begin.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ending: Option<u32>,
    /// However this generation ends, even by itself: the next one was promised.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub promised: Option<u32>,
    /// When it is looked at again: its services may have died of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub watch: Option<Repeat>,
    /// Since when its holder's lists do not name it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unlisted: Option<Timestamp>,
    /// Since when every service that took it could not run it, by the database's clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused_since: Option<Timestamp>,
    /// When a manager took its message out of the queue, because no service of its pool could run it. Its next generation
    /// is published when a service can.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub withdrawn_at: Option<Timestamp>,
    /// The runs of the generation before, while it is looked at.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub former: Vec<Tenure>,
    #[serde(default)]
    pub seen: Seen,
    /// The idempotency keys of the newest requests that acted on it, the newest last.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub acted: Vec<Uuid>,
    /// Of the newest request that changed it: what is published next belongs to that trace.
    #[serde(default, with = "trace::carried", skip_serializing_if = "Option::is_none")]
    pub trace: Option<TraceContext>,
    pub created_at: Timestamp,
    pub modified_at: Timestamp,
    /// When its status became final.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Timestamp>,
}

/// Times that the decisions about rows depend on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RowPolicy {
    /// How long one manager may take to publish (default 30 s).
    pub lease: Duration,
    /// First and longest pause after a publish without an answer (defaults 1 s and 60 s).
    pub unsure_first: Duration,
    pub unsure_max: Duration,
    /// First and longest pause before a command is sent again (defaults 2 s and 60 s).
    pub repeat_first: Duration,
    pub repeat_max: Duration,
    /// How long services may refuse an observer before it fails (default 15 min).
    pub refused_max: Duration,
    /// How long a doomed observer waits in its queue before the queue is swept (default 30 s).
    pub sweep_after: Duration,
    /// How long a deleted and a failed or completed observer stays readable (defaults 1 h and 3 days).
    pub retention_deleted: Duration,
    pub retention_failed: Duration,
}

impl RowPolicy {
    /// Whether the lease of a publish that is under way is to be renewed now. One that is over is another
    /// manager's.
    #[must_use]
    pub fn renews(&self, until: Timestamp, now: Timestamp) -> bool {
        let left = until.since(now);
        !left.is_zero() && left < self.lease.mul_f64(RENEW_BELOW)
    }
}

impl Default for RowPolicy {
    fn default() -> Self {
        Self {
            lease: Duration::from_secs(30),
            unsure_first: Duration::from_secs(1),
            unsure_max: Duration::from_secs(60),
            repeat_first: Duration::from_secs(2),
            repeat_max: Duration::from_secs(60),
            refused_max: Duration::from_secs(900),
            sweep_after: Duration::from_secs(30),
            retention_deleted: Duration::from_secs(3600),
            retention_failed: Duration::from_secs(3 * 86_400),
        }
    }
}

/// What applying a report came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Applied {
    /// The row changed.
    Changed,
    /// Nothing new.
    Same,
    /// Of a generation that is over.
    Stale,
}

impl Row {
    /// A new observer, its first publish leased to the manager that creates it.
    #[must_use]
    pub fn created(id: ObserverId, wanted: Wanted, now: Timestamp, policy: &RowPolicy) -> Self {
        Self {
            id,
            version: 1,
            wanted,
            desired: Desired::Running,
            generation: 1,
            reserve: 0,
            mark: Some(Mark { until: now.plus(policy.lease), failures: 0 }),
            repeat: None,
            commanded_at: None,
            published_at: None,
            doomed_at: None,
            ending: None,
            promised: None,
            watch: None,
            unlisted: None,
            refused_since: None,
            withdrawn_at: None,
            former: Vec::new(),
            seen: Seen::default(),
            acted: Vec::new(),
            trace: None,
            created_at: now,
            modified_at: now,
            ended_at: None,
        }
    }

    /// The highest run heard of in this generation.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        Epoch::new(self.generation, self.seen.acquisitions())
    }

    /// The service that holds its message, as far as that service says so.
    #[must_use]
    pub fn holder(&self) -> Option<ServiceId> {
        self.seen.holder().filter(|_| self.unlisted.is_none())
    }

    /// No run under this may start or go on.
    #[must_use]
    pub fn floor(&self) -> Floor {
        let over = self.seen.settled.is_some() || self.is_to_end();
        let below = if over { Epoch::after_generation(self.generation) } else { self.epoch() };
        Floor { id: self.id, below }
    }

    /// Status and reason, by the rules of [`status_of`].
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        status_of(self)
    }

    /// Applies one report. The row's whole observed half depends only on the set of reports applied.
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
            // The database forgot a publish (it was restored): what runs is the truth.
            self.generation = generation;
            self.seen = Seen::default();
            (self.published_at, self.refused_since, self.withdrawn_at) = (None, None, None);
        }
        let key = Key { acquisitions: report.epoch.acquisitions(), seq };
        self.seen.join(&Heard { service, key, at, event: report.event.clone() });
        // The obvious rule takes the end of an older run for the end of the generation. The next generation would then
        // start beside the newest run. Instead, the generation ends when the newest run reports its own end.
        let is_news = before.seen.settled.is_none();
        if is_news
            && self.seen.is_settled_by_an_older_run()
            && (self.seen.was_stopped() || self.wants_reissue())
        {
            self.seen.settled = None;
        }
        if self.seen.latest != before.seen.latest {
            self.unlisted = None;
            let since = self.refused_since.unwrap_or(now);
            self.refused_since = self.seen.refusal().map(|_| since);
        }
        self.mark = None;
        self.published_at = self.published_at.or(Some(now));
        if self.seen.acquisitions() > before.seen.acquisitions() {
            self.watch_deaths(now);
        }
        self.settle_into(now);
        if *self == before {
            return Applied::Same;
        }
        self.modified_at = now;
        Applied::Changed
    }

    /// Whether an entry of an inventory only repeats what the row says.
    ///
    /// The obvious way applies each entry like the report that it repeats. But its number is higher, so every row
    /// would be written once a minute. An attempt starts once in a run and fails once, so nothing that came in
    /// between is lost when the entry is passed over.
    #[must_use]
    pub fn repeats(&self, service: ServiceId, entry: &RunReport) -> bool {
        let same =
            self.mark.is_none() && self.unlisted.is_none() && entry.epoch.generation() == self.generation;
        let acquisitions = entry.epoch.acquisitions();
        same && match &entry.event {
            RunEvent::Started { attempt, .. } => self.seen.is_running(service, acquisitions, *attempt),
            RunEvent::Erred { error, next_at, .. } => {
                self.seen.is_restarting(service, acquisitions, (error, *next_at))
            }
            _ => false,
        }
    }

    /// The row's answer to a report, where the run it speaks of may not go on.
    #[must_use]
    pub fn answer(&self, report: &RunReport) -> Option<Floor> {
        let floor = self.floor();
        let comes_again = matches!(report.event, RunEvent::Refused { .. });
        ((report.event.holds() || comes_again) && report.epoch < floor.below).then_some(floor)
    }

    /// Who must hear that its run is over, and the revocation: the service that held this generation in `before`, if
    /// another one has it now. Its messages may have been handed out again without any sign to it.
    #[must_use]
    pub fn taken_over_from(&self, before: &Self) -> Option<(ServiceId, Floor)> {
        let (earlier, latest) = (before.holder()?, self.seen.latest.as_ref()?);
        let later_run = self.generation == before.generation && self.epoch() > before.epoch();
        (later_run && latest.service != earlier).then(|| (earlier, self.floor()))
    }

    /// The person wants it gone. Repeatable; answers whether anything changed.
    pub fn delete(&mut self, now: Timestamp, policy: &RowPolicy) -> bool {
        if self.desired == Desired::Deleted {
            return false;
        }
        self.desired = Desired::Deleted;
        self.doomed_at = Some(now);
        self.modified_at = now;
        self.ended_at = None;
        self.settle_into(now);
        if self.verdict().status == Status::OnDeleting {
            self.command(now, policy);
        }
        true
    }

    /// Raises the generation and leases its publish. What was seen of the old one is forgotten.
    pub fn reissue(&mut self, now: Timestamp, policy: &RowPolicy) {
        let failures = self.mark.map_or(0, |mark| mark.failures.saturating_add(1));
        if self.generation.max(self.reserve) > 0 {
            self.commanded_at = Some(now);
        }
        self.generation = self.generation.max(self.reserve).saturating_add(1);
        self.reserve = 0;
        let runs = std::mem::take(&mut self.seen).tenures;
        self.former = if self.watch.is_some() { runs } else { Vec::new() };
        (self.ending, self.promised, self.unlisted) = (None, None, None);
        (self.published_at, self.refused_since, self.withdrawn_at) = (None, None, None);
        if self.desired == Desired::Running {
            self.repeat = None;
        }
        self.mark = Some(Mark { until: now.plus(policy.lease), failures });
        self.ended_at = None;
        self.modified_at = now;
    }

    /// The broker has confirmed the publish of `generation`; answers whether that was still open.
    pub fn confirmed(&mut self, generation: u32, at: Timestamp) -> bool {
        if self.generation != generation || self.mark.is_none() {
            return false;
        }
        self.mark = None;
        self.published_at = Some(at);
        self.modified_at = self.modified_at.max(at);
        true
    }

    /// The publish of `generation` is still under way: its lease goes on.
    pub fn renew(&mut self, generation: u32, now: Timestamp, policy: &RowPolicy) -> bool {
        match &mut self.mark {
            Some(mark) if self.generation == generation => {
                mark.until = now.plus(policy.lease);
                true
            }
            _ => false,
        }
    }

    /// The publish of `generation` ended without an answer: nobody waits for the rest of its lease, but
    /// each time longer.
    pub fn unsure(&mut self, generation: u32, now: Timestamp, policy: &RowPolicy) -> bool {
        match &mut self.mark {
            Some(mark) if self.generation == generation => {
                mark.until = now.plus(doubled(policy.unsure_first, mark.failures, policy.unsure_max));
                true
            }
            _ => false,
        }
    }

    /// Notes that the floor goes out now and when it goes out again.
    pub fn command(&mut self, now: Timestamp, policy: &RowPolicy) {
        let times = self.repeat.map_or(0, |repeat| repeat.times);
        let pause = doubled(policy.repeat_first, times, policy.repeat_max);
        self.repeat = Some(Repeat { last_at: now, next_at: now.plus(pause), times: times.saturating_add(1) });
        self.commanded_at = Some(now);
    }

    /// Whether an end was asked for and is not reported yet.
    #[must_use]
    pub fn awaits_end(&self) -> bool {
        self.is_to_end() && self.generation > 0 && self.seen.settled.is_none()
    }

    fn is_to_end(&self) -> bool {
        self.desired != Desired::Running || self.ending == Some(self.generation)
    }

    /// Whether it is to be published again: its last generation was stopped, or has ended by itself after
    /// the next one was promised.
    #[must_use]
    pub fn wants_reissue(&self) -> bool {
        let promised = self.promised == Some(self.generation);
        let settled = self.seen.settled.as_ref();
        self.desired == Desired::Running
            && self.withdrawn_at.is_none()
            && settled.is_some_and(|settled| promised || settled.how == crate::seen::Settlement::Stopped)
    }

    /// When the reconciler has to look at this row again; `None`: only a report or a person moves it.
    #[must_use]
    pub fn due_at(&self, policy: &RowPolicy) -> Option<Timestamp> {
        let mark = self.mark.map(|mark| mark.until);
        let again = || self.repeat.map_or(self.modified_at, |repeat| repeat.next_at);
        let repeat = self.awaits_end().then(again);
        let reissue = self.wants_reissue().then_some(self.modified_at);
        let forget = self.forget_at(policy);
        let watch = self.watch.map(|watch| watch.next_at);
        [mark, repeat, reissue, forget, self.fails_at(policy), watch].into_iter().flatten().min()
    }

    /// When the row may be forgotten.
    #[must_use]
    pub fn forget_at(&self, policy: &RowPolicy) -> Option<Timestamp> {
        let ended = self.ended_at?;
        let keep = match self.verdict().status {
            Status::Deleted => policy.retention_deleted,
            Status::Failed | Status::Completed => policy.retention_failed,
            Status::Created | Status::Processing | Status::OnDeleting | Status::Paused => return None,
        };
        Some(ended.plus(keep))
    }

    /// It was settled by a manager.
    pub(crate) fn note_settled(&mut self, now: Timestamp) {
        self.settle_into(now);
        self.modified_at = now;
    }

    fn settle_into(&mut self, now: Timestamp) {
        if self.seen.settled.is_some() {
            // It is still watched: what its services died of counts against nobody else.
            self.repeat = None;
        }
        let over = self.verdict().status.is_final();
        self.ended_at = if over { self.ended_at.or(Some(now)) } else { None };
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde wants it so")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

pub(crate) fn doubled(first: Duration, times: u32, most: Duration) -> Duration {
    let factor = 1_u32.checked_shl(times.min(16)).unwrap_or(u32::MAX);
    first.saturating_mul(factor).min(most)
}
