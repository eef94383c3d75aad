//! Creates pools. The broker decides: the first declaration of a work queue says whether its pool is single.

use super::pool_queue::{declare, in_use, open_session, undeclared};
use super::problem::Problem;
use crate::context::{Manager, pool_notes};
use everwatch_broker::{BrokerError, QueueKind};
use everwatch_core::capacity::pool_use::PoolUse;
use everwatch_core::id::Pool;
use everwatch_core::wording::counted;
use std::time::Duration;
use tracing::info;

pub(super) async fn create(manager: &Manager, pool: &Pool, single: bool) -> Result<(), Problem> {
    manager.records.services(Duration::ZERO).await?;
    let is_single = manager.records.is_single(pool);
    if is_single && single {
        return Ok(());
    }
    if !is_single && !single {
        return declare(manager, pool).await;
    }
    let PoolUse { services, observers, .. } = manager.pool_use(pool).await?;
    if is_single || services > 0 || observers > 0 {
        let is = if is_single { "is a single pool" } else { "is not a single pool" };
        let why =
            format!("it {is}, with {} and {}", counted(services, "service"), counted(observers, "observer"));
        let wanted = if single { "a single pool" } else { "the pool" };
        return Err(in_use(format!(
            "pool {pool} cannot change ({why}): create {wanted} under a name that is not in use, or delete this one first"
        )));
    }
    let queue = manager.link.topology.work(pool);
    match open_session(manager)?.declare(&queue, &QueueKind::SingleActive).await {
        Ok(_) => {}
        Err(BrokerError::Refused(_)) => {
            let cure = "create a single pool under a name that is not in use, or delete this one first";
            return Err(in_use(format!(
                "pool {pool} exists and is not a single pool, and a pool cannot change: {cure}"
            )));
        }
        Err(error) => return Err(undeclared(pool, error)),
    }
    pool_notes::set_single(manager.records.store.as_ref(), pool).await?;
    manager.records.services(Duration::ZERO).await?;
    info!(%pool, "created a single pool");
    declare(manager, pool).await
}
