//! What happens, read from the database once for all who follow it, and kept for a while as it is sent.
//! Naively, each follower reads for itself, and a thousand consoles are a thousand queries an event.

use crate::RunError;
use crate::http::api;
use crate::shared::{Manager, lock};
use axum::response::sse;
use everwatch_store::{Event, EventFilter, StoreError, Stretch};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::watch;
use tracing::debug;

/// Other managers write events too: this often is looked for theirs.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Whoever is further behind reads for itself.
const KEPT_MAX: usize = 2000;
pub(crate) const PAGE: usize = 500;

/// One event, and how it is sent.
#[derive(Debug)]
pub(crate) struct Told {
    pub(crate) event: Event,
    pub(crate) message: sse::Event,
}

impl Told {
    pub(crate) fn new(event: Event) -> Option<Self> {
        let message = sse::Event::default().id(event.id.to_string()).event(event.what.as_str());
        match message.json_data(api::Event::of(event.clone())) {
            Ok(message) => Some(Self { event, message }),
            Err(error) => {
                debug!(%error, event = event.id, "an event cannot be written");
                None
            }
        }
    }
}

/// The newest events, without a gap, as long as somebody follows.
#[derive(Debug, Default)]
pub(crate) struct Live {
    kept: Mutex<Kept>,
    newest: watch::Sender<i64>,
}

#[derive(Debug)]
struct Kept {
    /// All that came after this number is here; nothing is while nobody follows.
    after: i64,
    newest: i64,
    told: VecDeque<Arc<Told>>,
}

impl Default for Kept {
    fn default() -> Self {
        Self { after: i64::MAX, newest: 0, told: VecDeque::new() }
    }
}

impl Live {
    /// Changes whenever there is something new.
    pub(crate) fn watch(&self) -> watch::Receiver<i64> {
        self.newest.subscribe()
    }

    /// The newest number, and what came after `last`; `None` if not all of that is here.
    pub(crate) fn since(&self, last: i64) -> Option<(i64, Vec<Arc<Told>>)> {
        let kept = lock(&self.kept);
        if last < kept.after {
            return None;
        }
        let from = kept.told.partition_point(|it| it.event.id <= last);
        Some((kept.newest, kept.told.range(from..).cloned().collect()))
    }

    fn begin(&self, newest: i64) {
        *lock(&self.kept) = Kept { after: newest, newest, told: VecDeque::new() };
        self.newest.send_replace(newest);
    }

    fn forget(&self) {
        *lock(&self.kept) = Kept::default();
    }

    fn push(&self, events: Vec<Event>) {
        let Some(newest) = events.last().map(|event| event.id) else { return };
        let mut kept = lock(&self.kept);
        kept.told.extend(events.into_iter().filter_map(Told::new).map(Arc::new));
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

/// Reads what is new, as long as somebody follows.
pub(crate) async fn run(manager: Arc<Manager>) -> Result<(), RunError> {
    let mut recorded = manager.recorded.subscribe();
    let mut last = None;
    loop {
        tokio::select! {
            () = manager.stop.cancelled() => return Ok(()),
            _ = recorded.changed() => {}
            () = tokio::time::sleep(LOOK_EVERY) => {}
        }
        if manager.followers() == 0 {
            if last.take().is_some() {
                manager.live.forget();
            }
        } else if let Err(error) = read(&manager, &mut last).await {
            debug!(%error, "followers wait for the database");
        }
    }
}

async fn read(manager: &Manager, last: &mut Option<i64>) -> Result<(), StoreError> {
    let mut after = match *last {
        Some(last) => last,
        None => {
            let newest = manager.store.event_ends().await?.1;
            manager.live.begin(newest);
            newest
        }
    };
    *last = Some(after);
    loop {
        let events = manager.store.events(&EventFilter::default(), Stretch::After(after), PAGE).await?.events;
        let is_last = events.len() < PAGE;
        after = events.last().map_or(after, |event| event.id);
        *last = Some(after);
        manager.live.push(events);
        if is_last {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::plain;
    use everwatch_core::clock::Timestamp;
    use everwatch_core::history::What;

    fn events(ids: std::ops::RangeInclusive<i64>) -> Vec<Event> {
        ids.map(|id| Event { id, ..plain(What::Created, Timestamp(0), String::new()) }).collect()
    }

    fn told(live: &Live, last: i64) -> Option<(i64, Vec<i64>)> {
        let (newest, told) = live.since(last)?;
        Some((newest, told.iter().map(|it| it.event.id).collect()))
    }

    #[test]
    fn nobody_is_given_a_gap() {
        let live = Live::default();
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
