//! The conformance checks of the store port. Each check panics if the store breaks a promise of the port. An
//! implementation conforms if it passes all of them. Each check requires an empty store.

#![expect(clippy::unwrap_used, reason = "a check fails by panicking")]

mod access;
mod backlog;
mod batches;
mod changing;
mod checkpoints;
mod creating;
mod events;
mod fresh;
mod limits;
mod listing;
mod namespaces;
mod notes;
mod rates;
mod rollouts;
mod services;
mod unreadable;
mod versions;

pub use access::*;
pub use backlog::*;
pub use batches::*;
pub use changing::*;
pub use checkpoints::*;
pub use creating::*;
pub use events::*;
pub use fresh::*;
pub use limits::*;
pub use listing::*;
pub use namespaces::*;
pub use notes::*;
pub use rates::*;
pub use rollouts::*;
pub use services::*;
pub use unreadable::*;
pub use versions::*;

use crate::port::{Change, Created, Store, StoreError};
use everwatch_core::capacity::admission::PoolOffers;
use everwatch_core::clock::Timestamp;
use everwatch_core::epoch::Epoch;
use everwatch_core::id::{Name, Namespace, ObserverId, ObserverRef, ServiceId};
use everwatch_core::observer::definition::ObserverDefinition;
use everwatch_core::record::row::Row;
use everwatch_core::record::row_policy::RowPolicy;
use everwatch_core::record::service::ServiceRow;
use everwatch_core::wire::report::{Registration, RunEvent, RunReport};
use serde_json::{Value, json};
use uuid::Uuid;

/// The moment at which the checks take place.
const NOW: Timestamp = Timestamp(1_800_000_000_000);

fn id(number: u128) -> ObserverId {
    ObserverId(Uuid::from_u128(number))
}

fn service_id(number: u128) -> ServiceId {
    ServiceId(Uuid::from_u128(number))
}

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

fn named(text: &str) -> ObserverRef {
    ObserverRef::Name(Namespace::default(), name(text))
}

/// An observer of this body whose message is in its queue, so that its create needs no free slot; created at `NOW` plus
/// its number in milliseconds.
fn observer(number: u128, body: Value) -> Row {
    let mut row = new(number, body);
    row.confirmed(1, row.created_at);
    row
}

/// A new observer of this body.
fn new(number: u128, body: Value) -> Row {
    let definition = ObserverDefinition::parse(body, &name("unnamed")).unwrap();
    let at = Timestamp(NOW.0 + i64::try_from(number).unwrap());
    Row::created(id(number), definition, at, &RowPolicy::default())
}

/// An observer whose message is in its queue.
fn published(number: u128, text: &str) -> Row {
    observer(number, json!({"name": text, "kind": "ticker"}))
}

/// An observer whose create is refused when the pool is full.
fn hasty(number: u128, text: &str) -> Row {
    new(number, json!({"name": text, "kind": "ticker"}))
}

/// A new observer that waits when the pool is full.
fn patient(number: u128, text: &str) -> Row {
    new(number, json!({"name": text, "kind": "ticker", "on_full": "queue"}))
}

/// Creates these rows where nothing is known about the kinds of services.
async fn create(store: &dyn Store, rows: &[Row]) -> Result<Vec<Created>, StoreError> {
    store.create(rows, &PoolOffers::new()).await
}

async fn all_created(store: &dyn Store, rows: &[Row]) {
    assert_eq!(create(store, rows).await.unwrap(), vec![Created::Done; rows.len()]);
}

async fn loaded(store: &dyn Store, number: u128) -> Row {
    store.load(&[id(number)]).await.unwrap().rows.pop().unwrap()
}

/// A save that changes nothing but the version.
fn again(row: &Row) -> Change<'_> {
    Change { before: row, after: row }
}

/// Saves what `change` makes of the stored row.
async fn change(store: &dyn Store, number: u128, change: impl FnOnce(&mut Row)) {
    let before = loaded(store, number).await;
    let mut after = before.clone();
    change(&mut after);
    assert_eq!(store.save(&[Change { before: &before, after: &after }]).await.unwrap(), []);
}

/// A report of the first run of the row's generation.
fn hear(row: &mut Row, service: u128, seq: u64, event: RunEvent) {
    let report = RunReport { id: row.id, epoch: Epoch::new(row.generation, 0), event };
    row.apply(service_id(service), seq, NOW, &report, NOW);
}

fn started() -> RunEvent {
    RunEvent::Started { attempt: 1, started_at: NOW }
}

fn service(number: u128, text: &str, capacity: u32) -> ServiceRow {
    let registration = Registration {
        name: name(text),
        pool: "default".parse().unwrap(),
        capacity,
        kinds: Vec::new(),
        version: "1".into(),
        weight_max: 1,
        message_version: everwatch_core::wire::message::VERSION,
        host: "here".into(),
        labels: [].into(),
        pool_single: false,
        predecessor: None,
    };
    ServiceRow::registered(service_id(number), registration, NOW, NOW)
}
