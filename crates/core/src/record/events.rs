//! The events of an observer between two versions of its row, as text, and the timing of a move.

use crate::clock::{Timestamp, show};
use crate::epoch::Epoch;
use crate::id::{Name, ServiceId};
use crate::observer::difference::differences;
use crate::record::observed::{Handover, RunEnding, RunPhase, Settled, Settlement, Stamped, Start};
use crate::record::row::{Desired, Row, Waiting};
use crate::record::status::Status;
use crate::spelling::nearest;
use crate::wording::path;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

macro_rules! words {
    ($($(#[$doc:meta])* $variant:ident = $word:literal,)*) => {
        /// One kind of event.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub enum EventKind { $($(#[$doc])* #[serde(rename = $word)] $variant,)* }

        impl EventKind {
            /// Every kind.
            pub const ALL: &[Self] = &[$(Self::$variant,)*];
            /// The kind as text.
            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word,)* }
            }
        }
    };
}

words! {
    Created = "created",
    /// It ran without a row in the database.
    Adopted = "adopted",
    Changed = "changed",
    PauseRequested = "pause_requested",
    ResumeRequested = "resume_requested",
    RestartRequested = "restart_requested",
    /// It gives its slot to an observer of a higher priority.
    Preempted = "preempted",
    MoveRequested = "move_requested",
    /// It was to move to a service that the user named, and another service took it.
    MovedElsewhere = "moved_elsewhere",
    DeleteRequested = "delete_requested",
    /// A run was requested before the next time of its schedule.
    TriggerRequested = "trigger_requested",
    /// It waits for its `start_at`.
    Scheduled = "scheduled",
    /// It waits for a slot.
    Waiting = "waiting",
    /// It has a slot after a wait: its next generation will be published.
    Admitted = "admitted",
    /// A new generation will be published.
    Republished = "republished",
    Started = "started",
    /// Its code was restarted within the same run.
    Restarted = "restarted",
    Errored = "errored",
    HandedOver = "handed_over",
    /// Two services ran it at once, because its message existed twice: it restarts.
    Duplicated = "duplicated",
    Refused = "refused",
    /// A manager withdraws its message: no service of its pool can currently run it.
    Withdrawn = "withdrawn",
    Stopped = "stopped",
    Completed = "completed",
    Failed = "failed",
    Deleted = "deleted",
    ServiceRegistered = "service_registered",
    ServiceSuspect = "service_suspect",
    ServiceLost = "service_lost",
    ServiceGone = "service_gone",
    ServiceCordoned = "service_cordoned",
    ServiceUncordoned = "service_uncordoned",
    ServiceDraining = "service_draining",
    /// The service holds no observer any more.
    ServiceDrained = "service_drained",
    ServiceResized = "service_resized",
    Rebalanced = "rebalanced",
    LimitSet = "limit_set",
    LimitDeleted = "limit_deleted",
    /// Managers admit no observer to a pool until it is resumed.
    PoolPaused = "pool_paused",
    PoolResumed = "pool_resumed",
    /// A rate was created or changed.
    RateSet = "rate_set",
    RateDeleted = "rate_deleted",
    RolloutStarted = "rollout_started",
    /// A member has failed, or a user paused it: managers change no member until it is resumed.
    RolloutPaused = "rollout_paused",
    RolloutResumed = "rollout_resumed",
    /// Managers restore the recorded versions of its members.
    RolloutReverting = "rollout_reverting",
    RolloutFinished = "rollout_finished",
    RolloutReverted = "rollout_reverted",
    RolloutCancelled = "rollout_cancelled",
    BatchCreated = "batch_created",
    /// The request that creates its members was cut off.
    BatchIncomplete = "batch_incomplete",
    /// Each of its members has ended.
    BatchCompleted = "batch_completed",
    /// Its failed members are retried.
    BatchRetried = "batch_retried",
    /// Managers delete the members that have not ended.
    BatchCancelling = "batch_cancelling",
    BatchCancelled = "batch_cancelled",
    BatchDeleted = "batch_deleted",
    WorkQueueCreated = "work_queue_created",
    SafeMode = "safe_mode",
    /// A service refused messages that no manager has signed.
    MessagesRefused = "messages_refused",
    /// So many observers seem to be lost that managers republish only some of them now.
    RepublishCapped = "republish_capped",
    /// Services died shortly after it started there: from now on it starts alone.
    CrashLooping = "crash_looping",
    /// A mass failure: so many observers would be quarantined at once that none is.
    QuarantineCapped = "quarantine_capped",
    /// Stands for a stored event that this manager cannot read, such as one of a newer version. It is never stored.
    Unreadable = "unreadable",
}

impl fmt::Display for EventKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for EventKind {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL.iter().copied().find(|what| what.as_str() == text).ok_or_else(|| {
            let words = Self::ALL.iter().map(|what| what.as_str()).collect::<Vec<_>>();
            match nearest(text, words.iter().copied()) {
                Some(near) => format!("`{text}` is not an event; did you mean {near}?"),
                None => format!("`{text}` is not an event: one of {}", words.join(", ")),
            }
        })
    }
}

/// One event of an observer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RowEvent {
    pub kind: EventKind,
    pub at: Timestamp,
    pub epoch: Epoch,
    pub service: Option<ServiceId>,
    /// The cause, if known.
    pub text: String,
}

/// The events between one version of a row and a later one. `before` is `None` for a new row.
#[must_use]
pub fn happenings(before: Option<&Row>, after: &Row) -> Vec<RowEvent> {
    let mut told = Teller { after, list: Vec::new() };
    let Some(before) = before else {
        told.plainly(
            EventKind::Created,
            format!("kind {} in pool {}", after.definition.kind, after.definition.pool),
        );
        told.waits(None);
        return told.list;
    };
    if before.definition != after.definition {
        told.plainly(EventKind::Changed, changes(before, after));
    }
    if before.desired != after.desired {
        let what = match after.desired {
            Desired::Running => EventKind::ResumeRequested,
            Desired::Paused => EventKind::PauseRequested,
            Desired::Deleted => EventKind::DeleteRequested,
        };
        told.plainly(what, String::new());
    }
    if after.withdrawn_at.is_some() && before.withdrawn_at != after.withdrawn_at {
        told.plainly(EventKind::Withdrawn, withdrawn(after));
    } else if after.ending.is_some() && before.ending != after.ending {
        let gives_up_slot = after.readmitted == after.ending && before.readmitted != after.readmitted;
        let is_asked = before.definition != after.definition || before.desired != after.desired;
        let unasked = gives_up_slot && !is_asked && before.generation == after.generation;
        match &after.preempted {
            _ if before.duplicated_at != after.duplicated_at => told.plainly(
                EventKind::Duplicated,
                "two services ran it, because its message existed twice: both stop, and it starts again"
                    .to_owned(),
            ),
            Some(preempted) if unasked => told.plainly(
                EventKind::Preempted,
                format!("{preempted}; its own is {}: it returns to the backlog", after.definition.priority),
            ),
            _ => {
                let why = if unasked { "a limit is enforced: it returns to the backlog" } else { "" };
                told.plainly(EventKind::RestartRequested, why.to_owned());
            }
        }
    }
    if was_triggered(before, after) {
        told.plainly(EventKind::TriggerRequested, String::new());
    }
    if after.generation > before.generation {
        match before.waiting {
            Some(Waiting { since, .. }) if after.waiting.is_none() => {
                let waited = show(Duration::from_secs(after.modified_at.since(since).as_secs()));
                told.plainly(EventKind::Admitted, format!("waited {waited}"));
            }
            _ => told.plainly(EventKind::Republished, cause(before).to_owned()),
        }
    }
    told.seen(before);
    told.waits(Some(before));
    let status = |row: &Row| row.verdict().status;
    if status(before) != Status::Deleted && status(after) == Status::Deleted {
        told.plainly(EventKind::Deleted, String::new());
    }
    told.list
}

/// The event of a row that was created from a service's message. `told` is the name in the message.
#[must_use]
pub fn adopted(after: &Row, told: &Name) -> RowEvent {
    let text = if *told == after.definition.name {
        "it ran, but the database had no row for it".to_owned()
    } else {
        format!("it ran as {told}, but another observer in the database has that name")
    };
    let epoch = after.epoch();
    RowEvent { kind: EventKind::Adopted, at: after.modified_at, epoch, service: None, text }
}

/// The most members that the event of a change names.
const NAMED_MAX: usize = 5;

/// The members of the definition that differ.
fn changes(before: &Row, after: &Row) -> String {
    let values = [before, after].map(|row| serde_json::to_value(&*row.definition).unwrap_or_default());
    let found = differences(&values[0], &values[1]);
    let named: Vec<String> = found.iter().take(NAMED_MAX).map(|it| path(&it.pointer)).collect();
    let more = if found.len() > NAMED_MAX {
        format!(" and {} more", found.len() - NAMED_MAX)
    } else {
        String::new()
    };
    format!("version {}: {}{more}", after.revision().number, named.join(", "))
}

fn was_triggered(before: &Row, after: &Row) -> bool {
    let queued = |row: &Row| row.executions.as_ref().is_some_and(|executions| executions.queued);
    let is_early = before.opens_at().is_some_and(|at| at > after.modified_at) && after.is_waiting();
    let same = before.definition == after.definition;
    same && after.definition.schedule.is_some() && (is_early || queued(after) && !queued(before))
}

fn withdrawn(after: &Row) -> String {
    let (pool, kind) = (&after.definition.pool, &after.definition.kind);
    format!(
        "no active service of pool {pool} that runs kind {kind} has a free slot: a manager withdraws its message"
    )
}

fn cause(before: &Row) -> &'static str {
    if before.publish_lease.is_some() {
        "the broker did not confirm its publish"
    } else if before.generation == 0 {
        "it is to run now"
    } else if before.observed.settled.is_some() {
        "its former run has ended"
    } else {
        "its message was not found"
    }
}

/// Whether a manager ended it while it did not run: it may have ended before, for example because it was paused.
fn ended_at_rest(settled: &Settled) -> bool {
    matches!(settled.how, Settlement::Finished { .. } | Settlement::NotStarted { .. })
}

struct Teller<'a> {
    after: &'a Row,
    list: Vec<RowEvent>,
}

impl Teller<'_> {
    fn plainly(&mut self, kind: EventKind, text: String) {
        let (at, epoch) = (self.after.modified_at, self.after.epoch());
        self.list.push(RowEvent { kind, at, epoch, service: None, text });
    }

    fn waits(&mut self, before: Option<&Row>) {
        if let Some(at) = self.after.opens_at()
            && before.and_then(Row::opens_at) != Some(at)
        {
            self.plainly(EventKind::Scheduled, format!("starts at {at}"));
        }
        if self.after.is_waiting() && !before.is_some_and(Row::is_waiting) {
            let is_known = before.is_some_and(Row::is_behind_limit);
            if !is_known {
                let slot = format!("for a slot in pool {}", self.after.definition.pool);
                let limits =
                    self.after.definition.limits.iter().map(|key| format!(" and a place of limit {key}"));
                self.plainly(EventKind::Waiting, slot + &limits.collect::<String>());
            }
        }
        if let Some(key) = self.after.behind.as_ref().filter(|_| self.after.is_behind_limit())
            && before.and_then(|before| before.behind.as_ref()) != Some(key)
        {
            self.plainly(EventKind::Waiting, format!("for a place of limit {key}"));
        }
    }

    fn say(
        &mut self,
        kind: EventKind,
        (service, at): (ServiceId, Timestamp),
        acquisitions: u32,
        text: String,
    ) {
        let epoch = Epoch::new(self.after.generation, acquisitions);
        self.list.push(RowEvent { kind, at, epoch, service: Some(service), text });
    }

    fn seen(&mut self, before: &Row) {
        let nothing = crate::record::observed::Observed::default();
        let old = if before.generation == self.after.generation { &before.observed } else { &nothing };
        let new = &self.after.observed;
        // A start that announces readiness is reported a second time.
        let is_known = |known: &Stamped<Start>, start: &Stamped<Start>| {
            start.key <= known.key
                || (start.key.acquisitions, start.value) == (known.key.acquisitions, known.value)
        };
        if let Some(start) = &new.started
            && !old.started.as_ref().is_some_and(|known| is_known(known, start))
            && let Some(newest_run) = &new.newest_run
        {
            let same_run =
                old.started.as_ref().is_some_and(|known| known.key.acquisitions == start.key.acquisitions);
            let what = if same_run { EventKind::Restarted } else { EventKind::Started };
            let text = format!("attempt {}", start.value.attempt);
            self.say(what, (newest_run.service, start.value.at), start.key.acquisitions, text);
        }
        if let Some(error) = &new.last_error
            && old.last_error.as_ref().is_none_or(|known| error.key > known.key)
            && let Some(latest) = &new.latest
            && matches!(latest.phase, RunPhase::Restarting { .. })
        {
            let (key, text) = (error.key, error.value.clone());
            self.say(EventKind::Errored, (latest.service, latest.at), key.acquisitions, text);
        }
        // The latest report does not decide: the next service's start may arrive before this one's last report.
        for run in &new.runs {
            let known = old.runs.iter().any(|it| it.acquisitions == run.acquisitions && it.left.is_some());
            if let Some(Stamped { value: Handover { at, cause }, .. }) = run.left
                && !known
            {
                let text = cause.map_or_else(String::new, |cause| cause.as_str().to_owned());
                self.say(EventKind::HandedOver, (run.service, at), run.acquisitions, text);
            }
        }
        if let Some(latest) = &new.latest
            && old.latest.as_ref().is_none_or(|known| latest.key > known.key)
        {
            let who = (latest.service, latest.at);
            match &latest.phase {
                RunPhase::Refused { why } => {
                    self.say(EventKind::Refused, who, latest.key.acquisitions, why.clone());
                }
                RunPhase::Held { .. }
                | RunPhase::Starting
                | RunPhase::Running
                | RunPhase::Restarting { .. }
                | RunPhase::HandedOver
                | RunPhase::HandedOverFor { .. } => {}
            }
        }
        if let Some(settled) = &new.settled
            && (old.settled.is_none() || ended_at_rest(settled) && old.settled.as_ref() != Some(settled))
        {
            self.settled(settled);
        }
    }

    fn settled(&mut self, settled: &Settled) {
        let (what, text) = match &settled.how {
            Settlement::Stopped => (EventKind::Stopped, String::new()),
            Settlement::Completed => (EventKind::Completed, String::new()),
            Settlement::Finished { at } if self.after.definition.finish_at == Some(*at) => {
                (EventKind::Completed, format!("at its finish_at, {at}"))
            }
            Settlement::Finished { at } if self.after.closes_at == Some(*at) => {
                (EventKind::Stopped, format!("its window closed at {at}"))
            }
            Settlement::Finished { at } => (EventKind::Stopped, format!("at its former finish_at, {at}")),
            Settlement::Failed { error, .. } | Settlement::NotStarted { error } => {
                (EventKind::Failed, error.clone())
            }
        };
        if settled.is_by_manager() {
            // Its key ranks it among the reports; it names no run.
            let (at, epoch) = (settled.at, self.after.epoch());
            self.list.push(RowEvent { kind: what, at, epoch, service: None, text });
        } else {
            self.say(what, (settled.service, settled.at), settled.key.acquisitions, text);
        }
    }
}

/// The timing of a move from one service to the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Move {
    /// Time without a run.
    pub gap: Duration,
    /// Whether the gap is at most this: it begins with the last sign of life of the earlier run's service, because the run
    /// did not report its end.
    pub gap_is_bound: bool,
    /// Time in which two runs were reported at once.
    pub overlap: Duration,
}

/// `heard` is the last sign of life of the earlier run's service; it counts if the run did not report its own end.
#[must_use]
pub fn moved(earlier: &RunEnding, heard: Option<Timestamp>, next_start: Timestamp) -> Move {
    let end = if earlier.over { earlier.at } else { heard.map_or(earlier.at, |heard| heard.max(earlier.at)) };
    Move { gap: next_start.since(end), gap_is_bound: !earlier.over, overlap: end.since(next_start) }
}

#[cfg(test)]
#[path = "events_tests.rs"]
mod tests;
