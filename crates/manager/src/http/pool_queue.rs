//! The work queue of a pool, for requests that create or delete the pool: what the broker refuses is a problem.

use super::problem::{Code, Problem};
use crate::context::Manager;
use crate::outgoing::work_queues;
use everwatch_broker::{BrokerError, Session};
use everwatch_core::id::Pool;
use std::sync::Arc;

/// Declares the work queue, for services whose broker user may not. It may exist.
pub(super) async fn declare(manager: &Manager, pool: &Pool) -> Result<(), Problem> {
    let session = open_session(manager)?;
    let declared = work_queues::declare(manager, session.as_ref(), pool).await;
    declared.map_err(|error| undeclared(pool, error))
}

pub(super) fn open_session(manager: &Manager) -> Result<Arc<dyn Session>, Problem> {
    let none = || Problem::new(Code::NotReady, "this manager is not connected to the broker".to_owned());
    manager.link.open_session().ok_or_else(none)
}

pub(super) fn undeclared(pool: &Pool, error: BrokerError) -> Problem {
    match error {
        BrokerError::Refused(why) => in_use(format!("pool {pool} cannot change: {why}")),
        error => Problem::new(Code::NotReady, error.to_string()),
    }
}

pub(super) fn in_use(detail: String) -> Problem {
    Problem::new(Code::PoolInUse, detail)
}
