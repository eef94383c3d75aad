//! How a session ends, once, for everybody who waits on it. Knows no broker.

use crate::port::BrokerError;
use std::sync::{Arc, OnceLock};
use tokio_util::sync::CancellationToken;

/// The end of a session: its first reason stays.
#[derive(Debug, Clone, Default)]
pub(crate) struct Loss {
    token: CancellationToken,
    why: Arc<OnceLock<String>>,
}

impl Loss {
    /// Ends the session; whether this call was the one that did.
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

    /// Runs `work`, but not past the end of the session.
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
