//! Orders to services: kept by name, told until they are followed; drains carried on until nothing is held.

use crate::context::Manager;
use crate::context::records::Records;
use crate::outgoing::commands;
use everwatch_core::capacity::maintenance::{
    OrderBook, Orders, ReportedSlots, plan_fleet, queued_slots, sure_holders,
};
use everwatch_core::id::{Name, Pool};
use everwatch_core::record::events::EventKind;
use everwatch_core::record::service::ServiceRow;
use everwatch_core::wire::command::Command;
use everwatch_store::StoreError;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tracing::info;

const UNDER: &str = "orders/";
/// The most observers of a work queue that are read to plan a drain.
const QUEUED_MAX: usize = 1000;
/// How often a change is tried that others come before.
const TRIES: usize = 10;

fn note(name: &str) -> String {
    format!("{UNDER}{name}")
}

fn read(text: &str) -> Result<Orders, StoreError> {
    serde_json::from_str(text).map_err(|error| StoreError::Corrupt(format!("orders: {error}")))
}

/// What is wanted of all services.
pub(crate) async fn book(records: &Records) -> Result<OrderBook, StoreError> {
    let notes = records.store.notes_under(UNDER).await?;
    notes.into_iter().map(|(name, text)| Ok((name[UNDER.len()..].to_owned(), read(&text)?))).collect()
}

/// Changes the orders of a name as they stand; `None` if that changes nothing. Naively, of two managers the
/// later takes back what the earlier wrote, and if its clock is behind, services follow neither for ever.
async fn write(
    records: &Records,
    name: &Name,
    mut change: impl FnMut(&mut Orders) -> bool + Send,
) -> Result<Option<Orders>, StoreError> {
    let note = note(name.as_str());
    for _ in 0..TRIES {
        let before = records.store.note(&note).await?;
        let mut orders = before.as_deref().map_or_else(|| Ok(Orders::default()), read)?;
        if !change(&mut orders) {
            return Ok(None);
        }
        let after = serde_json::to_string(&orders).map_err(|error| StoreError::Corrupt(error.to_string()))?;
        let written = match before {
            Some(before) => records.store.swap_note(&note, &before, &after).await?,
            None => records.store.claim(&note, &after, Duration::MAX).await? == after,
        };
        if written {
            return Ok(Some(orders));
        }
    }
    Err(StoreError::Contended(format!("the orders for {name} keep changing: read them again and retry")))
}

/// Changes the orders of a name and tells its living services; answers whether anything changed.
pub(crate) async fn change(
    manager: &Arc<Manager>,
    name: &Name,
    change: impl FnMut(&mut Orders) -> bool + Send,
) -> Result<bool, StoreError> {
    let Some(orders) = write(&manager.records, name, change).await? else { return Ok(false) };
    for service in manager.records.store.services(manager.records.clock.now()).await?.rows {
        if service.registration.name == *name && !service.state().is_over() {
            let directives = orders.directives();
            let command = Command::Directives { service: service.id, directives };
            commands::order_later(manager, service.id, command);
        }
    }
    manager.records.note_change();
    manager.wake.notify_one();
    Ok(true)
}

/// What runs report about the slots of the pools with drains; nothing if there is none.
pub(crate) async fn reported(
    records: &Records,
    services: &[ServiceRow],
    book: &OrderBook,
) -> Result<ReportedSlots, StoreError> {
    let drains = |it: &&ServiceRow| {
        let orders = book.get(it.registration.name.as_str()).filter(|_| it.end.is_none());
        orders.is_some_and(|orders| orders.drain.is_some())
    };
    let pools: BTreeSet<&Pool> = services.iter().filter(drains).map(|it| &it.registration.pool).collect();
    let mut reported = ReportedSlots::default();
    if pools.is_empty() {
        return Ok(reported);
    }
    let holders = sure_holders(services);
    for pool in pools {
        let rows = records.store.unheld(pool, &holders, QUEUED_MAX).await?;
        // There may be more of them: until they run, the drain waits.
        let slots = if rows.len() == QUEUED_MAX { u32::MAX } else { queued_slots(&rows) };
        reported.queued.insert(pool.clone(), slots);
    }
    // Read last: an observer that starts meanwhile counts twice, rather than not at all.
    reported.held = records.store.held_weights().await?;
    Ok(reported)
}

/// Tells again what is not followed, and carries drains on.
pub(crate) async fn look(manager: &Arc<Manager>, services: &[ServiceRow]) -> Result<(), StoreError> {
    let book = book(&manager.records).await?;
    if book.is_empty() {
        return Ok(());
    }
    let now = manager.records.clock.now();
    let reported = reported(&manager.records, services, &book).await?;
    let plan = plan_fleet(services, &reported, &book, now);
    for (service, directives) in plan.directives {
        commands::order_later(manager, service, Command::Directives { service, directives });
    }
    for hand_over in plan.hand_over {
        commands::order_later(manager, hand_over.service, Command::HandOver(hand_over));
    }
    for name in plan.drained {
        let drained = |service: &&ServiceRow| service.registration.name.as_str() == name;
        info!(name, "drained");
        if let Ok(name) = Name::new(&name) {
            change(manager, &name, |orders| orders.drained(now)).await?;
        }
        if let Some(row) = services.iter().filter(drained).max_by_key(|row| row.registered_at) {
            manager.records.events.tell_service(
                EventKind::ServiceDrained,
                row,
                "it holds nothing and stays cordoned".to_owned(),
            );
        }
    }
    Ok(())
}
