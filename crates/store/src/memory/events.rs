//! Events in memory.

use super::MemoryStore;
use crate::port::{Event, EventFilter, EventPage, EventRange, Events, StoreError};
use async_trait::async_trait;
use everwatch_core::clock::Timestamp;

#[async_trait]
impl Events for MemoryStore {
    async fn record(&self, events: &[Event]) -> Result<(), StoreError> {
        let mut tables = self.tables();
        for event in events {
            tables.last_event += 1;
            let id = tables.last_event;
            tables.events.push(Event { id, ..event.clone() });
        }
        Ok(())
    }
    async fn events(
        &self,
        filter: &EventFilter,
        stretch: EventRange,
        most: usize,
    ) -> Result<EventPage, StoreError> {
        let tables = self.tables();
        let kept = || tables.events.iter().filter(|event| filter.keeps(event));
        Ok(match stretch {
            EventRange::Before(id) => EventPage {
                events: kept().rev().filter(|it| it.id < id).take(most).cloned().collect(),
                total: kept().count() as u64,
            },
            EventRange::After(id) => {
                EventPage { events: kept().filter(|it| it.id > id).take(most).cloned().collect(), total: 0 }
            }
        })
    }
    async fn event_ends(&self) -> Result<(i64, i64), StoreError> {
        let tables = self.tables();
        let id = |event: Option<&Event>| event.map_or(0, |event| event.id);
        Ok((id(tables.events.first()), id(tables.events.last())))
    }
    async fn forget_events(&self, before: Timestamp, keep: usize) -> Result<u64, StoreError> {
        let mut tables = self.tables();
        let (newest, held) = (tables.last_event, tables.events.len());
        let of_class = |detail| tables.events.iter().rev().filter(move |it| it.detail == detail);
        let oldest_kept = [false, true].map(|detail| of_class(detail).nth(keep).map_or(0, |it| it.id));
        let is_kept = |it: &Event| it.at >= before && it.id > oldest_kept[usize::from(it.detail)];
        tables.events.retain(|it| it.id == newest || is_kept(it));
        Ok((held - tables.events.len()) as u64)
    }
}
