//! Changes of single rows that wait for the transaction that they share.

use everwatch_core::record::row::Row;
use everwatch_store::{Change, Store, StoreError};
use tokio::sync::{mpsc, oneshot};

/// The most changes that wait for a transaction.
const SAVES_MAX: usize = 2000;

/// One changed row, and the channel for the result: whether it was saved.
pub(crate) struct Save {
    pub(crate) before: Row,
    pub(crate) after: Row,
    pub(crate) answer: oneshot::Sender<bool>,
}

impl Save {
    pub(crate) fn answer(self, saved: bool) {
        if self.answer.send(saved).is_err() {
            tracing::debug!("the request for this change ended before its answer");
        }
    }
}

pub(crate) struct Saves(mpsc::Sender<Save>);

impl Saves {
    pub(crate) fn new() -> (Self, mpsc::Receiver<Save>) {
        let (saves, saves_in) = mpsc::channel(SAVES_MAX);
        (Self(saves), saves_in)
    }

    /// Saves one row together with others that change at the same time; `false` if the row has changed since `before`
    /// was read: another manager changed it, or an earlier change in the same transaction.
    pub(crate) async fn save(
        &self,
        store: &dyn Store,
        before: &Row,
        after: &Row,
    ) -> Result<bool, StoreError> {
        let (answer, saved) = oneshot::channel();
        let save = Save { before: before.clone(), after: after.clone(), answer };
        if self.0.send(save).await.is_ok()
            && let Ok(saved) = saved.await
        {
            return Ok(saved);
        }
        // The shared transaction has failed, perhaps because of another row, or the manager stops. If the row was saved
        // nevertheless, this save finds that it has changed, and the change is decided again on the new row.
        Ok(store.save(&[Change { before, after }]).await?.is_empty())
    }
}
