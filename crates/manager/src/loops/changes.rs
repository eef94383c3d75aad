//! The frame of loops that look at the database after each change.

use crate::RunError;
use crate::context::Manager;
use everwatch_store::StoreError;
use std::time::Duration;
use tracing::warn;

/// The longest time between two passes: another manager may have made a change.
const EVERY: Duration = Duration::from_secs(1);

/// Calls `pass` after each change that this manager makes, and once a second, until the manager stops. `pass` also returns how
/// long the loop rests after it. Of passes that fail one after another, only the first is logged, as `failed`.
pub(crate) async fn after_changes<F>(
    manager: &Manager,
    failed: &'static str,
    pass: impl Fn() -> F,
) -> Result<(), RunError>
where
    F: Future<Output = (Result<(), StoreError>, Duration)>,
{
    let mut changes = manager.records.changes();
    let mut failing = false;
    loop {
        tokio::select! {
            () = manager.stop.cancelled() => return Ok(()),
            _ = changes.changed() => {}
            () = tokio::time::sleep(EVERY) => {}
        }
        changes.mark_unchanged();
        let (passed, rest) = pass().await;
        if let Err(error) = &passed
            && !failing
        {
            warn!(%error, "{failed}");
        }
        failing = passed.is_err();
        tokio::time::sleep(rest).await;
    }
}
