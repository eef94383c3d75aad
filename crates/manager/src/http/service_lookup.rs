//! Reads services for responses: by id or name, with their orders.

use super::caller;
use super::problem::{Code, Problem};
use crate::context::Manager;
use crate::excused::{ByHand, Excused};
use crate::fleet::{orders, shown_services};
use everwatch_api::Service;
use everwatch_core::capacity::maintenance::{OrderBook, Room, room_by_pool};
use everwatch_core::clock::Timestamp;
use everwatch_core::id::{Name, Pool, ServiceId, ServiceRef};
use everwatch_core::record::service::ServiceRow;
use everwatch_store::StoreError;
use std::collections::BTreeMap;

/// What responses show of services beside their rows.
pub(super) struct ServiceViews {
    book: OrderBook,
    room: BTreeMap<Pool, Room>,
    /// The slots of each living service that are in use.
    held: BTreeMap<ServiceId, u32>,
    excused: Excused,
    now: Timestamp,
}

impl ServiceViews {
    pub(super) async fn load(manager: &Manager) -> Result<Self, StoreError> {
        let records = &manager.records;
        let book = orders::book(records).await?;
        let services = shown_services::living(manager).await?;
        let room = room_by_pool(&services, &orders::reported(records, &services, &book).await?);
        let held = services.iter().map(|it| (it.id, it.held())).collect();
        Ok(Self { book, room, held, excused: manager.settings.excused.clone(), now: records.clock.now() })
    }
    pub(super) fn service(&self, row: &ServiceRow) -> Service {
        let room = self.room.get(&row.registration.pool).copied().unwrap_or_default();
        let mut row = row.clone();
        if let Some(held) = self.held.get(&row.id) {
            row.set_held((*held).into());
        }
        let orders = self.book.get(row.registration.name.as_str());
        let frozen = row.end.is_none() && self.excused.cause(row.id) == Some(ByHand::Frozen);
        Service { frozen, ..Service::of(&row, orders, room, self.now) }
    }
}

/// By id, or the newest of a name.
pub(super) async fn find(manager: &Manager, key: &str) -> Result<ServiceRow, Problem> {
    let which = match key.parse::<ServiceId>() {
        Ok(id) => Some(ServiceRef::Id(id)),
        Err(_) => Name::new(key).ok().map(ServiceRef::Name),
    };
    let found = match which {
        Some(which) => manager.records.store.service(&which).await?,
        None => None,
    };
    let shown: String = key.chars().take(140).collect();
    let not_found = || Problem::new(Code::NotFound, format!("there is no service `{shown}`"));
    let mut row = found.ok_or_else(not_found)?;
    shown_services::mark_suspects(manager, std::slice::from_mut(&mut row)).await?;
    let pool = &row.registration.pool;
    caller::check_pool(pool)
        .map_err(|problem| if caller::may_see_services(pool) { problem } else { not_found() })?;
    Ok(row)
}
