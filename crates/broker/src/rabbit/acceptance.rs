//! Proves that a queue has accepted acknowledgements.
//!
//! The obvious proof is a round trip on the same channel. But RabbitMQ handles acknowledgements without an answer: the
//! process of the channel passes them on to the leader of the queue, and with more than 32 in progress it keeps further ones
//! for later. Measured on 3.10 and 4.3, with the broker killed right after the round trip: of 500 acknowledgements, up to
//! 499 were lost; with a round trip after every 16, up to 63. A `basic.get` is a command in the log of the queue, behind
//! the acknowledgements that were passed on before it. The second one follows those that the channel still kept while the
//! first one ran: none was lost.

use super::receipts::{Block, REQUEUE};
use crate::loss::Loss;
use lapin::options::BasicGetOptions;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::Mutex;

/// One proof serves all acknowledgements of its channel that were sent before it began.
#[derive(Default)]
pub(super) struct Acceptance {
    sent: AtomicU64,
    /// Those up to this number are accepted.
    accepted: Mutex<u64>,
}

impl Acceptance {
    /// Counts an acknowledgement that was sent.
    pub(super) fn sent(&self) -> u64 {
        self.sent.fetch_add(1, Ordering::AcqRel) + 1
    }
}

impl Block {
    /// Waits until the queue has accepted the acknowledgement with this number; returns whether it has.
    pub(super) async fn accepts(&self, number: u64, loss: &Loss) -> bool {
        let mut accepted = self.acceptance.accepted.lock().await;
        if *accepted >= number {
            return true;
        }
        let sent = self.acceptance.sent.load(Ordering::Acquire);
        for _ in 0..2 {
            if let Err(error) = self.look().await {
                loss.lose(format!("getting from {} failed: {error}", self.queue));
                return false;
            }
        }
        *accepted = sent;
        true
    }

    /// Takes a message, if one is ready, and gives it back at once.
    async fn look(&self) -> lapin::Result<()> {
        let got = self.channel.basic_get(self.queue.as_str().into(), BasicGetOptions::default()).await?;
        if let Some(message) = got {
            message.delivery.acker.nack(REQUEUE).await?;
        }
        Ok(())
    }
}
