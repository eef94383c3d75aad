//! The stored records in the database's time, and what hears of their changes: the events and the requests that wait.

use super::pool_notes;
use super::saves::{Save, Saves};
use crate::clock::DbClock;
use crate::events::log::EventLog;
use crate::excused::Excused;
use crate::lock::lock;
use everwatch_core::capacity::admission::{PoolOffers, offers};
use everwatch_core::id::Pool;
use everwatch_core::record::service::ServiceRow;
use everwatch_store::{Event, Store, StoreError};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

/// The living services, what they offer, and the pools to which nothing is admitted.
#[derive(Clone, Default)]
pub(crate) struct LivingServices {
    pub(crate) rows: Arc<Vec<ServiceRow>>,
    pub(crate) offers: Arc<PoolOffers>,
    pub(crate) paused: Arc<BTreeSet<Pool>>,
    pub(crate) single: Arc<BTreeSet<Pool>>,
}

/// The living services, and when they were read.
type CachedServices = Option<(Instant, LivingServices)>;

pub(crate) struct Records {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) clock: Arc<DbClock>,
    pub(crate) events: EventLog,
    pub(crate) saves: Saves,
    changed: watch::Sender<u64>,
    services: Mutex<CachedServices>,
}

impl Records {
    pub(crate) fn new(
        store: Arc<dyn Store>,
        excused: Excused,
    ) -> (Self, mpsc::Receiver<Event>, mpsc::Receiver<Save>) {
        let clock = Arc::<DbClock>::default();
        let (events, events_in) = EventLog::new(Arc::clone(&clock), excused);
        let (saves, saves_in) = Saves::new();
        let (changed, services) = (watch::Sender::new(0), Mutex::default());
        (Self { store, clock, events, saves, changed, services }, events_in, saves_in)
    }

    /// Observers or services have changed: requests that wait for a change look again.
    pub(crate) fn note_change(&self) {
        self.changed.send_modify(|count| *count = count.wrapping_add(1));
    }

    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// The living services, as they were at most `max_age` ago.
    pub(crate) async fn services(&self, max_age: Duration) -> Result<Arc<Vec<ServiceRow>>, StoreError> {
        Ok(self.living(max_age).await?.rows)
    }

    /// The living services, with the slots that are in use by the reports of runs. What a page shows of services then agrees with what it
    /// shows of observers.
    pub(crate) async fn services_as_reported(&self) -> Result<Vec<ServiceRow>, StoreError> {
        let (mut services, held) =
            (self.services(Duration::ZERO).await?.to_vec(), self.store.held_weights().await?);
        for row in &mut services {
            row.set_held(held.get(&row.id).copied().unwrap_or(0));
        }
        Ok(services)
    }

    /// What the active services of each pool offer, as it was at most `max_age` ago.
    pub(crate) async fn offers(&self, max_age: Duration) -> Result<Arc<PoolOffers>, StoreError> {
        Ok(self.living(max_age).await?.offers)
    }

    /// The paused pools, as they were at most `max_age` ago.
    pub(crate) async fn paused_pools(&self, max_age: Duration) -> Result<Arc<BTreeSet<Pool>>, StoreError> {
        Ok(self.living(max_age).await?.paused)
    }

    /// Whether the pool was single when the services were read last: the setting of a pool never changes.
    pub(crate) fn is_single(&self, pool: &Pool) -> bool {
        lock(&self.services).as_ref().is_some_and(|(_, services)| services.single.contains(pool))
    }

    /// The single pools, as of the last read of the services.
    pub(crate) fn single_pools(&self) -> Arc<BTreeSet<Pool>> {
        lock(&self.services).as_ref().map(|(_, services)| Arc::clone(&services.single)).unwrap_or_default()
    }

    async fn living(&self, max_age: Duration) -> Result<LivingServices, StoreError> {
        if let Some((at, services)) = lock(&self.services).as_ref()
            && at.elapsed() < max_age
        {
            return Ok(services.clone());
        }
        let asked_at = Instant::now();
        let mut services = self.store.services(self.clock.now()).await?.rows;
        services.retain(|service| service.end.is_none());
        self.events.known.learn(&services);
        let offers = Arc::new(offers(&services));
        let notes = pool_notes::all(self.store.as_ref()).await?;
        let mut single = notes.single;
        let registered = services.iter().filter(|it| it.registration.pool_single);
        single.extend(registered.map(|it| it.registration.pool.clone()));
        let (rows, paused, single) = (Arc::new(services), Arc::new(notes.paused), Arc::new(single));
        let services = LivingServices { rows, offers, paused, single };
        let mut cached = lock(&self.services);
        // A slow read may end after one that began later.
        if cached.as_ref().is_none_or(|(at, _)| *at <= asked_at) {
            *cached = Some((asked_at, services.clone()));
        }
        drop(cached);
        Ok(services)
    }
}
