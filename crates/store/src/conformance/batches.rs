//! Checks of batches.

use super::*;
use crate::port::{BatchCreated, BatchPart, LimitDeleted};
use everwatch_core::batch::{Batch, BatchState, Counts, OPEN_MAX, Sample};
use everwatch_core::id::{BatchId, BatchRef, LimitKey, LimitPattern};
use everwatch_core::record::row::Membership;
use everwatch_core::record::status::Status;

fn batch_id(number: u128) -> BatchId {
    BatchId(Uuid::from_u128(number))
}

fn batch(number: u128, text: &str, total: u32) -> Batch {
    let at = Timestamp(NOW.0 + i64::try_from(number).unwrap());
    Batch {
        namespace: Namespace::default(),
        id: batch_id(number),
        version: 1,
        touched_at: at,
        name: name(text),
        total,
        max_running: None,
        state: BatchState::Creating,
        reason: None,
        by: Some("ada".to_owned()),
        created_at: at,
        modified_at: at,
        ended_at: None,
        retried_before: None,
        completions: 0,
        outbox: Vec::new(),
        samples: vec![Sample { at, settled: 0 }],
        counts: Counts::new(),
    }
}

/// A member whose message is in its queue.
fn member(batch: u128, place: u32) -> Row {
    let number = u128::from(place) + 1;
    let membership = Membership { batch: batch_id(batch), place };
    Row { batch: Some(membership), ..published(number, &format!("o{number}")) }
}

async fn stored_batch(store: &dyn Store, batch: Batch) -> Batch {
    assert_eq!(store.create_batch(&batch).await.unwrap(), BatchCreated::Done);
    batch
}

async fn stored_members(store: &dyn Store, batch: u128, rows: &[Row]) -> Option<Vec<Created>> {
    store.create_members(batch_id(batch), rows, &PoolOffers::new()).await.unwrap()
}

async fn found(store: &dyn Store, number: u128) -> Option<Batch> {
    store.batch(&BatchRef::Id(batch_id(number))).await.unwrap()
}

async fn places(store: &dyn Store, statuses: &[Status], from: u32, most: usize) -> Vec<u32> {
    let part = BatchPart { batch: batch_id(100), statuses, from, most };
    store.batch_members(&part).await.unwrap().iter().map(|row| row.batch.unwrap().place).collect()
}

pub async fn a_batch_is_found_by_id_and_by_name(store: &dyn Store) {
    let first = stored_batch(store, batch(1, "first", 3)).await;
    assert_eq!(found(store, 1).await.as_ref(), Some(&first));
    assert_eq!(found(store, 9).await, None);
    // The same request, sent twice, creates one batch.
    assert_eq!(store.create_batch(&first).await.unwrap(), BatchCreated::Exists);
    assert_eq!(store.create_batch(&batch(2, "first", 3)).await.unwrap(), BatchCreated::NameTaken);
    let over = Batch { state: BatchState::Completed, ended_at: Some(NOW), ..first.clone() };
    assert!(store.save_batch(&over).await.unwrap());
    let second = stored_batch(store, batch(3, "first", 3)).await;
    assert_eq!(
        store.batch(&BatchRef::Name(Namespace::default(), name("first"))).await.unwrap(),
        Some(second.clone())
    );
    assert_eq!(store.batch(&BatchRef::Name(Namespace::default(), name("other"))).await.unwrap(), None);
    let over = Batch { version: 2, ..over };
    assert_eq!(store.batches(9).await.unwrap(), [second.clone(), over]);
    assert_eq!(store.batches(1).await.unwrap(), std::slice::from_ref(&second));
    assert_eq!(store.open_batches().await.unwrap(), [second]);
}

pub async fn a_batch_is_saved_by_compare_and_set(store: &dyn Store) {
    let it = stored_batch(store, batch(1, "b", 3)).await;
    let running = Batch { state: BatchState::Running, ..it.clone() };
    assert!(store.save_batch(&running).await.unwrap());
    assert!(!store.save_batch(&it).await.unwrap());
    assert_eq!(found(store, 1).await, Some(Batch { version: 2, ..running.clone() }));
    // One that is over is open while a completion is to be published.
    let completed = everwatch_core::wire::batch::BatchCompleted {
        namespace: Namespace::default(),
        batch: it.id,
        name: it.name.clone(),
        completion: 1,
        members: 3,
        counts: [("Completed".to_owned(), 3)].into(),
        created_at: it.created_at,
        completed_at: NOW,
    };
    let over = Batch { version: 2, state: BatchState::Completed, ended_at: Some(NOW), ..running };
    assert!(store.save_batch(&Batch { outbox: vec![completed], ..over.clone() }).await.unwrap());
    assert_eq!(store.open_batches().await.unwrap()[0].outbox.len(), 1);
    assert!(store.save_batch(&Batch { version: 3, ..over }).await.unwrap());
    assert_eq!(store.open_batches().await.unwrap(), []);
}

pub async fn members_are_stored_while_their_batch_is_being_created(store: &dyn Store) {
    assert_eq!(stored_members(store, 100, &[member(100, 0)]).await, None);
    let it = stored_batch(store, Batch { touched_at: Timestamp(1), ..batch(100, "b", 4) }).await;
    let rows: Vec<Row> = (0..3).map(|place| member(100, place)).collect();
    assert_eq!(stored_members(store, 100, &rows[..2]).await, Some(vec![Created::Done; 2]));
    // The same request, sent again, stores none twice.
    let again = stored_members(store, 100, &rows).await.unwrap();
    assert_eq!(again, [Created::NameTaken, Created::NameTaken, Created::Done]);
    assert_eq!(loaded(store, 3).await.batch, rows[2].batch);
    let touched = found(store, 100).await.unwrap();
    assert!(touched.touched_at > it.touched_at && touched.version == 1);
    // A save of what was read before a part was stored does not take that back.
    assert!(store.save_batch(&Batch { state: BatchState::Running, ..it }).await.unwrap());
    assert_eq!(found(store, 100).await.unwrap().touched_at, touched.touched_at);
    assert_eq!(stored_members(store, 100, &[member(100, 3)]).await, None);
    assert_eq!(places(store, &[], 0, 9).await, [0, 1, 2]);
}

pub async fn members_are_counted_and_listed_by_status(store: &dyn Store) {
    stored_batch(store, batch(100, "b", 5)).await;
    stored_batch(store, batch(200, "c", 5)).await;
    let rows: Vec<Row> = (0..5).map(|place| member(100, place)).collect();
    stored_members(store, 100, &rows).await.unwrap();
    all_created(store, &[published(50, "alone")]).await;
    for number in [2, 4] {
        change(store, number, |row| hear(row, 1, 1, RunEvent::Completed)).await;
    }
    change(store, 5, |row| hear(row, 1, 1, RunEvent::Failed { error: "no".to_owned(), attempts: 1 })).await;
    let counts = store.batch_counts(&[batch_id(100), batch_id(200), batch_id(300)]).await.unwrap();
    let expected = [(Status::Created, 2), (Status::Completed, 2), (Status::Failed, 1)].into();
    assert_eq!(counts[&batch_id(100)], expected);
    assert_eq!((counts[&batch_id(200)].len(), counts[&batch_id(300)].len()), (0, 0));
    assert_eq!(places(store, &[], 1, 3).await, [1, 2, 3]);
    assert_eq!(places(store, &[Status::Completed, Status::Failed], 0, 9).await, [1, 3, 4]);
    assert_eq!(places(store, &[Status::Completed], 2, 9).await, [3]);
    // Ended members are not due.
    let later = Timestamp(NOW.0 + 365 * 86_400_000);
    let due: Vec<_> = store.due(later, 9).await.unwrap().iter().map(|row| row.id.0.as_u128()).collect();
    assert!(due.iter().all(|number| ![2, 4, 5].contains(number)), "{due:?}");
}

pub async fn names_are_taken_by_live_observers_outside_of_the_batch(store: &dyn Store) {
    stored_batch(store, batch(100, "b", 2)).await;
    stored_members(store, 100, &[member(100, 0)]).await.unwrap();
    all_created(store, &[published(50, "alone"), published(51, "gone")]).await;
    change(store, 51, |row| hear(row, 1, 1, RunEvent::Completed)).await;
    change(store, 51, |row| assert!(row.delete(NOW, &RowPolicy::default()))).await;
    let names = ["o1", "alone", "gone", "free"].map(String::from);
    let names = &names;
    let taken = |batch| async move { store.taken_names(names, batch_id(batch)).await.unwrap() };
    assert_eq!(taken(100).await, [name("alone")]);
    assert_eq!(taken(200).await, [name("alone"), name("o1")]);
}

pub async fn results_are_read_together(store: &dyn Store) {
    all_created(store, &[published(1, "a"), published(2, "b"), published(3, "c")]).await;
    let result = |number: u128| crate::port::ObserverResult {
        id: id(number),
        epoch: Epoch::new(1, 0),
        value: format!("{{\"n\":{number}}}"),
    };
    store.save_results(&[result(1), result(3)]).await.unwrap();
    let mut found = store.results(&[id(1), id(2), id(3)]).await.unwrap();
    found.sort_by_key(|it| it.id);
    assert_eq!(found, [result(1), result(3)]);
}

pub async fn the_limit_of_a_batch_lives_as_long_as_the_batch(store: &dyn Store) {
    let it = stored_batch(store, Batch { max_running: Some(2), ..batch(100, "b", 2) }).await;
    let key = it.limit_key().unwrap();
    let limit = store.limits_of(std::slice::from_ref(&key)).await.unwrap();
    assert_eq!(limit[&key].max, 2);
    stored_members(store, 100, &[member(100, 0)]).await.unwrap();
    assert!(!store.delete_batch(it.id, 1).await.unwrap(), "it has a member");
    change(store, 1, |row| hear(row, 1, 1, RunEvent::Completed)).await;
    let row = loaded(store, 1).await;
    store.forget(&[(row.id, row.version)]).await.unwrap();
    assert!(!store.delete_batch(it.id, 7).await.unwrap(), "it has another version");
    assert!(store.delete_batch(it.id, 1).await.unwrap());
    assert_eq!(found(store, 100).await, None);
    assert!(store.limits_of(&[key]).await.unwrap().is_empty());
    let gone = store.delete_limit(&LimitPattern::from(LimitKey::of_batch(it.id))).await.unwrap();
    assert_eq!(gone, LimitDeleted::Missing);
}

pub async fn a_limited_number_of_batches_is_not_over(store: &dyn Store) {
    for number in 0..OPEN_MAX {
        stored_batch(store, batch(number as u128 + 1, &format!("b{number}"), 1)).await;
    }
    assert_eq!(store.create_batch(&batch(999, "more", 1)).await.unwrap(), BatchCreated::TooMany);
    let over = Batch { state: BatchState::Cancelled, ended_at: Some(NOW), ..found(store, 1).await.unwrap() };
    assert!(store.save_batch(&over).await.unwrap());
    stored_batch(store, batch(999, "more", 1)).await;
}
