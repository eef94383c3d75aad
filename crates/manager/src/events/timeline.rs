//! The timeline in the memory of a manager. At each request for it, the manager reads the events that it has not read yet.

use everwatch_core::clock::Timestamp;
use everwatch_core::id::{ObserverId, ServiceId};
use everwatch_core::record::events::EventKind;
use everwatch_core::record::row::Row;
use everwatch_core::record::service::Ended;
use everwatch_core::timeline::{Cause, Fact, KEPT, Mark, Moved, Run, Timeline};
use everwatch_core::wire::command::Cause as Reason;
use everwatch_core::wire::report::InventoryRange;
use everwatch_store::{Event, EventFilter, EventRange, Store, StoreError};
use std::time::Duration;
use tokio::sync::{MappedMutexGuard, Mutex, MutexGuard};

/// Events in one read.
const PAGE: usize = 5000;
/// The maximum number of events of one observer, the newest ones, from which its timeline is computed.
const OF_OBSERVER_MAX: usize = 5000;

/// The timeline; empty until the first request for it.
#[derive(Debug, Default)]
pub(crate) struct SharedTimeline(Mutex<Option<Known>>);

/// The events read so far.
#[derive(Debug)]
struct Known {
    timeline: Timeline,
    /// The number of the last event that was read.
    last: i64,
    /// Whether all stored events were read, and the rows of observers that started before these events.
    is_whole: bool,
    /// The time of the oldest event and the number of events: for details of bursts, and for all others.
    first: [(Option<Timestamp>, usize); 2],
}

/// Exclusive access to the timeline: other readers wait until it is dropped.
pub(crate) type TimelineGuard<'a> = MappedMutexGuard<'a, Timeline>;

impl SharedTimeline {
    /// The timeline of all observers until now. `events_max` is the number of events that managers keep.
    ///
    /// # Errors
    /// If the events cannot be read.
    pub(crate) async fn read(
        &self,
        store: &dyn Store,
        (now, events_max): (Timestamp, usize),
    ) -> Result<TimelineGuard<'_>, StoreError> {
        let mut known = self.0.lock().await;
        let (oldest, _) = store.event_ends().await?;
        // Managers may have deleted events before this manager read them.
        if known.as_ref().is_none_or(|it| it.last.saturating_add(1) < oldest) {
            *known = Some(Known::begin(store, now, oldest).await?);
        }
        let mut guard = MutexGuard::map(known, |it| it.get_or_insert_with(|| Known::new(now, 0)));
        // If the request is cancelled, the events that it has read remain in the timeline.
        guard.read(store, (now, events_max)).await?;
        guard.timeline.forget(now);
        Ok(MappedMutexGuard::map(guard, |it| &mut it.timeline))
    }

    /// The timeline of one observer: only services on which it ran, each with 0 or 1 observers.
    ///
    /// # Errors
    /// If the events cannot be read.
    pub(crate) async fn of_observer(
        &self,
        store: &dyn Store,
        row: &Row,
        known: (Timestamp, usize),
    ) -> Result<Timeline, StoreError> {
        let filter = EventFilter { observer: Some(row.id), ..EventFilter::default() };
        let mut events = store.events(&filter, EventRange::Before(i64::MAX), OF_OBSERVER_MAX).await?.events;
        events.reverse();
        let is_cut = events.len() == OF_OBSERVER_MAX;
        let first = events.first().map(|event| event.at).filter(|_| is_cut);
        let all = self.read(store, known).await?;
        let mut timeline = Timeline::new(first.unwrap_or(Timestamp(i64::MIN)));
        timeline.add_operations_of(&all);
        for event in &events {
            add(&mut timeline, event);
            if event.kind != EventKind::Started {
                timeline.add(event.at, Fact::Mark(mark(event)));
            }
        }
        if let Some(holder) = row.holder() {
            timeline.runs(row.id, holder);
        }
        timeline.add_services_of(&all);
        timeline.incomplete_before(all.complete_since().unwrap_or(row.created_at));
        Ok(timeline)
    }
}

impl Known {
    fn new(since: Timestamp, last: i64) -> Self {
        Self { timeline: Timeline::new(since), last, is_whole: false, first: [(None, 0); 2] }
    }

    async fn begin(store: &dyn Store, now: Timestamp, oldest: i64) -> Result<Self, StoreError> {
        let last = oldest.saturating_sub(1);
        // No event was ever deleted.
        if oldest <= 1 {
            return Ok(Self::new(now.minus(KEPT), last));
        }
        let first = store.events(&every(), EventRange::After(last), 1).await?;
        Ok(Self::new(first.events.first().map_or(now, |event| event.at), last))
    }

    async fn read(
        &mut self,
        store: &dyn Store,
        (now, events_max): (Timestamp, usize),
    ) -> Result<(), StoreError> {
        let since = now.minus(KEPT);
        loop {
            let events = store.events(&every(), EventRange::After(self.last), PAGE).await?.events;
            let is_last = events.len() < PAGE;
            self.last = events.last().map_or(self.last, |event| event.id);
            for event in &events {
                let (first, count) = &mut self.first[usize::from(event.detail)];
                (*first, *count) = (first.or(Some(event.at)), *count + 1);
                if event.at >= since {
                    add(&mut self.timeline, event);
                }
            }
            if let Some(last) = events.last() {
                self.timeline.conclude(last.at);
            }
            if is_last {
                break;
            }
        }
        if !self.is_whole {
            self.complete(store, (since, events_max)).await?;
            self.is_whole = true;
        }
        Ok(())
    }

    /// Adds the services and the observers that they run from the stored rows, for the time before the first event.
    async fn complete(
        &mut self,
        store: &dyn Store,
        (since, events_max): (Timestamp, usize),
    ) -> Result<(), StoreError> {
        // Managers delete the details of bursts separately from other events: older events of this class may be missing.
        for (first, _) in self.first.into_iter().filter(|(_, count)| *count >= events_max) {
            self.timeline.incomplete_before(first.unwrap_or(since));
        }
        let complete_since = self.timeline.complete_since().unwrap_or(since);
        for row in store.services(since).await?.rows {
            self.timeline.name(row.id, row.registration.name.as_str());
            let cause = |how| if how == Ended::Lost { Cause::Lost } else { Cause::Stopped };
            let ended = row.end.map(|end| (end.at, cause(end.how)));
            self.timeline.service_known(row.id, row.registered_at, ended);
            if row.registered_at >= complete_since {
                // Each of its runs has an event.
                continue;
            }
            for observer in store.held_by(row.id, InventoryRange::ALL).await? {
                self.timeline.runs(observer, row.id);
            }
        }
        Ok(())
    }
}

fn every() -> EventFilter {
    EventFilter { details: true, ..EventFilter::default() }
}

/// Adds the facts of an event. A summary adds none, because its events are stored, too.
fn add(timeline: &mut Timeline, event: &Event) {
    // If a manager settles an observer, the event has the nil id as its service.
    for named in [&event.service, &event.from].into_iter().flatten().filter(|it| !it.id.is_nil()) {
        timeline.name(ServiceId(named.id), &named.name);
    }
    if let Some(fact) = fact(event) {
        timeline.add(event.at, fact);
    }
}

fn mark(event: &Event) -> Mark {
    let service = event.service.as_ref().filter(|it| !it.id.is_nil());
    Mark {
        at: event.at,
        since: None,
        kind: event.kind,
        service: service.map(|it| it.name.clone()),
        service_id: service.map(|it| ServiceId(it.id)),
        text: event.text.clone(),
    }
}

fn fact(event: &Event) -> Option<Fact> {
    if event.burst.is_some() {
        return None;
    }
    match &event.observer {
        Some(observer) => of_observer(event, ObserverId(observer.id)),
        None => Some(of_service(event)),
    }
}

fn of_observer(event: &Event, observer: ObserverId) -> Option<Fact> {
    let ms = |time: Option<u64>| Duration::from_millis(time.unwrap_or(0));
    let service = event.service.as_ref().map(|it| ServiceId(it.id)).filter(|it| !it.0.is_nil());
    let run = service.map(|service| Run { observer, service, epoch: event.epoch.unwrap_or(0).into() });
    match (event.kind, run) {
        (EventKind::Started, Some(run)) => {
            let moved = event.from.as_ref().map(|from| Moved {
                from: ServiceId(from.id),
                gap: ms(event.gap_ms),
                gap_is_bound: event.gap_is_bound,
                overlap: ms(event.overlap_ms),
            });
            Some(Fact::Started { run, moved })
        }
        (EventKind::HandedOver, Some(run)) => {
            Some(Fact::Ended { run, moves: true, why: Reason::of(&event.text) })
        }
        (EventKind::Stopped | EventKind::Completed | EventKind::Failed, Some(run)) => {
            Some(Fact::Ended { run, moves: false, why: None })
        }
        (EventKind::Stopped | EventKind::Completed | EventKind::Failed | EventKind::Deleted, None) => {
            Some(Fact::AtRest { observer })
        }
        _ => None,
    }
}

fn of_service(event: &Event) -> Fact {
    match (event.kind, &event.service) {
        (EventKind::ServiceRegistered, Some(it)) => {
            Fact::Registered { service: ServiceId(it.id), name: it.name.clone() }
        }
        (kind @ (EventKind::ServiceLost | EventKind::ServiceGone), Some(it)) => Fact::Gone {
            service: ServiceId(it.id),
            name: it.name.clone(),
            lost: kind == EventKind::ServiceLost,
            heard_at: event.gap_ms.map(|ms| event.at.minus(Duration::from_millis(ms))),
            text: event.text.clone(),
        },
        _ => Fact::Mark(mark(event)),
    }
}
