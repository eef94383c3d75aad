//! Observers on their way to a service that a user has named: they use its room before its reports show them.

use crate::context::Manager;
use crate::context::records::Records;
use crate::fleet::shown_services;
use everwatch_core::capacity::transfer::{Mover, went_elsewhere};
use everwatch_core::id::{Name, ObserverId, ObserverRef, ServiceId};
use everwatch_core::record::events::EventKind;
use everwatch_core::record::row::Row;
use everwatch_store::StoreError;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep};
use tracing::debug;

/// An observer that has not arrived by then stops slowly, and another service may take it.
const ARRIVES: Duration = Duration::from_secs(10);
/// How many observers on their way are looked up at most; all others count as if they had not arrived.
const LOOKED_UP: usize = 100;

/// How often a manager looks whether an observer has arrived.
const LOOKS_EVERY: Duration = Duration::from_millis(250);
fn under(receiver: ServiceId) -> String {
    format!("moving/{}/", receiver.0)
}

/// Notes that the observer leaves one service for another.
pub(crate) async fn begins(
    records: &Records,
    row: &Row,
    (holder, receiver): (ServiceId, ServiceId),
) -> Result<(), StoreError> {
    let name = format!("{}{}", under(receiver), row.id.0);
    records.store.set_note(&name, &format!("{} {}", row.definition.weight, holder.0), ARRIVES).await
}

/// The slots that observers on their way to this service will use.
pub(crate) async fn coming(records: &Records, receiver: ServiceId) -> Result<u32, StoreError> {
    let under = under(receiver);
    let mut coming = 0_u32;
    for (at, (name, value)) in records.store.notes_under(&under).await?.into_iter().enumerate() {
        let read = value.split_once(' ').zip(name.strip_prefix(&under));
        let Some(((weight, holder), id)) = read else { continue };
        let (Ok(weight), Ok(holder), Ok(id)) = (weight.parse::<u32>(), holder.parse(), id.parse()) else {
            continue;
        };
        let row = match at {
            at if at < LOOKED_UP => records.store.find(&ObserverRef::Id(ObserverId(id))).await?,
            _ => None,
        };
        let is_away = |row: &Row| row.observed.holder().is_some_and(|it| it != ServiceId(holder));
        if !row.is_some_and(|row| is_away(&row)) {
            coming = coming.saturating_add(weight);
        }
    }
    Ok(coming)
}

pub(crate) fn mover(row: &Row, holder: Option<ServiceId>) -> Mover<'_> {
    let (pool, kind, weight) = (&row.definition.pool, &row.definition.kind, row.definition.weight);
    Mover { pool, kind, weight, holder }
}

/// Records an event if another service takes the observer, without waiting. Nothing is recorded of an observer that does not run again
/// within [`ARRIVES`], or if this manager ends or follows too many already.
pub(crate) fn tell_if_missed(manager: &Arc<Manager>, row: &Row, (receiver, to): (ServiceId, &Name)) {
    let Some(turn) = manager.moves.follow() else { return };
    let (it, before, to) = (Arc::clone(manager), row.clone(), to.clone());
    manager.tasks.spawn(async move {
        let told = it.stop.run_until_cancelled(follow(&it, &before, (receiver, &to))).await;
        if let Some(Err(error)) = told {
            debug!(%error, observer = %before.id, "a move is not followed to its end");
        }
        drop(turn);
    });
}

async fn follow(
    manager: &Manager,
    before: &Row,
    (receiver, to): (ServiceId, &Name),
) -> Result<(), StoreError> {
    let until = Instant::now() + ARRIVES;
    while Instant::now() < until {
        sleep(LOOKS_EVERY).await;
        let Some(row) = manager.records.store.find(&ObserverRef::Id(before.id)).await? else { break };
        // Another request has changed or restarted it.
        if row.generation != before.generation {
            break;
        }
        let Some(holder) = row.observed.holder().filter(|_| row.epoch() > before.epoch()) else { continue };
        if holder != receiver {
            let services = shown_services::living(manager).await?;
            let taker = services.iter().find(|it| it.id == holder).map(|it| &it.registration.name);
            if let Some(taker) = taker {
                let text = went_elsewhere(mover(&row, Some(holder)), to, taker, &services);
                manager.records.events.tell_observer(EventKind::MovedElsewhere, &row, text);
            }
        }
        break;
    }
    Ok(())
}
