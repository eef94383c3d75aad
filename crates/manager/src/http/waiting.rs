//! Requests that wait until an observer has a status.

use super::lookup::not_found;
use super::problem::{Code, Problem};
use super::query::bad;
use crate::context::Manager;
use crate::events::actor;
use everwatch_core::record::row::Row;
use everwatch_core::record::status::Status;
use everwatch_door::quota::Permit;
use std::time::Duration;
use tokio::time::Instant;

/// Other managers change rows too: a wait looks again this often.
const LOOK_EVERY: Duration = Duration::from_millis(250);

pub(super) fn target_status(text: &str) -> Result<Status, Problem> {
    let status = text.strip_prefix("status=").ok_or_else(|| bad("wait_for", "write it as status=X"))?;
    status.parse().map_err(|error| bad("wait_for", error))
}

/// A permit to wait, taken before anything is changed.
pub(super) fn permit_to_wait(manager: &Manager) -> Result<Permit, Problem> {
    let full = |full| Problem::too_many(Code::TooManyWaits, full, "wait");
    manager.requests.limits.waits.acquire(actor::client()).map_err(full)
}

/// Waits until the row is as wanted, the time is over or the manager stops; returns the row at that time.
pub(super) async fn await_row(
    manager: &Manager,
    mut row: Row,
    wait: Duration,
    is_over: impl Fn(&Row) -> bool,
) -> Result<Row, Problem> {
    let deadline = Instant::now() + wait;
    let mut changes = manager.records.changes();
    while !is_over(&row) && Instant::now() < deadline {
        changes.mark_unchanged();
        let look_again = deadline.min(Instant::now() + LOOK_EVERY);
        tokio::select! {
            () = manager.stop.cancelled() => return Ok(row),
            () = tokio::time::sleep_until(look_again) => {}
            changed = changes.changed() => if changed.is_err() { return Ok(row) },
        }
        row = match manager.records.store.load(&[row.id]).await?.one()? {
            Some(now) => now,
            None => return Err(not_found(&row.id.to_string())),
        };
    }
    Ok(row)
}
