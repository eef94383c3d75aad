//! Writes one summary for each burst of events; `core::record::bursts` decides what a burst is.

use everwatch_core::clock::Timestamp;
use everwatch_core::id::ServiceId;
use everwatch_core::record::bursts::{Burst, Bursts, EventClass};
use everwatch_core::record::events::{EventKind, Move};
use everwatch_store::{By, Event, Named};
use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use std::time::Duration;
use uuid::Uuid;

/// Services that a summary names; the others are counted together.
const NAMED_MAX: usize = 5;
/// Services that are counted one by one.
const COUNTED_MAX: usize = 10_000;

/// Events of one kind are similar if they concern the same service; a move concerns the service that was left.
type Key = (EventKind, Option<Uuid>);

/// Marks the details of bursts, and adds their summaries.
#[derive(Debug, Default)]
pub(crate) struct Summaries {
    bursts: Bursts<Key>,
    about: HashMap<Key, About>,
}

/// What the details of one burst have in common.
#[derive(Debug)]
struct About {
    from: Option<Named>,
    services: BTreeMap<Uuid, (String, u64)>,
    /// The cause of the first detail.
    text: String,
    by: Option<By>,
}

impl Summaries {
    /// Adds the summaries that are due before these events, and marks those of the events that are details.
    pub(crate) fn pass(&mut self, mut events: Vec<Event>, now: Timestamp) -> Vec<Event> {
        let ended = self.bursts.end(now);
        let mut all = self.summaries(ended);
        for event in events.iter_mut().filter(|event| event.observer.is_some()) {
            let key = key(event);
            event.detail = self.bursts.admit(&key, event.at, went(event), now) == EventClass::Detail;
            if event.detail {
                self.about.entry(key).or_insert_with(|| About::of(event)).add(event);
            }
        }
        all.append(&mut events);
        all
    }

    /// When the next summary is due; `None` while there is no burst.
    pub(crate) fn due_at(&self) -> Option<Timestamp> {
        self.bursts.due_at()
    }

    /// The summaries of all bursts, at the end of the program.
    pub(crate) fn end(&mut self, now: Timestamp) -> Vec<Event> {
        let ended = self.bursts.end_all(now);
        self.summaries(ended)
    }

    fn summaries(&mut self, ended: Vec<(Key, Burst)>) -> Vec<Event> {
        let summary = |(key, burst): (Key, Burst)| Some(self.about.remove(&key)?.summary(key.0, burst));
        ended.into_iter().filter_map(summary).collect()
    }
}

fn key(event: &Event) -> Key {
    let concerns = match event.kind {
        EventKind::Started => event.from.as_ref(),
        _ => event.service.as_ref(),
    };
    (event.kind, concerns.map(|it| it.id))
}

fn went(event: &Event) -> Option<Move> {
    let gap = Duration::from_millis(event.gap_ms?);
    let overlap = Duration::from_millis(event.overlap_ms.unwrap_or(0));
    Some(Move { gap, gap_is_bound: event.gap_is_bound, overlap })
}

impl About {
    fn of(first: &Event) -> Self {
        let (from, text, by) = (first.from.clone(), first.text.clone(), first.by.clone());
        Self { from, services: BTreeMap::new(), text, by }
    }

    fn add(&mut self, event: &Event) {
        if self.by != event.by {
            self.by = None;
        }
        if let Some(service) = &event.service
            && (self.services.len() < COUNTED_MAX || self.services.contains_key(&service.id))
        {
            self.services.entry(service.id).or_insert_with(|| (service.name.clone(), 0)).1 += 1;
        }
    }

    fn summary(self, kind: EventKind, burst: Burst) -> Event {
        let text = self.describe(&burst);
        let only = || {
            self.services.iter().next().map(|(id, (name, _))| Named::service(ServiceId(*id), name.clone()))
        };
        let service = if self.services.len() == 1 { only() } else { None };
        let plain = super::log::plain(kind, burst.until, text);
        Event { service, from: self.from, by: self.by, burst: Some(burst), ..plain }
    }

    fn describe(&self, burst: &Burst) -> String {
        let took = burst.until.since(burst.since);
        let mut text = match took.as_millis() {
            ms @ ..1000 => format!("{} more within {} ms", burst.count, ms.max(1)),
            _ => format!("{} more within {:.1} s", burst.count, took.as_secs_f64()),
        };
        if self.services.len() > 1 {
            let mut counts: Vec<(&str, u64)> =
                self.services.values().map(|(name, count)| (name.as_str(), *count)).collect();
            counts.sort_unstable_by_key(|(name, count)| (std::cmp::Reverse(*count), *name));
            let named = counts.iter().take(NAMED_MAX).map(|(name, count)| format!("{count} on {name}"));
            let mut parts: Vec<String> = named.collect();
            if let Some(others) = counts.get(NAMED_MAX..).filter(|others| !others.is_empty()) {
                let count: u64 = others.iter().map(|(_, count)| count).sum();
                parts.push(format!("{count} on {} other services", others.len()));
            }
            _ = write!(text, ": {}", parts.join(", "));
        }
        if let Some(moves) = &burst.moves {
            _ = write!(
                text,
                "; without a run for {} ms (median), {} ms (99 %), {} ms (longest)",
                moves.gap_ms_median, moves.gap_ms_p99, moves.gap_ms_max
            );
        } else if !self.text.is_empty() {
            _ = write!(text, "; for example: {}", self.text);
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::events::log::plain;

    fn named(number: u128) -> Option<Named> {
        Some(Named::service(ServiceId(Uuid::from_u128(number)), format!("s{number}")))
    }
    fn event(kind: EventKind, service: u128, at: i64) -> Event {
        Event {
            observer: named(99),
            service: named(service),
            ..plain(kind, Timestamp(at), "attempt 1".into())
        }
    }
    fn moved(service: u128, at: i64) -> Event {
        Event {
            from: named(1),
            gap_ms: Some(200),
            overlap_ms: Some(0),
            ..event(EventKind::Started, service, at)
        }
    }
    fn details(events: &[Event]) -> usize {
        events.iter().filter(|event| event.detail).count()
    }

    #[test]
    fn a_failover_of_many_is_one_summary_beside_its_first_events() {
        let mut summaries = Summaries::default();
        let lost = plain(EventKind::ServiceLost, Timestamp(0), String::new());
        let mut batch = vec![lost; 200];
        batch.extend((0..600).map(|number| moved(2 + number % 3, 400)));
        let written = summaries.pass(batch, Timestamp(450));
        assert_eq!((written.len(), details(&written)), (800, 500), "events of services are never details");
        assert_eq!(summaries.due_at(), Some(Timestamp(1450)));
        let written = summaries.pass(Vec::new(), Timestamp(1450));
        let [summary] = written.as_slice() else { panic!("{written:?}") };
        assert_eq!((summary.from.clone(), summary.service.clone(), summary.detail), (named(1), None, false));
        assert_eq!(
            summary.text,
            "500 more within 1 ms: 167 on s3, 167 on s4, 166 on s2; without a run for 200 ms (median), 200 ms \
             (99 %), 200 ms (longest)"
        );
        assert_eq!((summary.burst.as_ref().unwrap().count, summaries.about.len()), (500, 0));
    }

    #[test]
    fn bursts_of_other_events_are_counted_for_each_service() {
        let mut summaries = Summaries::default();
        let storm = (0..150).flat_map(|number| {
            [
                event(EventKind::Errored, 1, number),
                event(EventKind::Errored, 2, number),
                moved(number.unsigned_abs().into(), number),
            ]
        });
        let written = summaries.pass(storm.collect(), Timestamp(150));
        assert_eq!(details(&written), 150);
        let mut last = summaries.end(Timestamp(200));
        last.sort_by_key(|event| (event.kind, event.service.as_ref().map(|it| it.id)));
        let told: Vec<(EventKind, Option<Named>)> =
            last.iter().map(|it| (it.kind, it.service.clone())).collect();
        let (errored, started) = (EventKind::Errored, EventKind::Started);
        assert_eq!(told, [(started, None), (errored, named(1)), (errored, named(2))]);
        assert!(last[0].text.contains("1 on s104, 45 on 45 other services;"), "{}", last[0].text);
        assert_eq!(last[1].text, "50 more within 49 ms; for example: attempt 1");
    }
}
