//! Saves of single rows that wait for the transaction that they share.

use everwatch_core::record::row::Row;
use everwatch_store::StoreError;
use tokio::sync::{mpsc, oneshot};

/// Saves that wait at once; further ones wait for room.
const SAVES_MAX: usize = 2000;

/// Whether a row was saved; `false` if another writer has changed it in the meantime.
pub(crate) type Saved = Result<bool, StoreError>;

/// One row to be saved, and the channel for the result.
pub(crate) struct RowSave {
    pub(crate) before: Row,
    pub(crate) after: Row,
    pub(crate) answer: oneshot::Sender<Saved>,
}

pub(crate) struct RowSaves(mpsc::Sender<RowSave>);

impl RowSaves {
    pub(crate) fn new() -> (Self, mpsc::Receiver<RowSave>) {
        let (saves, saves_in) = mpsc::channel(SAVES_MAX);
        (Self(saves), saves_in)
    }

    /// Saves one row together with the others that wait.
    pub(crate) async fn save(&self, before: Row, after: Row) -> Saved {
        let stops = || StoreError::Unavailable("the manager stops".to_owned());
        let (answer, saved) = oneshot::channel();
        self.0.send(RowSave { before, after, answer }).await.map_err(|_| stops())?;
        saved.await.unwrap_or_else(|_| Err(stops()))
    }
}
