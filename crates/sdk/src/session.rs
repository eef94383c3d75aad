//! One incarnation of a service, from its birth to its end: carries out what `core::slots` decides.

mod channels;
mod commands;
mod describing;
mod ending;
mod opening;
mod telling;
pub(crate) mod traces;

use self::describing::Describer;
use crate::fence::Fence;
use crate::logs::Logs;
use crate::metric;
use crate::mouth::Mouth;
use crate::proof::prove_life;
use crate::pulse::Pulses;
use crate::registry::Registry;
use crate::reporter::{Reporter, Say, Sender};
use crate::runtime::Handle;
use crate::settings::ServiceSettings;
use crate::unit::{Code, Ended, Units};
use channels::Channels;
use everwatch_broker::{
    BrokerError, Delivery, HeaderValue, Message, Receipt, Session, Settle, Target, Topology,
};
use everwatch_core::blocks::{BlockId, Blocks};
use everwatch_core::clock;
use everwatch_core::id::{ObserverId, ServiceId};
use everwatch_core::message::{
    Beat, BeatMessage, Birth, Cause, Intent, ListChunk, Predecessor, Report, RunEvent, RunReport, Terms,
    Work, WorkRead, encode,
};
use everwatch_core::slots::{Effect, Input, Now, Pace, Slots};
use opening::{blocks, declare, policy, watch};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::{Instant, interval};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// How long a newborn waits for the managers' welcome: failover must not need a manager.
const WELCOME: Duration = Duration::from_secs(1);
/// The most often that observers' progress is told.
const PROGRESS: Duration = Duration::from_secs(1);

/// What one incarnation is made of.
pub(crate) struct Incarnation {
    pub(crate) id: ServiceId,
    pub(crate) settings: ServiceSettings,
    pub(crate) registry: Arc<Registry>,
    pub(crate) session: Arc<dyn Session>,
    pub(crate) tasks: tokio::runtime::Handle,
    pub(crate) pulses: Pulses,
    pub(crate) logs: Arc<Logs>,
    pub(crate) predecessor: Option<Predecessor>,
    /// It may lose this session as soon as the one before.
    pub(crate) comes_last: bool,
    pub(crate) handle: Handle,
}

/// How an incarnation ended.
pub(crate) enum End {
    /// As asked.
    Stopped,
    /// As asked for trying out failover.
    Killed,
    /// It lost its session.
    Lost(String),
}

/// Why an incarnation never lived.
pub(crate) enum Unlived {
    /// The session was lost meanwhile.
    Lost(String),
    /// The broker refused a queue or an exchange.
    Refused(String),
    /// The machine gives no more threads.
    NoThread(std::io::Error),
}

/// Lives until the session is lost or the service is told to stop.
pub(crate) async fn live(incarnation: Incarnation) -> Result<End, Unlived> {
    let (session, handle) = (incarnation.session.clone(), incarnation.handle.clone());
    let tracker = TaskTracker::new();
    let helpers = CancellationToken::new();
    let end = match Life::begin(incarnation, &tracker, &helpers).await {
        Ok(life) => Ok(life.run().await),
        Err(Unborn::Broker(BrokerError::Refused(why))) => Err(Unlived::Refused(why)),
        Err(Unborn::Broker(error)) => Err(Unlived::Lost(error.to_string())),
        Err(Unborn::Thread(error)) => Err(Unlived::NoThread(error)),
    };
    handle.set_ready(false);
    handle.dead();
    helpers.cancel();
    session.close().await;
    tracker.close();
    tracker.wait().await;
    end
}

enum Unborn {
    Broker(BrokerError),
    Thread(std::io::Error),
}

impl From<BrokerError> for Unborn {
    fn from(error: BrokerError) -> Self {
        Self::Broker(error)
    }
}

/// A message that is held, and where.
#[derive(Debug, Clone, Copy)]
struct Kept {
    receipt: Receipt,
    block: BlockId,
}

/// Something that came from the broker.
enum Incoming {
    Work(BlockId, Delivery),
    Command(Delivery),
    /// Nothing more comes from this cancelled block.
    Ended(BlockId),
    /// A message that no slot knows of is settled.
    Freed(BlockId),
}

struct Life {
    me: Incarnation,
    topology: Topology,
    started: Instant,
    slots: Slots<Kept>,
    blocks: Blocks,
    channels: Channels,
    terms: Terms,
    /// To be handed over once nothing comes in any more.
    to_hand_over: Vec<ObserverId>,
    /// Why it was last asked to hold less.
    asked_for: Cause,
    /// What was handed over down to because the capacity is less than what was held.
    shed_to: Option<u32>,
    units: Arc<Units>,
    mouth: Arc<Mouth>,
    fence: Arc<Fence>,
    reporter: Reporter,
    describer: Describer,
    traces: traces::Traces,
    /// Once somebody has asked.
    questions: Option<telling::Questions>,
    tracker: TaskTracker,
    /// Ends the helpers of this session.
    helpers: CancellationToken,
    /// Cancels the blocks, so that nothing more is taken.
    closing: CancellationToken,
    incoming: mpsc::Receiver<Incoming>,
    arrivals: mpsc::Sender<Incoming>,
    ended: mpsc::UnboundedReceiver<Ended>,
    settled: mpsc::UnboundedReceiver<RunReport>,
    /// Whether it takes all that it may.
    ready: bool,
    /// Whether the managers' answer to the birth was heard.
    welcomed: bool,
    beats: u64,
    /// What the newest beat said is held.
    told_held: u32,
    lists: u64,
    lag: Duration,
}

impl Life {
    async fn begin(
        me: Incarnation,
        tracker: &TaskTracker,
        helpers: &CancellationToken,
    ) -> Result<Self, Unborn> {
        let topology = Topology::new(&me.settings.prefix);
        let work_queue_created = declare(&me, &topology).await?;
        let (reporter, said) = Reporter::channel();
        let mouth = Arc::new(Mouth::new(me.session.clone(), topology.output(), reporter.clone()));
        let (ended_sender, ended) = mpsc::unbounded_channel();
        let (registry, frost) = (me.registry.clone(), me.handle.frost.clone());
        let code = Code { registry, outlet: mouth.clone(), logs: me.logs.clone(), frost };
        let units = Arc::new(Units::new(me.tasks.clone(), code, ended_sender));
        let fence = watch(&me, &units, tracker)?;
        let (settled_sender, settled) = mpsc::unbounded_channel();
        let sender = Sender {
            service: me.id,
            session: me.session.clone(),
            topology: topology.clone(),
            fence: fence.clone(),
            settled: settled_sender,
        };
        let ends = helpers.clone();
        tracker.spawn(async move {
            let _over = ends.run_until_cancelled(sender.run(said)).await;
        });
        let (arrivals, incoming) = mpsc::channel(1024);
        let capacity = me.settings.capacity.slots();
        let life = Self {
            started: Instant::now(),
            slots: Slots::new(policy(&me, capacity))
                .with_pace(Pace::new(me.settings.start_rate, &me.settings.start_rates)),
            blocks: blocks(&me, capacity),
            channels: Channels::default(),
            terms: Terms::default(),
            to_hand_over: Vec::new(),
            asked_for: Cause::Drain,
            shed_to: None,
            units,
            mouth,
            fence,
            reporter,
            describer: Describer::new(),
            traces: traces::Traces::default(),
            questions: None,
            tracker: tracker.clone(),
            helpers: helpers.clone(),
            closing: helpers.child_token(),
            incoming,
            arrivals,
            ended,
            settled,
            ready: false,
            welcomed: false,
            beats: 0,
            told_held: 0,
            lists: 0,
            lag: Duration::ZERO,
            topology,
            me,
        };
        let commands = life.topology.commands_of(life.me.id);
        life.listen(commands).await?;
        life.prove_life()?;
        if work_queue_created {
            let pool = life.me.settings.pool.clone();
            life.reporter.say(Say::Tell(Report::WorkQueueCreated { pool })).await;
        }
        Ok(life)
    }

    fn now(&self) -> Now {
        Now { mono: self.started.elapsed(), wall: clock::now(), chance: rand::random() }
    }

    fn prove_life(&self) -> Result<(), BrokerError> {
        let probe = encode(&BeatMessage::Probe { service: self.me.id })
            .map_err(|error| BrokerError::Refused(error.to_string()))?;
        let beats = Target::Queue(self.topology.beats());
        let proofs = prove_life(self.me.session.clone(), self.fence.clone(), (beats, probe));
        let ends = self.helpers.clone();
        self.tracker.spawn(async move {
            let _over = ends.run_until_cancelled(proofs).await;
        });
        Ok(())
    }

    async fn run(mut self) -> End {
        let birth = self.birth();
        if !self.reporter.confirmed(Report::ServiceBorn(Box::new(birth))).await {
            return self.fallen().await;
        }
        let kill = self.me.handle.born();
        metrics::counter!(metric::SESSIONS).increment(1);
        tracing::info!(service = %self.me.id, name = %self.me.settings.name, capacity = self.blocks.capacity(), "born");
        let mut beat = interval(self.me.settings.beat);
        let mut progress = interval(PROGRESS);
        let mut list = interval(self.me.settings.list_every);
        list.reset();
        let welcome_until = Instant::now() + WELCOME;
        loop {
            // A fenced service takes no step, so its overdue deadlines stay overdue: waiting for them would spin.
            if self.fence.reason().is_some() {
                return self.fallen().await;
            }
            if self.welcomed || Instant::now() >= welcome_until {
                self.welcomed = true;
                self.follow_blocks().await;
            }
            let next = self.next_deadline();
            let wake = if self.welcomed { next } else { next.min(welcome_until) };
            tokio::select! {
                biased;
                () = self.fence.fallen.cancelled() => return self.fallen().await,
                () = kill.cancelled() => return self.die().await,
                () = self.me.handle.stop.cancelled() => return self.drain().await,
                Some(report) = self.settled.recv() => self.on_confirmed(report).await,
                Some(Ended { id, epoch, outcome }) = self.ended.recv() => {
                    self.step(Input::Ended { id, epoch, outcome }).await;
                }
                Some(incoming) = self.incoming.recv() => self.on_incoming(incoming).await,
                () = tokio::time::sleep_until(wake) => self.step(Input::Wake).await,
                due = beat.tick() => {
                    self.lag = due.elapsed();
                    self.beat(self.intent());
                }
                _ = progress.tick() => {
                    self.mouth.tell_progress();
                    if self.blocks.held() != self.told_held {
                        self.beat(self.intent());
                    }
                }
                _ = list.tick() => self.list().await,
            }
        }
    }

    fn birth(&self) -> Birth {
        let settings = &self.me.settings;
        Birth {
            name: settings.name.clone(),
            pool: settings.pool.clone(),
            capacity: self.blocks.capacity(),
            kinds: self.me.registry.infos(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            message_version: everwatch_core::message::VERSION,
            host: self.me.handle.machine.host_name.clone(),
            labels: settings.labels.clone(),
            predecessor: self.me.predecessor.clone(),
        }
    }

    async fn on_incoming(&mut self, incoming: Incoming) {
        match incoming {
            Incoming::Work(block, delivery) => {
                self.blocks.took(block);
                match Work::read(&delivery.body) {
                    Ok(read) => {
                        if let WorkRead::Ours(work) = &read {
                            self.traces.taken(work, &delivery);
                        }
                        let Delivery { receipt, acquisitions, .. } = delivery;
                        let receipt = Kept { receipt, block };
                        self.step(Input::Delivered { receipt, read, acquisitions }).await;
                    }
                    Err(unreadable) => self.park((block, delivery), &unreadable.0),
                }
            }
            Incoming::Command(delivery) => {
                self.on_command(&delivery.body).await;
                self.on_settle(self.me.session.ack(delivery.receipt).await);
            }
            Incoming::Ended(block) => self.blocks.ended(block),
            Incoming::Freed(block) => self.blocks.freed(block),
        }
    }

    /// Keeps what no version can read, as it came, and only then ends it.
    fn park(&self, (block, delivery): (BlockId, Delivery), reason: &str) {
        tracing::warn!(reason, bytes = delivery.body.len(), "an unreadable work message is parked");
        let (session, fence) = (self.me.session.clone(), self.fence.clone());
        let target = Target::Queue(self.topology.parked());
        let queue = self.topology.work(&self.me.settings.pool);
        let headers = vec![
            ("everwatch-reason".to_owned(), HeaderValue::Text(reason.chars().take(500).collect())),
            ("everwatch-queue".to_owned(), HeaderValue::Text(queue)),
        ];
        let (ends, freed) = (self.helpers.clone(), self.arrivals.clone());
        self.tracker.spawn(async move {
            let parked = session.publish(&target, Message { body: delivery.body, headers });
            match ends.run_until_cancelled(parked).await {
                Some(Ok(())) if session.ack(delivery.receipt).await == Settle::NotOurs => {
                    fence.fall("a message is no longer ours");
                }
                Some(Ok(())) => drop(freed.send(Incoming::Freed(block)).await),
                Some(Err(error)) => tracing::warn!(%error, "a message could not be parked; it stays held"),
                None => {}
            }
        });
    }

    async fn on_confirmed(&mut self, RunReport { id, epoch, event }: RunReport) {
        let settled = event.settles();
        let input = if settled { Input::Confirmed { id, epoch } } else { Input::Announced { id, epoch } };
        self.step(input).await;
    }

    async fn step(&mut self, input: Input<Kept>) {
        // A fenced run reports nothing and nothing starts any more: it is no longer ours.
        if self.fence.reason().is_some() {
            return;
        }
        for effect in self.slots.step(input, self.now()) {
            // This loop may run before the fence's thread does, after a freeze for one. And a settlement
            // that is passed over while the fence stays up would leave its message held for ever.
            if matches!(effect, Effect::Start { .. } | Effect::Settle(_)) && !self.fence.stands() {
                return self.fence.fall("the broker has not answered in time");
            }
            if let Effect::Announce(it) = &effect {
                tracing::info!(observer = %it.id, epoch = %it.epoch, "suspected of ending its services: it starts alone");
            }
            if let Effect::Report(it) | Effect::Settle(it) | Effect::Announce(it) = &effect
                && !it.event.holds()
            {
                self.me.logs.close(it.id, it.epoch);
            }
            match effect {
                Effect::Start { epoch, attempt, work } => {
                    metrics::counter!(metric::STARTS).increment(1);
                    let trace = self.traces.started(work.id, epoch);
                    self.units.start(work, epoch, attempt, trace);
                }
                Effect::Cancel { id } => self.units.cancel(id),
                Effect::Abort { id } => self.units.abort(id),
                Effect::Report(report) => {
                    if let RunEvent::Refused { why } = &report.event {
                        tracing::warn!(observer = %report.id, why, "refused: handed over to another service");
                    }
                    let trace = self.traces.of(&report);
                    self.reporter.say(Say::Run(report, trace)).await;
                }
                Effect::Settle(report) | Effect::Announce(report) => {
                    let trace = self.traces.of(&report);
                    self.reporter.say(Say::Settle(report, trace)).await;
                }
                Effect::Ack(Kept { receipt, block }) => {
                    self.on_settle(self.me.session.ack(receipt).await);
                    self.blocks.freed(block);
                }
                Effect::StepBack { until } => self.blocks.step_back(until),
                Effect::Requeue(Kept { receipt, block }) => {
                    self.on_settle(self.me.session.requeue(receipt).await);
                    self.blocks.freed(block);
                }
                Effect::Lost { id, epoch } => {
                    self.fence.fall(&format!("observer {id}, held as {epoch}, was handed out again"));
                }
            }
        }
    }

    fn on_settle(&self, settle: Settle) {
        if settle == Settle::NotOurs {
            self.fence.fall("a message is no longer ours");
        }
    }

    /// One sign of life. It is never waited for: the next one says the same.
    fn beat(&mut self, state: Intent) {
        self.beats += 1;
        self.told_held = self.blocks.held();
        let beat = Beat {
            service: self.me.id,
            seq: self.beats,
            state,
            capacity: self.blocks.capacity(),
            held: self.told_held,
            loop_lag_ms: u32::try_from(self.lag.as_millis()).unwrap_or(u32::MAX),
            rss_bytes: (self.me.handle.machine.resident_bytes)(),
            sent_at: Some(clock::now()),
        };
        metric::beat(&beat);
        let Ok(body) = encode(&BeatMessage::Beat(beat)) else { return };
        let (session, target) = (self.me.session.clone(), Target::Queue(self.topology.beats()));
        let ends = self.helpers.clone();
        self.tracker.spawn(async move {
            let published = session.publish(&target, Message { body: body.into(), headers: Vec::new() });
            if let Some(Err(error)) = ends.run_until_cancelled(published).await {
                tracing::debug!(%error, "a beat was not accepted");
            }
        });
    }

    async fn list(&mut self) {
        self.lists += 1;
        for list in ListChunk::all(self.lists, self.slots.list(self.now())) {
            self.reporter.say(Say::Tell(Report::List(list))).await;
        }
    }
}
