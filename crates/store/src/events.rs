//! Events, numbered in the order in which they were stored.

use everwatch_core::clock::Timestamp;
use everwatch_core::id::{Namespace, ObserverId, ServiceId};
use everwatch_core::record::bursts::Burst;
use everwatch_core::record::events::EventKind;
use everwatch_core::record::row::Row;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// An observer or a service with its name at that time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Named {
    pub id: Uuid,
    pub name: String,
    /// Only of an observer outside of the default namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<Namespace>,
}

impl Named {
    /// An observer as it is defined now.
    #[must_use]
    pub fn observer(row: &Row) -> Self {
        let definition = &row.definition;
        let namespace = Some(definition.namespace.clone()).filter(|it| !it.is_default());
        Self { id: row.id.0, name: definition.name.to_string(), namespace }
    }

    #[must_use]
    pub fn service(id: ServiceId, name: impl Into<String>) -> Self {
        Self { id: id.0, name: name.into(), namespace: None }
    }
}

/// The user of a request, as far as the request identifies the user. Without authentication, `who` is only a
/// claim.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct By {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub who: Option<String>,
    /// The address at the other end of the connection.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// The program, as it calls itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub with: Option<String>,
}

/// One event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// 0 until it is stored.
    #[serde(skip)]
    pub id: i64,
    pub at: Timestamp,
    pub kind: EventKind,
    pub observer: Option<Named>,
    pub service: Option<Named>,
    pub epoch: Option<u64>,
    /// The cause, as far as it is known.
    pub text: String,
    /// The service that ran it before: only if an observer was started on its next service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<Named>,
    /// The timing of a move, in ms: only if an observer was started on its next service. Of a lost service, the time since its last
    /// sign of life.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gap_ms: Option<u64>,
    /// Whether the gap is an upper bound, because the previous run did not report its end.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub gap_is_bound: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overlap_ms: Option<u64>,
    /// The user whose request caused it; none if a manager or a service acted on its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<By>,
    /// For a summary: the events that it stands for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub burst: Option<Burst>,
    /// Whether a summary stands for it.
    #[serde(skip)]
    pub detail: bool,
}

/// A filter of events; empty: all but the details of bursts.
#[derive(Debug, Clone, Default)]
pub struct EventFilter {
    pub observer: Option<ObserverId>,
    pub service: Option<ServiceId>,
    pub kinds: Vec<EventKind>,
    /// Also events that a summary stands for. The history of one observer or service has them in any case: a summary
    /// is of several observers, and often of several services.
    pub details: bool,
    /// Only events from this time on.
    pub since: Option<Timestamp>,
    /// Only events until this time, inclusive.
    pub until: Option<Timestamp>,
}

impl EventFilter {
    /// Whether the filter also matches events that a summary stands for.
    #[must_use]
    pub fn with_details(&self) -> bool {
        self.details || self.observer.is_some() || self.service.is_some()
    }

    /// Whether the filter matches this event.
    #[must_use]
    pub fn keeps(&self, event: &Event) -> bool {
        let is = |definition: Option<Uuid>, named: &Option<Named>| {
            definition.is_none_or(|definition| named.as_ref().is_some_and(|named| named.id == definition))
        };
        (self.with_details() || !event.detail)
            && is(self.observer.map(|it| it.0), &event.observer)
            && is(self.service.map(|it| it.0), &event.service)
            && (self.kinds.is_empty() || self.kinds.contains(&event.kind))
            && self.since.is_none_or(|since| event.at >= since)
            && self.until.is_none_or(|until| event.at <= until)
    }
}

/// The range of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventRange {
    /// Older than this number, newest first.
    Before(i64),
    /// Younger than this number, oldest first; the total is not counted.
    After(i64),
}

/// A page of events.
#[derive(Debug, Clone)]
pub struct EventPage {
    pub events: Vec<Event>,
    pub total: u64,
}

/// What one statement deletes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Forgets {
    /// Events that are too old.
    Old,
    /// Events of one class beyond the number that is kept.
    Beyond { detail: bool },
}

/// The statements that delete events. Each deletes some, so that none takes long.
#[derive(Debug, Default)]
pub(crate) struct Forgetting {
    place: usize,
    batches: usize,
    /// Events that were deleted so far.
    pub(crate) deleted: u64,
}

impl Forgetting {
    /// Events that one statement deletes at most.
    pub(crate) const BATCH: usize = 2000;
    /// Statements of one kind. What is left is deleted by the next call.
    const BATCHES_MAX: usize = 200;
    const ALL: [Forgets; 3] =
        [Forgets::Old, Forgets::Beyond { detail: false }, Forgets::Beyond { detail: true }];

    /// The next statement; `None` at the end.
    pub(crate) fn next(&self) -> Option<Forgets> {
        Self::ALL.get(self.place).copied()
    }

    /// The statement has deleted this many events.
    pub(crate) fn on_deleted(&mut self, events: u64) {
        self.deleted += events;
        self.batches += 1;
        if events < Self::BATCH as u64 || self.batches == Self::BATCHES_MAX {
            (self.place, self.batches) = (self.place + 1, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_statement_is_repeated_while_it_deletes_whole_batches_and_not_for_ever() {
        let (mut forgetting, mut taken) = (Forgetting::default(), Vec::new());
        let mut deletes = [2000, 7, 0].into_iter();
        while let Some(next) = forgetting.next() {
            taken.push(next);
            forgetting.on_deleted(deletes.next().unwrap_or(2000));
        }
        let (old, single) = (Forgets::Old, Forgets::Beyond { detail: false });
        assert_eq!(taken[..3], [old, old, single]);
        assert_eq!(taken[3..], [Forgets::Beyond { detail: true }; Forgetting::BATCHES_MAX]);
        assert_eq!(forgetting.deleted, 2007 + 200 * 2000);
    }
}
