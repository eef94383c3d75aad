//! Readiness and checkpoints for the built-in kinds, as [`Context`] offers them.

use crate::{Context, Error};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::sync::Mutex;

/// What an earlier run stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Restored<T> {
    pub(super) value: T,
    /// The epoch of the run that stored it.
    pub(super) epoch: u64,
}

/// Where checkpoints and readiness go, if the service shares one.
#[derive(Debug, Default)]
pub(super) struct Kept {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    ready: bool,
    checkpoint: Option<(serde_json::Value, u64)>,
}

impl Kept {
    fn with<T>(&self, f: impl FnOnce(&mut State) -> T) -> T {
        f(&mut self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner))
    }
    #[cfg(test)]
    pub(super) fn is_ready(&self) -> bool {
        self.with(|state| state.ready)
    }
    #[cfg(test)]
    pub(super) fn forget_ready(&self) {
        self.with(|state| state.ready = false);
    }
    #[cfg(test)]
    pub(super) fn value(&self) -> Option<serde_json::Value> {
        self.with(|state| state.checkpoint.clone().map(|(value, _)| value))
    }
}

pub(super) trait ContextExt {
    fn ready(&self);
    fn checkpoint<T: Serialize + Sync>(&self, value: &T) -> impl Future<Output = Result<(), Error>> + Send;
    fn restored<T: DeserializeOwned + Send>(
        &self,
    ) -> impl Future<Output = Result<Option<Restored<T>>, Error>> + Send;
}

impl ContextExt for Context {
    fn ready(&self) {
        if let Some(kept) = self.shared::<Kept>() {
            kept.with(|state| state.ready = true);
        }
    }
    async fn checkpoint<T: Serialize + Sync>(&self, value: &T) -> Result<(), Error> {
        let value = serde_json::to_value(value)?;
        if let Some(kept) = self.shared::<Kept>() {
            kept.with(|state| state.checkpoint = Some((value, self.epoch())));
        }
        Ok(())
    }
    async fn restored<T: DeserializeOwned + Send>(&self) -> Result<Option<Restored<T>>, Error> {
        let stored = self.shared::<Kept>().and_then(|kept| kept.with(|state| state.checkpoint.clone()));
        let Some((value, epoch)) = stored else { return Ok(None) };
        Ok(Some(Restored { value: serde_json::from_value(value)?, epoch }))
    }
}
