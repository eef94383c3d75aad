//! Deletes pools that nothing uses.

use super::pool_queue::{declare, in_use, open_session, undeclared};
use super::problem::Problem;
use crate::context::{Manager, pool_notes};
use everwatch_broker::BrokerError;
use everwatch_core::capacity::pool_use::InUse;
use everwatch_core::id::Pool;
use std::time::Duration;
use tracing::info;

/// Deletes the work queue of the pool and what is noted about the pool. Returns whether the queue existed.
pub(super) async fn delete(manager: &Manager, pool: &Pool) -> Result<bool, Problem> {
    check_unused(manager, pool).await?;
    let session = open_session(manager)?;
    let queue = manager.link.topology.work(pool);
    let existed = match session.delete(&queue).await {
        Ok(()) => true,
        Err(BrokerError::NoQueue(_)) => false,
        Err(BrokerError::Refused(_)) => {
            let depth = session.depth(&queue).await.map_err(|error| undeclared(pool, error))?;
            let (ready, consumers) = (depth.ready, depth.consumers);
            return Err(in_use(InUse::Queue { pool: pool.clone(), ready, consumers }.to_string()));
        }
        Err(error) => return Err(undeclared(pool, error)),
    };
    // An observer that was created meanwhile may have had its message in the queue. Managers republish the observers of a
    // queue that is created again.
    if let Err(problem) = check_unused(manager, pool).await {
        declare(manager, pool).await?;
        return Err(problem);
    }
    pool_notes::forget(manager.records.store.as_ref(), pool).await?;
    manager.link.pools.forget(pool);
    // This manager knows at once that the pool is not paused and not single.
    manager.records.services(Duration::ZERO).await?;
    info!(%pool, "deleted a pool");
    Ok(existed)
}

async fn check_unused(manager: &Manager, pool: &Pool) -> Result<(), Problem> {
    manager.pool_use(pool).await?.check_unused(pool).map_err(|it| in_use(it.to_string()))
}
