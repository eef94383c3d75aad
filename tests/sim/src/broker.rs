//! The broker's side of the connections. One task for each lane executes the client's requests on the broker
//! in memory and records what happens to work messages. Also injects faults of the broker.

use crate::network::{Answer, Ask, Asked, AtBroker, ConnId, Down, Lane, Network, Up};
use crate::record::{Fact, Loss, note};
use everwatch_broker::{
    Broker as _, BrokerError, Consume, Consumer, Delivery, MemoryBroker, Receipt, Session, Settle, Target,
    Topology,
};
use everwatch_core::epoch::Epoch;
use everwatch_core::id::{ObserverId, ServiceId};
use everwatch_core::wire::message::decode;
use everwatch_core::wire::report::{Report, StateMessage};
use everwatch_core::wire::work::{DecodedWork, Work, WorkHeader};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// Faults that are injected into the next operations.
#[derive(Default)]
pub(crate) struct Faults {
    /// How many of the next work messages are refused.
    pub(crate) rejects: AtomicU32,
    /// How many of the next deliveries of work never arrive.
    pub(crate) mislays: AtomicU32,
}

impl Faults {
    fn strikes(count: &AtomicU32) -> bool {
        count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok()
    }
}

/// The state that all lanes share on the broker's side.
#[derive(Clone)]
pub(crate) struct Node {
    pub(crate) memory: MemoryBroker,
    pub(crate) network: Network,
    pub(crate) faults: Arc<Faults>,
}

/// The identity of a work message.
pub(crate) fn label(body: &[u8]) -> Option<(ObserverId, u32)> {
    match Work::read(body) {
        Ok(DecodedWork::Ours(work)) => Some((work.id, work.generation)),
        Ok(DecodedWork::Foreign(WorkHeader { id, generation, .. }, _)) => Some((id, generation)),
        Err(_) => None,
    }
}

fn is_work(target: &Target) -> bool {
    matches!(target, Target::Queue(queue) if queue.starts_with(&crate::work_prefix()))
}

/// A work message that a client holds.
#[derive(Clone, Copy)]
struct Held {
    id: ObserverId,
    epoch: Epoch,
    consumer: Option<u64>,
}

/// One lane of one session.
struct End {
    node: Node,
    host: usize,
    conn: ConnId,
    lane: Lane,
    session: Arc<dyn Session>,
    held: BTreeMap<Receipt, Held>,
    consumers: HashMap<u64, UnboundedSender<ForPump>>,
    /// The channel of each consumer of work. Consumers that followed one another on the same channel have the
    /// same value.
    channels: HashMap<u64, u64>,
    /// The deliveries and replies of the consumer tasks.
    pumped: UnboundedSender<Pumped>,
    service: Option<ServiceId>,
    breaks_after_publish: bool,
    breaks_after_settlement: bool,
    of_manager: bool,
}

enum ForPump {
    Cancel(u64),
    Resume { number: u64, next: u64, consume: Consume },
}

enum Pumped {
    Delivery { consumer: u64, work: bool, delivery: Delivery },
    Ended(u64, Asked),
    Reply(u64, Result<Answer, BrokerError>),
}

/// Serves one lane until either side closes it. Returns how it ended.
pub(crate) async fn serve(
    node: Node,
    (host, conn, lane): (usize, ConnId, Lane),
    mut arrivals: UnboundedReceiver<AtBroker>,
) {
    let name = loop {
        match arrivals.recv().await {
            Some(AtBroker::Arrived(Up::Hello(name))) => break name,
            Some(AtBroker::Arrived(Up::Heartbeat)) => {}
            _ => return,
        }
    };
    let Ok(session) = node.memory.connect(&name).await else { return };
    node.network.down((conn, lane), Down::Reply(0, Ok(Answer::Done)));
    if lane == Lane::Publish && session.is_blocked() {
        node.network.down((conn, lane), Down::Blocked(true));
    }
    let (pumped, mut deliveries) = unbounded_channel();
    let mut end = End {
        node,
        host,
        conn,
        lane,
        session,
        held: BTreeMap::new(),
        consumers: HashMap::new(),
        channels: HashMap::new(),
        pumped,
        service: None,
        breaks_after_publish: false,
        breaks_after_settlement: false,
        of_manager: name.starts_with("everwatch manager"),
    };
    let tasks = tokio_util::task::TaskTracker::new();
    let loss = loop {
        tokio::select! {
            biased;
            Some(pumped) = deliveries.recv() => end.on_pumped(pumped),
            next = arrivals.recv() => match next {
                None | Some(AtBroker::Arrived(Up::Close)) => break Loss::Closed,
                Some(AtBroker::Close(loss)) => break loss,
                Some(AtBroker::CloseChannel) => end.close_channel().await,
                Some(AtBroker::Abandon(count)) => {
                    end.abandon(count);
                    break Loss::Told;
                }
                Some(AtBroker::GiveAway(count)) => end.give_away(count),
                Some(AtBroker::BreakAfterPublish) => end.breaks_after_publish = true,
                Some(AtBroker::BreakAfterSettlement) => end.breaks_after_settlement = true,
                Some(AtBroker::Arrived(up)) => {
                    if let Some(loss) = end.on_frame(up, &tasks).await {
                        break loss;
                    }
                }
            },
        }
    };
    end.close(loss).await;
}

impl End {
    fn reply(&self, number: u64, reply: Result<Answer, BrokerError>) {
        self.node.network.down((self.conn, self.lane), Down::Reply(number, reply));
    }

    fn on_pumped(&mut self, pumped: Pumped) {
        match pumped {
            Pumped::Delivery { consumer, work, delivery } => {
                if work && !self.took(&delivery, Some(consumer)) {
                    return;
                }
                self.node.network.down((self.conn, self.lane), Down::Delivery(consumer, delivery));
            }
            Pumped::Ended(consumer, asked) => {
                self.node.network.down((self.conn, self.lane), Down::Ended(consumer, asked));
            }
            Pumped::Reply(number, reply) => self.reply(number, reply),
        }
    }

    /// Records that this session received a work message. Returns `false` if the delivery will never arrive.
    fn took(&mut self, delivery: &Delivery, consumer: Option<u64>) -> bool {
        let Some((id, generation)) = label(&delivery.body) else { return true };
        let epoch = Epoch::new(generation, delivery.acquisitions);
        let (host, conn) = (self.host, self.conn);
        if consumer.is_none() {
            // A manager that finds its message in the queue has the same knowledge as one whose publish was
            // confirmed.
            note(Fact::Confirmed { id, generation });
            self.held.insert(delivery.receipt, Held { id, epoch, consumer });
            return true;
        }
        note(Fact::Delivered { host, conn, id, epoch });
        self.held.insert(delivery.receipt, Held { id, epoch, consumer });
        if Faults::strikes(&self.node.faults.mislays) {
            note(Fact::Mislaid { conn, id, epoch });
            return false;
        }
        true
    }

    fn gone(&mut self, receipt: Receipt, loss: Loss) {
        if let Some(Held { id, epoch, consumer: Some(_) }) = self.held.remove(&receipt) {
            note(Fact::TakenBack { conn: self.conn, id, epoch, loss });
        }
    }

    async fn on_frame(&mut self, up: Up, tasks: &tokio_util::task::TaskTracker) -> Option<Loss> {
        match up {
            Up::Hello(_) | Up::Heartbeat | Up::Close => {}
            Up::Dropped(consumer) => drop(self.consumers.remove(&consumer)),
            Up::Ack(receipt) => {
                if self.session.ack(receipt).await == Settle::Done
                    && let Some(Held { id, epoch, .. }) = self.held.remove(&receipt)
                {
                    note(Fact::Acknowledged { host: self.host, conn: self.conn, id, epoch });
                }
            }
            Up::Requeue(receipt) => {
                self.gone(receipt, Loss::Closed);
                self.session.requeue(receipt).await;
            }
            Up::Ask(number, Ask::Publish(target, message)) => {
                let settles = self.breaks_after_settlement && settles(&message.body);
                let reply = self.publish(&target, message).await;
                // A manager's connection breaks only after a publish of work: that is the publish whose
                // missing confirm matters.
                let strikes = !self.of_manager || is_work(&target);
                if (self.breaks_after_publish && strikes || settles) && reply.is_ok() {
                    return Some(Loss::Told);
                }
                self.reply(number, reply);
            }
            Up::Ask(number, Ask::Consume(id, consume)) => match self.session.consume(&consume).await {
                Ok(consumer) => {
                    let (orders, told) = unbounded_channel();
                    self.consumers.insert(id, orders);
                    self.reply(number, Ok(Answer::Done));
                    let work = consume.queue.starts_with(&crate::work_prefix());
                    if work {
                        self.channels.insert(id, id);
                    }
                    tasks.spawn(pump((id, work), consumer, told, self.pumped.clone()));
                }
                Err(error) => self.reply(number, Err(error)),
            },
            Up::Ask(number, Ask::Cancel(id)) => match self.consumers.get(&id) {
                Some(pump) => drop(pump.send(ForPump::Cancel(number))),
                None => self.reply(number, Ok(Answer::Done)),
            },
            Up::Ask(number, Ask::Resume { cancelled, next, consume }) => {
                match self.consumers.remove(&cancelled) {
                    Some(pump) => {
                        drop(pump.send(ForPump::Resume { number, next, consume }));
                        self.consumers.insert(next, pump);
                        if let Some(channel) = self.channels.get(&cancelled) {
                            self.channels.insert(next, *channel);
                        }
                    }
                    None => self.reply(number, Err(BrokerError::Refused("no such channel".to_owned()))),
                }
            }
            Up::Ask(number, ask) => {
                let reply = self.answer(ask).await;
                self.reply(number, reply);
            }
        }
        None
    }

    async fn publish(
        &self,
        target: &Target,
        message: everwatch_broker::Message,
    ) -> Result<Answer, BrokerError> {
        let Target::Queue(queue) = target else {
            return self.session.publish(target, message).await.map(|()| Answer::Done);
        };
        let (work, state) = (queue.starts_with(&crate::work_prefix()), crate::is_state_queue(queue));
        if work && Faults::strikes(&self.node.faults.rejects) {
            return Err(BrokerError::NotAccepted(queue.clone()));
        }
        let body = message.body.clone();
        self.session.publish(target, message).await?;
        if work && let Some((id, generation)) = label(&body) {
            // Record this now: the tasks that deliver the message have not run yet.
            note(Fact::Published { id, generation });
        }
        if state && let Ok(StateMessage::Reports(reports)) = decode(&body) {
            note(Fact::Reported { service: reports.service, entries: reports.entries });
        }
        Ok(Answer::Done)
    }

    async fn answer(&mut self, ask: Ask) -> Result<Answer, BrokerError> {
        let session = &self.session;
        match ask {
            Ask::Declare(queue, kind) => {
                let declared = session.declare(&queue, &kind).await?;
                if let Some(service) = Topology::new(crate::PREFIX).service_of(&queue) {
                    note(Fact::SessionOpened { host: self.host, conn: self.conn, service });
                    self.service = Some(service);
                }
                Ok(Answer::Declared(declared))
            }
            Ask::DeclareExchange(target) => session.declare_exchange(&target).await.map(|()| Answer::Done),
            Ask::Bind(queue, to) => session.bind(&queue, &to).await.map(|()| Answer::Done),
            Ask::Get(queue, most) => {
                let got = session.get(&queue, most).await?;
                for delivery in &got {
                    self.took(delivery, None);
                }
                Ok(Answer::Got(got))
            }
            Ask::Probe => session.probe().await.map(|()| Answer::Done),
            Ask::Depth(queue) => session.depth(&queue).await.map(Answer::Depth),
            Ask::Delete(queue) => session.delete(&queue).await.map(|()| Answer::Done),
            Ask::OwnerLiveness(queue) => session.fate(&queue).await.map(Answer::OwnerLiveness),
            Ask::Publish(..) | Ask::Consume(..) | Ask::Cancel(_) | Ask::Resume { .. } => {
                unreachable!("carried out where it arrives")
            }
        }
    }

    /// Closes the oldest channel of work. The messages that it holds return to the queue.
    async fn close_channel(&mut self) {
        let Some(channel) = self.channels.values().min().copied() else { return };
        let on_it = |consumer: &&u64| self.channels.get(consumer) == Some(&channel);
        let consumer = self.consumers.keys().filter(on_it).max().copied().unwrap_or(channel);
        let of_channel = |held: &Held| held.consumer.and_then(|it| self.channels.get(&it)) == Some(&channel);
        let of_it = self.held.iter().filter(|(_, held)| of_channel(held));
        let receipts: Vec<Receipt> = of_it.map(|(receipt, _)| *receipt).collect();
        drop(self.consumers.remove(&consumer));
        for receipt in receipts {
            self.gone(receipt, Loss::Told);
            self.session.requeue(receipt).await;
        }
        // The client treats a closed channel as the end of its session, even if it does not consume on that
        // channel.
        let (at, why) = ((self.conn, self.lane), "a consumer lost its channel".to_owned());
        self.node.network.down(at, Down::Ended(consumer, Asked::ByNobody));
        self.node.network.down(at, Down::ChannelClosed(why));
    }

    fn abandon(&mut self, count: usize) {
        let held = self.held.iter().filter(|(_, held)| held.consumer.is_some());
        let receipts: Vec<Receipt> = held.map(|(receipt, _)| *receipt).take(count).collect();
        for receipt in &receipts {
            if let Some(Held { id, epoch, .. }) = self.held.remove(receipt) {
                note(Fact::Abandoned { id, epoch });
            }
        }
        self.node.memory.abandon(&receipts);
    }

    fn give_away(&mut self, count: usize) {
        let held = self.held.iter().filter(|(_, held)| held.consumer.is_some());
        let receipts: Vec<Receipt> = held.map(|(receipt, _)| *receipt).take(count).collect();
        for receipt in &receipts {
            self.gone(*receipt, Loss::GivenAway);
        }
        self.node.memory.give_away(&receipts);
    }

    async fn close(mut self, loss: Loss) {
        let receipts: Vec<Receipt> = self.held.keys().copied().collect();
        for receipt in receipts {
            self.gone(receipt, loss);
        }
        self.consumers.clear();
        self.session.close().await;
        if self.lane == Lane::Consume && self.service.is_some() {
            note(Fact::SessionClosed { conn: self.conn });
        }
        let why = match loss {
            Loss::Closed => "closed by the client",
            Loss::Told => "CONNECTION_FORCED",
            Loss::Silent => "missed heartbeats from client",
            Loss::Untold | Loss::GivenAway => return,
        };
        self.node.network.down((self.conn, self.lane), Down::Lost(why.to_owned()));
    }
}

async fn pump(
    (mut id, work): (u64, bool),
    mut consumer: Box<dyn Consumer>,
    mut orders: UnboundedReceiver<ForPump>,
    pumped: UnboundedSender<Pumped>,
) {
    let mut open = true;
    loop {
        let out = tokio::select! {
            biased;
            order = orders.recv() => match order {
                None => return,
                Some(ForPump::Cancel(number)) => {
                    Pumped::Reply(number, consumer.cancel().await.map(|()| Answer::Done))
                }
                Some(ForPump::Resume { number, next, consume }) => {
                    let resumed = consumer.again(&consume).await.map(|()| Answer::Done);
                    (id, open) = (next, true);
                    Pumped::Reply(number, resumed)
                }
            },
            next = consumer.next(), if open => match next {
                Some(delivery) => Pumped::Delivery { consumer: id, work, delivery },
                None => {
                    open = false;
                    let asked = if consumer.cancelled_here() { Asked::ByClient } else { Asked::ByNobody };
                    Pumped::Ended(id, asked)
                }
            },
        };
        if pumped.send(out).is_err() {
            return;
        }
    }
}

/// Whether a message reports that a run has ended for good.
fn settles(body: &[u8]) -> bool {
    let Ok(StateMessage::Reports(reports)) = decode(body) else { return false };
    reports.entries.iter().any(|it| matches!(&it.report, Report::Run(run) if run.event.settles()))
}
