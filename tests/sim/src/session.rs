//! The client's side of a session: implements the broker port over frames. Like the real client, it does not
//! reconnect: if one of the two connections is lost, the session is lost.

use crate::network::{Answer, Ask, Asked, ConnId, Down, Lane, Network, Up};
use crate::record::{Fact, note};
use async_trait::async_trait;
use everwatch_broker::{
    Broker, BrokerError, ConnectError, Consume, Consumer, Declare, Declared, Delivery, Depth, Message,
    OwnerLiveness, QueueKind, Receipt, Session, Settle, Target, Topology,
};
use everwatch_core::doctor::Server;
use everwatch_core::wire::command::Command;
use everwatch_core::wire::message::{VERSION, WORK_VERSION, decode, encode};
use everwatch_core::wire::report::{Report, StateMessage};
use everwatch_core::wire::work::{DecodedWork, Work};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot, watch};

/// How long a connect may take, as in the real client.
const CONNECT_WITHIN: Duration = Duration::from_secs(10);

/// The broker as one process on a host sees it.
pub(crate) struct RemoteBroker {
    pub(crate) network: Network,
    pub(crate) host: usize,
    pub(crate) life: u32,
    /// Whether the process is of an older version.
    pub(crate) is_older: bool,
    pub(crate) state_queues: u16,
}

type Reply = Result<Answer, BrokerError>;

/// What comes for a consumer.
enum ForConsumer {
    Delivery(Delivery),
    End(Asked),
}

struct Client {
    network: Network,
    host: usize,
    is_older: bool,
    state_queues: u16,
    conn: ConnId,
    numbers: AtomicU64,
    waiting: Mutex<HashMap<u64, oneshot::Sender<Reply>>>,
    consumers: Mutex<HashMap<u64, mpsc::UnboundedSender<ForConsumer>>>,
    blocked: AtomicBool,
    closed: AtomicBool,
    lost: watch::Sender<Option<String>>,
    /// Work messages that were delivered and not settled, for the record.
    held: Mutex<HashMap<Receipt, Work>>,
}

impl Client {
    fn lose(&self, why: &str) {
        if self.lost.borrow().is_none() {
            self.lost.send_replace(Some(why.to_owned()));
            self.waiting.lock().unwrap().clear();
            self.consumers.lock().unwrap().clear();
        }
    }
    /// Closes both connections. A lost session keeps its healthy connection open until then, because its
    /// owner must first stop its runs.
    fn close(&self, why: &str) {
        self.lose(why);
        if !self.closed.swap(true, Ordering::Relaxed) {
            for lane in Lane::BOTH {
                self.network.up((self.conn, lane), Up::Close);
            }
        }
    }
    fn error(&self) -> BrokerError {
        BrokerError::Lost(self.lost.borrow().clone().unwrap_or_else(|| "gone".to_owned()))
    }
    fn is_lost(&self) -> bool {
        self.lost.borrow().is_some()
    }
    fn number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }
    fn listen(&self) -> (u64, mpsc::UnboundedReceiver<ForConsumer>) {
        let (sender, receiver) = mpsc::unbounded_channel();
        let id = self.number();
        self.consumers.lock().unwrap().insert(id, sender);
        (id, receiver)
    }
    async fn request(&self, lane: Lane, up: impl FnOnce(u64) -> Up) -> Reply {
        if self.is_lost() {
            return Err(self.error());
        }
        let (number, (sender, receiver)) = (self.number(), oneshot::channel());
        self.waiting.lock().unwrap().insert(number, sender);
        self.network.up((self.conn, lane), up(number));
        receiver.await.unwrap_or_else(|_| Err(self.error()))
    }
    async fn ask(&self, ask: Ask) -> Reply {
        let lane = if matches!(ask, Ask::Publish(..)) { Lane::Publish } else { Lane::Consume };
        self.request(lane, |number| Up::Ask(number, ask)).await
    }
    async fn done(&self, ask: Ask) -> Result<(), BrokerError> {
        self.ask(ask).await.map(drop)
    }
    fn on_frame(&self, down: Down) {
        match down {
            Down::Reply(number, reply) => {
                if let Some(waiting) = self.waiting.lock().unwrap().remove(&number) {
                    let _gave_up = waiting.send(reply);
                }
            }
            Down::Delivery(consumer, delivery) => {
                if let Some(it) = self.consumers.lock().unwrap().get(&consumer) {
                    let _dropped = it.send(ForConsumer::Delivery(delivery));
                }
            }
            Down::Ended(consumer, asked) => {
                if let Some(it) = self.consumers.lock().unwrap().remove(&consumer) {
                    let _dropped = it.send(ForConsumer::End(asked));
                }
            }
            Down::Blocked(blocked) => self.blocked.store(blocked, Ordering::Relaxed),
            Down::Heartbeat => {}
            Down::ChannelClosed(why) | Down::Lost(why) => self.lose(&why),
        }
    }
}

#[async_trait]
impl Broker for RemoteBroker {
    async fn connect(&self, name: &str) -> Result<Arc<dyn Session>, ConnectError> {
        let (conn, mut frames) = self.network.open(self.host, self.life);
        let client = Arc::new(Client {
            network: self.network.clone(),
            host: self.host,
            is_older: self.is_older,
            state_queues: self.state_queues,
            conn,
            numbers: AtomicU64::new(1),
            waiting: Mutex::default(),
            consumers: Mutex::default(),
            blocked: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            lost: watch::Sender::new(None),
            held: Mutex::default(),
        });
        let reader = Arc::downgrade(&client);
        #[expect(clippy::disallowed_methods, reason = "it ends with the session or with the host")]
        tokio::spawn(async move {
            while let Some(frame) = frames.recv().await {
                let Some(client) = reader.upgrade() else { return };
                client.on_frame(frame);
            }
        });
        let greeted = async {
            for lane in Lane::BOTH {
                let name = name.to_owned();
                let (sender, receiver) = oneshot::channel();
                client.waiting.lock().unwrap().insert(0, sender);
                client.network.up((conn, lane), Up::Hello(name));
                receiver.await.unwrap_or_else(|_| Err(client.error()))?;
            }
            Ok::<(), BrokerError>(())
        };
        let outcome = match tokio::time::timeout(CONNECT_WITHIN, greeted).await {
            Ok(Ok(())) => return Ok(Arc::new(RemoteSession(client))),
            Ok(Err(error)) => error.to_string(),
            Err(_) => "no answer within 10 s".to_owned(),
        };
        client.close(&outcome);
        Err(ConnectError::Unreachable(outcome))
    }
    async fn version(&self) -> Option<String> {
        None
    }
    async fn inspect(&self, _queues: &[(String, QueueKind)]) -> Option<Server> {
        None
    }
}

struct RemoteSession(Arc<Client>);

impl Drop for RemoteSession {
    fn drop(&mut self) {
        self.0.close("dropped by this side");
    }
}

impl RemoteSession {
    fn settle(&self, receipt: Receipt, up: Up) -> Settle {
        if self.0.is_lost() {
            return Settle::NotOurs;
        }
        let work = self.0.held.lock().unwrap().remove(&receipt);
        if let (Some(work), Up::Requeue(_)) = (work, &up) {
            note(Fact::GivesBack { host: self.0.host, id: work.id });
        }
        self.0.network.up((self.0.conn, Lane::Consume), up);
        Settle::Done
    }

    /// Records for the judge that a publish was confirmed.
    fn on_confirm(&self, target: &Target, message: &Message) {
        let Target::Queue(queue) = target else { return };
        if crate::is_state_queue(queue) {
            let Ok(StateMessage::Reports(reports)) = decode(&message.body) else { return };
            for entry in reports.entries {
                if let Report::Run(report) = entry.report {
                    note(Fact::ReportConfirmed { conn: self.0.conn, report });
                }
            }
        } else if queue.starts_with(&crate::work_prefix())
            && let Ok(DecodedWork::Ours(work)) = Work::read(&message.body)
        {
            note(Fact::Confirmed { id: work.id, generation: work.generation });
        }
    }
}

#[async_trait]
impl Declare for RemoteSession {
    async fn declare(&self, queue: &str, kind: &QueueKind) -> Result<Declared, BrokerError> {
        match self.0.ask(Ask::Declare(queue.to_owned(), kind.clone())).await? {
            Answer::Declared(declared) => Ok(declared),
            other => panic!("a declare is answered with {other:?}"),
        }
    }
    async fn declare_exchange(&self, target: &Target) -> Result<(), BrokerError> {
        self.0.done(Ask::DeclareExchange(target.clone())).await
    }
    async fn bind(&self, queue: &str, to: &[Target]) -> Result<(), BrokerError> {
        self.0.done(Ask::Bind(queue.to_owned(), to.to_vec())).await
    }
}

#[async_trait]
impl Session for RemoteSession {
    async fn publish(&self, target: &Target, message: Message) -> Result<(), BrokerError> {
        let message = if self.0.is_older { as_older(message) } else { message };
        self.0.done(Ask::Publish(target.clone(), message.clone())).await?;
        self.on_confirm(target, &message);
        Ok(())
    }
    async fn consume(&self, consume: &Consume) -> Result<Box<dyn Consumer>, BrokerError> {
        let (id, arrivals) = self.0.listen();
        let queue = consume.queue.clone();
        let consumer = RemoteConsumer { id, queue, client: Arc::clone(&self.0), arrivals, ended: None };
        consumer.change(Ask::Consume(id, consume.clone())).await?;
        Ok(Box::new(consumer))
    }
    async fn get(&self, queue: &str, most: usize) -> Result<Vec<Delivery>, BrokerError> {
        match self.0.ask(Ask::Get(queue.to_owned(), most)).await? {
            Answer::Got(deliveries) => Ok(deliveries),
            other => panic!("a get is answered with {other:?}"),
        }
    }
    async fn ack(&self, receipt: Receipt) -> Settle {
        self.settle(receipt, Up::Ack(receipt))
    }
    async fn ack_accepted(&self, receipt: Receipt) -> Settle {
        let settle = self.ack(receipt).await;
        match self.probe().await {
            Ok(()) => settle,
            Err(_) => Settle::NotOurs,
        }
    }
    async fn requeue(&self, receipt: Receipt) -> Settle {
        self.settle(receipt, Up::Requeue(receipt))
    }
    async fn probe(&self) -> Result<(), BrokerError> {
        self.0.done(Ask::Probe).await
    }
    async fn depth(&self, queue: &str) -> Result<Depth, BrokerError> {
        // No history reduces the number of state queues. An answer without a message keeps the histories that were
        // recorded before managers looked for the queues that a reduction leaves.
        if queue == Topology::new(crate::PREFIX).state_queue(self.0.state_queues) {
            return Err(BrokerError::NoQueue(queue.to_owned()));
        }
        match self.0.ask(Ask::Depth(queue.to_owned())).await? {
            Answer::Depth(depth) => Ok(depth),
            other => panic!("a depth is answered with {other:?}"),
        }
    }
    async fn ready(&self, _: &str) -> Result<u32, BrokerError> {
        // A constant keeps the histories that were recorded before managers watched for returned messages. These only let a manager
        // ask sooner whether a service is alive, as it does in these histories when observers run elsewhere.
        Ok(0)
    }
    async fn delete(&self, queue: &str) -> Result<(), BrokerError> {
        self.0.done(Ask::Delete(queue.to_owned())).await
    }
    async fn fate(&self, queue: &str) -> Result<OwnerLiveness, BrokerError> {
        match self.0.ask(Ask::OwnerLiveness(queue.to_owned())).await? {
            Answer::OwnerLiveness(fate) => Ok(fate),
            other => panic!("a fate is answered with {other:?}"),
        }
    }
    fn is_blocked(&self) -> bool {
        self.0.blocked.load(Ordering::Relaxed)
    }
    fn heartbeat(&self) -> Option<Duration> {
        None
    }
    async fn lost(&self) -> String {
        let mut lost = self.0.lost.subscribe();
        lost.wait_for(Option::is_some).await.ok().and_then(|it| it.clone()).unwrap_or_default()
    }
    async fn close(&self) {
        self.0.close("closed by this side");
    }
}

/// A work message as an older process reads it: of a message version that it does not know.
fn as_newer(delivery: Delivery) -> Delivery {
    let Ok(DecodedWork::Ours(mut work)) = Work::read(&delivery.body) else { return delivery };
    work.v = WORK_VERSION + 1;
    Delivery { body: serde_json::to_vec(&work).unwrap().into(), ..delivery }
}

/// A report as an older process sends it: the process does not read newer work messages.
fn as_older(message: Message) -> Message {
    let Ok(StateMessage::Reports(mut reports)) = decode(&message.body) else { return message };
    for entry in &mut reports.entries {
        if let Report::ServiceRegistered(registration) = &mut entry.report {
            registration.message_version = VERSION - 1;
        }
    }
    Message { body: encode(&StateMessage::Reports(reports)).unwrap().into(), ..message }
}

struct RemoteConsumer {
    id: u64,
    queue: String,
    client: Arc<Client>,
    arrivals: mpsc::UnboundedReceiver<ForConsumer>,
    ended: Option<Asked>,
}

impl RemoteConsumer {
    /// Sends a request to open or cancel a consumer. A consumer that is not open yet cannot be cancelled.
    async fn change(&self, ask: Ask) -> Result<(), BrokerError> {
        let (work, host) = (self.is_of_work(), self.client.host);
        if work {
            note(Fact::ConsumerChanging { host });
        }
        self.client.done(ask).await?;
        if work {
            note(Fact::ConsumerChanged { host });
        }
        Ok(())
    }
    fn is_of_work(&self) -> bool {
        self.queue.starts_with(&crate::work_prefix())
    }
    fn tap(&self, delivery: &Delivery) {
        let host = self.client.host;
        if self.is_of_work() {
            if let Ok(DecodedWork::Ours(work)) = Work::read(&delivery.body) {
                self.client.held.lock().unwrap().insert(delivery.receipt, *work);
            }
        } else if Topology::new(crate::PREFIX).service_of(&self.queue).is_some()
            && let Ok(command) = decode::<Command>(&delivery.body)
        {
            note(Fact::Heard { host, command: Box::new(command) });
        }
    }
}

#[async_trait]
impl Consumer for RemoteConsumer {
    async fn next(&mut self) -> Option<Delivery> {
        if self.ended.is_some() {
            return None;
        }
        match self.arrivals.recv().await {
            Some(ForConsumer::Delivery(delivery)) => {
                self.tap(&delivery);
                Some(if self.client.is_older { as_newer(delivery) } else { delivery })
            }
            Some(ForConsumer::End(asked)) => {
                self.ended = Some(asked);
                None
            }
            None => {
                self.ended = Some(Asked::ByNobody);
                None
            }
        }
    }
    async fn cancel(&mut self) -> Result<(), BrokerError> {
        self.change(Ask::Cancel(self.id)).await
    }
    async fn again(&mut self, consume: &Consume) -> Result<(), BrokerError> {
        let (next, arrivals) = self.client.listen();
        self.change(Ask::Resume { cancelled: self.id, next, consume: consume.clone() }).await?;
        (self.id, self.arrivals, self.ended) = (next, arrivals, None);
        Ok(())
    }
    fn cancelled_here(&self) -> bool {
        self.ended == Some(Asked::ByClient)
    }
}

impl Drop for RemoteConsumer {
    fn drop(&mut self) {
        if !self.client.is_lost() {
            self.client.network.up((self.client.conn, Lane::Consume), Up::Dropped(self.id));
        }
    }
}
