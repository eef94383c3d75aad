//! One incarnation of a service, from its registration to its end: the loop around `core::run::machine`.

mod channels;
mod checkpoints;
mod describing;
mod effects;
mod emitter;
mod heartbeats;
mod intake;
mod log_replies;
mod opening;
mod permits;
mod queues;
mod refusals;
mod replacement;
mod reporter;
mod shutdown;

use self::describing::HeldDescriber;
use crate::handle::Handle;
use crate::metric;
use crate::safety::child_watchdog::ChildWatchdogs;
use crate::safety::fence::Fence;
use crate::safety::liveness_probe::prove_life;
use crate::session::checkpoints::Checkpoints;
use crate::session::emitter::{Emitter, Ready};
use crate::session::permits::PermitAcquirer;
use crate::session::refusals::Refusals;
use crate::session::reporter::{Reporter, Say, Sender};
use crate::settings::ServiceSettings;
use crate::tasks::logs::Logs;
use crate::tasks::registry::Registry;
use crate::tasks::task::{Code, Ended, Units};
use crate::tasks::threads::Runtimes;
use crate::tasks::traces;
use channels::Channels;
use everwatch_broker::{BrokerError, Delivery, Receipt, Session, Settle, Target, Topology};
use everwatch_core::capacity::blocks::BlockId;
use everwatch_core::clock::{self, Timestamp};
use everwatch_core::id::ServiceId;
use everwatch_core::run::database_clock::DatabaseClock;
use everwatch_core::run::machine::{Input, Machine};
use everwatch_core::run::slots::Now;
use everwatch_core::run::stall::StallWatch;
use everwatch_core::wire::heartbeat::HeartbeatMessage;
use everwatch_core::wire::message::encode;
use everwatch_core::wire::report::{Predecessor, Registration, Report, RunReport};
use heartbeats::Pulse;
use opening::{machine, watch};
use queues::declare;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{Semaphore, mpsc};
use tokio::time::{Instant, interval, interval_at};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// The most often that observers' progress is told.
const PROGRESS: Duration = Duration::from_secs(1);

/// The most inputs that the loop handles before it looks at its timers.
const INPUTS_AT_ONCE: usize = 64;

/// The parts of one incarnation.
pub(crate) struct Incarnation {
    pub(crate) id: ServiceId,
    pub(crate) settings: ServiceSettings,
    pub(crate) registry: Arc<Registry>,
    pub(crate) session: Arc<dyn Session>,
    pub(crate) runtimes: Runtimes,
    pub(crate) pulses: ChildWatchdogs,
    pub(crate) logs: Arc<Logs>,
    pub(crate) predecessor: Option<Predecessor>,
    pub(crate) known_time: Arc<KnownTime>,
    /// It may lose this session as quickly as the previous one.
    pub(crate) comes_last: bool,
    pub(crate) handle: Handle,
}

/// The time that managers announced, which outlives a session: the next one may begin without a manager.
#[derive(Default)]
pub(crate) struct KnownTime(Mutex<Option<(Timestamp, Instant)>>);

impl KnownTime {
    fn keep(&self, time: Option<Timestamp>) {
        if let Some(time) = time {
            *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some((time, Instant::now()));
        }
    }

    /// The clock of a session that begins now.
    fn clock(&self) -> DatabaseClock {
        let known = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.map_or_else(DatabaseClock::default, |(time, at)| {
            DatabaseClock::beginning_at(time.plus(at.elapsed()))
        })
    }
}

/// How an incarnation ended.
pub(crate) enum End {
    /// As asked.
    Stopped,
    /// It handed everything over, because its process must be replaced: why.
    Replaced(String),
    /// As asked for trying out failover.
    Killed,
    /// It lost its session.
    Lost(String),
}

/// Why an incarnation could not start.
pub(crate) enum Unlived {
    /// The session was lost during the start.
    Lost(String),
    /// The broker refused a queue or an exchange.
    Refused(String),
    /// The operating system starts no more threads.
    NoThread(std::io::Error),
}

/// Runs until the session is lost or the service is told to stop.
pub(crate) async fn live(incarnation: Incarnation) -> Result<End, Unlived> {
    let (session, handle) = (incarnation.session.clone(), incarnation.handle.clone());
    let tracker = TaskTracker::new();
    let helpers = CancellationToken::new();
    let end = match ServiceSession::begin(incarnation, &tracker, &helpers).await {
        Ok(life) => Ok(life.run().await),
        Err(StartError::Broker(BrokerError::Refused(why) | BrokerError::Forbidden(why))) => {
            Err(Unlived::Refused(why))
        }
        Err(StartError::Broker(error)) => Err(Unlived::Lost(error.to_string())),
        Err(StartError::Thread(error)) => Err(Unlived::NoThread(error)),
    };
    handle.set_ready(false);
    handle.dead();
    helpers.cancel();
    session.close().await;
    tracker.close();
    tracker.wait().await;
    end
}

enum StartError {
    Broker(BrokerError),
    Thread(std::io::Error),
}

impl From<BrokerError> for StartError {
    fn from(error: BrokerError) -> Self {
        Self::Broker(error)
    }
}

/// A message or an end from the broker.
enum Incoming {
    Work(BlockId, Delivery),
    Command(Delivery),
    /// This cancelled block delivers no more messages.
    Ended(BlockId),
    /// A message that the slots do not know was settled.
    Freed(BlockId),
}

/// The receiving ends of the session's queues.
struct Inboxes {
    incoming: mpsc::Receiver<Incoming>,
    ended: mpsc::UnboundedReceiver<Ended>,
    confirmed: mpsc::UnboundedReceiver<RunReport>,
    ready: mpsc::UnboundedReceiver<Ready>,
}

/// The tasks beside the loop.
struct Helpers {
    tracker: TaskTracker,
    /// Ends them.
    end: CancellationToken,
}

impl Helpers {
    /// Runs a task until the session is over.
    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let end = self.end.clone();
        self.tracker.spawn(async move {
            let _over = end.run_until_cancelled(task).await;
        });
    }
}

/// The loop around one [`Machine`]: feeds it what happens, and carries out its effects.
struct ServiceSession {
    me: Incarnation,
    topology: Topology,
    started: Instant,
    machine: Machine<Receipt>,
    channels: Channels,
    latest_delivery: Arc<channels::LatestDelivery>,
    opening: Arc<Semaphore>,
    units: Arc<Units>,
    emitter: Arc<Emitter>,
    checkpoints: Arc<Checkpoints>,
    refusals: Refusals,
    fence: Arc<Fence>,
    reporter: Reporter,
    traces: traces::Traces,
    describer: HeldDescriber,
    /// From the first question about logs on.
    questions: Option<log_replies::Questions>,
    helpers: Helpers,
    /// Tasks that wait until a queue has accepted an acknowledgement.
    releases: TaskTracker,
    /// Cancels the blocks, so that no more work is taken.
    closing: CancellationToken,
    arrivals: mpsc::Sender<Incoming>,
    inboxes: Inboxes,
    pulse: Pulse,
    stalls: StallWatch,
    starts: metrics::Counter,
}

impl ServiceSession {
    async fn begin(
        me: Incarnation,
        tracker: &TaskTracker,
        helpers: &CancellationToken,
    ) -> Result<Self, StartError> {
        let topology = Topology::new(&me.settings.prefix).with_state_queues(me.settings.state_queues);
        let work_queue_created = declare(&me, &topology).await?;
        let (reporter, said) = Reporter::channel();
        let (ready_sender, ready) = mpsc::unbounded_channel();
        let checkpoints = Arc::new(Checkpoints::new(reporter.clone()));
        let emitter = Emitter {
            session: me.session.clone(),
            exchange: topology.output(),
            reporter: reporter.clone(),
            ready: ready_sender,
            checkpoints: checkpoints.clone(),
            permits: Arc::new(PermitAcquirer::new(me.id)),
            progress: Mutex::default(),
        };
        let emitter = Arc::new(emitter);
        let (ended_sender, ended) = mpsc::unbounded_channel();
        let (registry, frost) = (me.registry.clone(), me.handle.frost.clone());
        let code = Code { registry, outlet: emitter.clone(), logs: me.logs.clone(), frost };
        let units = Arc::new(Units::new(me.runtimes.clone(), code, ended_sender));
        let fence = watch(&me, &units, tracker)?;
        let (confirmed_sender, confirmed) = mpsc::unbounded_channel();
        let sender = Sender {
            service: me.id,
            session: me.session.clone(),
            topology: topology.clone(),
            fence: fence.clone(),
            settled: confirmed_sender,
        };
        let helpers = Helpers { tracker: tracker.clone(), end: helpers.clone() };
        helpers.spawn(sender.run(said));
        helpers.spawn(emitter.permits.clone().run(me.session.clone(), Target::Queue(topology.rates())));
        let (arrivals, incoming) = mpsc::channel(1024);
        let life = Self {
            started: Instant::now(),
            machine: machine(&me),
            channels: Channels::default(),
            latest_delivery: Arc::default(),
            opening: Arc::new(Semaphore::new(channels::OPENING_MAX)),
            units,
            emitter,
            checkpoints,
            refusals: Refusals::default(),
            fence,
            reporter,
            traces: traces::Traces::default(),
            describer: HeldDescriber::new(),
            questions: None,
            releases: TaskTracker::new(),
            closing: helpers.end.child_token(),
            helpers,
            arrivals,
            inboxes: Inboxes { incoming, ended, confirmed, ready },
            pulse: Pulse::default(),
            stalls: StallWatch::new(me.settings.stall_limit),
            starts: metrics::counter!(metric::STARTS),
            topology,
            me,
        };
        let commands = life.topology.commands_of(&life.me.settings.pool, life.me.id);
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
        let probe = encode(&HeartbeatMessage::Probe { service: self.me.id })
            .map_err(|error| BrokerError::Refused(error.to_string()))?;
        let heartbeats = Target::Queue(self.topology.heartbeats());
        let proofs = prove_life(self.me.session.clone(), self.fence.clone(), (heartbeats, probe));
        self.helpers.spawn(proofs);
        Ok(())
    }

    async fn run(mut self) -> End {
        let registration = self.registration();
        if !self.reporter.confirmed(Report::ServiceRegistered(Box::new(registration))).await {
            return self.tripped().await;
        }
        let kill = self.me.handle.registered(self.me.id);
        metrics::counter!(metric::SESSIONS).increment(1);
        tracing::info!(service = %self.me.id, name = %self.me.settings.name, capacity = self.machine.capacity(), "registered");
        self.step(Input::Registered).await;
        let mut heartbeat = interval(self.me.settings.heartbeat_interval);
        let mut progress = interval(PROGRESS);
        // At a random moment: services that registered together must not send their inventories together.
        let list_every = self.me.settings.list_every;
        let mut list = interval_at(Instant::now() + list_every.mul_f64(rand::random()), list_every);
        loop {
            // A fenced service takes no step, so its overdue deadlines stay overdue: waiting for them would spin.
            if self.fence.reason().is_some() {
                return self.tripped().await;
            }
            let wake = self.next_deadline();
            tokio::select! {
                biased;
                () = self.fence.tripped.cancelled() => return self.tripped().await,
                () = kill.cancelled() => return self.die().await,
                () = self.me.handle.stop.cancelled() => return self.drain().await,
                input = self.inboxes.next() => self.on_inputs(input).await,
                () = tokio::time::sleep_until(wake) => self.step(Input::Wake).await,
                due = heartbeat.tick() => {
                    self.pulse.loop_lag = due.elapsed();
                    self.heartbeat();
                }
                _ = progress.tick() => {
                    self.emitter.tell_progress();
                    self.units.abort_faulty();
                    if let Some(why) = self.watch_process() {
                        return self.replace(&why).await;
                    }
                    self.checkpoints.repeat();
                    self.report_refusals().await;
                    self.step(Input::Wake).await;
                    if self.machine.held() != self.pulse.held {
                        self.heartbeat();
                    }
                }
                _ = list.tick() => self.digest().await,
            }
        }
    }

    fn registration(&self) -> Registration {
        let settings = &self.me.settings;
        Registration {
            name: settings.name.clone(),
            pool: settings.pool.clone(),
            pool_single: settings.pool_single,
            capacity: self.machine.capacity(),
            kinds: self.me.registry.infos(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            weight_max: settings.weight_max,
            message_version: everwatch_core::wire::message::WORK_VERSION,
            host: self.me.handle.machine.host_name.clone(),
            labels: settings.labels.clone(),
            predecessor: self.me.predecessor.clone(),
        }
    }

    /// Handles this input and those that wait behind it. The loop watches many things, so in a failover, a turn for
    /// each input would take longer than the input itself.
    async fn on_inputs(&mut self, first: LoopInput) {
        let (mut next, mut left) = (Some(first), INPUTS_AT_ONCE);
        while let Some(input) = next {
            self.on_input(input).await;
            left -= 1;
            let goes_on = left > 0 && self.fence.reason().is_none();
            next = if goes_on { self.inboxes.waiting() } else { None };
        }
    }

    async fn on_input(&mut self, input: LoopInput) {
        match input {
            LoopInput::Confirmed(report) => self.step(Input::Confirmed(report)).await,
            LoopInput::Ended(Ended { id, epoch, outcome }) => {
                self.step(Input::Ended { id, epoch, outcome }).await;
            }
            LoopInput::Ready(Ready { id, epoch, attempt }) => {
                self.step(Input::Ready { id, epoch, attempt }).await;
            }
            LoopInput::Incoming(Incoming::Work(block, delivery)) => self.on_work(block, delivery).await,
            LoopInput::Incoming(Incoming::Command(delivery)) => self.on_command(delivery).await,
            LoopInput::Incoming(Incoming::Ended(block)) => self.step(Input::BlockEnded(block)).await,
            LoopInput::Incoming(Incoming::Freed(block)) => self.step(Input::Freed(block)).await,
        }
    }

    fn on_settle(&self, settle: Settle) {
        if settle == Settle::NotOurs {
            self.fence.trip("a message is no longer ours");
        }
    }
}

/// Something that the machine must know.
enum LoopInput {
    Confirmed(RunReport),
    Ended(Ended),
    Ready(Ready),
    Incoming(Incoming),
}

impl Inboxes {
    /// The next input: confirms first, so that acknowledgements are not delayed. The session holds a sender of each
    /// queue, so none of them ends. Cancel-safe.
    async fn next(&mut self) -> LoopInput {
        tokio::select! {
            biased;
            Some(report) = self.confirmed.recv() => LoopInput::Confirmed(report),
            Some(ended) = self.ended.recv() => LoopInput::Ended(ended),
            Some(ready) = self.ready.recv() => LoopInput::Ready(ready),
            Some(incoming) = self.incoming.recv() => LoopInput::Incoming(incoming),
            else => std::future::pending().await,
        }
    }

    /// The next input, if one waits.
    fn waiting(&mut self) -> Option<LoopInput> {
        let confirmed = self.confirmed.try_recv().ok().map(LoopInput::Confirmed);
        let ended = || self.ended.try_recv().ok().map(LoopInput::Ended);
        let ready = || self.ready.try_recv().ok().map(LoopInput::Ready);
        let input = confirmed.or_else(ended).or_else(ready);
        input.or_else(|| self.incoming.try_recv().ok().map(LoopInput::Incoming))
    }
}
