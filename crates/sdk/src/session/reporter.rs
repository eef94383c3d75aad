//! Sends reports to the managers: numbers them, batches them, spreads them over the state queues, and waits for the
//! broker's confirms, in order.

use crate::boot_clock::boottime;
use crate::safety::fence::Fence;
use bytes::Bytes;
use everwatch_broker::{BrokerError, Message, Session, Target, Topology};
use everwatch_core::clock::{self, Timestamp};
use everwatch_core::id::{ObserverId, ServiceId};
use everwatch_core::wire::message::{BATCH_MAX, encode};
use everwatch_core::wire::report::{Report, Reports, RunReport, SequencedReport, StateMessage};
use everwatch_core::wire::trace::TraceContext;
use futures::future::join_all;
use std::collections::BTreeMap;
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
        // With more queues, a batch is larger, so that its messages are not smaller.
        let most = BATCH_MAX * usize::from(self.topology.state_queues());
        let mut batch = Vec::with_capacity(most);
        while queue.recv_many(&mut batch, most).await > 0 {
            if batch.len() < most {
                let deadline = tokio::time::Instant::now() + LINGER;
                while batch.len() < most {
                    let room = most - batch.len();
                    match tokio::time::timeout_at(deadline, queue.recv_many(&mut batch, room)).await {
                        Ok(0) | Err(_) => break,
                        Ok(_) => {}
                    }
                }
            }
            for round in rounds(&self.topology, &batch) {
                if !self.send(&mut seq, &round).await {
                    return;
                }
            }
            for (_, say) in batch.drain(..) {
                self.on_confirm(say);
            }
        }
    }

    /// Sends the messages of a round at the same time, and waits for all confirms.
    async fn send(&self, seq: &mut u64, round: &Round<'_>) -> bool {
        let mut bodies = Vec::with_capacity(round.len());
        for (queue, reports) in round {
            match self.body(seq, reports) {
                Ok(body) => bodies.push((*queue, body)),
                Err(error) => {
                    self.fence.trip(&format!("a report cannot be written: {error}"));
                    return false;
                }
            }
        }
        let sent = bodies.into_iter().map(|(queue, body)| self.publish(queue, body));
        join_all(sent).await.into_iter().all(|is_confirmed| is_confirmed)
    }

    fn body(&self, seq: &mut u64, reports: &[&Said]) -> serde_json::Result<Bytes> {
        let entries = reports.iter().map(|(at, say)| {
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
        encode(&StateMessage::Reports(reports)).map(Bytes::from)
    }

    async fn publish(&self, queue: u16, body: Bytes) -> bool {
        let target = Target::Queue(self.topology.state_queue(queue));
        let mut pause = Duration::from_millis(200);
        loop {
            let (sent, message) = (boottime(), Message { body: body.clone(), headers: Vec::new() });
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
                    if queue > 0 && matches!(error, BrokerError::Unroutable(_)) {
                        tracing::error!(
                            "a state queue is missing; set broker.state_queues of all managers to at least {} and \
                             restart them",
                            self.topology.state_queues()
                        );
                    }
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

/// Messages that are sent at the same time, each with its state queue.
type Round<'a> = BTreeMap<u16, Vec<&'a Said>>;

/// Divides a batch into rounds. All reports about one observer go to one queue, in order. A report of the service about
/// itself is sent once every earlier report is confirmed, and before every later one: managers must not find
/// `service_gone` or an inventory in the first queue while the last reports of the runs are in no queue yet.
///
/// A chunk of an inventory contains as many entries as a message may have, so no other report follows it in its message.
fn rounds<'a>(topology: &Topology, batch: &'a [Said]) -> Vec<Round<'a>> {
    let (mut rounds, mut round) = (Vec::new(), Round::new());
    for said in batch {
        let observer = subject(&said.1);
        let queue = observer.map_or(0, |id| topology.state_of(id));
        let is_full = round.get(&queue).is_some_and(|message| message.len() >= BATCH_MAX);
        let waits = observer.is_none() && round.keys().any(|other| *other != queue);
        if is_full || waits {
            rounds.push(std::mem::take(&mut round));
        }
        round.entry(queue).or_default().push(said);
        let is_chunk = matches!(said.1, Say::Tell(Report::Inventory(_)));
        if is_chunk || observer.is_none() && topology.state_queues() > 1 {
            rounds.push(std::mem::take(&mut round));
        }
    }
    if !round.is_empty() {
        rounds.push(round);
    }
    rounds
}

/// The observer that a report is about; `None` if the report is about the service or many observers.
fn subject(say: &Say) -> Option<ObserverId> {
    match say {
        Say::Run(run, _) | Say::Settle(run, _) => Some(run.id),
        Say::Tell(report) | Say::Await(report, _) => match report {
            Report::Run(run) => Some(run.id),
            Report::Checkpoint(checkpoint) => Some(checkpoint.id),
            Report::CheckpointWanted(wanted) => Some(wanted.id),
            // All of them have the same queue.
            Report::HeldMessages(described) => described.held.first().map(|held| held.run.id),
            Report::ServiceRegistered(_)
            | Report::ServiceGone
            | Report::InventoryDigest(_)
            | Report::Inventory(_)
            | Report::WorkQueueCreated { .. }
            | Report::MessagesRefused(_)
            | Report::Unknown(_) => None,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use everwatch_core::epoch::Epoch;
    use everwatch_core::wire::report::{InventoryChunk, InventoryRange, RunEvent};
    use uuid::Uuid;

    fn topology(state_queues: u16) -> Topology {
        Topology::new("p.").with_state_queues(state_queues)
    }

    fn said(report: Report) -> Said {
        (Timestamp(0), Say::Tell(report))
    }

    /// With two queues, number 2 has the first queue, numbers 1 and 9 have the second.
    fn run(observer: u128) -> Said {
        let id = ObserverId(Uuid::from_u128(observer));
        (Timestamp(0), Say::Run(RunReport { id, epoch: Epoch::new(1, 0), event: RunEvent::HandedOver }, None))
    }

    fn gone() -> Said {
        said(Report::ServiceGone)
    }

    /// The sizes of the messages of each round, by queue.
    fn sizes(queues: u16, batch: &[Said]) -> Vec<Vec<(u16, usize)>> {
        let size =
            |round: Round<'_>| round.into_iter().map(|(queue, reports)| (queue, reports.len())).collect();
        rounds(&topology(queues), batch).into_iter().map(size).collect()
    }

    #[test]
    fn each_message_has_at_most_one_chunk_of_an_inventory() {
        let list = || {
            said(Report::Inventory(InventoryChunk::within(1, &[InventoryRange::ALL], Vec::new()).remove(0)))
        };
        assert_eq!(sizes(1, &[run(1), gone(), run(2)]), [[(0, 3)]]);
        let batch = [list(), list(), gone(), list(), run(1), gone()];
        assert_eq!(sizes(1, &batch), [[(0, 1)], [(0, 1)], [(0, 2)], [(0, 2)]]);
    }

    #[test]
    fn the_reports_of_one_observer_keep_their_order_in_one_queue() {
        let batch = [run(1), run(2), run(9), run(1), run(2)];
        let all = rounds(&topology(2), &batch);
        let [round] = all.as_slice() else { panic!("{} rounds", all.len()) };
        let places = |queue| {
            let place = |said: &&Said| batch.iter().position(|it| std::ptr::eq(it, *said)).unwrap();
            round[&queue].iter().map(place).collect::<Vec<_>>()
        };
        assert_eq!((places(0), places(1)), (vec![1, 4], vec![0, 2, 3]));
    }

    #[test]
    fn a_report_of_the_service_waits_for_all_earlier_reports_and_delays_all_later_ones() {
        let batch = [run(1), run(2), gone(), run(1), run(2)];
        assert_eq!(sizes(2, &batch), [vec![(0, 1), (1, 1)], vec![(0, 1)], vec![(0, 1), (1, 1)]]);
        assert_eq!(sizes(2, &[run(2), gone()]), [[(0, 2)]], "they are in one queue");
    }

    #[test]
    fn a_message_never_has_more_reports_than_with_one_queue() {
        let batch: Vec<Said> = (0..=BATCH_MAX).map(|_| run(1)).chain([run(2)]).collect();
        assert_eq!(sizes(2, &batch), [vec![(1, BATCH_MAX)], vec![(0, 1), (1, 1)]]);
    }
}
