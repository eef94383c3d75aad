//! Acts on limits whose maximum or use has changed: lets observers that wait for a free place come forward, and returns
//! observers beyond an enforced limit to the backlog.

use crate::commit::{RowChange, Then, commit};
use crate::context::Manager;
use everwatch_store::{LimitsLookedAt, StoreError};
use std::sync::Arc;
use tracing::info;

/// The most observers that one look changes, for each key and pool.
const AT_ONCE: usize = 500;

/// Returns whether another look is due at once.
pub(crate) async fn look(manager: &Arc<Manager>) -> Result<bool, StoreError> {
    let now = manager.records.clock.now();
    let LimitsLookedAt { goes_on, beyond } = manager.records.store.look_at_limits(now, AT_ONCE).await?;
    let changes = beyond.into_iter().filter_map(|before| {
        let mut after = before.clone();
        let ends = after.give_up_slot(now, &manager.settings.row);
        ends.then_some(RowChange { before, after, then: Then::Revoke })
    });
    let count = commit(manager, changes.collect()).await?.len();
    if count > 0 {
        info!(count, "observers beyond enforced limits return to the backlog");
    }
    Ok(goes_on)
}
