//! Hold: one switch, for all managers, that stops every conclusion from silence during an incident.

use crate::http::api::Hold;
use crate::shared::Manager;
use everwatch_core::history::What;
use everwatch_core::message::RunReport;
use everwatch_core::row::Row;
use everwatch_store::StoreError;
use std::time::Duration;
use tracing::warn;

pub(crate) const NOTE: &str = "hold";

pub(crate) async fn read(manager: &Manager) -> Result<Hold, StoreError> {
    let stored = manager.store.note(NOTE).await?;
    Ok(stored.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default())
}

pub(crate) async fn is_on(manager: &Manager) -> Result<bool, StoreError> {
    read(manager).await.map(|hold| hold.on)
}

/// A report told of what the database should know and does not.
pub(crate) async fn on_behind(manager: &Manager, row: &Row, report: &RunReport) -> Result<(), StoreError> {
    if is_on(manager).await? {
        return Ok(());
    }
    let reason = format!(
        "observer {} runs in generation {}, and the database knows it up to {}: was a backup restored? Then stop \
         the managers and run `everwatch migrate --restored`; else switch the hold off",
        row.wanted.name,
        report.epoch.generation(),
        row.generation
    );
    write(manager, &Hold { on: true, reason }).await
}

pub(crate) async fn write(manager: &Manager, hold: &Hold) -> Result<(), StoreError> {
    let text = serde_json::to_string(hold).map_err(|error| StoreError::Corrupt(error.to_string()))?;
    manager.store.set_note(NOTE, &text, Duration::MAX).await?;
    let word = if hold.on { "on" } else { "off" };
    warn!(hold = word, reason = hold.reason, "hold is switched");
    manager.tell_all(What::Hold, format!("{word}: {}", hold.reason));
    Ok(())
}
