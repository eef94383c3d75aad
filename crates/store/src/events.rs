//! Events: what happened, numbered in the order in which it was written down.

use crate::columns::read;
use crate::port::StoreError;
use async_trait::async_trait;
use everwatch_core::clock::Timestamp;
use everwatch_core::history::What;
use everwatch_core::id::{ObserverId, ServiceId};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// Something with a name, as it was called then.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Named {
    pub id: Uuid,
    pub name: String,
}

/// Who asked, as far as a request tells. Without authentication `who` is a claim.
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

/// One thing that happened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// 0 until it is stored.
    #[serde(skip)]
    pub id: i64,
    pub at: Timestamp,
    pub what: What,
    pub observer: Option<Named>,
    pub service: Option<Named>,
    pub epoch: Option<u64>,
    /// The cause, as far as it is known.
    pub text: String,
    /// How a move went, in ms: only where an observer was started on its next service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gap_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overlap_ms: Option<u64>,
    /// Whose request led to it; none where the manager or a service acted by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<By>,
}

/// Which events are wanted; all if empty.
#[derive(Debug, Clone, Default)]
pub struct EventFilter {
    pub observer: Option<ObserverId>,
    pub service: Option<ServiceId>,
    pub what: Vec<What>,
}

impl EventFilter {
    /// Whether this event is one of them.
    #[must_use]
    pub fn keeps(&self, event: &Event) -> bool {
        let is = |wanted: Option<Uuid>, named: &Option<Named>| {
            wanted.is_none_or(|wanted| named.as_ref().is_some_and(|named| named.id == wanted))
        };
        is(self.observer.map(|it| it.0), &event.observer)
            && is(self.service.map(|it| it.0), &event.service)
            && (self.what.is_empty() || self.what.contains(&event.what))
    }
}

/// Where a page lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stretch {
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

impl EventPage {
    pub(crate) fn read(rows: Vec<(i64, String)>, total: u64) -> Result<Self, StoreError> {
        let event = |(id, document): (i64, String)| read(&document).map(|event| Event { id, ..event });
        Ok(Self { events: rows.into_iter().map(event).collect::<Result<_, _>>()?, total })
    }
}

/// The newest part of what happened.
#[async_trait]
pub trait Events: Send + Sync + 'static {
    /// Writes events down, in this order.
    async fn record(&self, events: &[Event]) -> Result<(), StoreError>;
    /// A page of them.
    async fn events(
        &self,
        filter: &EventFilter,
        stretch: Stretch,
        most: usize,
    ) -> Result<EventPage, StoreError>;
    /// The numbers of the oldest and the newest one; 0 if there is none.
    async fn event_ends(&self) -> Result<(i64, i64), StoreError>;
    /// Forgets what is older than `before` and what exceeds the newest `keep`; answers how many.
    async fn forget_events(&self, before: Timestamp, keep: usize) -> Result<u64, StoreError>;
}
