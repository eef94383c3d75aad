//! Observers on their way to a service that a user has named: they use its room before its reports show them.

use crate::context::records::Records;
use everwatch_core::id::{ObserverId, ObserverRef, ServiceId};
use everwatch_core::record::row::Row;
use everwatch_store::StoreError;
use std::time::Duration;

/// An observer that has not arrived by then stops slowly, and another service may take it.
const ARRIVES: Duration = Duration::from_secs(10);
/// How many observers on their way are looked up at most; all others count as if they had not arrived.
const LOOKED_UP: usize = 100;

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
