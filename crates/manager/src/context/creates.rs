//! Creates that wait for the transaction that they share.

use everwatch_core::capacity::create_admission::Created;
use everwatch_core::record::row::Row;
use everwatch_store::{By, StoreError};
use std::sync::Arc;
use tokio::sync::{mpsc, oneshot};

/// Creates that wait at once.
const CREATES_MAX: usize = 2000;

/// The result of a create.
pub(crate) type Outcome = Result<Created, Arc<StoreError>>;

/// One observer to be created, and the channel for the result.
pub(crate) struct Create {
    pub(crate) row: Row,
    pub(crate) by: Option<By>,
    pub(crate) answer: oneshot::Sender<Outcome>,
}

pub(crate) struct Creates(mpsc::Sender<Create>);

impl Creates {
    pub(crate) fn new() -> (Self, mpsc::Receiver<Create>) {
        let (creates, creates_in) = mpsc::channel(CREATES_MAX);
        (Self(creates), creates_in)
    }

    /// Creates one observer; `None` if the manager stops meanwhile.
    pub(crate) async fn create(&self, row: Row, by: Option<By>) -> Option<Outcome> {
        let (answer, outcome) = oneshot::channel();
        self.0.send(Create { row, by, answer }).await.ok()?;
        outcome.await.ok()
    }
}
