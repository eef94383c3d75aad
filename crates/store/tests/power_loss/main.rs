//! Checks that a SQLite store keeps everything that it has confirmed across a power loss. The tests keep only
//! the synchronized part of each file and open it as the database of the next process.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod disk;

use disk::Disk;
use everwatch_core::capacity::admission::PoolOffers;
use everwatch_core::clock::Timestamp;
use everwatch_core::epoch::Epoch;
use everwatch_core::id::{Name, ObserverId, ServiceId};
use everwatch_core::observer::definition::ObserverDefinition;
use everwatch_core::record::row::Row;
use everwatch_core::record::row_policy::RowPolicy;
use everwatch_core::record::service::ServiceRow;
use everwatch_core::record::status::Status;
use everwatch_core::wire::report::{Registration, RunEvent, RunReport};
use everwatch_store::{Change, Created, Parked, Store, open};
use serde_json::json;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use uuid::Uuid;

const NOW: Timestamp = Timestamp(1_800_000_000_000);
const HOUR: Duration = Duration::from_secs(3600);

async fn opened(directory: &Path) -> Arc<dyn Store> {
    let url = format!("sqlite://{}", directory.join("store.db").display());
    open(&url, RowPolicy::default()).await.unwrap()
}

/// A store on a disk that can lose its power.
struct Machine {
    disk: Disk,
    store: Arc<dyn Store>,
}

impl Machine {
    async fn started() -> Self {
        let disk = Disk::new();
        let store = opened(disk.path()).await;
        Self { disk, store }
    }

    /// The store that the next process finds if the power fails at this moment. This store keeps running.
    async fn after_power_loss(&self) -> Self {
        let disk = self.disk.after_power_loss();
        let store = opened(disk.path()).await;
        Self { disk, store }
    }

    async fn row(&self, number: u128) -> Row {
        self.store.load(&[id(number)]).await.unwrap().rows.pop().expect("the observer is there")
    }

    /// Applies `change` to the stored row, saves it, and checks that the result survives a power loss.
    async fn changes(&self, number: u128, change: impl FnOnce(&mut Row)) {
        let before = self.row(number).await;
        let mut row = before.clone();
        change(&mut row);
        assert_eq!(self.store.save(&[Change { before: &before, after: &row }]).await.unwrap(), []);
        assert_eq!(self.after_power_loss().await.row(number).await, Row { version: row.version + 1, ..row });
    }
}

fn id(number: u128) -> ObserverId {
    ObserverId(Uuid::from_u128(number))
}

fn observer(number: u128, spec: &str) -> Row {
    let body =
        json!({"name": format!("o{number}"), "kind": "ticker", "on_full": "queue", "spec": {"text": spec}});
    let definition = ObserverDefinition::parse(body, &Name::new("unnamed").unwrap()).unwrap();
    let mut row = Row::created(id(number), definition, NOW, &RowPolicy::default());
    row.confirmed(1, NOW);
    row
}

fn hear(row: &mut Row, seq: u64, event: RunEvent) {
    let report = RunReport { id: row.id, epoch: Epoch::new(row.generation, 0), event };
    row.apply(ServiceId(Uuid::from_u128(9)), seq, NOW, &report, NOW);
}

fn service(number: u128) -> ServiceRow {
    let registration = Registration {
        name: Name::new("s").unwrap(),
        pool: "default".parse().unwrap(),
        capacity: 4,
        kinds: Vec::new(),
        version: "1".into(),
        weight_max: 1,
        message_version: everwatch_core::wire::message::VERSION,
        host: "here".into(),
        labels: [].into(),
        pool_single: false,
        predecessor: None,
    };
    ServiceRow::registered(ServiceId(Uuid::from_u128(number)), registration, NOW, NOW)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn observers_are_as_the_last_answer_said() {
    let machine = Machine::started().await;
    let policy = RowPolicy::default();
    assert_eq!(
        machine.store.create(&[observer(1, ""), observer(2, "")], &PoolOffers::new()).await.unwrap(),
        [Created::Done; 2]
    );
    let survivor = machine.after_power_loss().await;
    assert_eq!([survivor.row(1).await, survivor.row(2).await], [observer(1, ""), observer(2, "")]);
    // A manager must not raise a generation to the same number twice.
    machine.changes(1, |row| row.republish(NOW, &policy)).await;
    let started = RunEvent::Started { attempt: 1, started_at: NOW };
    machine.changes(1, |row| hear(row, 1, started)).await;
    machine
        .changes(1, |row| {
            row.delete(NOW, &policy);
        })
        .await;
    machine.changes(1, |row| hear(row, 2, RunEvent::Stopped)).await;
    let row = machine.row(1).await;
    assert_eq!(row.verdict().status, Status::Deleted);
    machine.store.forget(&[(row.id, row.version)]).await.unwrap();
    let survivor = machine.after_power_loss().await;
    assert_eq!(survivor.store.load(&[id(1), id(2)]).await.unwrap().rows, [observer(2, "")]);
    assert_eq!(survivor.store.forgotten(&[id(1)]).await.unwrap(), [id(1)]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn notes_services_and_parked_messages_are_as_the_last_answer_said() {
    let machine = Machine::started().await;
    let note = async |expected: Option<&str>| {
        let survivor = machine.after_power_loss().await;
        assert_eq!(survivor.store.note("hold").await.unwrap().as_deref(), expected);
    };
    assert_eq!(machine.store.claim("hold", "a", HOUR).await.unwrap(), "a");
    note(Some("a")).await;
    assert!(machine.store.swap_note("hold", "a", "b").await.unwrap());
    note(Some("b")).await;
    machine.store.set_note("hold", "c", HOUR).await.unwrap();
    note(Some("c")).await;
    machine.store.set_note("hold", "", Duration::ZERO).await.unwrap();
    note(None).await;

    assert_eq!(machine.store.save_services(&[service(1)]).await.unwrap(), []);
    let survivor = machine.after_power_loss().await;
    assert_eq!(survivor.store.services(NOW).await.unwrap().rows, [service(1)]);

    let parked = Parked { id: 0, queue: "state".into(), reason: "no JSON".into(), body: vec![1, 2], at: NOW };
    machine.store.park(&[parked]).await.unwrap();
    let survivor = machine.after_power_loss().await;
    assert_eq!(survivor.store.parked(None, 9).await.unwrap().1, 1);
}

/// SQLite writes the log back into the database file every 32 MB and when the store closes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_while_the_log_is_written_back() {
    const BATCHES: u128 = 12;
    const BATCH: u128 = 400;
    let machine = Machine::started().await;
    let spec = "x".repeat(8000);
    for batch in 0..BATCHES {
        let rows: Vec<Row> =
            (batch * BATCH..(batch + 1) * BATCH).map(|number| observer(number, &spec)).collect();
        assert_eq!(
            machine.store.create(&rows, &PoolOffers::new()).await.unwrap(),
            vec![Created::Done; rows.len()]
        );
        if batch % 3 == 2 {
            let survivor = machine.after_power_loss().await;
            let ids: Vec<ObserverId> = (0..(batch + 1) * BATCH).map(id).collect();
            assert_eq!(survivor.store.load(&ids).await.unwrap().rows.len(), ids.len());
        }
    }
    let written_back = machine.disk.synchronized("store.db");
    assert!(written_back > 8_000_000, "the log was never written back: {written_back} bytes");
    machine.store.close().await;
    let survivor = machine.after_power_loss().await;
    assert_eq!(survivor.row(BATCH * BATCHES - 1).await, observer(BATCH * BATCHES - 1, &spec));
    // Writes after a power loss are durable too, and so are writes after the next one.
    survivor.changes(1, |row| hear(row, 1, RunEvent::Stopped)).await;
}
