//! Channels and what all parts of a session share.

use super::AmqpRuntime;
use super::receipts::Receipts;
use crate::loss::Loss;
use crate::port::BrokerError;
use lapin::{Channel, Connection, ErrorKind};
use std::sync::Arc;
use tokio_util::task::TaskTracker;

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

    /// The broker's refusals end one channel; anything else is the end of the session.
    pub(super) fn fail(&self, error: &lapin::Error, queue: &str) -> BrokerError {
        match code(error) {
            404 if error.to_string().contains("no queue") => BrokerError::NoQueue(queue.to_owned()),
            403..=406 => BrokerError::Refused(format!("{queue}: {error}")),
            _ => {
                self.loss.lose(error.to_string());
                self.loss.error()
            }
        }
    }
}

/// The broker's reply code for a channel that it closed, else 0.
pub(super) fn code(error: &lapin::Error) -> u16 {
    match error.kind() {
        ErrorKind::ProtocolError(said) if error.is_amqp_soft_error() => said.get_id(),
        _ => 0,
    }
}

/// Opens a channel. lapin never forgives a channel number that the broker once closed with an error: when
/// the numbers come round, the old error comes back once from here, and that number is never used again.
/// Without this loop, the 404 of one queue would be taken for the answer about another.
pub(super) async fn open_channel(connection: &Connection) -> lapin::Result<Channel> {
    loop {
        match connection.create_channel().await {
            // no broker answers the opening of a channel so; ends with `ChannelsLimitReached` at the latest
            Err(error) if error.is_amqp_soft_error() => {}
            opened => return opened,
        }
    }
}
