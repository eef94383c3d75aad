//! Counts the consumers of the work queues, and asks about the services of a pool at once when its queue has lost some: a service
//! that dies in a full pool is lost within about a second, although no other service takes its observers.
//! `core::failure::lost_consumers` decides.

use crate::RunError;
use crate::context::Manager;
use crate::fleet::service_loss;
use everwatch_broker::Session;
use everwatch_core::failure::lost_consumers::{ConsumerCounts, doubted};
use everwatch_store::StoreError;
use std::sync::Arc;
use std::time::Duration;
use tracing::debug;

/// The shortest pause between two counts.
const EVERY: Duration = Duration::from_millis(500);
/// The pause for each pool: at most 50 questions per second.
const PER_POOL: Duration = Duration::from_millis(20);
const COUNT_WITHIN: Duration = Duration::from_secs(1);

pub(crate) async fn run(manager: Arc<Manager>) -> Result<(), RunError> {
    let mut counts = ConsumerCounts::default();
    let mut every = EVERY;
    loop {
        tokio::select! {
            () = manager.stop.cancelled() => return Ok(()),
            () = tokio::time::sleep(every) => {}
        }
        let Some(session) = manager.link.session.get() else {
            counts.interrupt();
            continue;
        };
        match look(&manager, session.as_ref(), &mut counts).await {
            Ok(pools) => every = EVERY.max(PER_POOL * pools),
            Err(error) => debug!(%error, "the services of a pool cannot be read; heartbeats show the loss"),
        }
    }
}

/// Returns the number of pools.
async fn look(
    manager: &Manager,
    session: &dyn Session,
    counts: &mut ConsumerCounts,
) -> Result<u32, StoreError> {
    let pools = manager.link.pools.all();
    for pool in &pools {
        let queue = manager.link.topology.work(pool);
        let count = tokio::time::timeout(COUNT_WITHIN, session.consumers(&queue)).await;
        let Ok(Ok(consumers)) = count else { continue };
        if !counts.look(pool, consumers) {
            continue;
        }
        let services = manager.records.store.services(manager.records.clock.now()).await?.rows;
        for service in doubted(&services, pool) {
            service_loss::doubt(manager, service);
        }
    }
    Ok(u32::try_from(pools.len()).unwrap_or(u32::MAX))
}
