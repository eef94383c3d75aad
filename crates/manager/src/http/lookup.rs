//! Reads observers for responses: by id or name, with their holders.

use super::caller;
use super::limits::occupants;
use super::problem::{Code, Problem};
use super::query::{Params, bad};
use crate::context::records::Records;
use everwatch_api::{Observer, ServiceName};
use everwatch_core::id::{Name, Namespace, ObserverRef, Pool, ServiceId};
use everwatch_core::record::row::Row;
use everwatch_store::Place;
use serde_json::Value;
use std::collections::{BTreeSet, HashMap};
use std::time::Duration;
use uuid::Uuid;

/// The observer of this id, or of this name in this namespace.
pub(super) async fn find(records: &Records, (namespace, key): (&Namespace, &str)) -> Result<Row, Problem> {
    // What cannot be a name cannot be there.
    let missing = || not_found(namespace, key);
    let Ok(which) = ObserverRef::parse(key, namespace) else { return Err(missing()) };
    let row = records.store.find(&which).await?.ok_or_else(missing)?;
    check(&row, key)?;
    Ok(row)
}

/// Refuses what the role of the sender does not permit on this observer. If it does not permit to read the observer, the
/// response is the same as for a missing one.
pub(super) fn check(row: &Row, key: &str) -> Result<(), Problem> {
    let hidden =
        |problem| if caller::may_see(row) { problem } else { not_found(&row.definition.namespace, key) };
    caller::check_observer(&row.definition).map_err(hidden)
}

/// Removes the spec from a response, unless the role of the sender permits to read it.
pub(super) fn without_secrets(mut shown: Observer, row: &Row) -> Observer {
    if !caller::may_read_spec(&row.definition) {
        shown.spec = Value::Null;
    }
    shown
}

/// The response for a name that this namespace does not have, or for an id that no namespace has.
pub(super) fn not_found(namespace: &Namespace, key: &str) -> Problem {
    let key: String = key.chars().take(140).collect();
    let place =
        if Uuid::parse_str(&key).is_ok() { String::new() } else { format!(" in namespace {namespace}") };
    Problem::new(Code::NotFound, format!("there is no observer `{key}`{place}"))
}

/// The maximum age of cached services when the room of a pool is shown.
const SERVICES_MAX_AGE: Duration = Duration::from_secs(1);

pub(super) async fn one(records: &Records, row: &Row) -> Result<Observer, Problem> {
    let holder = match row.holder() {
        None => None,
        Some(id) => records.store.service(&id.into()).await?.filter(|service| service.end.is_none()),
    };
    let holder = holder.map(|it| ServiceName { id: it.id.0, name: it.registration.name.to_string() });
    let services = records.services(SERVICES_MAX_AGE).await?;
    let mut shown = Observer::of(row, holder, (&services, records.clock.now()));
    if let Some(Place { ahead, waiting }) = records.store.place(row).await? {
        shown.set_place(ahead, waiting);
    }
    name_paused_pool(&mut shown, row, &*records.paused_pools(SERVICES_MAX_AGE).await?);
    if let Some(key) = row.behind.as_ref().filter(|_| row.is_behind_limit()) {
        let occupants = occupants(records, key).await?;
        if !occupants.is_empty() {
            shown.reason = format!("{}: {occupants}", shown.reason);
        }
    }
    Ok(without_secrets(shown, row))
}

pub(super) async fn describe(records: &Records, rows: &[Row]) -> Result<Vec<Observer>, Problem> {
    let services = records.services(Duration::ZERO).await?;
    let names: HashMap<ServiceId, ServiceName> = services
        .iter()
        .map(|it| (it.id, ServiceName { id: it.id.0, name: it.registration.name.to_string() }))
        .collect();
    let holder = |row: &Row| row.holder().and_then(|id| names.get(&id).cloned());
    let now = records.clock.now();
    let paused = records.paused_pools(SERVICES_MAX_AGE).await?;
    let shown = |row| {
        let mut shown = Observer::of(row, holder(row), (&services, now));
        name_paused_pool(&mut shown, row, &paused);
        without_secrets(shown, row)
    };
    Ok(rows.iter().map(shown).collect())
}

/// Adds to the reason of an observer that waits for a slot that no manager admits it.
fn name_paused_pool(shown: &mut Observer, row: &Row, paused: &BTreeSet<Pool>) {
    let pool = &row.definition.pool;
    if row.is_waiting() && paused.contains(pool) {
        shown.reason = format!("{}; pool {pool} is paused", shown.reason);
    }
}

/// The requested holder, by id, or the newest incarnation of a name.
pub(super) async fn holder(records: &Records, params: &mut Params) -> Result<Option<ServiceId>, Problem> {
    let Some(text) = params.one("service")? else { return Ok(None) };
    if let Ok(id) = text.parse::<ServiceId>() {
        return Ok(Some(id));
    }
    let name = Name::new(&text).map_err(|error| bad("service", error))?;
    let found = records.store.service(&name.into()).await?;
    // A service that does not exist holds nothing.
    Ok(Some(found.map_or(ServiceId(Uuid::nil()), |service| service.id)))
}
