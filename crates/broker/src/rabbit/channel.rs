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
        match code(error) {
            NOT_FOUND if error.to_string().contains("no queue") => BrokerError::NoQueue(queue.to_owned()),
            ACCESS_REFUSED => BrokerError::Forbidden(format!("{queue}: {error}")),
            404..=406 => BrokerError::Refused(format!("{queue}: {error}")),
            _ => {
                self.loss.lose(error.to_string());
                self.loss.error()
            }
        }
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
