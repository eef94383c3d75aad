//! Hold: one switch, for all managers, that stops every conclusion from silence during an incident.

use crate::http::api::Hold;
use crate::shared::Manager;
use everwatch_core::history::What;
use everwatch_core::message::RunReport;
use everwatch_core::row::Row;
use everwatch_store::StoreError;
use serde::Deserialize;
use std::time::Duration;
use tracing::warn;

pub(crate) const NOTE: &str = "hold";

pub(crate) async fn read(manager: &Manager) -> Result<Hold, StoreError> {
    let stored = manager.store.note(NOTE).await?;
    Ok(stored.as_deref().map(parse).unwrap_or_default())
}

/// The switch as it is stored. Unlike the one of a request, it may have fields that a newer manager has added.
#[derive(Deserialize)]
struct Stored {
    on: bool,
    #[serde(default)]
    reason: String,
}

/// A switch that cannot be read is on: to wait is the mistake that costs less.
fn parse(text: &str) -> Hold {
    match serde_json::from_str(text) {
        Ok(Stored { on, reason }) => Hold { on, reason },
        Err(error) => {
            let reason = format!(
                "the stored switch cannot be read ({error}): update this manager if a newer one has written it; \
                 otherwise `everwatch hold off` writes it again"
            );
            Hold { on: true, reason }
        }
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_switch_with_fields_of_a_newer_manager_is_read_and_an_unreadable_one_is_on() {
        let hold = |on: bool, reason: &str| Hold { on, reason: reason.to_owned() };
        assert_eq!(parse(r#"{"on": true, "reason": "a drill", "until": 5}"#), hold(true, "a drill"));
        assert_eq!(parse(r#"{"on": false, "by": {"name": "x"}}"#), hold(false, ""));
        for unreadable in ["", "{", "null", r#"{"switch": "on"}"#, r#"{"on": "yes"}"#] {
            let read = parse(unreadable);
            assert!(read.on && read.reason.contains("everwatch hold off"), "{unreadable}: {read:?}");
        }
    }
}
