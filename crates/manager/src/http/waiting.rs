//! Requests that wait until an observer has a status, or has changed.

use super::lookup::{check, not_found};
use super::problem::{Code, Problem};
use super::query::{Params, bad};
use crate::context::Manager;
use crate::events::actor;
use everwatch_core::clock::Timestamp;
use everwatch_core::record::row::Row;
use everwatch_core::record::status::Status;
use everwatch_door::quota::Permit;
use std::time::Duration;
use tokio::time::Instant;

/// Another manager may change the row without notice, so a wait reloads it at this interval.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// What a request waits for.
#[derive(Debug, Clone, Copy)]
pub(super) enum Awaited {
    Status(Status),
    /// Any change after this time or, without one, after the request began.
    Change(Option<Timestamp>),
}

impl Awaited {
    /// Reads `wait_for` and `modified_at`.
    pub(super) fn read(params: &mut Params) -> Result<Option<Self>, Problem> {
        let (wait_for, modified_at) = (params.one("wait_for")?, params.parsed("modified_at")?);
        let awaited = match wait_for.as_deref() {
            Some("change") => return Ok(Some(Self::Change(modified_at))),
            Some(text) => {
                let status = text.strip_prefix("status=");
                let status = status.ok_or_else(|| bad("wait_for", "write it as status=X or change"))?;
                Some(Self::Status(status.parse().map_err(|error| bad("wait_for", error))?))
            }
            None => None,
        };
        match modified_at {
            Some(_) => Err(bad("modified_at", "is only allowed together with wait_for=change")),
            None => Ok(awaited),
        }
    }

    /// Whether the wait ends. `first` is the row when the request began, `now` the current one.
    pub(super) fn is_over(self, first: &Row, now: &Row) -> bool {
        match self {
            Self::Status(status) => now.verdict().status == status || !now.may_become(status),
            Self::Change(known) => now.modified_at != known.unwrap_or(first.modified_at),
        }
    }
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
            None => return Err(not_found(&row.definition.namespace, &row.id.to_string())),
        };
        // It may have moved to a pool that the role of the sender does not permit.
        check(&row, &row.id.to_string())?;
    }
    Ok(row)
}
