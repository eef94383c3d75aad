//! Whether a changed member is healthy, has failed, or is not known to be either yet.

use crate::clock::{Timestamp, show};
use crate::record::observed::{Key, RunPhase, Settlement};
use crate::record::row::{Desired, Row};
use crate::record::status::Status;
use crate::rollout::{Member, Rollout};
use serde::{Deserialize, Serialize};

/// What a manager knows of the run of a member since the member was changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Watch {
    /// When it was changed, or tried again after a failure.
    pub since: Timestamp,
    /// The first generation that has the changed definition.
    pub generation: u32,
    /// The newest error of that generation that was known by then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub known_error: Option<Key>,
    /// The failed execution of its schedule that was known by then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub known_settlement: Option<(Key, Timestamp)>,
    /// The start since which its code executes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runs: Option<RunsSince>,
}

/// A start of the code, and when a manager first saw that it executes, by the database's clock.
///
/// The obvious way takes the time that the service reports. But a service whose clock is behind would make its observers
/// healthy too early.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunsSince {
    pub generation: u32,
    pub acquisitions: u32,
    pub attempt: u32,
    pub seen_at: Timestamp,
}

impl Watch {
    /// Begins with the row as the change leaves it.
    pub(crate) fn of(row: &Row, now: Timestamp) -> Self {
        let restarts = row.awaits_end() || row.wants_republish();
        let known_error = row.observed.errored_at.as_ref().map(|errored| errored.key);
        Self {
            since: now,
            generation: if restarts { row.generation.saturating_add(1) } else { row.generation },
            known_error: known_error.filter(|_| !restarts),
            known_settlement: settlement_of(row),
            runs: None,
        }
    }

    /// What counts after the rollout was resumed: what happened before does not, by the clocks of the services.
    fn resumed(self, row: &Row, resumed_at: Option<Timestamp>) -> Self {
        let Some(resumed_at) = resumed_at.filter(|at| *at > self.since) else { return self };
        let again = Self::of(row, resumed_at);
        let errored_before =
            row.observed.errored_at.as_ref().is_some_and(|errored| errored.value < resumed_at);
        let ended_before = row.observed.settled.as_ref().is_some_and(|settled| settled.at < resumed_at);
        Self {
            known_error: again.known_error.filter(|_| errored_before),
            known_settlement: again.known_settlement.filter(|_| ended_before),
            runs: self.runs,
            ..again
        }
    }

    fn new_error(&self, row: &Row) -> Option<String> {
        let errored = row.observed.errored_at.as_ref()?;
        let is_new = match row.generation.cmp(&self.generation) {
            std::cmp::Ordering::Less => false,
            std::cmp::Ordering::Equal => self.known_error.is_none_or(|known| errored.key > known),
            std::cmp::Ordering::Greater => true,
        };
        let error = row.observed.last_error.as_ref().map_or("no error is known", |error| &error.value);
        is_new.then(|| format!("an attempt failed: {error}"))
    }
}

/// How and when the generation of a row ended. Settlements by managers have the same key.
fn settlement_of(row: &Row) -> Option<(Key, Timestamp)> {
    row.observed.settled.as_ref().map(|settled| (settled.key, settled.at))
}

/// What a manager concludes about a changed member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Judgement {
    /// Not known yet. The member is stored if what is known about its run has changed.
    Waits(Watch),
    /// Healthy, or (with the reason) not to run.
    Done(Option<String>),
    /// A user has changed it since.
    Skipped(String),
    Failed(String),
    TimedOut(String),
}

/// Why the rollout does not touch the row; `None` if it may.
pub(crate) fn left_alone(row: Option<&Row>, version: u32) -> Option<String> {
    let Some(row) = row.filter(|row| row.desired != Desired::Deleted) else {
        return Some("it was deleted".to_owned());
    };
    let current = row.revision().number;
    (current != version)
        .then(|| format!("it was edited: its definition has version {current} instead of {version}"))
}

/// Whether its code executes, or will when a service has taken its message. Such a member is changed only if few others
/// are changed and not yet healthy.
pub(crate) fn is_to_run(row: &Row) -> bool {
    let status = row.verdict().status;
    status == Status::Processing || status == Status::Created && row.waiting.is_none() && !row.is_withdrawn()
}

/// The start since which its code executes on a living service.
pub(crate) fn executes(row: &Row, holder_lives: bool, now: Timestamp) -> Option<RunsSince> {
    let running = row.observed.latest.as_ref().is_some_and(|latest| latest.phase == RunPhase::Running);
    let is_held = holder_lives && row.holder().is_some() && !row.awaits_end();
    let started = row.observed.started.as_ref().filter(|_| running && is_held)?;
    Some(RunsSince {
        generation: row.generation,
        acquisitions: started.key.acquisitions,
        attempt: started.value.attempt,
        seen_at: now,
    })
}

/// Judges a member in the state `changed`.
pub(crate) fn judge(
    rollout: &Rollout,
    member: &Member,
    (row, holder_lives): (Option<&Row>, bool),
    now: Timestamp,
) -> Judgement {
    let (Some(watch), Some(changed_to)) = (&member.watch, member.changed_to) else {
        return Judgement::Failed("what it was changed to is not known".to_owned());
    };
    if let Some(why) = left_alone(row, changed_to) {
        return Judgement::Skipped(why);
    }
    let Some(row) = row else { return Judgement::Skipped("it was deleted".to_owned()) };
    let mut watch = watch.clone().resumed(row, rollout.resumed_at);
    if !row.awaits_end() {
        if let Some(over) = judge_run(row, &watch) {
            return over;
        }
        watch.runs =
            executes(row, holder_lives, now).filter(|runs| runs.generation >= watch.generation).map(|runs| {
                match watch.runs {
                    Some(known) if RunsSince { seen_at: now, ..known } == runs => known,
                    _ => runs,
                }
            });
    }
    if watch.runs.is_some_and(|runs| now.since(runs.seen_at) >= rollout.healthy_for) {
        return Judgement::Done(None);
    }
    if now.since(watch.since) >= rollout.timeout {
        let verdict = row.verdict();
        let said = format!("{} {}", verdict.status, verdict.reason);
        let timeout = show(rollout.timeout);
        return Judgement::TimedOut(format!("not healthy within {timeout}: {}", said.trim()));
    }
    Judgement::Waits(watch)
}

/// Whether the run of the changed definition has failed, or is over.
fn judge_run(row: &Row, watch: &Watch) -> Option<Judgement> {
    let verdict = row.verdict();
    if verdict.status == Status::Failed {
        return Some(Judgement::Failed(verdict.reason.to_string()));
    }
    if let Some(error) = watch.new_error(row) {
        return Some(Judgement::Failed(error));
    }
    let is_known = row.generation == watch.generation && settlement_of(row) == watch.known_settlement;
    if row.generation >= watch.generation
        && !is_known
        && let Some(Settlement::Failed { error, .. } | Settlement::NotStarted { error }) = row.settlement()
    {
        return Some(Judgement::Failed(format!("an execution failed: {error}")));
    }
    match verdict.status {
        Status::Completed | Status::Paused | Status::Scheduled => {
            Some(Judgement::Done(Some(format!("does not run: {}", verdict.status))))
        }
        Status::Created | Status::Processing | Status::Failed | Status::OnDeleting | Status::Deleted => None,
    }
}
