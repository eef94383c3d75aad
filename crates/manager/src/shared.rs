//! What the parts of one manager share: the ports, the database's clock, the present session with the
//! broker, and how well this manager reads its queues.

use crate::creator::Create;
use crate::history::{self, Known};
use crate::leases::Leases;
use crate::live::Live;
use crate::orphans::Budget;
use crate::outbox::Published;
use crate::questions::Questions;
use crate::schemas::Schemas;
use crate::settings::Settings;
use crate::{RunError, orphans};
use everwatch_broker::{Broker, BrokerError, Declared, QueueKind, Session, Topology};
use everwatch_core::clock::{self, Timestamp};
use everwatch_core::history::What;
use everwatch_core::id::{ManagerId, ObserverId, Pool};
use everwatch_core::reading::Reading;
use everwatch_core::row::Row;
use everwatch_core::service::ServiceRow;
use everwatch_door::quota::{Limit, Quota};
use everwatch_store::{Event, Store, StoreError};
use std::collections::{BTreeSet, HashSet};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, Semaphore, mpsc, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::warn;
use uuid::Uuid;

/// Publishes under way at once.
const PUBLISHES_MAX: usize = 1000;
/// Creates that wait for their transaction.
const CREATES_MAX: usize = 2000;
/// Answers of the broker that wait to be written down.
const PUBLISHED_MAX: usize = 4000;
/// Clients that follow the events.
const STREAMS_MAX: Limit = Limit { total: 2_000, per_client: 1_000 };
/// Clients that follow the lines of an observer, each with a question a second.
const LOG_STREAMS_MAX: Limit = Limit { total: 200, per_client: 100 };
/// Requests that wait for a change, each with four reads of a row a second.
const WAITS_MAX: Limit = Limit { total: 1_000, per_client: 500 };
/// Bytes of bodies that are being received.
const BODIES_MAX: usize = 256 * 1024 * 1024;
/// How often a change is tried again after somebody else changed the row.
pub(crate) const CAS_TRIES: usize = 20;

/// The database's clock, as an offset from this machine's.
#[derive(Debug, Default)]
pub(crate) struct DbClock {
    offset_ms: AtomicI64,
}

/// When this manager connected to the broker.
#[derive(Debug, Clone, Copy)]
struct Connected {
    since: Instant,
    /// The same by the database's clock, from the moment on at which the state queue was read up to it. It no longer
    /// changes then: each look at the database's clock moves its time by some milliseconds.
    caught_up: Option<Timestamp>,
}

impl Connected {
    /// By the database's clock. It is computed, as at the connect that clock may still be unknown.
    fn at(&self, clock: &DbClock) -> Timestamp {
        self.caught_up.unwrap_or_else(|| clock.now().minus(self.since.elapsed()))
    }
}

impl DbClock {
    pub(crate) fn now(&self) -> Timestamp {
        Timestamp(clock::now().0.saturating_add(self.offset_ms.load(Ordering::Relaxed)))
    }
    /// This machine's clock minus the database's.
    pub(crate) fn ahead_ms(&self) -> i64 {
        self.offset_ms.load(Ordering::Relaxed).saturating_neg()
    }
    fn set(&self, database: Timestamp) {
        self.offset_ms.store(database.0.saturating_sub(clock::now().0), Ordering::Relaxed);
    }
}

/// One of the queues in which managers leave their marks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Marked {
    State,
    Beats,
}

/// How well this manager reads its queues: the send times of the newest marks it has read.
#[derive(Debug)]
struct Marks {
    connected: Mutex<Option<Connected>>,
    state_tick: AtomicI64,
    beats_tick: AtomicI64,
    store_answers: AtomicBool,
}

/// The ends of the queues inside the manager that its loops read.
pub(crate) struct Inboxes {
    pub(crate) creates: mpsc::Receiver<Create>,
    pub(crate) published: mpsc::Receiver<Published>,
    pub(crate) events: mpsc::Receiver<Event>,
}

/// Services as the store had them a moment ago.
type Cached = Option<(Instant, Arc<Vec<ServiceRow>>)>;

pub(crate) struct Manager {
    pub(crate) id: ManagerId,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) broker: Arc<dyn Broker>,
    pub(crate) topology: Topology,
    pub(crate) settings: Settings,
    pub(crate) clock: DbClock,
    pub(crate) stop: CancellationToken,
    pub(crate) tasks: TaskTracker,
    pub(crate) creates: mpsc::Sender<Create>,
    pub(crate) published: mpsc::Sender<Published>,
    pub(crate) events: mpsc::Sender<Event>,
    /// Events that found no room there.
    pub(crate) lost_events: AtomicU64,
    pub(crate) known: Known,
    /// Counts batches of events that this manager has written down.
    pub(crate) recorded: watch::Sender<u64>,
    pub(crate) live: Live,
    pub(crate) streams: Arc<Quota>,
    pub(crate) log_streams: Arc<Quota>,
    pub(crate) waits: Arc<Quota>,
    pub(crate) bodies: Arc<Semaphore>,
    pub(crate) questions: Questions,
    pub(crate) publishes: Arc<Semaphore>,
    pub(crate) leases: Leases,
    pub(crate) reissues: Budget,
    /// Whether observers of another database are taken over, once.
    pub(crate) adopting: AtomicBool,
    /// One pair of marks is on its way at a time.
    pub(crate) ticking: Arc<Semaphore>,
    /// Wakes the reconciler.
    pub(crate) wake: Notify,
    session: watch::Sender<Option<Arc<dyn Session>>>,
    /// Why there is no session, where there is none.
    no_session: Mutex<String>,
    changed: watch::Sender<u64>,
    /// Pools whose queues were declared in the present session.
    work_queues: Mutex<HashSet<Pool>>,
    /// Every pool that was ever heard of, and whether those of the database are among them.
    known_pools: Mutex<BTreeSet<Pool>>,
    pools_loaded: AtomicBool,
    services: Mutex<Cached>,
    /// Pools that a metric was ever given for.
    pub(crate) shown_pools: Mutex<BTreeSet<Pool>>,
    pub(crate) schemas: Schemas,
    reading: Marks,
}

impl Manager {
    pub(crate) fn new(
        settings: Settings,
        store: Arc<dyn Store>,
        broker: Arc<dyn Broker>,
        stop: CancellationToken,
    ) -> (Arc<Self>, Inboxes) {
        let (creates, creates_in) = mpsc::channel(CREATES_MAX);
        let (published, published_in) = mpsc::channel(PUBLISHED_MAX);
        let (events, events_in) = mpsc::channel(history::WAITING_MAX);
        let manager = Self {
            id: ManagerId(Uuid::now_v7()),
            store,
            broker,
            topology: Topology::new(&settings.prefix),
            clock: DbClock::default(),
            stop,
            tasks: TaskTracker::new(),
            creates,
            published,
            events,
            lost_events: AtomicU64::new(0),
            known: Known::default(),
            recorded: watch::Sender::new(0),
            live: Live::default(),
            streams: Quota::new(STREAMS_MAX),
            log_streams: Quota::new(LOG_STREAMS_MAX),
            waits: Quota::new(WAITS_MAX),
            bodies: Arc::new(Semaphore::new(BODIES_MAX)),
            questions: Questions::default(),
            publishes: Arc::new(Semaphore::new(PUBLISHES_MAX)),
            leases: Leases::default(),
            reissues: Budget::default(),
            adopting: AtomicBool::new(settings.adopt),
            ticking: Arc::new(Semaphore::new(1)),
            wake: Notify::new(),
            session: watch::Sender::new(None),
            no_session: Mutex::new("it has not answered yet".to_owned()),
            changed: watch::Sender::new(0),
            work_queues: Mutex::default(),
            known_pools: Mutex::new(settings.pools.iter().cloned().collect()),
            pools_loaded: AtomicBool::new(false),
            services: Mutex::default(),
            shown_pools: Mutex::default(),
            schemas: Schemas::default(),
            reading: Marks {
                connected: Mutex::new(None),
                state_tick: AtomicI64::new(i64::MIN),
                beats_tick: AtomicI64::new(i64::MIN),
                store_answers: AtomicBool::new(false),
            },
            settings,
        };
        (Arc::new(manager), Inboxes { creates: creates_in, published: published_in, events: events_in })
    }

    /// The first word with the store: a refusal ends the start, an absence does not.
    pub(crate) async fn check_store(&self) -> Result<(), RunError> {
        match self.refresh_clock().await {
            Ok(()) => Ok(()),
            Err(StoreError::Unavailable(why) | StoreError::Contended(why)) => {
                warn!(why, "the database cannot be reached yet, trying on");
                Ok(())
            }
            Err(error @ (StoreError::Refused(_) | StoreError::Corrupt(_))) => {
                Err(RunError::StoreRefused(error.to_string()))
            }
        }
    }

    /// Asks the database for its time, and notes whether it answers.
    pub(crate) async fn refresh_clock(&self) -> Result<(), StoreError> {
        let asked = self.store.now().await;
        self.reading.store_answers.store(asked.is_ok(), Ordering::Relaxed);
        asked.map(|now| self.clock.set(now))
    }

    /// The present session with the broker, if there is one.
    pub(crate) fn session(&self) -> Option<Arc<dyn Session>> {
        self.session.borrow().clone()
    }

    /// The session, waiting for one until `deadline`.
    pub(crate) async fn session_by(&self, deadline: Instant) -> Option<Arc<dyn Session>> {
        let mut session = self.session.subscribe();
        let found = tokio::time::timeout_at(deadline, session.wait_for(Option::is_some)).await;
        found.ok()?.ok()?.clone()
    }

    pub(crate) fn connected(&self, session: Arc<dyn Session>) {
        *lock(&self.reading.connected) = Some(Connected { since: Instant::now(), caught_up: None });
        lock(&self.work_queues).clear();
        self.pools_loaded.store(false, Ordering::Relaxed);
        self.session.send_replace(Some(session));
    }

    pub(crate) fn disconnected(&self, why: String) {
        *lock(&self.no_session) = why;
        *lock(&self.reading.connected) = None;
        self.session.send_replace(None);
    }

    /// The newest reason for having no session.
    pub(crate) fn why_no_session(&self) -> String {
        lock(&self.no_session).clone()
    }

    /// Something about observers or services has changed: whoever waits looks again.
    pub(crate) fn note_change(&self) {
        self.changed.send_modify(|count| *count = count.wrapping_add(1));
    }

    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// A mark came out of a queue: this manager has read the queue up to there.
    pub(crate) fn on_tick(&self, queue: Marked, sent_at: Timestamp) {
        self.tick_of(queue).fetch_max(sent_at.0, Ordering::Relaxed);
    }

    fn tick_of(&self, queue: Marked) -> &AtomicI64 {
        match queue {
            Marked::State => &self.reading.state_tick,
            Marked::Beats => &self.reading.beats_tick,
        }
    }

    fn reading(&self) -> Reading {
        let known = |at: &AtomicI64| {
            let at = at.load(Ordering::Relaxed);
            (at != i64::MIN).then_some(Timestamp(at))
        };
        let mut connected = lock(&self.reading.connected);
        let reading = Reading {
            connected_at: connected.as_ref().map(|it| it.at(&self.clock)),
            state_tick: known(&self.reading.state_tick),
            beats_tick: known(&self.reading.beats_tick),
            store_answers: self.reading.store_answers.load(Ordering::Relaxed),
        };
        if let Some(connected) = connected.as_mut().filter(|_| reading.has_caught_up()) {
            connected.caught_up = connected.caught_up.or(reading.connected_at);
        }
        reading
    }

    /// Whether the newest mark read from both queues is at most this old.
    pub(crate) fn reads_within(&self, age: Duration) -> bool {
        self.reading().is_within(age, self.clock.now())
    }

    /// The age of the newest mark read from the state queue; zero before the first.
    pub(crate) fn state_lag(&self) -> Duration {
        match self.reading.state_tick.load(Ordering::Relaxed) {
            i64::MIN => Duration::ZERO,
            read => self.clock.now().since(Timestamp(read)),
        }
    }

    /// What keeps this manager from being ready; empty if it is.
    pub(crate) fn lacks(&self) -> Vec<&'static str> {
        let mut lacks = Vec::new();
        if !self.reading.store_answers.load(Ordering::Relaxed) {
            lacks.push("the database does not answer");
        }
        if self.session.borrow().is_none() {
            lacks.push("the broker is not connected");
        } else if !self.reading().has_caught_up() {
            lacks.push("the state queue is not read up to now yet");
        }
        lacks
    }

    /// Whether silence of a service may be held against it.
    pub(crate) fn may_conclude(&self) -> bool {
        let (lost_after, beat) = (self.settings.lost_after, self.settings.beat);
        let connected = self.session.borrow().is_some();
        connected && self.reading().may_conclude(self.clock.now(), lost_after, beat)
    }

    /// Those who follow the events here.
    pub(crate) fn followers(&self) -> usize {
        self.streams.held()
    }

    /// Makes sure that the work queue of a pool is there, once per session.
    pub(crate) async fn ensure_work(&self, session: &dyn Session, pool: &Pool) -> Result<(), BrokerError> {
        if lock(&self.work_queues).contains(pool) {
            return Ok(());
        }
        self.declare_work(session, pool).await
    }

    /// Declares it whatever was known before.
    pub(crate) async fn declare_work(&self, session: &dyn Session, pool: &Pool) -> Result<(), BrokerError> {
        let declared =
            session.declare(&self.topology.work(pool), &QueueKind::Durable { max_length: None }).await?;
        // Whoever comes first after a broker has lost its data makes the queue: a service says so, and so
        // must a manager. Without the note each observer is missed on its own, minutes later.
        if declared == Declared::Created {
            self.tell_all(What::WorkQueueCreated, format!("pool {pool}"));
            if let Err(error) = orphans::note_new_queue(self, pool, self.clock.now()).await {
                warn!(%pool, %error, "that a work queue was made anew could not be noted");
            }
        }
        lock(&self.work_queues).insert(pool.clone());
        lock(&self.known_pools).insert(pool.clone());
        Ok(())
    }

    /// Reads the pools of all observers and services, once in a session: a pool in which nothing happens is
    /// announced by no message, and its lost messages and waiting deletes must be found all the same.
    pub(crate) async fn load_pools(&self) -> Result<(), StoreError> {
        if self.pools_loaded.load(Ordering::Relaxed) {
            return Ok(());
        }
        let counts = self.store.counts().await?;
        let services = self.store.services(self.clock.now()).await?.rows;
        let mut pools = lock(&self.known_pools);
        pools.extend(counts.into_keys().map(|(pool, _)| pool));
        pools.extend(services.into_iter().map(|service| service.birth.pool));
        self.pools_loaded.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// The pools that are known here: configured, announced, published to or in the database.
    pub(crate) fn pools(&self) -> Vec<Pool> {
        lock(&self.known_pools).iter().cloned().collect()
    }

    /// The living services, at most `max_age` old.
    pub(crate) async fn services(&self, max_age: Duration) -> Result<Arc<Vec<ServiceRow>>, StoreError> {
        if let Some((at, services)) = lock(&self.services).as_ref()
            && at.elapsed() < max_age
        {
            return Ok(Arc::clone(services));
        }
        let mut services = self.store.services(self.clock.now()).await?.rows;
        services.retain(|service| service.end.is_none());
        self.known.learn(&services);
        let services = Arc::new(services);
        *lock(&self.services) = Some((Instant::now(), Arc::clone(&services)));
        Ok(services)
    }

    /// Changes one row by compare-and-set: `change` answers whether there is anything to save.
    /// `None` if the row is not there (any more); Corrupt if it cannot be read.
    pub(crate) async fn change(
        &self,
        id: ObserverId,
        mut change: impl FnMut(&mut Row) -> bool + Send,
    ) -> Result<Option<Row>, StoreError> {
        for _ in 0..CAS_TRIES {
            let Some(mut row) = self.store.load(&[id]).await?.one()? else { return Ok(None) };
            let before = row.clone();
            if !change(&mut row) || row == before {
                return Ok(Some(row));
            }
            row.trace = everwatch_trace::current().or(row.trace);
            if self.store.save(std::slice::from_ref(&row)).await?.is_empty() {
                row.version += 1;
                self.tell(Some(&before), &row);
                self.note_change();
                return Ok(Some(row));
            }
        }
        Err(StoreError::Contended(format!("observer {id} keeps changing: read it again and retry")))
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
