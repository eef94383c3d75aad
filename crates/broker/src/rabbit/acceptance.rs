//! Proves that a queue has accepted acknowledgements.
//!
//! The obvious proof is a round trip on the same channel. But RabbitMQ handles acknowledgements without an answer: the
//! process of the channel passes them on to the leader of the queue, and with more than 32 in progress it keeps further ones
//! for later. Measured on 3.10 and 4.3, with the broker killed right after the round trip: of 500 acknowledgements, up to
//! 499 were lost; with a round trip after every 16, up to 63. A `basic.get` is a command in the log of the queue, behind
//! the acknowledgements that were passed on before it. The second one follows those that the channel still kept while the
//! first one ran: none was lost.

use crate::loss::Loss;
use lapin::Channel;
use lapin::options::{BasicGetOptions, BasicNackOptions};
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::Mutex;

pub(super) const REQUEUE: BasicNackOptions = BasicNackOptions { multiple: false, requeue: true };

/// One proof serves all acknowledgements of its channel that were sent before it began.
#[derive(Default)]
pub(super) struct Acceptance {
    sent: AtomicU64,
    /// Those up to this number are accepted.
    accepted: Mutex<u64>,
}

impl Acceptance {
    /// An acknowledgement was just sent: waits until the queue has accepted it; returns whether it has.
    pub(super) async fn prove(&self, (channel, queue): (&Channel, &str), loss: &Loss) -> bool {
        let number = self.sent.fetch_add(1, Ordering::AcqRel) + 1;
        let mut accepted = self.accepted.lock().await;
        if *accepted >= number {
            return true;
        }
        let sent = self.sent.load(Ordering::Acquire);
        for _ in 0..2 {
            if let Err(error) = look(channel, queue).await {
                loss.lose(format!("getting from {queue} failed: {error}"));
                return false;
            }
        }
        *accepted = sent;
        true
    }
}

/// Takes a message, if one is ready, and gives it back at once.
async fn look(channel: &Channel, queue: &str) -> lapin::Result<()> {
    let got = channel.basic_get(queue.into(), BasicGetOptions::default()).await?;
    if let Some(message) = got {
        message.delivery.acker.nack(REQUEUE).await?;
    }
    Ok(())
}
