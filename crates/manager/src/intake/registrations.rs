//! Services register and unregister.

use crate::commit::{Changed, change_service};
use crate::context::Manager;
use crate::context::records::Records;
use crate::context::revocations::possible_holders;
use crate::fleet::{orders, quarantine};
use crate::metric;
use crate::outgoing::commands;
use everwatch_core::capacity::maintenance::Orders;
use everwatch_core::clock::Timestamp;
use everwatch_core::id::{Name, ServiceId};
use everwatch_core::record::events::EventKind;
use everwatch_core::record::row::Row;
use everwatch_core::record::service::ServiceRow;
use everwatch_core::wire::command::{Revocation, Welcome};
use everwatch_core::wire::report::Registration;
use everwatch_store::{Found, StoreError};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tracing::{debug, info, warn};

/// A new service may have missed the commands of this long.
const WELCOME_WINDOW: Duration = Duration::from_secs(600);
/// The most revocations in a welcome.
const WELCOME_MAX: usize = 10_000;

/// A service that has just registered.
#[derive(Debug)]
pub(crate) struct NewService {
    pub(crate) service: ServiceId,
    pub(crate) registration: Registration,
    pub(crate) at: Timestamp,
}

/// Applies registrations and ends; either may arrive twice.
pub(crate) async fn apply(
    manager: &Manager,
    new_services: &[NewService],
    gone: &[ServiceId],
) -> Result<(), StoreError> {
    if !new_services.is_empty() {
        register(manager, new_services).await?;
    }
    for service in gone {
        pass_over(*service, on_gone(manager, *service).await)?;
    }
    Ok(())
}

/// A service whose row cannot be read delays no report of another service.
pub(crate) fn pass_over<T>(service: ServiceId, done: Result<T, StoreError>) -> Result<Option<T>, StoreError> {
    match done {
        Err(StoreError::Corrupt(why)) => {
            metrics::counter!(metric::PASSED_OVER).increment(1);
            debug!(%service, why, "a report about an unreadable service is passed over");
            Ok(None)
        }
        done => done.map(Some),
    }
}

/// Adds the rows of new services. After a restart of the broker, all services register at once: the cost of a batch does
/// not depend on the number of other services.
async fn register(manager: &Manager, new_services: &[NewService]) -> Result<(), StoreError> {
    let records = &manager.records;
    let ids: Vec<ServiceId> = new_services.iter().map(|it| it.service).collect();
    let Found { rows: known, unreadable } = records.store.load_services(&ids).await?;
    let now = records.clock.now();
    let mut rows: BTreeMap<ServiceId, ServiceRow> = BTreeMap::new();
    for it in new_services {
        if unreadable.contains(&it.service) {
            pass_over::<()>(it.service, Err(StoreError::Corrupt("its row exists".to_owned())))?;
        } else if !known.iter().any(|row| row.id == it.service) {
            let row = || ServiceRow::registered(it.service, it.registration.clone(), it.at, now);
            rows.entry(it.service).or_insert_with(row);
        }
    }
    // Another manager has inserted the others.
    let late = records.store.save_services(&rows.values().cloned().collect::<Vec<_>>()).await?;
    rows.retain(|id, _| !late.contains(id));
    for row in rows.values() {
        let registration = &row.registration;
        let from = registration.predecessor.as_ref();
        let text =
            from.map_or_else(String::new, |it| format!("after {}, which ended: {}", it.service, it.ended));
        records.events.tell_service(EventKind::ServiceRegistered, row, text);
        info!(service = %row.id, name = %registration.name, pool = %registration.pool, "service registered");
    }
    for id in rows.keys().copied().chain(known.iter().map(|row| row.id)) {
        if records.store.note(&goodbye(id)).await?.is_some() {
            pass_over(id, on_gone(manager, id).await)?;
        }
    }
    suspect_namesakes(records, rows.values(), now).await
}

/// A service that has the name of a newer one has probably ended.
async fn suspect_namesakes(
    records: &Records,
    new_rows: impl Iterator<Item = &ServiceRow>,
    now: Timestamp,
) -> Result<(), StoreError> {
    let newest: BTreeMap<&Name, ServiceId> = new_rows.map(|row| (&row.registration.name, row.id)).collect();
    if newest.is_empty() {
        return Ok(());
    }
    let names: Vec<Name> = newest.keys().map(|name| (*name).clone()).collect();
    for namesake in records.store.namesakes(&names, now).await? {
        if newest.get(&namesake.registration.name) != Some(&namesake.id) {
            change_service(records, namesake.id, |row| row.suspect(now)).await?;
        }
    }
    Ok(())
}

async fn on_gone(manager: &Manager, service: ServiceId) -> Result<(), StoreError> {
    let now = manager.records.clock.now();
    let mut gone = change_service(&manager.records, service, |row| row.on_gone(now)).await?;
    if matches!(gone, Changed::Missing) {
        // Its registration arrives later, or another manager is applying it at this moment. Whichever of the two is
        // written second, this note or that row, its writer sees the other.
        manager.records.store.set_note(&goodbye(service), "", manager.settings.retention_services).await?;
        gone = change_service(&manager.records, service, |row| row.on_gone(now)).await?;
    }
    match gone {
        Changed::Saved(row) => {
            manager.records.events.tell_service(EventKind::ServiceGone, &row, "it unregistered".to_owned());
            info!(%service, name = %row.registration.name, "service gone");
        }
        Changed::Unchanged(_) => debug!(%service, "a service unregisters again"),
        Changed::Missing => debug!(%service, "an unknown service unregisters"),
    }
    Ok(())
}

/// The note about an end that arrived before the registration.
fn goodbye(service: ServiceId) -> String {
    format!("gone/{service}")
}

/// Sends new services the commands from before they listened.
pub(crate) async fn welcome(manager: &Arc<Manager>, new_services: &[NewService]) {
    let now = manager.records.clock.now();
    let stored = async {
        let store = &manager.records.store;
        let rows = store.commanded_since(now.minus(WELCOME_WINDOW), WELCOME_MAX).await?;
        let book = orders::book(&manager.records).await?;
        Ok::<_, StoreError>((rows, quarantine::suspects(manager).await?, book))
    };
    match stored.await {
        Ok((rows, suspects, book)) => {
            for NewService { service, registration, .. } in new_services {
                let known = &manager.records.events.known;
                let of_pool = |row: &&Row| possible_holders(row, known).include(&registration.pool);
                let revocations: Vec<Revocation> = rows.iter().filter(of_pool).map(Row::revocation).collect();
                let mut welcome = Welcome::new(*service, Vec::new());
                welcome.time = Some(manager.records.clock.now());
                welcome.crash_looping.clone_from(&suspects);
                welcome.directives = book.get(registration.name.as_str()).map(Orders::directives);
                commands::welcome_later(manager, &registration.pool, &revocations, welcome);
            }
        }
        // A service waits for its welcome only briefly, and every revocation is repeated anyway.
        Err(error) => warn!(%error, "cannot answer new services"),
    }
}
