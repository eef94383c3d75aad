//! What the parts of one manager share: the records and the link with the broker, the HTTP requests, the publishes in
//! progress, and the small parts in this room. Nothing here imports a loop or the HTTP API.

pub(crate) mod accounts;
pub(crate) mod audit;
pub(crate) mod creates;
pub(crate) mod freshness;
pub(crate) mod leases;
pub(crate) mod link;
pub(crate) mod moves;
pub(crate) mod oidc;
pub(crate) mod pool_notes;
pub(crate) mod pools;
pub(crate) mod publishing;
pub(crate) mod questions;
pub(crate) mod records;
pub(crate) mod republish_budget;
pub(crate) mod request_limits;
pub(crate) mod requests;
pub(crate) mod revocations;
pub(crate) mod saves;
pub(crate) mod schemas;
pub(crate) mod session_slot;

use self::accounts::AccountsInUse;
use self::audit::{AuditLog, Note};
use self::creates::Create;
use self::freshness::Freshness;
use self::link::Link;
use self::moves::Moves;
use self::publishing::{Published, Publishing};
use self::records::Records;
use self::republish_budget::RepublishBudget;
use self::requests::Requests;
use self::revocations::Revoked;
use self::saves::Save;
use crate::RunError;
use crate::settings::Settings;
use everwatch_broker::{Broker, Session, Topology};
use everwatch_core::capacity::pool_use::PoolUse;
use everwatch_core::failure::service_loss::Doubts;
use everwatch_core::id::Pool;
use everwatch_core::record::status::Status;
use everwatch_store::{Event, Store, StoreError};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::{Notify, mpsc};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::warn;

/// A manager looks at least once a second whether watermarks are due.
const WATERMARKS_WITHIN: Duration = Duration::from_secs(1);

/// The receiving ends of the queues inside the manager.
pub(crate) struct Inboxes {
    pub(crate) creates: mpsc::Receiver<Create>,
    pub(crate) saves: mpsc::Receiver<Save>,
    pub(crate) published: mpsc::Receiver<Published>,
    pub(crate) events: mpsc::Receiver<Event>,
    pub(crate) revocations: mpsc::Receiver<Revoked>,
    pub(crate) audit: mpsc::Receiver<Note>,
}

pub(crate) struct Manager {
    pub(crate) settings: Settings,
    pub(crate) stop: CancellationToken,
    pub(crate) tasks: TaskTracker,
    pub(crate) records: Records,
    pub(crate) link: Link,
    pub(crate) freshness: Freshness,
    pub(crate) publishing: Publishing,
    pub(crate) republishes: RepublishBudget,
    pub(crate) requests: Requests,
    pub(crate) accounts: AccountsInUse,
    pub(crate) audit: AuditLog,
    /// Wakes the reconciler.
    pub(crate) wake: Notify,
    /// The services that the next pass of the reconciler asks the broker about.
    pub(crate) doubts: Mutex<Doubts>,
    pub(crate) moves: Moves,
}

impl Manager {
    pub(crate) fn new(
        settings: Settings,
        store: Arc<dyn Store>,
        broker: Arc<dyn Broker>,
        stop: CancellationToken,
    ) -> (Arc<Self>, Inboxes) {
        let (records, events, saves) = Records::new(store, settings.excused.clone());
        let topology = Topology::new(&settings.prefix).with_state_queues(settings.state_queues);
        let (link, revocations) = Link::new(broker, topology, &settings.pools, settings.adopt);
        let (publishing, published) = Publishing::new();
        let (requests, creates) = Requests::new();
        let accounts = AccountsInUse::new(settings.auth.clone(), settings.listen, Arc::clone(&records.clock));
        let (audit, audit_in) = AuditLog::new();
        let manager = Self {
            stop,
            tasks: TaskTracker::new(),
            link,
            freshness: Freshness::new(Arc::clone(&records.clock)),
            records,
            publishing,
            republishes: RepublishBudget::default(),
            requests,
            accounts,
            audit,
            wake: Notify::new(),
            doubts: Mutex::default(),
            moves: Moves::default(),
            settings,
        };
        (Arc::new(manager), Inboxes { creates, saves, published, events, revocations, audit: audit_in })
    }

    /// The first request to the store: a refusal ends the start, an absence does not.
    pub(crate) async fn check_store(&self) -> Result<(), RunError> {
        match self.refresh_clock().await {
            Ok(()) => Ok(()),
            Err(StoreError::Unavailable(why) | StoreError::Contended(why)) => {
                warn!(why, "database unreachable; retrying");
                Ok(())
            }
            Err(error @ (StoreError::Refused(_) | StoreError::Corrupt(_))) => {
                Err(RunError::StoreRefused(error))
            }
        }
    }

    /// Asks the database for its time, and notes whether it answers.
    pub(crate) async fn refresh_clock(&self) -> Result<(), StoreError> {
        let asked = self.records.store.now().await;
        self.freshness.on_store_answer(asked.is_ok());
        asked.map(|now| self.records.clock.set(now))
    }

    pub(crate) fn connected(&self, session: Arc<dyn Session>, state_queues: u16) {
        self.freshness.on_connect(state_queues);
        self.link.pools.on_connect();
        self.link.session.set(session);
    }

    pub(crate) fn disconnected(&self, why: String) {
        self.freshness.on_disconnect();
        self.link.session.clear(why);
    }

    /// The reasons why this manager is not ready; empty if it is.
    pub(crate) fn readiness_blockers(&self) -> Vec<&'static str> {
        let freshness = self.freshness.now();
        let mut blockers = self.api_blockers();
        if self.link.session.is_empty() {
            blockers.push("the broker is not connected");
        } else if !freshness.has_caught_up() {
            blockers.push("a state queue is not read up to now yet");
        }
        blockers
    }

    /// The reasons why this manager cannot answer requests from the database; empty if it can.
    pub(crate) fn api_blockers(&self) -> Vec<&'static str> {
        if self.freshness.now().store_answers { Vec::new() } else { vec!["the database does not answer"] }
    }

    /// Whether recent watermarks of this manager have come out of both queues.
    ///
    /// Reports in a state queue may settle what seems due: a manager that read only the rows would republish an observer
    /// whose lease ended while the database or every manager was away, although it has run or completed since.
    pub(crate) fn has_read(&self) -> bool {
        let recently = (self.settings.heartbeat_interval + WATERMARKS_WITHIN) * 2;
        self.readiness_blockers().is_empty() && self.freshness.is_within(recently)
    }

    /// Whether this manager may draw conclusions from the silence of a service.
    pub(crate) fn may_conclude(&self) -> bool {
        let (lost_after, heartbeat) = (self.settings.lost_after, self.settings.heartbeat_interval);
        !self.link.session.is_empty()
            && self.freshness.now().may_conclude(self.records.clock.now(), lost_after, heartbeat)
    }

    /// What uses a pool now.
    pub(crate) async fn pool_use(&self, pool: &Pool) -> Result<PoolUse, StoreError> {
        let services = self.records.services(Duration::ZERO).await?;
        let counts = self.records.store.counts().await?;
        let number = |wanted: fn(&Status) -> bool| {
            let of_pool = counts.iter().filter(|((of, status), _)| of == pool && wanted(status));
            of_pool.map(|(_, count)| count.number).sum()
        };
        Ok(PoolUse {
            configured: self.settings.pools.contains(pool),
            services: services.iter().filter(|it| it.registration.pool == *pool).count() as u64,
            observers: number(|status| *status != Status::Deleted),
            published: number(|status| *status == Status::Processing),
            releasing: self.records.store.pools_with_unreleased().await?.contains(pool),
        })
    }

    /// Reads the pools of all observers and services, once in a session. No message announces a pool in which nothing
    /// happens, but its lost messages and waiting deletes must be found.
    pub(crate) async fn load_pools(&self) -> Result<(), StoreError> {
        if self.link.pools.are_loaded() {
            return Ok(());
        }
        let counts = self.records.store.counts().await?;
        let services = self.records.store.services(self.records.clock.now()).await?.rows;
        let of_observers = counts.into_keys().map(|(pool, _)| pool);
        let of_services = services.into_iter().map(|it| it.registration.pool);
        let unreleased = self.records.store.pools_with_unreleased().await?;
        self.link.pools.on_loaded(of_observers.chain(of_services).chain(unreleased));
        Ok(())
    }
}
