//! Sends reports to the managers: numbers them, batches them, and waits for the broker's confirms, in order.

use crate::boot_clock::boottime;
use crate::safety::fence::Fence;
use everwatch_broker::{BrokerError, Message, Session, Target, Topology};
use everwatch_core::clock::{self, Timestamp};
use everwatch_core::id::ServiceId;
use everwatch_core::wire::message::{BATCH_MAX, encode};
use everwatch_core::wire::report::{Report, Reports, RunReport, SequencedReport, StateMessage};
use everwatch_core::wire::trace::TraceContext;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};

/// Reports that may wait to be sent.
const QUEUE: usize = 50_000;
/// How long a batch may wait for more.
const LINGER: Duration = Duration::from_millis(5);

/// A report, and what follows its confirm.
pub(crate) enum Say {
    /// Nothing waits for its confirm.
    Tell(Report),
    /// A report of one run with its trace; nothing waits for its confirm.
    Run(RunReport, Option<TraceContext>),
    /// A settlement or an announcement: its confirm is sent to the loop of the session.
    Settle(RunReport, Option<TraceContext>),
    /// Its confirm is sent here.
    Await(Report, oneshot::Sender<()>),
}

/// A report with the time of its event. The time is taken when the report is handed in: a batch is sent later, and by
/// then the next service may have started the observer that this one has handed over.
pub(crate) type Said = (Timestamp, Say);

/// The sending half.
#[derive(Clone)]
pub(crate) struct Reporter(mpsc::Sender<Said>);

impl Reporter {
    pub(crate) fn channel() -> (Self, mpsc::Receiver<Said>) {
        let (sender, receiver) = mpsc::channel(QUEUE);
        (Self(sender), receiver)
    }
    /// Hands in a report and waits for room; without effect once the session is over.
    pub(crate) async fn say(&self, say: Say) {
        let _over = self.0.send((clock::now(), say)).await;
    }
    /// Hands in a report if there is room; such reports are repeated or unimportant.
    pub(crate) fn mention(&self, report: Report) {
        let _full_or_over = self.0.try_send((clock::now(), Say::Tell(report)));
    }
    /// Hands in a report and waits for its confirm; `false` if the session ended first.
    pub(crate) async fn confirmed(&self, report: Report) -> bool {
        let (sender, receiver) = oneshot::channel();
        self.say(Say::Await(report, sender)).await;
        receiver.await.is_ok()
    }
}

/// The loop behind a [`Reporter`].
pub(crate) struct Sender {
    pub(crate) service: ServiceId,
    pub(crate) session: Arc<dyn Session>,
    pub(crate) topology: Topology,
    pub(crate) fence: Arc<Fence>,
    pub(crate) settled: mpsc::UnboundedSender<RunReport>,
}

impl Sender {
    pub(crate) async fn run(self, mut queue: mpsc::Receiver<Said>) {
        let mut seq = 0;
        let mut batch = Vec::with_capacity(BATCH_MAX);
        while queue.recv_many(&mut batch, BATCH_MAX).await > 0 {
            if batch.len() < BATCH_MAX {
                let deadline = tokio::time::Instant::now() + LINGER;
                while batch.len() < BATCH_MAX {
                    let room = BATCH_MAX - batch.len();
                    match tokio::time::timeout_at(deadline, queue.recv_many(&mut batch, room)).await {
                        Ok(0) | Err(_) => break,
                        Ok(_) => {}
                    }
                }
            }
            for message in messages(&batch) {
                if !self.send(&mut seq, message).await {
                    return;
                }
            }
            for (_, say) in batch.drain(..) {
                self.on_confirm(say);
            }
        }
    }

    async fn send(&self, seq: &mut u64, batch: &[Said]) -> bool {
        let entries = batch.iter().map(|(at, say)| {
            *seq += 1;
            let (report, trace) = match say {
                Say::Tell(report) | Say::Await(report, _) => (report.clone(), None),
                Say::Run(report, trace) | Say::Settle(report, trace) => {
                    (Report::Run(report.clone()), trace.clone())
                }
            };
            SequencedReport { seq: *seq, at: *at, report, trace }
        });
        let reports = Reports { service: self.service, entries: entries.collect() };
        let body = match encode(&StateMessage::Reports(reports)) {
            Ok(body) => body,
            Err(error) => {
                self.fence.trip(&format!("a report cannot be written: {error}"));
                return false;
            }
        };
        let target = Target::Queue(self.topology.state());
        let mut pause = Duration::from_millis(200);
        loop {
            let (sent, message) = (boottime(), Message { body: body.clone().into(), headers: Vec::new() });
            match self.session.publish(&target, message).await {
                Ok(()) => {
                    self.fence.confirmed(sent);
                    return true;
                }
                Err(BrokerError::Lost(reason)) => {
                    self.fence.trip(&reason);
                    return false;
                }
                Err(error) => {
                    tracing::warn!(%error, "reports are not accepted, trying again");
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(Duration::from_secs(5));
                }
            }
        }
    }

    fn on_confirm(&self, say: Say) {
        match say {
            Say::Tell(_) | Say::Run(..) => {}
            Say::Settle(report, _) => {
                let _over = self.settled.send(report);
            }
            Say::Await(_, waiting) => {
                let _gave_up = waiting.send(());
            }
        }
    }
}

/// Divides a batch into the reports of one message each. A chunk of an inventory contains as many entries as a message
/// may have, so no other report follows it in its message.
fn messages(batch: &[Said]) -> impl Iterator<Item = &[Said]> {
    batch.split_inclusive(|(_, say)| matches!(say, Say::Tell(Report::Inventory(_))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use everwatch_core::wire::report::{InventoryChunk, InventoryRange};

    #[test]
    fn each_message_has_at_most_one_chunk_of_an_inventory() {
        let chunk = || InventoryChunk::within(1, &[InventoryRange::ALL], Vec::new()).remove(0);
        let list = || (Timestamp(0), Say::Tell(Report::Inventory(chunk())));
        let other = || (Timestamp(0), Say::Tell(Report::ServiceGone));
        let sizes = |batch: &[Said]| messages(batch).map(<[_]>::len).collect::<Vec<_>>();
        assert_eq!(sizes(&[other(), other()]), [2]);
        assert_eq!(sizes(&[list(), list(), other(), list(), other(), other()]), [1, 1, 2, 2]);
    }
}
