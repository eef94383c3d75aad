//! Checks of checkpoints and results.

use super::*;
use crate::port::ObserverResult;
use everwatch_core::wire::checkpoint::{Checkpoint, CheckpointStored, CheckpointWanted};

fn checkpoint(observer: u128, run: u32, number: u64) -> Checkpoint {
    let value = format!("\"{observer}: {run}.{number}\"");
    Checkpoint { id: id(observer), epoch: Epoch::new(1, run), number, value }
}

fn wanted(observer: u128, run: u32) -> CheckpointWanted {
    CheckpointWanted { id: id(observer), epoch: Epoch::new(1, run) }
}

fn result(observer: u128, run: u32, value: &str) -> ObserverResult {
    ObserverResult { id: id(observer), epoch: Epoch::new(1, run), value: value.to_owned() }
}

async fn stored(store: &dyn Store, checkpoints: &[Checkpoint]) -> Vec<(u128, u64)> {
    let stored = store.save_checkpoints(checkpoints).await.unwrap();
    stored.iter().map(|CheckpointStored { id, number, .. }| (id.0.as_u128(), *number)).collect()
}

/// The answer to one run: its checkpoint, empty without one; `None` without an answer.
async fn restored(store: &dyn Store, observer: u128, run: u32) -> Option<String> {
    let mut answers = store.request_checkpoints(&[wanted(observer, run)]).await.unwrap();
    let answer = answers.pop()?;
    assert_eq!((answer.id, answer.epoch), (id(observer), Epoch::new(1, run)));
    Some(answer.checkpoint.map_or_else(String::new, |saved| saved.value))
}

pub async fn a_run_continues_from_the_newest_checkpoint(store: &dyn Store) {
    create(store, &[published(1, "a"), published(2, "b")]).await.unwrap();
    assert_eq!(restored(store, 1, 0).await.unwrap(), "");
    assert_eq!(stored(store, &[checkpoint(1, 0, 1), checkpoint(2, 0, 7)]).await, [(1, 1), (2, 7)]);
    assert_eq!(stored(store, &[checkpoint(1, 0, 3), checkpoint(1, 0, 2)]).await, [(1, 3), (1, 2)]);
    assert_eq!(restored(store, 1, 1).await.unwrap(), "\"1: 0.3\"");
    assert_eq!(restored(store, 2, 1).await.unwrap(), "\"2: 0.7\"");
}

pub async fn a_replaced_run_neither_saves_nor_requests_a_checkpoint(store: &dyn Store) {
    create(store, &[published(1, "a")]).await.unwrap();
    assert_eq!(stored(store, &[checkpoint(1, 0, 1)]).await, [(1, 1)]);
    assert_eq!(restored(store, 1, 1).await.unwrap(), "\"1: 0.1\"");
    assert_eq!(stored(store, &[checkpoint(1, 0, 2)]).await, []);
    assert_eq!(restored(store, 1, 0).await, None);
    assert_eq!(restored(store, 1, 1).await.unwrap(), "\"1: 0.1\"", "it asks again");
}

pub async fn observers_without_a_row_have_no_checkpoint(store: &dyn Store) {
    assert_eq!(stored(store, &[checkpoint(1, 0, 1)]).await, []);
    assert_eq!(restored(store, 1, 0).await, None);
    store.save_results(&[result(1, 0, "1")]).await.unwrap();
    assert_eq!(store.result(id(1)).await.unwrap(), None);
}

pub async fn what_code_saves_is_deleted_with_its_observer(store: &dyn Store) {
    create(store, &[published(1, "a")]).await.unwrap();
    stored(store, &[checkpoint(1, 0, 1)]).await;
    store.save_results(&[result(1, 0, "1")]).await.unwrap();
    store.forget(&[(id(1), 1)]).await.unwrap();
    assert_eq!(store.result(id(1)).await.unwrap(), None);
    create(store, &[published(1, "a")]).await.unwrap();
    assert_eq!(restored(store, 1, 0).await.unwrap(), "");
    assert_eq!(store.result(id(1)).await.unwrap(), None);
}

pub async fn the_result_of_the_latest_run_is_kept(store: &dyn Store) {
    create(store, &[published(1, "a")]).await.unwrap();
    store.save_results(&[result(1, 1, "[1]"), result(1, 0, "0")]).await.unwrap();
    assert_eq!(store.result(id(1)).await.unwrap(), Some(result(1, 1, "[1]")));
    store.save_results(&[result(1, 2, "null")]).await.unwrap();
    assert_eq!(store.result(id(1)).await.unwrap(), Some(result(1, 2, "null")));
}
