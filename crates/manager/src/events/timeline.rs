//! The timeline in the memory of a manager: it reads the events that it has not read yet when somebody looks.

use everwatch_core::clock::Timestamp;
use everwatch_core::id::ServiceId;
use everwatch_core::record::events::EventKind;
use everwatch_core::timeline::{Fact, KEPT, Moved, Picture, Timeline, Window};
use everwatch_store::{Event, EventFilter, EventRange, Store, StoreError};
use std::collections::{BTreeMap, HashMap};
use std::time::Duration;
use tokio::sync::Mutex;

/// Events in one read.
const PAGE: usize = 5000;

/// The timeline, once somebody has looked.
#[derive(Debug, Default)]
pub(crate) struct SharedTimeline(Mutex<Option<Known>>);

/// What was read.
#[derive(Debug)]
struct Known {
    timeline: Timeline,
    names: HashMap<ServiceId, String>,
    /// The number of the last event that was read.
    last: i64,
}

impl SharedTimeline {
    /// What this window shows, and the names of services. `held` is what each living service holds now.
    ///
    /// # Errors
    /// If the events cannot be read.
    pub(crate) async fn picture(
        &self,
        store: &dyn Store,
        (window, now): (&Window, Timestamp),
        held: &BTreeMap<ServiceId, u64>,
    ) -> Result<(Picture, HashMap<ServiceId, String>), StoreError> {
        let mut known = self.0.lock().await;
        let mut it = match known.take() {
            Some(it) => it,
            None => Known::begin(store, now).await?,
        };
        let read = it.read(store, now).await;
        it.timeline.forget(now);
        let shown = (it.timeline.picture(window, held), it.names.clone());
        // What was read stays, even if the rest could not be read.
        *known = Some(it);
        read.map(|()| shown)
    }
}

impl Known {
    async fn begin(store: &dyn Store, now: Timestamp) -> Result<Self, StoreError> {
        let (oldest, _) = store.event_ends().await?;
        let first = store.events(&every(), EventRange::After(oldest.saturating_sub(1)), 1).await?;
        let since = first.events.first().map_or(now, |event| event.at);
        Ok(Self { timeline: Timeline::new(since), names: HashMap::new(), last: oldest.saturating_sub(1) })
    }

    async fn read(&mut self, store: &dyn Store, now: Timestamp) -> Result<(), StoreError> {
        let since = now.minus(KEPT);
        loop {
            let events = store.events(&every(), EventRange::After(self.last), PAGE).await?.events;
            let is_last = events.len() < PAGE;
            self.last = events.last().map_or(self.last, |event| event.id);
            for event in events.iter().filter(|event| event.at >= since) {
                self.add(event);
            }
            if is_last {
                return Ok(());
            }
        }
    }

    fn add(&mut self, event: &Event) {
        for named in [&event.service, &event.from].into_iter().flatten() {
            let id = ServiceId(named.id);
            self.timeline.name(id, &named.name);
            self.names.insert(id, named.name.clone());
        }
        if let Some(fact) = fact(event) {
            self.timeline.add(event.at, fact);
        }
    }
}

fn every() -> EventFilter {
    EventFilter { details: true, ..EventFilter::default() }
}

/// What an event says about the timeline. A summary says nothing: its events are there, too.
fn fact(event: &Event) -> Option<Fact> {
    if event.burst.is_some() {
        return None;
    }
    let of_observer = event.observer.is_some();
    let service = event.service.as_ref().map(|it| (ServiceId(it.id), it.name.clone()));
    let ms = |time: Option<u64>| Duration::from_millis(time.unwrap_or(0));
    match (event.kind, service) {
        (EventKind::Started, Some((service, _))) => {
            let moved = event.from.as_ref().map(|from| Moved {
                from: ServiceId(from.id),
                gap: ms(event.gap_ms),
                overlap: ms(event.overlap_ms),
            });
            Some(Fact::Started { service, moved })
        }
        (
            kind @ (EventKind::HandedOver | EventKind::Stopped | EventKind::Completed | EventKind::Failed),
            Some((service, _)),
        ) => Some(Fact::Ended { service, moves: kind == EventKind::HandedOver }),
        (EventKind::ServiceRegistered, Some((service, name))) => Some(Fact::Registered { service, name }),
        (kind @ (EventKind::ServiceLost | EventKind::ServiceGone), Some((service, name))) => {
            Some(Fact::Gone { service, name, lost: kind == EventKind::ServiceLost })
        }
        (kind, service) if !of_observer => {
            Some(Fact::Mark { kind, service: service.map(|(_, name)| name), text: event.text.clone() })
        }
        _ => None,
    }
}
