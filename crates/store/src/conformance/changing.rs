//! Checks of `save`, and of the reads that find rows on which managers must act.

use super::*;
use everwatch_core::capacity::placement::Refused;
use everwatch_core::wire::report::{InventoryDigest, InventoryRange, RangeDigest, RangeTotal};

use std::collections::HashSet;
use std::time::Duration;

fn ids(rows: &[Row]) -> Vec<ObserverId> {
    rows.iter().map(|row| row.id).collect()
}

pub async fn a_save_stands_under_the_next_version(store: &dyn Store) {
    all_created(store, &[published(1, "a")]).await;
    change(store, 1, |row| hear(row, 9, 1, started())).await;
    let row = loaded(store, 1).await;
    assert_eq!((row.version, row.observed.holder()), (2, Some(service_id(9))));
}

pub async fn a_save_of_an_old_version_changes_nothing(store: &dyn Store) {
    all_created(store, &[published(1, "a"), published(2, "b")]).await;
    let old = loaded(store, 1).await;
    change(store, 1, |row| hear(row, 9, 1, started())).await;
    let now = loaded(store, 1).await;
    let other = loaded(store, 2).await;
    // The store saves the other row of the batch anyway; a row that does not exist counts as changed.
    let late = store.save(&[again(&old), again(&other), again(&published(3, "c"))]).await.unwrap();
    assert_eq!(late, [id(1), id(3)]);
    assert_eq!(loaded(store, 1).await, now);
    assert_eq!(loaded(store, 2).await.version, 2);
}

pub async fn the_second_of_one_id_in_a_batch_comes_too_late(store: &dyn Store) {
    all_created(store, &[published(1, "a")]).await;
    let row = loaded(store, 1).await;
    assert_eq!(store.save(&[again(&row), again(&row)]).await.unwrap(), [id(1)]);
    let now = loaded(store, 1).await;
    assert_eq!(now.version, 2);
    // Also if the first one is that of an old version.
    assert_eq!(store.save(&[again(&row), again(&now)]).await.unwrap(), [id(1), id(1)]);
    assert_eq!(loaded(store, 1).await, now);
}

pub async fn of_savers_side_by_side_each_row_has_one(store: &dyn Store) {
    let rows: Vec<Row> = (1..=30).map(|number| published(number, &format!("n-{number}"))).collect();
    all_created(store, &rows).await;
    for _ in 0..10 {
        let ids: Vec<ObserverId> = rows.iter().map(|row| row.id).collect();
        let mine = store.load(&ids).await.unwrap().rows;
        let mut theirs = mine.clone();
        theirs.reverse();
        let [mine, theirs] = [&mine, &theirs].map(|rows| rows.iter().map(again).collect::<Vec<_>>());
        let (mine, theirs) = tokio::join!(store.save(&mine), store.save(&theirs));
        let mut late = [mine.unwrap(), theirs.unwrap()].concat();
        late.sort_unstable();
        assert_eq!(late, ids);
    }
}

/// A client that disconnects cancels its request at any point, including the middle of a save.
pub async fn a_client_that_disconnects_during_a_save_blocks_no_other(store: &dyn Store) {
    let rows: Vec<Row> = (1..=300).map(|number| published(number, &format!("n-{number}"))).collect();
    all_created(store, &rows).await;
    for patience in 0..40 {
        let rows = store.load(&ids(&rows)).await.unwrap().rows;
        let changes: Vec<Change<'_>> = rows.iter().map(again).collect();
        let patience = Duration::from_millis(patience % 10);
        let _left_or_done = tokio::time::timeout(patience, store.save(&changes)).await;
        // A server may complete a statement after its client has disconnected, even before the first retry.
        let another = async {
            loop {
                let before = loaded(store, 1).await;
                let mut after = before.clone();
                hear(&mut after, 9, 1, started());
                if store.save(&[Change { before: &before, after: &after }]).await.unwrap().is_empty() {
                    return;
                }
            }
        };
        tokio::time::timeout(Duration::from_secs(10), another).await.expect("nobody stands in the way");
    }
    let others = store.load(&ids(&rows[1..])).await.unwrap().rows;
    let versions: HashSet<i64> = others.iter().map(|row| row.version).collect();
    assert_eq!(versions.len(), 1, "all of a batch or nothing: {versions:?}");
}

pub async fn error_texts_may_hold_anything(store: &dyn Store) {
    all_created(store, &[published(1, "a")]).await;
    let error = "exit 1: \u{0} \\u0000 \u{feff} ' \" {}".to_owned();
    change(store, 1, |row| {
        let next_at = NOW;
        hear(row, 9, 1, RunEvent::Errored { attempt: 1, error: error.clone(), next_at });
    })
    .await;
    assert_eq!(loaded(store, 1).await.observed.last_error.unwrap().value, error);
}

pub async fn due_rows_come_oldest_first(store: &dyn Store) {
    assert_eq!(store.save_services(&[service(1, "s1", 4)]).await.unwrap(), []);
    let rows = [hasty(3, "c"), hasty(1, "a"), hasty(2, "b"), hasty(4, "d")];
    all_created(store, &rows).await;
    change(store, 4, |row| {
        row.confirmed(1, NOW);
    })
    .await;
    let lease = RowPolicy::default().lease;
    assert_eq!(store.due(NOW, 10).await.unwrap(), []);
    let two = store.due(NOW.plus(lease + Duration::from_millis(2)), 10).await.unwrap();
    assert_eq!(ids(&two), [id(1), id(2)]);
    let later = NOW.plus(lease + Duration::from_secs(1));
    assert_eq!(ids(&store.due(later, 10).await.unwrap()), [id(1), id(2), id(3)]);
    assert_eq!(ids(&store.due(later, 2).await.unwrap()), [id(1), id(2)]);
}

pub async fn commands_are_remembered_even_once_they_are_answered(store: &dyn Store) {
    all_created(store, &[published(1, "a"), published(2, "b"), published(3, "c")]).await;
    let delete = |number: u128, at: i64| {
        change(store, number, move |row| {
            hear(row, 9, 1, started());
            row.delete(Timestamp(NOW.0 + at), &RowPolicy::default());
        })
    };
    delete(1, 20).await;
    delete(2, 10).await;
    delete(3, 30).await;
    change(store, 3, |row| hear(row, 9, 2, RunEvent::Stopped)).await;
    let since = |at: i64| store.commanded_since(Timestamp(NOW.0 + at), 10);
    assert_eq!(ids(&since(0).await.unwrap()), [id(3), id(1), id(2)]);
    assert_eq!(ids(&since(20).await.unwrap()), [id(3), id(1)]);
    assert_eq!(since(31).await.unwrap(), []);
    assert_eq!(ids(&store.commanded_since(NOW, 1).await.unwrap()), [id(3)]);
}

pub async fn what_is_to_end_is_found_until_it_has(store: &dyn Store) {
    let rows: Vec<Row> = (1..6).map(|number| published(number, &format!("o{number}"))).collect();
    all_created(store, &rows).await;
    let policy = &RowPolicy::default();
    for number in 1..6 {
        change(store, number, |row| hear(row, 9, 1, started())).await;
    }
    let told = |seconds: u64| NOW.plus(Duration::from_secs(seconds));
    change(store, 1, |row| assert!(row.delete(told(3), policy))).await;
    change(store, 2, |row| assert_eq!(row.pause(told(1), policy), Ok(true))).await;
    change(store, 3, |row| assert_eq!(row.restart(told(2), policy), Ok(true))).await;
    change(store, 4, |row| assert!(row.delete(told(0), policy))).await;
    assert_eq!(ids(&store.ending(10).await.unwrap()), [id(4), id(2), id(3), id(1)]);
    assert_eq!(ids(&store.ending(2).await.unwrap()), [id(4), id(2)]);
    for number in 2..5 {
        change(store, number, |row| hear(row, 9, 2, RunEvent::Stopped)).await;
    }
    assert_eq!(ids(&store.ending(10).await.unwrap()), [id(1)]);
}

pub async fn what_no_service_can_run_is_counted_and_found(store: &dyn Store) {
    let rows: Vec<Row> = (1..6).map(|number| published(number, &format!("o{number}"))).collect();
    all_created(store, &rows).await;
    let refused = || RunEvent::Refused { why: "kind".to_owned() };
    let held = || RunEvent::Held { reason: "kind".to_owned(), refuses: true };
    change(store, 1, |row| hear(row, 9, 1, started())).await;
    change(store, 2, |row| hear(row, 9, 1, held())).await;
    for number in 3..5 {
        change(store, number, |row| hear(row, 9, 1, refused())).await;
    }
    let group = |withdrawn, count| Refused {
        pool: rows[0].definition.pool.clone(),
        kind: rows[0].definition.kind.clone(),
        withdrawn,
        count,
    };
    assert_eq!(store.refused().await.unwrap(), [group(false, 3)]);
    assert_eq!(ids(&store.refused_rows(&group(false, 3), 10).await.unwrap()), [id(2), id(3), id(4)]);
    assert_eq!(ids(&store.refused_rows(&group(false, 0), 2).await.unwrap()), [id(2), id(3)], "the oldest");
    let later = NOW.plus(Duration::from_secs(60));
    change(store, 3, |row| assert!(row.withdraw(later, &RowPolicy::default()))).await;
    assert_eq!(store.refused().await.unwrap(), [group(false, 2)]);
    assert_eq!(ids(&store.ending(10).await.unwrap()), [id(3)], "its message may be anywhere");
    change(store, 3, |row| hear(row, 9, 2, RunEvent::Stopped)).await;
    assert_eq!(store.refused().await.unwrap(), [group(false, 2), group(true, 1)]);
    assert_eq!(ids(&store.refused_rows(&group(true, 1), 10).await.unwrap()), [id(3)]);
    let unheld = store.unheld(&rows[0].definition.pool, &[service_id(9)], 10).await.unwrap();
    assert!(!ids(&unheld).contains(&id(3)) && ids(&unheld).contains(&id(5)), "it is not missed");
    change(store, 3, |row| assert!(row.release(later))).await;
    assert_eq!(store.refused().await.unwrap(), [group(false, 2)]);
}

pub async fn only_the_version_that_was_looked_at_is_forgotten(store: &dyn Store) {
    all_created(store, &[published(1, "a"), published(2, "b")]).await;
    change(store, 2, |row| hear(row, 9, 1, started())).await;
    store.forget(&[(id(1), 1), (id(2), 1), (id(3), 1)]).await.unwrap();
    assert_eq!(ids(&store.load(&[id(1), id(2)]).await.unwrap().rows), [id(2)]);
    all_created(store, &[published(4, "a")]).await;
}

pub async fn who_was_forgotten_is_remembered_by_id(store: &dyn Store) {
    all_created(store, &[published(1, "a"), published(2, "b"), published(3, "c")]).await;
    store.forget(&[(id(1), 1), (id(2), 7), (id(3), 1), (id(4), 1)]).await.unwrap();
    let mut forgotten = store.forgotten(&[id(1), id(2), id(3), id(4)]).await.unwrap();
    forgotten.sort_unstable();
    assert_eq!(forgotten, [id(1), id(3)]);
    assert_eq!(store.forgotten(&[id(3)]).await.unwrap(), [id(3)]);
    assert_eq!(store.forgotten(&[]).await.unwrap(), []);
    assert_eq!(store.forget_notes().await.unwrap(), 0, "not for a year");
}

pub async fn what_a_service_holds_is_found_by_a_stretch_of_ids(store: &dyn Store) {
    let rows: Vec<Row> = (1..7).map(|number| published(number, &format!("o{number}"))).collect();
    all_created(store, &rows).await;
    for number in 1..6 {
        change(store, number, |row| hear(row, if number == 2 { 8 } else { 9 }, 1, started())).await;
    }
    change(store, 4, |row| assert!(row.on_unlisted(service_id(9), 2, NOW))).await;
    let held = async |after: Option<u128>, upto: Option<u128>| {
        let range = InventoryRange { after: after.map(id), upto: upto.map(id) };
        let mut held = store.held_by(service_id(9), range).await.unwrap();
        held.sort_unstable();
        held
    };
    assert_eq!(held(None, None).await, [id(1), id(3), id(5)]);
    assert_eq!(held(Some(1), None).await, [id(3), id(5)]);
    assert_eq!(held(None, Some(3)).await, [id(1), id(3)]);
    assert_eq!(held(Some(1), Some(3)).await, [id(3)]);
    assert_eq!(held(Some(5), None).await, []);
}

pub async fn the_totals_of_a_service_are_those_of_its_inventory(store: &dyn Store) {
    let rows: Vec<Row> = (1..7).map(|number| published(number, &format!("o{number}"))).collect();
    all_created(store, &rows).await;
    let held = RunEvent::Held { reason: "r".into(), refuses: true };
    let errored = RunEvent::Errored { attempt: 1, error: "e".into(), next_at: Timestamp(NOW.0 + 5) };
    let events = [started(), held, errored, started(), started(), RunEvent::HandedOver];
    for (number, event) in (1..).zip(&events) {
        let service = if number == 4 { 8 } else { 9 };
        change(store, number, |row| hear(row, service, 1, event.clone())).await;
    }
    let entry = |number: u128| {
        let event = events[usize::try_from(number - 1).unwrap()].clone();
        RunReport { id: id(number), epoch: Epoch::new(1, 0), event }
    };
    let sum = |numbers: &[u128]| numbers.iter().map(|number| entry(*number).digest()).sum::<u64>();
    let range =
        |after: Option<u128>, upto: Option<u128>| InventoryRange { after: after.map(id), upto: upto.map(id) };
    let total = |numbers: &[u128]| RangeTotal { entries: numbers.len() as u64, sum: sum(numbers) };
    let ranges = [range(None, None), range(Some(1), Some(3)), range(None, Some(1)), range(Some(5), None)];
    let expected = [total(&[1, 2, 3, 5]), total(&[2, 3]), total(&[1]), total(&[])];
    assert_eq!(store.held_totals(service_id(9), &ranges).await.unwrap(), expected);
    assert_eq!(store.held_totals(service_id(9), &[]).await.unwrap(), []);
    assert_eq!(store.held_totals(service_id(7), &ranges[..1]).await.unwrap(), [total(&[])]);
    let digest = InventoryDigest::of(1, [1, 2, 3, 5].map(entry).to_vec());
    assert_eq!(digest.ranges, [RangeDigest { range: ranges[0], total: expected[0] }]);
    assert!(!loaded(store, 1).await.digest_is_stale);
}

pub async fn the_clock_goes_forward(store: &dyn Store) {
    let first = store.now().await.unwrap();
    let second = store.now().await.unwrap();
    assert!(first <= second && first.0 > 1_700_000_000_000, "{first} {second}");
}

pub async fn the_tables_are_as_new_as_the_program(store: &dyn Store) {
    let schema = store.schema().await.unwrap();
    assert!(schema.found == schema.known && schema.known >= 2, "{schema:?}");
}
