//! Watches the ready messages of the work queues, and asks about the silent services of a pool when messages have returned: a service
//! that dies in a full pool is lost within a moment, although no other service takes its observers.
//! `core::failure::returned_work` decides.

use crate::RunError;
use crate::context::Manager;
use crate::fleet::service_loss;
use everwatch_broker::Session;
use everwatch_core::failure::returned_work::{QueueGrowth, doubted};
use everwatch_core::record::service::ServiceRow;
use everwatch_store::StoreError;
use std::sync::Arc;
use std::time::Duration;
use tracing::debug;

/// The shortest pause between two checks.
const EVERY: Duration = Duration::from_millis(500);
/// The pause for each pool: at most 50 questions per second.
const PER_POOL: Duration = Duration::from_millis(20);
const ANSWER_WITHIN: Duration = Duration::from_secs(1);

pub(crate) async fn run(manager: Arc<Manager>) -> Result<(), RunError> {
    let mut growth = QueueGrowth::default();
    let mut every = EVERY;
    loop {
        tokio::select! {
            () = manager.stop.cancelled() => return Ok(()),
            () = tokio::time::sleep(every) => {}
        }
        let Some(session) = manager.link.session.get() else {
            growth.interrupt();
            continue;
        };
        match look(&manager, session.as_ref(), &mut growth).await {
            Ok(pools) => every = EVERY.max(PER_POOL * pools),
            Err(error) => {
                debug!(%error, "the services of a pool cannot be read; missing heartbeats show the loss");
            }
        }
    }
}

/// Returns the number of pools.
async fn look(manager: &Manager, session: &dyn Session, growth: &mut QueueGrowth) -> Result<u32, StoreError> {
    let (records, pools) = (&manager.records, manager.link.pools.all());
    for pool in &pools {
        let queue = manager.link.topology.work(pool);
        let answer = tokio::time::timeout(ANSWER_WITHIN, session.ready(&queue)).await;
        let Ok(Ok(ready)) = answer else { continue };
        let now = records.clock.now();
        if !growth.look(pool, ready, now) {
            continue;
        }
        let services = records.store.services(now).await?.rows;
        let known = &records.events.known;
        let heard = |row: &ServiceRow| known.heard_at(row.id).unwrap_or(row.heard_at).max(row.heard_at);
        for service in doubted(&services, pool, heard, now) {
            service_loss::doubt(manager, service);
        }
    }
    Ok(u32::try_from(pools.len()).unwrap_or(u32::MAX))
}
