//! The status words, and how one follows from what is wanted, published and seen.

use crate::clock::Timestamp;
use crate::row::{Desired, Row};
use crate::seen::{Doing, Seen, Settlement};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// One word for where an observer stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Status {
    /// Wanted, not yet reported as running.
    Created,
    /// Runs on its service, or is on its way to the next one.
    Processing,
    /// Told to stop.
    OnDeleting,
    /// Over by a delete.
    Deleted,
    /// Not wanted now.
    Paused,
    /// A finite one that ended well.
    Completed,
    /// It gave up.
    Failed,
}

impl Status {
    /// Every word, in the order of a life.
    pub const ALL: [Self; 7] = [
        Self::Created,
        Self::Processing,
        Self::OnDeleting,
        Self::Deleted,
        Self::Paused,
        Self::Completed,
        Self::Failed,
    ];

    /// Whether only a person brings it back.
    #[must_use]
    pub fn is_final(self) -> bool {
        match self {
            Self::Deleted | Self::Completed | Self::Failed => true,
            Self::Created | Self::Processing | Self::OnDeleting | Self::Paused => false,
        }
    }
    /// Whether it uses, or waits for, a slot.
    #[must_use]
    pub fn uses_slot(self) -> bool {
        match self {
            Self::Created | Self::Processing | Self::OnDeleting => true,
            Self::Deleted | Self::Paused | Self::Completed | Self::Failed => false,
        }
    }
    /// The word as it is written.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Created => "Created",
            Self::Processing => "Processing",
            Self::OnDeleting => "OnDeleting",
            Self::Deleted => "Deleted",
            Self::Paused => "Paused",
            Self::Completed => "Completed",
            Self::Failed => "Failed",
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for Status {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|status| status.as_str() == text).ok_or_else(|| {
            let words = Self::ALL.map(Self::as_str).join(", ");
            format!("`{text}` is not a status: one of {words}")
        })
    }
}

/// A status and why it is that one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    pub status: Status,
    pub reason: Reason,
}

/// Why an observer stands where it stands; shown as a sentence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reason {
    /// Nothing to add.
    None,
    /// Not in the broker yet.
    ToBePublished,
    /// In the queue of this pool.
    WaitingForSlot { pool: String },
    /// Delivered, not started.
    Held { why: String, refuses: bool },
    /// Its code failed and is started again.
    Restarting { next_at: Timestamp },
    /// Its service does not hold its message any more and has not said why.
    Unlisted,
    /// On its way from one service to the next.
    Moving,
    /// Nobody who had it could run it.
    Refused { why: String },
    /// No service of its pool could run it: its message is out of the queue until one can.
    NoServiceForKind { kind: String, pool: String },
    /// Told to stop, not yet reported as stopped.
    Ending,
    /// Told to stop so that it can begin anew.
    StartingAnew,
    /// Told to pause, not yet reported as stopped.
    Pausing,
    /// It gave up.
    GaveUp { error: String, attempts: u32 },
    /// A manager failed it: no service could run it.
    RefusedTooLong { error: String },
    /// A manager failed it: it ended too many services.
    Quarantined { error: String },
}

impl Reason {
    /// Whether it stands in a queue until some service has room.
    #[must_use]
    pub fn is_queued(&self) -> bool {
        matches!(self, Self::WaitingForSlot { .. } | Self::Moving)
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => Ok(()),
            Self::ToBePublished => f.write_str("to be published"),
            Self::WaitingForSlot { pool } => write!(f, "waiting for a slot in pool {pool}"),
            Self::Held { why, .. } => write!(f, "held: {why}"),
            Self::Restarting { next_at } => write!(f, "restarting after an error, next attempt at {next_at}"),
            Self::Unlisted => f.write_str("its service does not have it any more: it is searched for"),
            Self::Moving => f.write_str("handed over, waiting for a slot"),
            Self::Refused { why } => write!(f, "refused: {why}"),
            Self::NoServiceForKind { kind, pool } => {
                write!(f, "no active service of pool {pool} that runs kind {kind} has a free slot")
            }
            Self::Ending => f.write_str("told to stop, waiting for its service to say that it has"),
            Self::StartingAnew => f.write_str("told to stop, then started anew"),
            Self::Pausing => f.write_str("pausing"),
            Self::RefusedTooLong { error } | Self::Quarantined { error } => f.write_str(error),
            Self::GaveUp { error, attempts } => write!(f, "gave up after {attempts} attempts: {error}"),
        }
    }
}

impl Row {
    /// Whether it can come to this status unless a person asks for something else first.
    #[must_use]
    pub fn may_become(&self, status: Status) -> bool {
        let now = self.verdict().status;
        if now == status {
            return true;
        }
        match (self.desired, status) {
            (Desired::Deleted, _) => status == Status::Deleted,
            (_, Status::Deleted | Status::OnDeleting) => false,
            _ if now.is_final() => false,
            (Desired::Paused, _) if now == Status::Paused => false,
            (Desired::Paused, Status::Processing | Status::Created) => self.awaits_end(),
            (Desired::Running, Status::Paused) => false,
            (Desired::Running, Status::Created) => self.awaits_end(),
            _ => true,
        }
    }
}

/// The status of a row: a function of its three halves, never stored as a truth of its own.
#[must_use]
pub fn status_of(row: &Row) -> Verdict {
    let to = |status, reason| Verdict { status, reason };
    let settled = row.seen.settled.as_ref().map(|settled| &settled.how);
    match (row.desired, settled) {
        (Desired::Deleted, Some(_)) => to(Status::Deleted, Reason::None),
        (Desired::Deleted, None) if row.generation == 0 => to(Status::Deleted, Reason::None),
        (Desired::Deleted, None) => to(Status::OnDeleting, Reason::Ending),
        (Desired::Running, Some(_)) if row.wants_reissue() => to(Status::Created, Reason::ToBePublished),
        (Desired::Running | Desired::Paused, Some(Settlement::Completed)) => {
            to(Status::Completed, Reason::None)
        }
        (Desired::Running | Desired::Paused, Some(Settlement::Failed { error, attempts })) => {
            to(Status::Failed, why_failed(row, error.clone(), *attempts))
        }
        (Desired::Paused, Some(Settlement::Stopped)) => to(Status::Paused, Reason::None),
        (Desired::Paused, None) if row.generation == 0 => to(Status::Paused, Reason::None),
        (Desired::Paused, None) => to(word(&row.seen), Reason::Pausing),
        (Desired::Running, Some(Settlement::Stopped) | None) if row.is_withdrawn() => {
            let (kind, pool) = (row.wanted.kind.to_string(), row.wanted.pool.to_string());
            to(Status::Created, Reason::NoServiceForKind { kind, pool })
        }
        (Desired::Running, Some(Settlement::Stopped)) => to(Status::Created, Reason::ToBePublished),
        (Desired::Running, None) if row.awaits_end() => to(word(&row.seen), Reason::StartingAnew),
        (Desired::Running, None) => to(word(&row.seen), why(row)),
    }
}

fn word(seen: &Seen) -> Status {
    if seen.begun { Status::Processing } else { Status::Created }
}

/// A manager that fails an observer settles it in the name of no service.
fn why_failed(row: &Row, error: String, attempts: u32) -> Reason {
    let by_manager = row.seen.settled.as_ref().is_some_and(|settled| settled.service.0.is_nil());
    match (by_manager, attempts) {
        (true, 0) => Reason::RefusedTooLong { error },
        (true, _) => Reason::Quarantined { error },
        (false, _) => Reason::GaveUp { error, attempts },
    }
}

fn why(row: &Row) -> Reason {
    if row.unlisted.is_some() {
        return Reason::Unlisted;
    }
    match row.seen.latest.as_ref().map(|latest| &latest.doing) {
        None if row.mark.is_some() => Reason::ToBePublished,
        None => Reason::WaitingForSlot { pool: row.wanted.pool.to_string() },
        Some(Doing::Held { reason, refuses }) => Reason::Held { why: reason.clone(), refuses: *refuses },
        Some(Doing::Running) => Reason::None,
        Some(Doing::Restarting { next_at }) => Reason::Restarting { next_at: *next_at },
        Some(Doing::HandedOver | Doing::HandedOverFor { .. }) => Reason::Moving,
        Some(Doing::Refused { why }) => Reason::Refused { why: why.clone() },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::{Name, ObserverId, ServiceId};
    use crate::message::{RunEvent, RunReport};
    use crate::observer::Wanted;
    use crate::row::RowPolicy;
    use serde_json::json;
    use uuid::Uuid;

    const NOW: Timestamp = Timestamp(0);

    fn row() -> Row {
        let wanted = Wanted::parse(json!({"kind": "ticker"}), &Name::new("a").unwrap()).unwrap();
        let mut row = Row::created(ObserverId(Uuid::from_u128(1)), wanted, NOW, &RowPolicy::default());
        row.confirmed(1, NOW);
        row
    }
    fn hear(row: &mut Row, seq: u64, event: RunEvent) {
        let report = RunReport { id: row.id, epoch: row.epoch(), event };
        row.apply(ServiceId(Uuid::from_u128(9)), seq, NOW, &report, NOW);
    }
    fn reachable(row: &Row) -> Vec<Status> {
        Status::ALL.into_iter().filter(|status| row.may_become(*status)).collect()
    }

    #[test]
    fn a_wait_for_what_cannot_come_is_hopeless() {
        use Status::{Completed, Created, Deleted, Failed, OnDeleting, Paused, Processing};
        let mut row = row();
        assert_eq!(reachable(&row), [Created, Processing, Completed, Failed]);
        hear(&mut row, 1, RunEvent::Started { attempt: 1, started_at: NOW });
        assert_eq!(reachable(&row), [Processing, Completed, Failed]);
        let mut failed = row.clone();
        hear(&mut failed, 2, RunEvent::Failed { error: "e".into(), attempts: 1 });
        assert_eq!(reachable(&failed), [Failed]);
        let mut paused = row.clone();
        paused.pause(NOW, &RowPolicy::default()).unwrap();
        assert_eq!(reachable(&paused), [Created, Processing, Paused, Completed, Failed]);
        hear(&mut paused, 2, RunEvent::Stopped);
        assert_eq!(reachable(&paused), [Paused]);
        row.delete(NOW, &RowPolicy::default());
        assert_eq!(reachable(&row), [OnDeleting, Deleted]);
    }
}
