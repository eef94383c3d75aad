//! Safe mode: one switch for all managers that stops every conclusion from silence during an incident.

use crate::context::records::Records;
use everwatch_api::SafeMode;
use everwatch_core::record::events::EventKind;
use everwatch_core::record::row::Row;
use everwatch_core::wire::report::RunReport;
use everwatch_store::StoreError;
use serde::Deserialize;
use std::time::Duration;
use tracing::warn;

pub(crate) const NOTE: &str = "safe_mode";
/// Why managers start in safe mode after `everwatch migrate --restored`.
pub(crate) const RESTORED: &str = "the database was restored from a backup: wait a minute, until every service has \
    reported what it holds, delete the observers that must not run again, then switch safe mode off";

pub(crate) async fn read(records: &Records) -> Result<SafeMode, StoreError> {
    let stored = records.store.note(NOTE).await?;
    Ok(stored.as_deref().map(parse).unwrap_or_default())
}

/// The stored switch. Unlike the switch in a request, it may have fields that a newer manager added.
#[derive(Deserialize)]
struct Stored {
    on: bool,
    #[serde(default)]
    reason: String,
}

/// A switch that cannot be read counts as on: waiting is the cheaper mistake.
fn parse(text: &str) -> SafeMode {
    match serde_json::from_str(text) {
        Ok(Stored { on, reason }) => SafeMode { on, reason },
        Err(error) => {
            let reason = format!(
                "cannot read the stored safe mode ({error}): if a newer manager stored it, upgrade this one; \
                 otherwise run `everwatch safe-mode off`"
            );
            SafeMode { on: true, reason }
        }
    }
}

/// Whether it is on because `everwatch migrate --restored` prepared the database.
pub(crate) async fn is_restored(records: &Records) -> Result<bool, StoreError> {
    read(records).await.map(|safe_mode| safe_mode.on && safe_mode.reason == RESTORED)
}

pub(crate) async fn is_on(records: &Records) -> Result<bool, StoreError> {
    read(records).await.map(|safe_mode| safe_mode.on)
}

/// A report mentions a generation that the database should know and does not.
pub(crate) async fn on_behind(records: &Records, row: &Row, report: &RunReport) -> Result<(), StoreError> {
    if is_on(records).await? {
        return Ok(());
    }
    let reason = format!(
        "observer {} runs in generation {}, and the database knows it up to {}: was a backup restored? Then stop \
         the managers and run `everwatch migrate --restored`; otherwise switch safe mode off",
        row.definition.name,
        report.epoch.generation(),
        row.generation
    );
    write(records, &SafeMode { on: true, reason }).await
}

pub(crate) async fn write(records: &Records, safe_mode: &SafeMode) -> Result<(), StoreError> {
    let text = serde_json::to_string(safe_mode).map_err(|error| StoreError::Corrupt(error.to_string()))?;
    records.store.set_note(NOTE, &text, Duration::MAX).await?;
    let word = if safe_mode.on { "on" } else { "off" };
    warn!(safe_mode = word, reason = safe_mode.reason, "safe mode switched");
    let reason = safe_mode.reason.as_str();
    let text = if reason.is_empty() { word.to_owned() } else { format!("{word}: {reason}") };
    records.events.tell_all(EventKind::SafeMode, text);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_switch_with_fields_of_a_newer_manager_is_read_and_an_unreadable_one_is_on() {
        let safe_mode = |on: bool, reason: &str| SafeMode { on, reason: reason.to_owned() };
        assert_eq!(parse(r#"{"on": true, "reason": "a drill", "until": 5}"#), safe_mode(true, "a drill"));
        assert_eq!(parse(r#"{"on": false, "by": {"name": "x"}}"#), safe_mode(false, ""));
        for unreadable in ["", "{", "null", r#"{"switch": "on"}"#, r#"{"on": "yes"}"#] {
            let read = parse(unreadable);
            assert!(read.on && read.reason.contains("everwatch safe-mode off"), "{unreadable}: {read:?}");
        }
    }
}
