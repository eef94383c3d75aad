//! Prints what a create and a move of an observer cost in processor time, statement by statement.
//!
//! `cargo run --release -p everwatch-store --example moves -- 10000 40000 [postgres://…]`: for each number of observers,
//! creates them in an empty database, then moves all of them eight times, in batches of 500, as a manager does after the
//! death of a service. The figures are microseconds of this process; of PostgreSQL, the server's time comes on top.

use everwatch_core::capacity::admission::PoolOffers;
use everwatch_core::clock::Timestamp;
use everwatch_core::epoch::Epoch;
use everwatch_core::id::{Name, ObserverId, ServiceId};
use everwatch_core::observer::definition::ObserverDefinition;
use everwatch_core::record::events::{EventKind, happenings};
use everwatch_core::record::row::Row;
use everwatch_core::record::row_policy::RowPolicy;
use everwatch_core::wire::report::{RunEvent, RunReport};
use everwatch_store::{Change, Event, Filter, Named, Store};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike as _;
use serde_json::json;
use std::error::Error;
use uuid::Uuid;

const BATCH: usize = 500;
const MOVES: u32 = 8;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let (counts, urls): (Vec<_>, Vec<_>) = std::env::args().skip(1).partition(|it| it.parse::<u32>().is_ok());
    let folder = tempfile::tempdir()?;
    println!("observers  create   load   save events  lists   wall of a move (µs)");
    for count in counts.iter().map(|it| it.parse::<u32>()) {
        let count = count?;
        let own = || format!("sqlite://{}", folder.path().join(format!("{count}.db")).display());
        let url = urls.first().cloned().unwrap_or_else(own);
        let store = everwatch_store::open(&url, RowPolicy::default()).await?;
        measure(store.as_ref(), count).await?;
        store.close().await;
    }
    Ok(())
}

async fn measure(store: &dyn Store, count: u32) -> Result<(), Box<dyn Error>> {
    let policy = RowPolicy::default();
    let before = processor()?;
    let mut ids = Vec::new();
    for part in (0..count).collect::<Vec<_>>().chunks(BATCH) {
        let rows = part.iter().map(|_| row(&policy)).collect::<Result<Vec<_>, _>>()?;
        store.create(&rows, &PoolOffers::new()).await?;
        ids.extend(rows.iter().map(|row| row.id));
    }
    let created = processor()? - before;
    let (mut load, mut save, mut record, mut list) = (0, 0, 0, 0);
    let began = std::time::Instant::now();
    for round in 1..=MOVES {
        let service = ServiceId(Uuid::now_v7());
        for (number, part) in ids.chunks(BATCH).enumerate() {
            let before = processor()?;
            let rows = store.load(part).await?.rows;
            let loaded = processor()?;
            let moved: Vec<(Row, Row)> =
                rows.into_iter().map(|row| (row.clone(), started(row, service, round))).collect();
            let changes: Vec<Change<'_>> =
                moved.iter().map(|(before, after)| Change { before, after }).collect();
            let applied = processor()?;
            store.save(&changes).await?;
            let saved = processor()?;
            let told: Vec<Event> =
                moved.iter().flat_map(|(before, after)| events(before, after, service)).collect();
            store.record(&told).await?;
            let recorded = processor()?;
            if number % 5 == 0 {
                store.list(&Filter { service: Some(service), ..Filter::default() }, None, 1).await?;
            }
            list += processor()? - recorded;
            load += loaded - before;
            save += saved - applied;
            record += recorded - saved;
        }
    }
    let moves = i64::from(count * MOVES);
    let wall = i64::try_from(began.elapsed().as_micros())?;
    let each = |sum: i64| sum / moves;
    println!(
        "{count:>9} {:>7} {:>6} {:>6} {:>6} {:>6} {:>6}",
        created / i64::from(count),
        each(load),
        each(save),
        each(record),
        each(list),
        each(wall)
    );
    Ok(())
}

fn row(policy: &RowPolicy) -> Result<Row, Box<dyn Error>> {
    let id = Uuid::now_v7();
    let name = Name::new(&format!("o-{id}"))?;
    let observer = json!({"kind": "ticker", "spec": {"every": "1h"}, "on_full": "queue"});
    let definition = ObserverDefinition::parse(observer, &name).map_err(|_| "the definition is invalid")?;
    Ok(Row::created(ObserverId(id), definition, now(), policy))
}

fn started(mut row: Row, service: ServiceId, round: u32) -> Row {
    let event = RunEvent::Started { attempt: 1, started_at: now() };
    let report = RunReport { id: row.id, epoch: Epoch::new(1, round - 1), event };
    row.apply(service, u64::from(round) * 1000, now(), &report, now());
    row
}

fn events(before: &Row, after: &Row, service: ServiceId) -> Vec<Event> {
    let event = |kind: EventKind, text: String| Event {
        id: 0,
        at: now(),
        kind,
        observer: Some(Named::observer(after)),
        service: Some(Named::service(service, "service-1")),
        epoch: Some(after.epoch().into()),
        text,
        from: None,
        gap_ms: Some(120),
        gap_is_bound: false,
        overlap_ms: Some(0),
        by: None,
        burst: None,
        detail: true,
    };
    happenings(Some(before), after).into_iter().map(|it| event(it.kind, it.text)).collect()
}

fn now() -> Timestamp {
    everwatch_core::clock::now()
}

/// Microseconds of processor time of this process so far.
fn processor() -> Result<i64, Box<dyn Error>> {
    let usage = getrusage(UsageWho::RUSAGE_SELF)?;
    Ok((usage.user_time() + usage.system_time()).num_microseconds())
}
