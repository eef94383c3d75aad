//! Services register and unregister.

use crate::commit::{Changed, change_service};
use crate::context::Manager;
use crate::fleet::{orders, quarantine};
use crate::metric;
use crate::outgoing::commands;
use everwatch_core::capacity::maintenance::Orders;
use everwatch_core::clock::Timestamp;
use everwatch_core::id::ServiceId;
use everwatch_core::record::events::EventKind;
use everwatch_core::record::row::Row;
use everwatch_core::record::service::{self, ServiceRow};
use everwatch_core::wire::command::{Revocation, Welcome};
use everwatch_core::wire::report::Registration;
use everwatch_store::StoreError;
use std::sync::Arc;
use std::time::Duration;
use tracing::{debug, info, warn};

/// A new service may have missed the commands of this long.
const WELCOME_WINDOW: Duration = Duration::from_secs(600);
/// A service whose predecessor unregistered within this time returns after a restart.
const RETURNS_WITHIN: Duration = Duration::from_secs(300);
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
    for new_service in new_services {
        pass_over(new_service.service, on_registered(manager, new_service).await)?;
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

async fn on_registered(manager: &Manager, new_service: &NewService) -> Result<(), StoreError> {
    let said_goodbye = async || manager.records.store.note(&goodbye(new_service.service)).await;
    if manager.records.store.service(&new_service.service.into()).await?.is_some() {
        return match said_goodbye().await? {
            Some(_) => on_gone(manager, new_service.service).await,
            None => Ok(()),
        };
    }
    let now = manager.records.clock.now();
    let row =
        ServiceRow::registered(new_service.service, new_service.registration.clone(), new_service.at, now);
    if !manager.records.store.save_services(&[row]).await?.is_empty() {
        return Ok(());
    }
    if let Some(row) = manager.records.store.service(&new_service.service.into()).await? {
        let from = new_service.registration.predecessor.as_ref();
        let text =
            from.map_or_else(String::new, |it| format!("after {}, which ended: {}", it.service, it.ended));
        manager.records.events.tell_service(EventKind::ServiceRegistered, &row, text);
    }
    info!(service = %new_service.service, name = %new_service.registration.name, pool = %new_service.registration.pool, "service registered");
    if said_goodbye().await?.is_some() {
        return on_gone(manager, new_service.service).await;
    }
    let namesakes = manager.records.store.services(now).await?.rows;
    for namesake in namesakes {
        if namesake.id != new_service.service && namesake.registration.name == new_service.registration.name {
            change_service(&manager.records, namesake.id, |row| row.suspect(now)).await?;
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

/// Whether the new service is the successor of this one, which unregistered.
fn returned(row: &ServiceRow, new_service: ServiceId, registration: &Registration) -> bool {
    row.id != new_service
        && row.registration.name == registration.name
        && row.registration.pool == registration.pool
        && row.end.is_some_and(|end| end.how == service::Ended::Gone)
}

/// Sends new services the commands from before they listened.
pub(crate) async fn welcome(manager: &Arc<Manager>, new_services: &[NewService]) {
    let since = manager.records.clock.now().minus(WELCOME_WINDOW);
    let stored = async {
        let rows = manager.records.store.commanded_since(since, WELCOME_MAX).await?;
        let book = orders::book(&manager.records).await?;
        let ended =
            manager.records.store.services(manager.records.clock.now().minus(RETURNS_WITHIN)).await?.rows;
        Ok::<_, StoreError>((rows, quarantine::suspects(manager).await?, book, ended))
    };
    match stored.await {
        Ok((rows, suspects, book, ended)) => {
            let revocations: Vec<Revocation> = rows.iter().map(Row::revocation).collect();
            for NewService { service, registration, .. } in new_services {
                let mut welcome = Welcome::new(*service, Vec::new());
                welcome.crash_looping.clone_from(&suspects);
                welcome.directives = book.get(registration.name.as_str()).map(Orders::directives);
                welcome.returning = ended.iter().any(|row| returned(row, *service, registration));
                commands::welcome_later(manager, &revocations, welcome);
            }
        }
        // A service waits for its welcome only briefly, and every revocation is repeated anyway.
        Err(error) => warn!(%error, "cannot answer new services"),
    }
}
