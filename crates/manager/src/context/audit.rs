//! Writes requests and their outcomes to the audit log, through a queue.

use everwatch_core::access::{AuditEntry, Outcome};
use everwatch_store::StoreError;
use std::sync::Arc;
use tokio::sync::{mpsc, oneshot};

/// What waits to be written at once.
const WAITING_MAX: usize = 2000;

/// The number of a stored entry.
pub(crate) type Stored = Result<i64, Arc<StoreError>>;

/// One write.
pub(crate) enum Note {
    /// A request, before it is carried out, and the channel for its number.
    Request(AuditEntry, oneshot::Sender<Stored>),
    /// The outcome of a request.
    Outcome(i64, Outcome),
}

/// Writes to the audit log.
pub(crate) struct AuditLog(mpsc::Sender<Note>);

impl AuditLog {
    pub(crate) fn new() -> (Self, mpsc::Receiver<Note>) {
        let (notes, notes_in) = mpsc::channel(WAITING_MAX);
        (Self(notes), notes_in)
    }

    /// Stores a request; `None` if the manager stops.
    pub(crate) async fn request(&self, entry: AuditEntry) -> Option<Stored> {
        let (answer, stored) = oneshot::channel();
        self.0.send(Note::Request(entry, answer)).await.ok()?;
        stored.await.ok()
    }

    /// Stores the outcome of a request, later.
    pub(crate) async fn outcome(&self, entry: i64, outcome: Outcome) {
        let _stopped = self.0.send(Note::Outcome(entry, outcome)).await;
    }
}
