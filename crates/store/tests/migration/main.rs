//! Opens databases that an earlier version made, with the rows that it wrote. Each change of the tables must keep them.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use everwatch_core::capacity::supply::Load;
use everwatch_core::clock::Timestamp;
use everwatch_core::id::{Name, Namespace, ObserverId, ObserverRef, Pool};
use everwatch_core::record::health::Health;
use everwatch_core::record::row::Row;
use everwatch_core::record::row_policy::RowPolicy;
use everwatch_core::record::status::Status;
use everwatch_core::wire::report::InventoryRange;
use everwatch_store::{Change, EventFilter, EventRange, Filter, Store, conformance, open};
use sqlx::migrate::Migrator;
use sqlx::{Connection as _, PgConnection, SqliteConnection};
use std::path::Path;
use std::sync::Arc;
use uuid::Uuid;

/// The changes of the tables that the earlier version knew.
const KNOWN: usize = 2;
const ROWS: &str = include_str!("version_2.sql");

/// A database at `url` as the earlier version left it, opened by this version.
async fn opened(url: &str, of: &str) -> Arc<dyn Store> {
    let all = Path::new(env!("CARGO_MANIFEST_DIR")).join("migrations").join(of);
    let mut files: Vec<_> = std::fs::read_dir(all).unwrap().map(|file| file.unwrap().path()).collect();
    files.sort();
    let known = tempfile::tempdir().unwrap();
    for file in &files[..KNOWN] {
        std::fs::copy(file, known.path().join(file.file_name().unwrap())).unwrap();
    }
    let known = Migrator::new(known.path()).await.unwrap();
    macro_rules! write_rows {
        ($connection:ty) => {
            let mut connection = <$connection>::connect(url).await.unwrap();
            known.run(&mut connection).await.unwrap();
            sqlx::raw_sql(ROWS).execute(&mut connection).await.unwrap();
            connection.close().await.unwrap();
        };
    }
    if of == "sqlite" {
        write_rows!(SqliteConnection);
    } else {
        write_rows!(PgConnection);
    }
    open(url, RowPolicy::default()).await.unwrap()
}

async fn found(store: &dyn Store, name: &str) -> Row {
    store.find(&ObserverRef::Name(Namespace::default(), Name::new(name).unwrap())).await.unwrap().unwrap()
}

/// Everything that the earlier version wrote is there, and can be changed.
async fn all_is_kept(store: &dyn Store) {
    let statuses = [
        ("runs", Status::Processing),
        ("paused", Status::Paused),
        ("deleted", Status::Deleted),
        ("waits", Status::Created),
        ("moved", Status::Processing),
    ];
    for (name, status) in statuses {
        let row = found(store, name).await;
        assert_eq!((row.definition.name.as_str(), row.verdict().status), (name, status));
        assert!(row.version > 0 && row.created_at > Timestamp(0), "{row:?}");
    }
    let runs = found(store, "runs").await;
    assert_eq!(runs.definition.labels["app"], "x");
    assert_eq!(runs.definition.spec, serde_json::json!({"every": "1s"}));
    assert_eq!(runs.observed.last_error.as_ref().unwrap().value, "a\0b");

    let default = Pool::default();
    let counts = store.counts().await.unwrap();
    assert_eq!(
        (counts[&(default.clone(), Status::Processing)], counts.values().map(|it| it.weight).sum::<u64>()),
        (light(2), 6)
    );
    assert_eq!(store.health_counts().await.unwrap()[&(default, Health::Running)], 2);
    let all = InventoryRange::ALL;
    assert_eq!(store.held_by(runs.holder().unwrap(), all).await.unwrap(), [runs.id]);
    let labelled = Filter { labels: [("app".into(), "x".into())].into(), ..Filter::default() };
    assert_eq!(store.list(&labelled, None, 10).await.unwrap().total, 1);
    assert_eq!(store.services(Timestamp(0)).await.unwrap().rows.len(), 3);
    let events = store.events(&EventFilter::default(), EventRange::After(0), 10).await.unwrap().events;
    assert!(events.len() == 4 && events[0].observer.is_some(), "{events:?}");

    let forgotten = ObserverId(Uuid::from_u128(0xaa));
    assert_eq!(store.forgotten(&[forgotten, runs.id]).await.unwrap(), [forgotten]);
    assert_eq!(store.notes_under("forgotten/").await.unwrap(), []);
    assert!(store.note("safe_mode").await.unwrap().is_some());

    // A row that could not be read still cannot be, and still has its name.
    assert!(
        store.find(&ObserverRef::Name(Namespace::default(), Name::new("broken").unwrap())).await.is_err()
    );
    assert_eq!(store.unreadable().await.unwrap().len(), 1);

    // An earlier version stored no digests: the range differs from the inventory of the holder until the row is written.
    assert!(runs.digest_is_stale);

    let mut after = runs.clone();
    assert!(after.delete(Timestamp(1_800_000_000_000), &RowPolicy::default()));
    assert_eq!(store.save(&[Change { before: &runs, after: &after }]).await.unwrap(), []);
    let saved = Row { version: runs.version + 1, digest_is_stale: false, ..after };
    assert_eq!(found(store, "runs").await, saved);
    assert_eq!(store.counts().await.unwrap()[&(Pool::default(), Status::OnDeleting)], light(1));
}

/// This number of observers of weight 1.
fn light(number: u64) -> Load {
    Load { number, weight: number }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_of_an_earlier_version_are_kept_on_sqlite() {
    let directory = tempfile::tempdir().unwrap();
    let url = format!("sqlite://{}?mode=rwc", directory.path().join("store.db").display());
    all_is_kept(&*opened(&url, "sqlite").await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_of_an_earlier_version_are_kept_on_postgres() {
    let url = conformance::fresh_postgres().await;
    all_is_kept(&*opened(&url, "postgres").await).await;
}
