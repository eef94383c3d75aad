//! Tells what happened: events for people, histograms for Prometheus. Best effort: nothing waits for it,
//! and what cannot be kept is counted.

use crate::shared::{Manager, lock};
use crate::{RunError, asked, metric};
use everwatch_core::clock::Timestamp;
use everwatch_core::history::{Happening, Move, What, adopted, happenings, moved};
use everwatch_core::id::{Name, ServiceId};
use everwatch_core::row::Row;
use everwatch_core::service::ServiceRow;
use everwatch_store::{Event, Named};
use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tracing::warn;

/// Events that wait to be written down.
pub(crate) const WAITING_MAX: usize = 10_000;
const BATCH: usize = 500;
const GATHER: Duration = Duration::from_millis(20);
const AGAIN_AFTER: Duration = Duration::from_secs(1);
/// Services that are remembered by name; beyond it, memory starts again.
const KNOWN_MAX: usize = 10_000;
const TEXT_MAX: usize = 1000;

/// What events say of a service beside its id.
#[derive(Debug, Default)]
pub(crate) struct Known {
    services: Mutex<HashMap<ServiceId, (String, Timestamp)>>,
}

impl Known {
    pub(crate) fn learn(&self, rows: &[ServiceRow]) {
        let mut known = lock(&self.services);
        if known.len() + rows.len() > KNOWN_MAX {
            known.clear();
        }
        for row in rows {
            let known = known.entry(row.id).or_insert_with(|| (row.birth.name.to_string(), row.heard_at));
            known.1 = known.1.max(row.heard_at);
        }
    }

    /// Those that were never heard of here.
    pub(crate) fn strangers(&self, services: impl Iterator<Item = ServiceId>) -> Vec<ServiceId> {
        let known = lock(&self.services);
        services.filter(|service| !known.contains_key(service)).collect()
    }

    /// A sign of life, which a gap is measured from.
    pub(crate) fn heard(&self, service: ServiceId, at: Timestamp) {
        if let Some(known) = lock(&self.services).get_mut(&service) {
            known.1 = known.1.max(at);
        }
    }

    fn heard_at(&self, service: ServiceId) -> Option<Timestamp> {
        lock(&self.services).get(&service).map(|known| known.1)
    }

    fn named(&self, service: ServiceId) -> Named {
        let name = lock(&self.services).get(&service).map_or_else(String::new, |known| known.0.clone());
        Named { id: service.0, name }
    }
}

impl Manager {
    /// An observer was adopted; `told` is its name by its own message.
    pub(crate) fn tell_adopted(&self, row: &Row, told: &Name) {
        self.record(self.event(&adopted(row, told), row, None));
    }

    /// A row was saved: tells what that means.
    pub(crate) fn tell(&self, before: Option<&Row>, after: &Row) {
        for happening in happenings(before, after) {
            self.measure(&happening, before, after);
            let went = self.went(&happening, after);
            self.record(self.event(&happening, after, went));
        }
    }

    fn event(&self, happening: &Happening, after: &Row, went: Option<Move>) -> Event {
        let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        Event {
            id: 0,
            at: happening.at,
            what: happening.what,
            observer: Some(Named { id: after.id.0, name: after.wanted.name.to_string() }),
            service: happening.service.map(|service| self.known.named(service)),
            epoch: Some(happening.epoch.into()),
            text: happening.text.chars().take(TEXT_MAX).collect(),
            gap_ms: went.map(|it| millis(it.gap)),
            overlap_ms: went.map(|it| millis(it.overlap)),
            by: asked::by(),
        }
    }

    /// Something happened about an observer that its row does not show.
    pub(crate) fn tell_observer(&self, what: What, row: &Row, text: String) {
        let observer = Some(Named { id: row.id.0, name: row.wanted.name.to_string() });
        let epoch = Some(row.epoch().into());
        self.record(Event { observer, epoch, ..plain(what, self.clock.now(), text) });
    }

    /// Something happened to a service.
    pub(crate) fn tell_service(&self, what: What, row: &ServiceRow, text: String) {
        self.known.learn(std::slice::from_ref(row));
        let service = Some(Named { id: row.id.0, name: row.birth.name.to_string() });
        let at = self.clock.now();
        self.record(Event { service, ..plain(what, at, text) });
    }

    /// Something happened that is about nobody in particular.
    pub(crate) fn tell_all(&self, what: What, text: String) {
        self.record(plain(what, self.clock.now(), text));
    }

    fn record(&self, event: Event) {
        if self.events.try_send(event).is_err() {
            self.lost_events.fetch_add(1, Ordering::Relaxed);
            metrics::counter!(metric::LOST_EVENTS).increment(1);
        }
    }

    fn went(&self, happening: &Happening, after: &Row) -> Option<Move> {
        let earlier = after.seen.before.as_ref().filter(|_| happening.what == What::Started)?;
        let went = moved(earlier, self.known.heard_at(earlier.service), happening.at);
        metrics::histogram!(metric::GAP).record(went.gap.as_secs_f64());
        metrics::histogram!(metric::OVERLAP).record(went.overlap.as_secs_f64());
        Some(went)
    }

    fn measure(&self, happening: &Happening, before: Option<&Row>, after: &Row) {
        let first = before.is_some_and(|before| !before.seen.begun) && after.generation == 1;
        if happening.what == What::Started && first {
            let took = happening.at.since(after.created_at);
            metrics::histogram!(metric::CREATE_TO_RUNNING).record(took.as_secs_f64());
        }
        if let (What::Deleted, Some(asked)) = (happening.what, after.doomed_at) {
            let took = after.modified_at.since(asked);
            metrics::histogram!(metric::DELETE_TO_DELETED).record(took.as_secs_f64());
        }
    }
}

pub(crate) fn plain(what: What, at: Timestamp, text: String) -> Event {
    let (observer, service, epoch) = (None, None, None);
    Event { id: 0, at, what, observer, service, epoch, text, gap_ms: None, overlap_ms: None, by: asked::by() }
}

/// Writes events down, many at a time, in the order in which they came.
pub(crate) async fn run(manager: Arc<Manager>, mut events: mpsc::Receiver<Event>) -> Result<(), RunError> {
    while let Some(first) = manager.stop.run_until_cancelled(events.recv()).await.flatten() {
        let mut batch = vec![first];
        let gathered = Instant::now() + GATHER;
        while batch.len() < BATCH
            && let Ok(Some(event)) = tokio::time::timeout_at(gathered, events.recv()).await
        {
            batch.push(event);
        }
        while let Err(error) = manager.store.record(&batch).await {
            warn!(%error, "what happened waits for the database");
            let pause = tokio::time::sleep(AGAIN_AFTER);
            if manager.stop.run_until_cancelled(pause).await.is_none() {
                return Ok(());
            }
        }
        manager.recorded.send_modify(|count| *count = count.wrapping_add(1));
    }
    // The last words, once.
    let mut rest = Vec::new();
    while let Ok(event) = events.try_recv() {
        rest.push(event);
    }
    if !rest.is_empty()
        && let Err(error) = manager.store.record(&rest).await
    {
        warn!(%error, "the last events are not kept");
    }
    Ok(())
}
