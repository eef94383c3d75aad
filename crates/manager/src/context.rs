//! What the parts of one manager share: the ports, the database's clock, and the small parts in this room. Nothing here
//! imports a loop or the HTTP API.

pub(crate) mod creates;
pub(crate) mod freshness;
pub(crate) mod leases;
pub(crate) mod pools;
pub(crate) mod publishing;
pub(crate) mod questions;
pub(crate) mod republish_budget;
pub(crate) mod request_limits;
pub(crate) mod schemas;
pub(crate) mod session_slot;

use self::creates::{Create, Creates};
use self::freshness::Freshness;
use self::pools::Pools;
use self::publishing::{Published, Publishing};
use self::questions::Questions;
use self::republish_budget::RepublishBudget;
use self::request_limits::RequestLimits;
use self::schemas::Schemas;
use self::session_slot::SessionSlot;
use crate::RunError;
use crate::clock::DbClock;
use crate::events::log::EventLog;
use crate::events::recent::RecentEvents;
use crate::lock::lock;
use crate::settings::Settings;
use everwatch_broker::{Broker, Session, Topology};
use everwatch_core::id::ManagerId;
use everwatch_core::record::service::ServiceRow;
use everwatch_store::{Event, Store, StoreError};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::{Notify, Semaphore, mpsc, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::warn;
use uuid::Uuid;

/// The receiving ends of the queues inside the manager.
pub(crate) struct Inboxes {
    pub(crate) creates: mpsc::Receiver<Create>,
    pub(crate) published: mpsc::Receiver<Published>,
    pub(crate) events: mpsc::Receiver<Event>,
}

/// The living services, and when they were read.
type CachedServices = Option<(Instant, Arc<Vec<ServiceRow>>)>;

pub(crate) struct Manager {
    pub(crate) id: ManagerId,
    pub(crate) settings: Settings,
    pub(crate) topology: Topology,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) broker: Arc<dyn Broker>,
    pub(crate) clock: Arc<DbClock>,
    pub(crate) stop: CancellationToken,
    pub(crate) tasks: TaskTracker,
    pub(crate) session: SessionSlot,
    pub(crate) freshness: Freshness,
    pub(crate) pools: Pools,
    pub(crate) publishing: Publishing,
    pub(crate) creates: Creates,
    pub(crate) events: EventLog,
    pub(crate) recent: RecentEvents,
    pub(crate) questions: Questions,
    pub(crate) republishes: RepublishBudget,
    pub(crate) limits: RequestLimits,
    pub(crate) schemas: Schemas,
    /// Whether observers of another database are adopted, once.
    pub(crate) adopting: AtomicBool,
    /// One pair of watermarks is in progress at a time.
    pub(crate) watermarks: Arc<Semaphore>,
    /// Wakes the reconciler.
    pub(crate) wake: Notify,
    changed: watch::Sender<u64>,
    services: Mutex<CachedServices>,
}

impl Manager {
    pub(crate) fn new(
        settings: Settings,
        store: Arc<dyn Store>,
        broker: Arc<dyn Broker>,
        stop: CancellationToken,
    ) -> (Arc<Self>, Inboxes) {
        let clock = Arc::<DbClock>::default();
        let (creates, creates_in) = Creates::new();
        let (publishing, published_in) = Publishing::new();
        let (events, events_in) = EventLog::new(Arc::clone(&clock));
        let manager = Self {
            id: ManagerId(Uuid::now_v7()),
            topology: Topology::new(&settings.prefix),
            store,
            broker,
            stop,
            tasks: TaskTracker::new(),
            session: SessionSlot::default(),
            freshness: Freshness::new(Arc::clone(&clock)),
            clock,
            pools: Pools::new(&settings.pools),
            publishing,
            creates,
            events,
            recent: RecentEvents::default(),
            questions: Questions::default(),
            republishes: RepublishBudget::default(),
            limits: RequestLimits::default(),
            schemas: Schemas::default(),
            adopting: AtomicBool::new(settings.adopt),
            watermarks: Arc::new(Semaphore::new(1)),
            wake: Notify::new(),
            changed: watch::Sender::new(0),
            services: Mutex::default(),
            settings,
        };
        (Arc::new(manager), Inboxes { creates: creates_in, published: published_in, events: events_in })
    }

    /// The first request to the store: a refusal ends the start, an absence does not.
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
        self.freshness.on_store_answer(asked.is_ok());
        asked.map(|now| self.clock.set(now))
    }

    pub(crate) fn connected(&self, session: Arc<dyn Session>) {
        self.freshness.on_connect();
        self.pools.on_connect();
        self.session.set(session);
    }

    pub(crate) fn disconnected(&self, why: String) {
        self.freshness.on_disconnect();
        self.session.clear(why);
    }

    /// Observers or services have changed: requests that wait for a change look again.
    pub(crate) fn note_change(&self) {
        self.changed.send_modify(|count| *count = count.wrapping_add(1));
    }

    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// The reasons why this manager is not ready; empty if it is.
    pub(crate) fn readiness_blockers(&self) -> Vec<&'static str> {
        let freshness = self.freshness.now();
        let mut blockers = Vec::new();
        if !freshness.store_answers {
            blockers.push("the database does not answer");
        }
        if self.session.is_empty() {
            blockers.push("the broker is not connected");
        } else if !freshness.has_caught_up() {
            blockers.push("the state queue is not read up to now yet");
        }
        blockers
    }

    /// Whether this manager may draw conclusions from the silence of a service.
    pub(crate) fn may_conclude(&self) -> bool {
        let (lost_after, heartbeat) = (self.settings.lost_after, self.settings.heartbeat_interval);
        !self.session.is_empty() && self.freshness.now().may_conclude(self.clock.now(), lost_after, heartbeat)
    }

    /// Reads the pools of all observers and services, once in a session. No message announces a pool in which nothing
    /// happens, but its lost messages and waiting deletes must be found.
    pub(crate) async fn load_pools(&self) -> Result<(), StoreError> {
        if self.pools.are_loaded() {
            return Ok(());
        }
        let counts = self.store.counts().await?;
        let services = self.store.services(self.clock.now()).await?.rows;
        let of_observers = counts.into_keys().map(|(pool, _)| pool);
        self.pools.on_loaded(of_observers.chain(services.into_iter().map(|it| it.registration.pool)));
        Ok(())
    }

    /// The living services, as they were at most `max_age` ago.
    pub(crate) async fn services(&self, max_age: Duration) -> Result<Arc<Vec<ServiceRow>>, StoreError> {
        if let Some((at, services)) = lock(&self.services).as_ref()
            && at.elapsed() < max_age
        {
            return Ok(Arc::clone(services));
        }
        let mut services = self.store.services(self.clock.now()).await?.rows;
        services.retain(|service| service.end.is_none());
        self.events.known.learn(&services);
        let services = Arc::new(services);
        *lock(&self.services) = Some((Instant::now(), Arc::clone(&services)));
        Ok(services)
    }
}
