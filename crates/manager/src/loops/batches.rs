//! Requests that arrive at the same time share one transaction.

use super::gather::gather;
use crate::RunError;
use crate::context::Manager;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Semaphore, mpsc};

/// The most requests in one transaction.
const BATCH: usize = 500;
/// Commits batch after batch until the manager stops. Requests that arrive while `in_flight` transactions are in progress
/// share the next one.
pub(super) async fn run<T, F>(
    manager: Arc<Manager>,
    mut requests: mpsc::Receiver<T>,
    in_flight: usize,
    commit: impl Fn(Arc<Manager>, Vec<T>) -> F,
) -> Result<(), RunError>
where
    F: Future<Output = ()> + Send + 'static,
{
    let in_flight = Arc::new(Semaphore::new(in_flight));
    loop {
        let turn = async {
            let first = requests.recv().await?;
            // Only now: requests that arrive while both transactions are in progress share the next one.
            let permit = Arc::clone(&in_flight).acquire_owned().await.ok()?;
            Some((first, permit))
        };
        let turn = tokio::select! {
            () = manager.stop.cancelled() => return Ok(()),
            turn = turn => turn,
        };
        let Some((first, permit)) = turn else { return Ok(()) };
        let batch = gather(first, &mut requests, BATCH, Duration::ZERO).await;
        let committing = commit(Arc::clone(&manager), batch);
        manager.tasks.spawn(async move {
            committing.await;
            drop(permit);
        });
    }
}
