//! Finds the state queues that exist beyond the configured number: they remain when the number is reduced, and they may
//! contain reports.

use crate::context::link::Link;
use everwatch_broker::{BrokerError, Depth, QueueKind, STATE_QUEUES_MAX, Session};
use tracing::warn;

/// The number of state queues that a manager reads in this session.
///
/// The obvious number is the configured one. But if it was reduced while services still used the larger number, or
/// before all reports were read, observers whose ends wait in the other queues would look as if they had no holder, and
/// managers would start them again. So a manager also reads the queues that remain.
pub(crate) async fn to_read(link: &Link, session: &dyn Session) -> Result<u16, BrokerError> {
    let configured = link.topology.state_queues();
    let surplus = surplus(link, session).await?;
    for (queue, _) in &surplus {
        session.declare(queue, &QueueKind::Durable { max_length: None }).await?;
    }
    if let Some((last, _)) = surplus.last() {
        warn!(configured, last, "state queues beyond broker.state_queues exist; reading them too");
    }
    Ok(configured.saturating_add(u16::try_from(surplus.len()).unwrap_or(u16::MAX)))
}

/// The state queues beyond the configured number, up to the first that does not exist.
pub(crate) async fn surplus(link: &Link, session: &dyn Session) -> Result<Vec<(String, Depth)>, BrokerError> {
    let mut found = Vec::new();
    for index in link.topology.state_queues()..STATE_QUEUES_MAX {
        let queue = link.topology.state_queue(index);
        match session.depth(&queue).await {
            Ok(depth) => found.push((queue, depth)),
            Err(BrokerError::NoQueue(_)) => break,
            Err(error) => return Err(error),
        }
    }
    Ok(found)
}
