//! Reads the tokens and roles again, so that a token that is revoked is refused everywhere within 5 s.

use crate::RunError;
use crate::context::Manager;
use everwatch_store::StoreError;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use tracing::debug;

/// How often managers look whether tokens or roles have changed.
const EVERY: Duration = Duration::from_secs(1);
const FORGET_EVERY: Duration = Duration::from_secs(3600);
/// How long lists show tokens that have ended.
const ENDED_KEPT: Duration = Duration::from_secs(86_400);

pub(crate) async fn run(manager: Arc<Manager>) -> Result<(), RunError> {
    manager.accounts.prepare();
    let (mut told, mut forgot) = (false, None::<Instant>);
    loop {
        let mut looked = manager.accounts.refresh(manager.records.store.as_ref()).await;
        if looked.is_ok() && forgot.is_none_or(|at| at.elapsed() >= FORGET_EVERY) {
            looked = forget(&manager).await;
            forgot = Some(Instant::now());
        }
        match looked {
            Ok(()) if !told => {
                manager.accounts.tell();
                told = true;
            }
            Ok(()) => {}
            Err(error) => debug!(%error, "tokens and roles could not be read"),
        }
        if manager.stop.run_until_cancelled(tokio::time::sleep(EVERY)).await.is_none() {
            return Ok(());
        }
    }
}

/// Deletes what is kept no longer.
async fn forget(manager: &Manager) -> Result<(), StoreError> {
    let (store, now) = (&manager.records.store, manager.records.clock.now());
    store.forget_tokens(now.minus(ENDED_KEPT)).await?;
    store.forget_audit(now.minus(manager.accounts.settings().retention_audit)).await?;
    Ok(())
}
