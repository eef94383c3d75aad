//! Births and goodbyes of services.

use crate::shared::{CAS_TRIES, Manager};
use crate::{fleet, metric, quarantine, telling};
use everwatch_core::clock::Timestamp;
use everwatch_core::fleet::Orders;
use everwatch_core::history::What;
use everwatch_core::id::ServiceId;
use everwatch_core::message::{Birth, Floor, Welcome};
use everwatch_core::row::Row;
use everwatch_core::service::{self, ServiceRow};
use everwatch_store::StoreError;
use std::sync::Arc;
use std::time::Duration;
use tracing::{debug, info, warn};

/// A service that starts may have missed the commands of this long.
const WELCOME_WINDOW: Duration = Duration::from_secs(600);
/// A service whose predecessor said goodbye within that long comes back after a restart.
const RETURNS_WITHIN: Duration = Duration::from_secs(300);
/// The most floors in an answer to a birth.
const WELCOME_MAX: usize = 10_000;

/// A service that has just reported its birth.
#[derive(Debug)]
pub(crate) struct Newborn {
    pub(crate) service: ServiceId,
    pub(crate) birth: Birth,
    pub(crate) at: Timestamp,
}

/// Commits births and goodbyes; both may come twice.
pub(crate) async fn apply(
    manager: &Manager,
    newborns: &[Newborn],
    gone: &[ServiceId],
) -> Result<(), StoreError> {
    for newborn in newborns {
        pass_over(newborn.service, on_born(manager, newborn).await)?;
    }
    for service in gone {
        pass_over(*service, on_gone(manager, *service).await)?;
    }
    Ok(())
}

/// A service whose row cannot be read holds up no report of another one.
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

async fn on_born(manager: &Manager, newborn: &Newborn) -> Result<(), StoreError> {
    let said_goodbye = async || manager.store.note(&goodbye(newborn.service)).await;
    if manager.store.service(Some(newborn.service), None).await?.is_some() {
        return match said_goodbye().await? {
            Some(_) => on_gone(manager, newborn.service).await,
            None => Ok(()),
        };
    }
    let now = manager.clock.now();
    let row = ServiceRow::born(newborn.service, newborn.birth.clone(), newborn.at, now);
    if !manager.store.save_services(&[row]).await?.is_empty() {
        return Ok(());
    }
    if let Some(row) = manager.store.service(Some(newborn.service), None).await? {
        let from = newborn.birth.predecessor.as_ref();
        let text =
            from.map_or_else(String::new, |it| format!("after {}, which ended: {}", it.service, it.ended));
        manager.tell_service(What::ServiceBorn, &row, text);
    }
    info!(service = %newborn.service, name = %newborn.birth.name, pool = %newborn.birth.pool, "service born");
    if said_goodbye().await?.is_some() {
        return on_gone(manager, newborn.service).await;
    }
    let namesakes = manager.store.services(now).await?.rows;
    for namesake in namesakes {
        if namesake.id != newborn.service && namesake.birth.name == newborn.birth.name {
            change(manager, namesake.id, |row| row.suspect(now)).await?;
        }
    }
    Ok(())
}

async fn on_gone(manager: &Manager, service: ServiceId) -> Result<(), StoreError> {
    let now = manager.clock.now();
    let mut gone = change(manager, service, |row| row.on_gone(now)).await?;
    if matches!(gone, Changed::Unknown) {
        // Its birth comes later, or is being applied by another manager at this moment. Whichever of the
        // two is second, the goodbye written here or the birth written there, sees the other.
        manager.store.set_note(&goodbye(service), "", manager.settings.retention_services).await?;
        gone = change(manager, service, |row| row.on_gone(now)).await?;
    }
    match gone {
        Changed::Saved(row) => {
            manager.tell_service(What::ServiceGone, &row, "it said goodbye".to_owned());
            info!(%service, name = %row.birth.name, "service gone");
        }
        Changed::Nothing => debug!(%service, "a service says goodbye again"),
        Changed::Unknown => debug!(%service, "a service unknown here says goodbye"),
    }
    Ok(())
}

/// The note of a goodbye that came before the birth.
fn goodbye(service: ServiceId) -> String {
    format!("gone/{service}")
}

/// What became of a change of a service.
#[derive(Debug)]
pub(crate) enum Changed {
    /// The service as it was saved.
    Saved(Box<ServiceRow>),
    /// There was nothing to change: another manager has done it, or its reason is gone.
    Nothing,
    Unknown,
}

/// Changes one service by compare-and-set: `change` answers whether there is anything to save.
pub(crate) async fn change(
    manager: &Manager,
    service: ServiceId,
    mut change: impl FnMut(&mut ServiceRow) -> bool + Send,
) -> Result<Changed, StoreError> {
    for _ in 0..CAS_TRIES {
        let Some(mut row) = manager.store.service(Some(service), None).await? else {
            return Ok(Changed::Unknown);
        };
        if !change(&mut row) {
            return Ok(Changed::Nothing);
        }
        if manager.store.save_services(std::slice::from_ref(&row)).await?.is_empty() {
            return Ok(Changed::Saved(Box::new(row)));
        }
    }
    Err(StoreError::Contended(format!("service {service} keeps changing")))
}

/// Whether the newborn comes after this one, which said goodbye itself.
fn returned(row: &ServiceRow, newborn: ServiceId, birth: &Birth) -> bool {
    row.id != newborn
        && row.birth.name == birth.name
        && row.birth.pool == birth.pool
        && row.end.is_some_and(|end| end.how == service::Ended::Gone)
}

/// Tells newborn services what was commanded before they listened.
pub(crate) async fn welcome(manager: &Arc<Manager>, newborns: &[Newborn]) {
    let since = manager.clock.now().minus(WELCOME_WINDOW);
    let stored = async {
        let rows = manager.store.commanded_since(since, WELCOME_MAX).await?;
        let book = fleet::book(manager).await?;
        let ended = manager.store.services(manager.clock.now().minus(RETURNS_WITHIN)).await?.rows;
        Ok::<_, StoreError>((rows, quarantine::suspects(manager).await?, book, ended))
    };
    match stored.await {
        Ok((rows, suspects, book, ended)) => {
            let floors: Vec<Floor> = rows.iter().map(Row::floor).collect();
            for Newborn { service, birth, .. } in newborns {
                let mut welcome = Welcome::new(*service, Vec::new());
                welcome.suspects.clone_from(&suspects);
                welcome.terms = book.get(birth.name.as_str()).map(Orders::terms);
                welcome.returning = ended.iter().any(|row| returned(row, *service, birth));
                telling::welcome_later(manager, &floors, welcome);
            }
        }
        // A service waits for its welcome only briefly, and every floor is repeated anyway.
        Err(error) => warn!(%error, "newborn services are not welcomed"),
    }
}
