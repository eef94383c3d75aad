//! The end of a session: it happens once, and all waiting tasks learn of it. Independent of any broker.

use crate::port::BrokerError;
use std::sync::{Arc, OnceLock};
use tokio_util::sync::CancellationToken;

/// The end of a session. Only the first reason is kept.
#[derive(Debug, Clone, Default)]
pub(crate) struct Loss {
    token: CancellationToken,
    why: Arc<OnceLock<String>>,
}

impl Loss {
    /// Ends the session. Returns whether this call ended it.
    pub(crate) fn lose(&self, why: impl Into<String>) -> bool {
        let first = self.why.set(why.into()).is_ok();
        self.token.cancel();
        first
    }

    pub(crate) fn is_lost(&self) -> bool {
        self.token.is_cancelled()
    }

    fn why(&self) -> String {
        self.why.get().cloned().unwrap_or_else(|| "unknown".to_owned())
    }

    pub(crate) fn error(&self) -> BrokerError {
        BrokerError::Lost(self.why())
    }

    pub(crate) async fn wait(&self) -> String {
        self.token.cancelled().await;
        self.why()
    }

    /// Runs `work`; stops it with an error if the session ends first.
    pub(crate) async fn guard<T>(
        &self,
        work: impl Future<Output = Result<T, BrokerError>>,
    ) -> Result<T, BrokerError> {
        tokio::select! {
            biased;
            () = self.token.cancelled() => Err(self.error()),
            done = work => done,
        }
    }
}
