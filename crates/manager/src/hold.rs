//! Hold: one switch, for all managers, that stops every conclusion from silence during an incident.

use crate::http::api::Hold;
use crate::shared::Manager;
use everwatch_core::history::What;
use everwatch_store::StoreError;
use std::time::Duration;
use tracing::warn;

const NOTE: &str = "hold";

pub(crate) async fn read(manager: &Manager) -> Result<Hold, StoreError> {
    let stored = manager.store.note(NOTE).await?;
    Ok(stored.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default())
}

pub(crate) async fn is_on(manager: &Manager) -> Result<bool, StoreError> {
    read(manager).await.map(|hold| hold.on)
}

pub(crate) async fn write(manager: &Manager, hold: &Hold) -> Result<(), StoreError> {
    let text = serde_json::to_string(hold).map_err(|error| StoreError::Corrupt(error.to_string()))?;
    manager.store.set_note(NOTE, &text, Duration::MAX).await?;
    let word = if hold.on { "on" } else { "off" };
    warn!(hold = word, reason = hold.reason, "hold is switched");
    manager.tell_all(What::Hold, format!("{word}: {}", hold.reason));
    Ok(())
}
