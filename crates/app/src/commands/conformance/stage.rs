//! One rule's stage: a deployment with its own prefix, in which the checker is the manager and the worker is behind a
//! [`Tap`].

use super::facts::{Facts, Parked, Told};
use super::tap::Tap;
use super::worker::Worker;
use anyhow::Context as _;
use everwatch_broker::{
    Broker as _, Consume, Consumer, Delivery, HeaderValue, Message, QueueKind, RabbitBroker, Session, Target,
    Topology,
};
use everwatch_core::epoch::Epoch;
use everwatch_core::id::{Name, ObserverId, Pool, RepliesId, ServiceId};
use everwatch_core::observer::definition::ObserverDefinition;
use everwatch_core::wire::command::{Command, Revocation, Welcome};
use everwatch_core::wire::heartbeat::HeartbeatMessage;
use everwatch_core::wire::message::{decode, encode};
use everwatch_core::wire::report::StateMessage;
use everwatch_core::wire::work::Work;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tokio::sync::mpsc;
use tokio_util::task::TaskTracker;
use uuid::Uuid;

/// A broken rule: what was expected, and what happened.
pub(super) type Verdict = Result<(), String>;

/// The heartbeat of the worker's connections, and of its own heartbeats.
pub(super) const HEARTBEAT: Duration = Duration::from_secs(3);
/// How long the worker may take for a step that needs no pause.
pub(super) const SOON: Duration = Duration::from_secs(5);
/// How long the worker may take to start and to register: an interpreter may be slow.
const STARTS_WITHIN: Duration = Duration::from_secs(30);
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// The name of the worker under test.
pub(super) const NAME: &str = "conformance-worker";
pub(super) const KIND: &str = "conformance";

/// What is checked, and where.
#[derive(Debug, Clone)]
pub(super) struct Subject {
    pub(super) command: String,
    pub(super) broker_url: String,
    /// The broker's host and port, and the URL with `{}` in their place.
    pub(super) upstream: String,
    pub(super) worker_url: String,
}

/// What a queue delivers to the checker.
enum Arrival {
    State(Delivery),
    SecondState(Delivery),
    Heartbeat(Delivery),
    Parked(Delivery),
    Reply(Delivery),
}

/// See above.
pub(super) struct Stage {
    subject: Subject,
    pub(super) prefix: String,
    pub(super) topology: Topology,
    pub(super) tap: Tap,
    pub(super) facts: Facts,
    pub(super) worker: Option<Worker>,
    pub(super) capacity: u32,
    pub(super) weight_max: u16,
    broker: RabbitBroker,
    session: Arc<dyn Session>,
    arrivals: mpsc::Receiver<Arrival>,
    sender: mpsc::Sender<Arrival>,
    readers: TaskTracker,
    folder: TempDir,
    last_worker: u32,
}

impl Stage {
    /// A new deployment without a worker.
    pub(super) async fn new(subject: &Subject) -> anyhow::Result<Self> {
        let prefix = format!("everwatch-conformance-{}.", Uuid::new_v4().simple());
        let topology = Topology::new(&prefix);
        let broker = RabbitBroker::new(&subject.broker_url, &prefix, Duration::from_secs(10))?;
        let session = broker.connect("everwatch conformance").await?;
        for (queue, kind) in topology.durable_queues() {
            session.declare(&queue, &kind).await?;
        }
        for exchange in topology.exchanges() {
            session.declare_exchange(&exchange).await?;
        }
        session.declare(&topology.work(&Pool::default()), &QueueKind::Durable { max_length: None }).await?;
        let (sender, arrivals) = mpsc::channel(10_000);
        let mut stage = Self {
            tap: Tap::open(subject.upstream.clone()).await.context("cannot listen on 127.0.0.1")?,
            subject: subject.clone(),
            prefix,
            facts: Facts::default(),
            worker: None,
            capacity: 10,
            weight_max: 1,
            broker,
            session,
            arrivals,
            sender,
            readers: TaskTracker::new(),
            folder: tempfile::Builder::new().prefix("everwatch-conformance-").tempdir()?,
            last_worker: 0,
            topology,
        };
        stage.read(stage.topology.state(), Arrival::State).await?;
        stage.read(stage.topology.heartbeats(), Arrival::Heartbeat).await?;
        stage.read(stage.topology.parked(), Arrival::Parked).await?;
        Ok(stage)
    }

    async fn read(&mut self, queue: String, arrival: fn(Delivery) -> Arrival) -> anyhow::Result<()> {
        let consume = Consume { queue, prefetch: 500, priority: 0 };
        let consumer = self.session.consume(&consume).await?;
        self.readers.spawn(pass_on(consumer, self.session.clone(), self.sender.clone(), arrival));
        Ok(())
    }

    /// The worker will be started with this number of state queues.
    pub(super) fn set_state_queues(&mut self, count: u16) {
        self.topology = self.topology.clone().with_state_queues(count);
    }

    /// Creates the second state queue, as managers do.
    pub(super) async fn add_state_queue(&mut self) -> Verdict {
        let queue = self.topology.state_queue(1);
        let kind = QueueKind::Durable { max_length: None };
        self.session.declare(&queue, &kind).await.map_err(|error| error.to_string())?;
        self.read(queue, Arrival::SecondState).await.map_err(|error| error.to_string())
    }

    /// A queue for replies to this checker.
    pub(super) async fn replies(&mut self) -> Result<RepliesId, String> {
        let to = RepliesId(Uuid::new_v4());
        let queue = self.topology.replies(to);
        self.session.declare(&queue, &QueueKind::Exclusive).await.map_err(|error| error.to_string())?;
        self.read(queue, Arrival::Reply).await.map_err(|error| error.to_string())?;
        Ok(to)
    }

    pub(super) fn work_queue(&self) -> String {
        self.topology.work(&Pool::default())
    }

    /// A file to which an observer of the worker writes a line again and again while its code runs.
    pub(super) fn beacon(&self) -> PathBuf {
        self.folder.path().join(format!("beacon-{}", Uuid::new_v4().simple()))
    }

    /// Starts the worker.
    pub(super) fn start_worker(&mut self) -> Result<(), String> {
        let url = self.subject.worker_url.replace("{}", &self.tap.address);
        let environment = [
            ("EVERWATCH_BROKER__URL", url),
            ("EVERWATCH_BROKER__PREFIX", self.prefix.clone()),
            ("EVERWATCH_BROKER__HEARTBEAT", format!("{}s", HEARTBEAT.as_secs())),
            ("EVERWATCH_BROKER__STATE_QUEUES", self.topology.state_queues().to_string()),
            ("EVERWATCH_SERVICE__NAME", NAME.to_owned()),
            ("EVERWATCH_SERVICE__CAPACITY", self.capacity.to_string()),
            ("EVERWATCH_SERVICE__WEIGHT_MAX", self.weight_max.to_string()),
            ("EVERWATCH_SERVICE__HEARTBEAT_INTERVAL", "1s".to_owned()),
            ("EVERWATCH_SERVICE__FENCE_GRACE", "500ms".to_owned()),
            ("EVERWATCH_SERVICE__DRAIN_TIMEOUT", "10s".to_owned()),
        ];
        self.last_worker += 1;
        let log = self.folder.path().join(format!("worker-{}.log", self.last_worker));
        let worker = Worker::start(&self.subject.command, &environment, &log);
        self.worker = Some(worker.map_err(|error| format!("{error:#}"))?);
        Ok(())
    }

    /// Starts the worker, waits for its registration and welcomes it.
    pub(super) async fn serving(&mut self) -> Result<ServiceId, String> {
        self.start_worker()?;
        let service = self.registered(1).await?;
        self.command(Some(service), Command::Welcome(Box::new(Welcome::new(service, Vec::new())))).await?;
        Ok(service)
    }

    /// Waits for this many registrations and returns the service of the last one.
    pub(super) async fn registered(&mut self, count: usize) -> Result<ServiceId, String> {
        let registered = |facts: &Facts| facts.registrations().nth(count - 1).map(|(service, _)| service);
        self.until("the worker registers", STARTS_WITHIN, registered).await
    }

    /// Sends a command to one service, or to all.
    pub(super) async fn command(&self, service: Option<ServiceId>, command: Command) -> Verdict {
        let body = encode(&command).map_err(|error| error.to_string())?;
        let target = match service {
            Some(service) => Target::Queue(self.topology.commands_of(&Pool::default(), service)),
            None => self.topology.commands_to(&Pool::default()),
        };
        self.publish(&target, body).await
    }

    pub(super) async fn revoke(&self, id: ObserverId, below: Epoch) -> Verdict {
        self.command(None, Command::Revoke(vec![Revocation { id, below, cause: None }])).await
    }

    /// Publishes bytes.
    pub(super) async fn publish(&self, target: &Target, body: Vec<u8>) -> Verdict {
        let message = Message { body: body.into(), headers: Vec::new() };
        self.session.publish(target, message).await.map_err(|error| error.to_string())
    }

    /// Publishes a generation of an observer with this spec, and with further members of its definition.
    pub(super) async fn work(&self, id: ObserverId, generation: u32, spec: Value, more: Value) -> Verdict {
        self.deliver(&Self::written(id, generation, spec, more)?).await
    }

    /// Publishes a work message.
    pub(super) async fn deliver(&self, work: &Work) -> Verdict {
        let body = serde_json::to_vec(work).map_err(|error| error.to_string())?;
        self.publish(&Target::Queue(self.work_queue()), body).await
    }

    /// The message of a generation of an observer with this spec, and with further members of its definition.
    pub(super) fn written(id: ObserverId, generation: u32, spec: Value, more: Value) -> Result<Work, String> {
        let mut body = json!({"kind": KIND, "grace": "5s"});
        body["spec"] = spec;
        if let (Some(body), Value::Object(more)) = (body.as_object_mut(), more) {
            body.extend(more);
        }
        let name = Name::new(&format!("o-{}", id.0.simple())).map_err(|error| error.to_string())?;
        let definition = ObserverDefinition::parse(body, &name).map_err(|errors| format!("{errors:?}"))?;
        Work::of(id, generation, &definition).map_err(|error| error.to_string())
    }

    /// Publishes the first generation of a new observer.
    pub(super) async fn new_work(&self, spec: Value) -> Result<ObserverId, String> {
        let id = ObserverId(Uuid::now_v7());
        self.work(id, 1, spec, json!({})).await?;
        Ok(id)
    }

    /// Publishes new observers that wait, and returns once all of them are reported as started.
    pub(super) async fn running(&mut self, count: usize) -> Result<Vec<ObserverId>, String> {
        let mut ids = Vec::with_capacity(count);
        for _ in 0..count {
            ids.push(self.new_work(json!({"do": "wait"})).await?);
        }
        for id in &ids {
            self.event(*id, "started").await?;
        }
        Ok(ids)
    }

    /// Deletes the work queue with its messages.
    pub(super) async fn delete_work_queue(&self) -> Verdict {
        self.broker.remove(&[self.work_queue()], &[]).await.map_err(|error| error.to_string())
    }

    /// The number of messages that wait in the work queue.
    pub(super) async fn waiting(&self) -> Result<u32, String> {
        let depth = self.session.depth(&self.work_queue()).await;
        depth.map(|depth| depth.ready).map_err(|error| error.to_string())
    }

    /// Waits until this many messages wait in the work queue.
    pub(super) async fn until_waiting(&mut self, count: u32, within: Duration) -> Verdict {
        let deadline = Instant::now() + within;
        loop {
            let waiting = self.waiting().await?;
            if waiting == count {
                return Ok(());
            }
            if Instant::now() >= deadline {
                return Err(format!("{waiting} messages wait in the work queue, expected {count}"));
            }
            self.pass(LOOK_EVERY).await;
        }
    }

    /// Waits for an event of an observer and returns the epoch of the last one of that name.
    pub(super) async fn event(&mut self, id: ObserverId, name: &str) -> Result<Epoch, String> {
        let last = |facts: &Facts| {
            let events = facts.events(id);
            events
                .iter()
                .rev()
                .find(|(_, event, _)| super::facts::word(event) == name)
                .map(|(epoch, ..)| *epoch)
        };
        let found = self.until(&format!("the report `{name}` of an observer"), SOON, last).await;
        found.map_err(|error| format!("{error}; reported so far: {:?}", self.facts.story(id)))
    }

    /// Waits until `look` finds something in the facts.
    pub(super) async fn until<T>(
        &mut self,
        what: &str,
        within: Duration,
        look: impl Fn(&Facts) -> Option<T>,
    ) -> Result<T, String> {
        let deadline = Instant::now() + within;
        loop {
            if let Some(found) = look(&self.facts) {
                return Ok(found);
            }
            if Instant::now() >= deadline {
                return Err(format!("not within {within:?}: {what}"));
            }
            if let Some(worker) = &mut self.worker
                && let Some(status) = worker.ended(Duration::ZERO).await
            {
                self.pass(Duration::from_millis(200)).await;
                let found = look(&self.facts);
                return found.ok_or_else(|| format!("the worker ended ({status}) before this: {what}"));
            }
            self.pass(LOOK_EVERY).await;
        }
    }

    /// Waits until the traffic of the worker is as wanted.
    pub(super) async fn until_traffic(
        &mut self,
        what: &str,
        within: Duration,
        look: impl Fn(&super::ledger::Ledger) -> bool,
    ) -> Verdict {
        let deadline = Instant::now() + within;
        while !look(&self.tap.ledger()) {
            if Instant::now() >= deadline {
                return Err(format!("not within {within:?}: {what}"));
            }
            self.pass(LOOK_EVERY).await;
        }
        Ok(())
    }

    /// Lets time pass, and collects what arrives.
    pub(super) async fn pass(&mut self, time: Duration) {
        let deadline = tokio::time::Instant::now() + time;
        while let Ok(Some(arrival)) = tokio::time::timeout_at(deadline, self.arrivals.recv()).await {
            self.take(arrival);
        }
    }

    fn take(&mut self, arrival: Arrival) {
        let came = Instant::now();
        match arrival {
            Arrival::State(delivery) => self.take_reports(0, &delivery, came),
            Arrival::SecondState(delivery) => self.take_reports(1, &delivery, came),
            Arrival::Heartbeat(delivery) => match decode::<HeartbeatMessage>(&delivery.body) {
                Ok(HeartbeatMessage::Heartbeat(heartbeat)) => self.facts.heartbeats.push((heartbeat, came)),
                Ok(HeartbeatMessage::Probe { service }) => self.facts.probes.push((service, came)),
                Ok(HeartbeatMessage::Watermark(_)) => {}
                Err(error) => self.facts.unreadable.push(format!("in the heartbeats queue: {error}")),
            },
            Arrival::Parked(delivery) => {
                let text = |name: &str| {
                    let found = delivery.headers.iter().find(|(key, _)| key == name);
                    found.and_then(|(_, value)| match value {
                        HeaderValue::Text(text) => Some(text.clone()),
                        HeaderValue::Number(_) => None,
                    })
                };
                let (reason, queue) = (text("everwatch-reason"), text("everwatch-queue"));
                self.facts.parked.push(Parked { body: delivery.body.to_vec(), reason, queue });
            }
            Arrival::Reply(delivery) => self.facts.replies.push(delivery.body.to_vec()),
        }
    }

    fn take_reports(&mut self, queue: u16, delivery: &Delivery, came: Instant) {
        match decode::<StateMessage>(&delivery.body) {
            Ok(StateMessage::Reports(reports)) => {
                let told = |entry| Told { service: reports.service, entry, queue, came };
                self.facts.reports.extend(reports.entries.into_iter().map(told));
            }
            Ok(StateMessage::Watermark(_)) => self.facts.unreadable.push("a watermark".to_owned()),
            Err(error) => self.facts.unreadable.push(format!("in the state queue: {error}")),
        }
    }

    /// Ends the worker and deletes the queues.
    pub(super) async fn end(mut self) -> anyhow::Result<()> {
        drop(self.worker.take());
        self.tap.end().await;
        self.session.close().await;
        drop(self.arrivals);
        self.readers.close();
        self.readers.wait().await;
        let mut queues: Vec<String> =
            self.topology.durable_queues().into_iter().map(|(queue, _)| queue).collect();
        queues.push(self.topology.work(&Pool::default()));
        let exchanges = self.topology.exchange_names(&[Pool::default()]);
        self.broker.remove(&queues, &exchanges).await.context("cannot delete the queues of the check")
    }
}

async fn pass_on(
    mut consumer: Box<dyn Consumer>,
    session: Arc<dyn Session>,
    arrivals: mpsc::Sender<Arrival>,
    arrival: fn(Delivery) -> Arrival,
) {
    while let Some(delivery) = consumer.next().await {
        let receipt = delivery.receipt;
        if arrivals.send(arrival(delivery)).await.is_err() {
            return;
        }
        // A message that is delivered again would only be counted twice.
        let _settled = session.ack(receipt).await;
    }
}
