//! A service that runs nothing and says everything: it takes work, reports it as started, and stops and
//! settles what a revocation ends.

use crate::stage::Stage;
use everwatch_broker::{
    Broker, Consume, Consumer, Delivery, Message, QueueKind, Receipt, Session, Target, Topology,
};
use everwatch_core::clock;
use everwatch_core::epoch::Epoch;
use everwatch_core::id::{Kind, Name, ObserverId, Pool, ServiceId};
use everwatch_core::wire::command::{Command, Revocation};
use everwatch_core::wire::heartbeat::{Heartbeat, HeartbeatMessage, Intent};
use everwatch_core::wire::logs::{Answer, AskLogs, LogsAnswer, Ring, Stream};
use everwatch_core::wire::message::{decode, encode};
use everwatch_core::wire::report::{
    HeldMessages, HeldWork, InventoryChunk, InventoryRange, KindInfo, Registration, Report, Reports,
    RunEvent, RunReport, SequencedReport, StateMessage,
};
use everwatch_core::wire::work::{DecodedWork, Work};
use serde_json::Value;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::task::JoinSet;
use uuid::Uuid;

/// The voice of a service: its session and its numbered reports.
pub(crate) struct Voice {
    pub(crate) id: ServiceId,
    pub(crate) session: Arc<dyn Session>,
    pub(crate) topology: Topology,
    seq: u64,
}

impl Voice {
    pub(crate) async fn new(broker: &dyn Broker, prefix: &str) -> Self {
        let session = broker.connect("service").await.unwrap();
        let topology = Topology::new(prefix);
        Self { id: ServiceId(Uuid::new_v4()), session, topology, seq: 0 }
    }

    pub(crate) async fn report(&mut self, report: Report) {
        self.seq += 1;
        self.report_as(self.seq, report).await;
    }
    pub(crate) async fn report_as(&self, seq: u64, report: Report) {
        let entries = vec![SequencedReport::new(seq, clock::now(), report)];
        let body = encode(&StateMessage::Reports(Reports { service: self.id, entries })).unwrap();
        self.publish(self.topology.state(), body).await;
    }
    pub(crate) async fn event(&mut self, id: ObserverId, epoch: Epoch, event: RunEvent) {
        self.report(Report::Run(RunReport { id, epoch, event })).await;
    }
    pub(crate) async fn publish(&self, queue: String, body: Vec<u8>) {
        let message = Message { body: body.into(), headers: Vec::new() };
        self.session.publish(&Target::Queue(queue), message).await.unwrap();
    }
    pub(crate) async fn registered(&mut self, name: &str, capacity: u32) {
        self.report(Report::ServiceRegistered(Box::new(registration(name, capacity)))).await;
    }
    async fn heartbeat(&mut self, held: u32, capacity: u32) {
        self.seq += 1;
        let (service, seq, state) = (self.id, self.seq, Intent::Active);
        let heartbeat = Heartbeat {
            service,
            seq,
            state,
            capacity,
            held,
            loop_lag_ms: 0,
            rss_bytes: 1,
            sent_at: None,
            stalled: Vec::new(),
        };
        self.publish(self.topology.heartbeats(), encode(&HeartbeatMessage::Heartbeat(heartbeat)).unwrap())
            .await;
    }
}

pub(crate) fn registration(name: &str, capacity: u32) -> Registration {
    Registration {
        name: Name::new(name).unwrap(),
        pool: Pool::default(),
        capacity,
        kinds: vec![KindInfo { name: Kind::new("ticker").unwrap(), schema: Arc::new(Value::Null) }],
        version: "1".to_owned(),
        weight_max: 1,
        message_version: everwatch_core::wire::message::VERSION,
        host: "h".to_owned(),
        labels: Default::default(),
        pool_single: false,
        predecessor: None,
    }
}

pub(crate) fn started() -> RunEvent {
    RunEvent::Started { attempt: 1, started_at: clock::now() }
}

/// What runs now, by observer.
pub(crate) type Running = Arc<Mutex<HashMap<ObserverId, Epoch>>>;

/// What observers have said, and whether anybody is told.
#[derive(Default)]
pub(crate) struct Said {
    rings: HashMap<ObserverId, Ring>,
    pub(crate) is_silent: bool,
}

/// A service that lives by itself until it is dropped.
pub(crate) struct Service {
    pub(crate) id: ServiceId,
    pub(crate) running: Running,
    /// Every run that was ever started.
    pub(crate) history: Arc<Mutex<Vec<(ObserverId, Epoch)>>>,
    pub(crate) said: Arc<Mutex<Said>>,
    _life: JoinSet<()>,
}

impl Service {
    /// Lives on the stage's broker; managers must have declared the queues.
    pub(crate) async fn new(stage: &Stage, name: &str, capacity: u16) -> Self {
        let mut voice = Voice::new(stage.broker.as_ref(), &stage.settings.prefix).await;
        let queue = voice.topology.commands_of(&Pool::default(), voice.id);
        voice.session.declare(&queue, &QueueKind::Exclusive).await.unwrap();
        voice
            .session
            .bind(&queue, &[voice.topology.commands(), voice.topology.commands_to(&Pool::default())])
            .await
            .unwrap();
        let consume = |queue, prefetch| Consume { queue, prefetch, priority: 0 };
        let commands = voice.session.consume(&consume(queue, 100)).await.unwrap();
        voice.registered(name, capacity.into()).await;
        let work = consume(voice.topology.work(&Pool::default()), capacity);
        let work = voice.session.consume(&work).await.unwrap();
        let (id, running, history) = (voice.id, Running::default(), Arc::default());
        let said = Arc::<Mutex<Said>>::default();
        let life = ServiceSession {
            voice,
            held: HashMap::new(),
            lists: 0,
            name: name.to_owned(),
            running: Arc::clone(&running),
            history: Arc::clone(&history),
            said: Arc::clone(&said),
            capacity,
            heartbeat: stage.settings.heartbeat_interval,
        };
        let mut lives = JoinSet::new();
        lives.spawn(life.live(work, commands));
        Self { id, running, history, said, _life: lives }
    }

    /// The one observer that it runs says these lines.
    pub(crate) fn say(&self, lines: &[&str]) {
        let running = self.running.lock().unwrap();
        let (id, epoch) = running.iter().next().expect("it runs one");
        let mut said = self.said.lock().unwrap();
        let ring = said.rings.entry(*id).or_default();
        for text in lines {
            ring.push((*epoch, clock::now()), Stream::Stdout, text, 100);
        }
    }
}

struct ServiceSession {
    voice: Voice,
    held: HashMap<ObserverId, (Receipt, Epoch, String)>,
    lists: u64,
    name: String,
    running: Running,
    history: Arc<Mutex<Vec<(ObserverId, Epoch)>>>,
    said: Arc<Mutex<Said>>,
    capacity: u16,
    heartbeat: Duration,
}

impl ServiceSession {
    async fn live(mut self, mut work: Box<dyn Consumer>, mut commands: Box<dyn Consumer>) {
        let mut heartbeats = tokio::time::interval(self.heartbeat);
        let mut lists = tokio::time::interval(self.heartbeat * 2);
        loop {
            tokio::select! {
                Some(delivery) = work.next() => self.on_work(&delivery).await,
                Some(delivery) = commands.next() => self.on_command(&delivery).await,
                _ = heartbeats.tick() => {
                    let held = u32::try_from(self.held.len()).unwrap();
                    self.voice.heartbeat(held, self.capacity.into()).await;
                }
                _ = lists.tick() => self.list().await,
                else => return,
            }
        }
    }

    async fn on_work(&mut self, delivery: &Delivery) {
        let DecodedWork::Ours(work) = Work::read(&delivery.body).unwrap() else { panic!("not ours") };
        let epoch = Epoch::new(work.generation, delivery.acquisitions);
        match self.held.get(&work.id) {
            Some((_, known, _)) if *known > epoch => {
                // Leftover of an older generation: it is settled, not run.
                self.voice.event(work.id, epoch, RunEvent::Stopped).await;
                self.voice.session.ack(delivery.receipt).await;
                return;
            }
            Some(_) => self.settle(work.id).await,
            None => {}
        }
        let body = String::from_utf8(delivery.body.to_vec()).unwrap();
        self.held.insert(work.id, (delivery.receipt, epoch, body));
        self.running.lock().unwrap().insert(work.id, epoch);
        self.history.lock().unwrap().push((work.id, epoch));
        self.voice.event(work.id, epoch, started()).await;
    }

    async fn on_command(&mut self, delivery: &Delivery) {
        self.voice.session.ack(delivery.receipt).await;
        let revocations = match decode(&delivery.body).unwrap() {
            Command::Revoke(revocations) => revocations,
            Command::Welcome(welcome) => welcome.revocations,
            Command::Describe { service, ids } if service == self.voice.id => {
                self.describe(&ids).await;
                Vec::new()
            }
            Command::Logs(asked) => {
                self.tell(asked).await;
                Vec::new()
            }
            _ => Vec::new(),
        };
        for Revocation { id, below, .. } in revocations {
            if self.held.get(&id).is_some_and(|(_, epoch, _)| *epoch < below) {
                self.settle(id).await;
            }
        }
    }

    async fn tell(&self, AskLogs { number, to, id, after, most }: AskLogs) {
        let lines = {
            let said = self.said.lock().unwrap();
            if said.is_silent {
                return;
            }
            said.rings.get(&id).map(|ring| ring.read(after, most as usize)).unwrap_or_default()
        };
        let answer = encode(&Answer::Logs(LogsAnswer { number, lines })).unwrap();
        self.voice.publish(self.voice.topology.replies(to), answer).await;
    }

    async fn describe(&mut self, ids: &[ObserverId]) {
        if ids.is_empty() {
            let name = self.name.clone();
            return self.voice.registered(&name, self.capacity.into()).await;
        }
        let one = |id: &ObserverId| {
            let (_, epoch, work) = self.held.get(id)?;
            let run = RunReport { id: *id, epoch: *epoch, event: started() };
            Some(HeldWork { run, work: work.clone() })
        };
        let held = ids.iter().filter_map(one).collect();
        self.voice.report(Report::HeldMessages(HeldMessages { pool: Pool::default(), held })).await;
    }

    async fn list(&mut self) {
        self.lists += 1;
        let one = |(id, (_, epoch, _)): (&ObserverId, &(Receipt, Epoch, String))| RunReport {
            id: *id,
            epoch: *epoch,
            event: started(),
        };
        let entries = self.held.iter().map(one).collect();
        for list in InventoryChunk::within(self.lists, &[InventoryRange::ALL], entries) {
            self.voice.report(Report::Inventory(list)).await;
        }
    }

    async fn settle(&mut self, id: ObserverId) {
        let (receipt, epoch, _) = self.held.remove(&id).unwrap();
        self.running.lock().unwrap().remove(&id);
        self.voice.event(id, epoch, RunEvent::Stopped).await;
        self.voice.session.ack(receipt).await;
    }
}
