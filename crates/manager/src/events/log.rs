//! Records what happened: events for users, histograms for Prometheus. Nothing waits for it, and lost events are
//! counted.

use crate::clock::DbClock;
use crate::events::actor;
use crate::events::known_services::KnownServices;
use crate::excused::Excused;
use crate::metric;
use everwatch_core::clock::Timestamp;
use everwatch_core::id::{Name, ServiceId};
use everwatch_core::record::events::{EventKind, Move, RowEvent, adopted, happenings, moved};
use everwatch_core::record::row::Row;
use everwatch_core::record::service::ServiceRow;
use everwatch_store::{Event, Named};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::{mpsc, watch};

/// Events that wait to be written.
pub(crate) const WAITING_MAX: usize = 10_000;
const TEXT_MAX: usize = 1000;

/// Records events. Nothing waits for it: an event that finds no room in the queue is lost and counted.
#[derive(Debug)]
pub(crate) struct EventLog {
    clock: Arc<DbClock>,
    queue: mpsc::Sender<Event>,
    lost: AtomicU64,
    pub(crate) known: KnownServices,
    excused: Excused,
    /// Counts the batches that this manager has written to the database.
    pub(crate) written: watch::Sender<u64>,
}

impl EventLog {
    pub(crate) fn new(clock: Arc<DbClock>, excused: Excused) -> (Self, mpsc::Receiver<Event>) {
        let (queue, queue_in) = mpsc::channel(WAITING_MAX);
        let (lost, known) = (AtomicU64::new(0), KnownServices::default());
        (Self { clock, queue, lost, known, excused, written: watch::Sender::new(0) }, queue_in)
    }

    /// Events that were lost because the queue was full.
    pub(crate) fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    /// Records that an observer was adopted; `told` is its name in its own message.
    pub(crate) fn tell_adopted(&self, row: &Row, told: &Name) {
        self.record(self.event(&adopted(row, told), row, None));
    }

    /// Records the events of a saved row.
    pub(crate) fn tell(&self, before: Option<&Row>, after: &Row) {
        for happening in happenings(before, after) {
            self.measure(&happening, before, after);
            let went = self.went(&happening, after);
            self.record(self.event(&happening, after, went));
        }
    }

    fn event(&self, happening: &RowEvent, after: &Row, went: Option<(ServiceId, Move)>) -> Event {
        Event {
            id: 0,
            at: happening.at,
            kind: happening.kind,
            observer: Some(Named::observer(after)),
            service: happening.service.map(|service| self.known.named(service)),
            epoch: Some(happening.epoch.into()),
            text: happening.text.chars().take(TEXT_MAX).collect(),
            from: went.map(|(service, _)| self.known.named(service)),
            gap_ms: went.map(|(_, it)| millis(it.gap)),
            gap_is_bound: went.is_some_and(|(_, it)| it.gap_is_bound),
            overlap_ms: went.map(|(_, it)| millis(it.overlap)),
            by: actor::by(),
            burst: None,
            detail: false,
        }
    }

    /// An event of an observer that does not follow from its row.
    pub(crate) fn tell_observer(&self, kind: EventKind, row: &Row, text: String) {
        let observer = Some(Named::observer(row));
        let epoch = Some(row.epoch().into());
        self.record(Event { observer, epoch, ..plain(kind, self.clock.now(), text) });
    }

    /// An event of a service.
    pub(crate) fn tell_service(&self, kind: EventKind, row: &ServiceRow, text: String) {
        self.known.learn(std::slice::from_ref(row));
        let service = Some(Named::service(row.id, row.registration.name.to_string()));
        let at = self.clock.now();
        self.record(Event { service, ..plain(kind, at, text) });
    }

    /// The loss of a service, with the time since its last sign of life.
    pub(crate) fn tell_lost(&self, row: &ServiceRow, text: String) {
        self.known.learn(std::slice::from_ref(row));
        let at = self.clock.now();
        self.count_from_kill(row.id, at);
        let silence = self.known.lost(row.id, at).map(|heard| millis(at.since(heard)));
        let service = Some(Named::service(row.id, row.registration.name.to_string()));
        let lost = plain(EventKind::ServiceLost, at, text);
        self.record(Event { service, gap_ms: silence, gap_is_bound: silence.is_some(), ..lost });
    }

    /// An event that concerns no single observer or service.
    pub(crate) fn tell_all(&self, kind: EventKind, text: String) {
        self.record(plain(kind, self.clock.now(), text));
    }

    fn record(&self, event: Event) {
        if self.queue.try_send(event).is_err() {
            self.lost.fetch_add(1, Ordering::Relaxed);
            metrics::counter!(metric::LOST_EVENTS).increment(1);
        }
    }

    /// A move from one service to the next, and the service that it left.
    fn went(&self, happening: &RowEvent, after: &Row) -> Option<(ServiceId, Move)> {
        let earlier = after.observed.before.as_ref().filter(|_| happening.kind == EventKind::Started)?;
        let now = self.clock.now();
        self.count_from_kill(earlier.service, now);
        let heard = if earlier.over { None } else { self.known.replaced(earlier.service, now) };
        let went = moved(earlier, heard, happening.at);
        metrics::histogram!(metric::GAP).record(went.gap.as_secs_f64());
        metrics::histogram!(metric::OVERLAP).record(went.overlap.as_secs_f64());
        Some((earlier.service, went))
    }

    /// A service that a person killed through the program around this manager lived until then, although no heartbeat says so.
    fn count_from_kill(&self, service: ServiceId, now: Timestamp) {
        if let Some(ago) = self.excused.killed_ago(service) {
            self.known.heard(service, now.minus(ago));
        }
    }

    fn measure(&self, happening: &RowEvent, before: Option<&Row>, after: &Row) {
        let first = before.is_some_and(|before| !before.observed.begun) && after.generation == 1;
        if happening.kind == EventKind::Started && first {
            let took = happening.at.since(after.created_at);
            metrics::histogram!(metric::CREATE_TO_RUNNING).record(took.as_secs_f64());
        }
        if let (EventKind::Deleted, Some(asked)) = (happening.kind, after.delete_requested_at) {
            let took = after.modified_at.since(asked);
            metrics::histogram!(metric::DELETE_TO_DELETED).record(took.as_secs_f64());
        }
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

pub(crate) fn plain(kind: EventKind, at: Timestamp, text: String) -> Event {
    Event {
        id: 0,
        at,
        kind,
        observer: None,
        service: None,
        epoch: None,
        text,
        from: None,
        gap_ms: None,
        gap_is_bound: false,
        overlap_ms: None,
        by: actor::by(),
        burst: None,
        detail: false,
    }
}
