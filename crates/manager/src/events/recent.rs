//! The newest events, kept in the form in which they are sent. If each follower read the database, a thousand consoles
//! would be a thousand queries per event.

use super::shown;
use crate::lock::lock;
use axum::response::sse;
use everwatch_store::Event;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use tokio::sync::watch;
use tracing::debug;

/// A follower that is further behind reads the database.
const KEPT_MAX: usize = 2000;

/// One event, and how it is sent.
#[derive(Debug)]
pub(crate) struct PublishedEvent {
    pub(crate) event: Event,
    pub(crate) message: sse::Event,
}

impl PublishedEvent {
    pub(crate) fn new(event: Event) -> Option<Self> {
        let message = sse::Event::default().id(event.id.to_string()).event(event.kind.as_str());
        match message.json_data(shown::event(event.clone())) {
            Ok(message) => Some(Self { event, message }),
            Err(error) => {
                debug!(%error, event = event.id, "an event cannot be written");
                None
            }
        }
    }
}

/// The newest events, without a gap, while a client follows.
#[derive(Debug, Default)]
pub(crate) struct RecentEvents {
    kept: Mutex<Kept>,
    newest: watch::Sender<i64>,
}

#[derive(Debug)]
struct Kept {
    /// All events after this number are here; none while no client follows.
    after: i64,
    newest: i64,
    told: VecDeque<Arc<PublishedEvent>>,
}

impl Default for Kept {
    fn default() -> Self {
        Self { after: i64::MAX, newest: 0, told: VecDeque::new() }
    }
}

impl RecentEvents {
    /// Changes whenever there is something new.
    pub(crate) fn watch(&self) -> watch::Receiver<i64> {
        self.newest.subscribe()
    }

    /// The newest number, and what came after `last`; `None` if not all of that is here.
    pub(crate) fn since(&self, last: i64) -> Option<(i64, Vec<Arc<PublishedEvent>>)> {
        let kept = lock(&self.kept);
        if last < kept.after {
            return None;
        }
        let from = kept.told.partition_point(|it| it.event.id <= last);
        Some((kept.newest, kept.told.range(from..).cloned().collect()))
    }

    pub(crate) fn begin(&self, newest: i64) {
        *lock(&self.kept) = Kept { after: newest, newest, told: VecDeque::new() };
        self.newest.send_replace(newest);
    }

    pub(crate) fn forget(&self) {
        *lock(&self.kept) = Kept::default();
    }

    pub(crate) fn push(&self, events: Vec<Event>) {
        let Some(newest) = events.last().map(|event| event.id) else { return };
        let mut kept = lock(&self.kept);
        kept.told.extend(events.into_iter().filter_map(PublishedEvent::new).map(Arc::new));
        while kept.told.len() > KEPT_MAX {
            if let Some(oldest) = kept.told.pop_front() {
                kept.after = oldest.event.id;
            }
        }
        kept.newest = newest;
        drop(kept);
        self.newest.send_replace(newest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::events::log::plain;
    use everwatch_core::clock::Timestamp;
    use everwatch_core::record::events::EventKind;

    fn events(ids: std::ops::RangeInclusive<i64>) -> Vec<Event> {
        ids.map(|id| Event { id, ..plain(EventKind::Created, Timestamp(0), String::new()) }).collect()
    }

    fn told(live: &RecentEvents, last: i64) -> Option<(i64, Vec<i64>)> {
        let (newest, told) = live.since(last)?;
        Some((newest, told.iter().map(|it| it.event.id).collect()))
    }

    #[test]
    fn no_reader_is_given_a_gap() {
        let live = RecentEvents::default();
        assert_eq!(told(&live, i64::MAX - 1), None, "nothing is kept yet");
        live.begin(10);
        assert_eq!(told(&live, 9), None);
        assert_eq!(told(&live, 10), Some((10, vec![])));
        // Numbers may be left out.
        live.push(events(12..=13));
        assert_eq!(told(&live, 10), Some((13, vec![12, 13])));
        assert_eq!(told(&live, 12), Some((13, vec![13])));
        let most = i64::try_from(KEPT_MAX).unwrap();
        live.push(events(14..=13 + most));
        assert_eq!(told(&live, 12), None, "12 and 13 went, and 13 is after 12");
        assert_eq!(told(&live, 13).unwrap().1.len(), KEPT_MAX);
        assert_eq!(*live.watch().borrow(), 13 + most);
        live.forget();
        assert_eq!(told(&live, 13 + most), None, "whoever comes after a pause reads for himself");
    }
}
