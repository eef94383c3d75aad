//! Channels, and the state that all parts of a session share.

use super::AmqpRuntime;
use super::receipts::Receipts;
use crate::loss::Loss;
use crate::port::BrokerError;
use lapin::{Channel, Connection, ErrorKind};
use std::sync::Arc;
use tokio_util::task::TaskTracker;

/// The code of a missing permission.
pub(super) const ACCESS_REFUSED: u16 = 403;
/// The code of a missing queue or exchange.
pub(super) const NOT_FOUND: u16 = 404;
/// The code of a refusal because of another consumer or owner.
pub(super) const RESOURCE_LOCKED: u16 = 405;

/// What consumers share with their session.
pub(super) struct Shared {
    pub(super) loss: Loss,
    pub(super) receipts: Receipts,
    pub(super) tasks: TaskTracker,
    pub(super) runtime: Arc<AmqpRuntime>,
}

impl Shared {
    pub(super) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.tasks.spawn_on(work, self.runtime.handle());
    }

    /// Maps an error. A refusal by the broker ends only its channel; any other error ends the session.
    pub(super) fn fail(&self, error: &lapin::Error, queue: &str) -> BrokerError {
        refusal(code(error), &error.to_string(), queue).unwrap_or_else(|| {
            self.loss.lose(error.to_string());
            self.loss.error()
        })
    }
}

/// What the broker says about a queue when it closes a channel with this code; `None` if it says something else.
fn refusal(code: u16, said: &str, queue: &str) -> Option<BrokerError> {
    match code {
        NOT_FOUND if said.contains("no queue") => Some(BrokerError::NoQueue(queue.to_owned())),
        // The process of the queue restarts, or another client is declaring the queue: the next try may succeed.
        NOT_FOUND if said.contains("is down or inaccessible") => Some(BrokerError::Silent(queue.to_owned())),
        ACCESS_REFUSED => Some(BrokerError::Forbidden(format!("{queue}: {said}"))),
        404..=406 => Some(BrokerError::Refused(format!("{queue}: {said}"))),
        _ => None,
    }
}

/// The broker's reply code if it closed the channel, otherwise 0.
pub(super) fn code(error: &lapin::Error) -> u16 {
    match error.kind() {
        ErrorKind::ProtocolError(said) if error.is_amqp_soft_error() => said.get_id(),
        _ => 0,
    }
}

/// Opens a channel. lapin remembers the error of a channel number that the broker has closed. When that
/// number comes up again, opening the channel returns the old error once, and lapin never uses the number
/// again. Without this loop, the caller would take the 404 of one queue for the answer about another.
pub(super) async fn open_channel(connection: &Connection) -> lapin::Result<Channel> {
    loop {
        match connection.create_channel().await {
            // An old error: no broker answers the opening of a channel with a soft error. The loop ends with
            // `ChannelsLimitReached` at the latest.
            Err(error) if error.is_amqp_soft_error() => {}
            opened => return opened,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_that_is_away_for_a_moment_is_not_refused() {
        let of = |code: u16, said: &str| refusal(code, said, "q");
        let away = "NOT_FOUND - home node 'a@b' of durable queue 'q' in vhost '/' is down or inaccessible";
        assert!(matches!(of(404, away), Some(BrokerError::Silent(queue)) if queue == "q"));
        let missing = "NOT_FOUND - no queue 'q' in vhost '/'";
        assert!(matches!(of(404, missing), Some(BrokerError::NoQueue(queue)) if queue == "q"));
        assert!(matches!(of(404, "NOT_FOUND - no exchange 'x'"), Some(BrokerError::Refused(_))));
        assert!(matches!(of(406, "PRECONDITION_FAILED"), Some(BrokerError::Refused(_))));
        assert!(matches!(of(403, "ACCESS_REFUSED"), Some(BrokerError::Forbidden(_))));
        assert!(of(0, "IO error").is_none());
    }
}
