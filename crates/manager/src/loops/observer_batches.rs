//! Takes the steps of batches. A pass has no input: it reads what the database knows, decides with `core::batch`, and works
//! on a part of the members. A manager that dies in between leaves the rest to the next pass of any manager.

use crate::RunError;
use crate::commit::{RowChange, Then, commit, save_batch};
use crate::context::Manager;
use crate::events::actor;
use crate::fleet::safe_mode;
use crate::loops::changes::after_changes;
use everwatch_broker::{HeaderValue, Message, Target};
use everwatch_core::batch::{Batch, BatchAction, Counts, ENDED_KEPT, OPEN_MAX, Todo, beyond, step, todo};
use everwatch_core::id::{BatchId, ObserverId};
use everwatch_core::record::row::{Desired, Row};
use everwatch_core::record::status::Status;
use everwatch_core::wire::batch::{BatchMessage, COMPLETED};
use everwatch_core::wire::message::encode;
use everwatch_store::{BatchPart, By, StoreError};
use std::sync::Arc;
use std::time::Duration;
use tracing::{error, info, warn};

/// The shortest time between two passes. While many members change, each commit would otherwise cause a pass.
const PAUSE: Duration = Duration::from_millis(500);
/// The members in one transaction.
const PART: usize = 500;
/// How long a pass waits for the confirm of one completion.
const CONFIRM_WITHIN: Duration = Duration::from_secs(10);
/// The statuses of members that a cancelled batch deletes.
const UNENDED: [Status; 4] = [Status::Scheduled, Status::Created, Status::Processing, Status::Paused];

pub(crate) async fn run(manager: Arc<Manager>) -> Result<(), RunError> {
    after_changes(&manager, "a step of a batch failed; retrying", || async { (pass(&manager).await, PAUSE) })
        .await
}

async fn pass(manager: &Arc<Manager>) -> Result<(), StoreError> {
    let store = &manager.records.store;
    let open = store.open_batches().await?;
    if open.is_empty() || safe_mode::is_on(&manager.records).await? {
        return Ok(());
    }
    let ids: Vec<BatchId> = open.iter().map(|it| it.id).collect();
    let mut counts = store.batch_counts(&ids).await?;
    for batch in open {
        let counts = counts.remove(&batch.id).unwrap_or_default();
        advance(manager, &batch, &counts).await?;
    }
    Ok(())
}

async fn advance(manager: &Arc<Manager>, batch: &Batch, counts: &Counts) -> Result<(), StoreError> {
    let records = &manager.records;
    if let Some(next) = step(batch, counts, records.clock.now()) {
        let saved = save_batch(records, batch, next).await?;
        if saved.is_some_and(|it| it.state.is_over()) {
            forget(manager).await?;
        }
        return Ok(());
    }
    match todo(batch) {
        Todo::Nothing => Ok(()),
        Todo::Emit => emit(manager, batch).await,
        Todo::Retry { from } => retry(manager, batch, from).await,
        Todo::End => end(manager, batch, &UNENDED).await.map(drop),
        Todo::Remove => remove(manager, batch).await,
    }
}

/// Publishes completions. The batch is saved after the confirm of the broker: if the manager dies in between, another one
/// publishes them again.
async fn emit(manager: &Manager, batch: &Batch) -> Result<(), StoreError> {
    let Some(session) = manager.link.open_session() else { return Ok(()) };
    let target = Target::Topic { exchange: manager.link.topology.output(), key: COMPLETED.to_owned() };
    for completed in &batch.outbox {
        let body = match encode(&BatchMessage::Completed(completed.clone())) {
            Ok(body) => body,
            Err(error) => {
                error!(batch = %batch.name, %error, "a completion cannot be written as a message");
                return Ok(());
            }
        };
        let headers = vec![("everwatch-batch".to_owned(), HeaderValue::Text(batch.id.to_string()))];
        let publish = session.publish(&target, Message { body: body.into(), headers });
        match tokio::time::timeout(CONFIRM_WITHIN, publish).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                warn!(batch = %batch.name, %error, "a completion was not published, trying again");
                return Ok(());
            }
            Err(_) => {
                warn!(batch = %batch.name, "the broker confirms no completion, trying again");
                return Ok(());
            }
        }
    }
    let saved = save_batch(&manager.records, batch, Batch { outbox: Vec::new(), ..batch.clone() }).await?;
    if saved.is_some() {
        info!(batch = %batch.name, completions = batch.outbox.len(), "completions of a batch published");
    }
    Ok(())
}

/// Retries a part of the failed members. The place behind it is saved afterwards: a member is retried at most once more if
/// the manager dies in between and the member fails again.
async fn retry(manager: &Arc<Manager>, batch: &Batch, from: u32) -> Result<(), StoreError> {
    let statuses = &[Status::Failed];
    let part = BatchPart { batch: batch.id, statuses, from, most: PART };
    let rows = manager.records.store.batch_members(&part).await?;
    let last = rows.last().and_then(|row| row.batch).filter(|_| rows.len() == PART);
    let now = manager.records.clock.now();
    let changes = rows.into_iter().filter_map(|before| {
        let mut after = before.clone();
        // A member whose `finish_at` has passed stays failed.
        let retried = after.retry(now, &manager.settings.row).unwrap_or(false);
        retried.then_some(RowChange { before, after, then: Then::Tell })
    });
    let changes: Vec<RowChange> = changes.collect();
    let wanted = changes.len();
    let saved = change(manager, batch, changes).await?;
    if saved == wanted {
        let retried_before = last.map(|last| last.place.saturating_add(1));
        save_batch(&manager.records, batch, Batch { retried_before, ..batch.clone() }).await?;
    }
    Ok(())
}

async fn change(manager: &Arc<Manager>, batch: &Batch, changes: Vec<RowChange>) -> Result<usize, StoreError> {
    let by = By { who: Some(batch.actor()), from: None, with: None };
    Ok(actor::acting(by, commit(manager, changes)).await?.len())
}

/// Deletes the members with these statuses; returns all that have them.
async fn end(manager: &Arc<Manager>, batch: &Batch, statuses: &[Status]) -> Result<Vec<Row>, StoreError> {
    let (mut all, mut from) = (Vec::new(), 0);
    loop {
        let part = BatchPart { batch: batch.id, statuses, from, most: PART };
        let rows = manager.records.store.batch_members(&part).await?;
        let Some(last) = rows.last().and_then(|row| row.batch) else { return Ok(all) };
        from = last.place.saturating_add(1);
        let now = manager.records.clock.now();
        let live = rows.iter().filter(|row| row.ended_at.is_none() && row.desired != Desired::Deleted);
        let changes = live.map(|before| {
            let mut after = before.clone();
            after.delete(now, &manager.settings.row);
            RowChange { before: before.clone(), after, then: Then::Revoke }
        });
        change(manager, batch, changes.collect()).await?;
        all.extend(rows);
    }
}

/// Deletes the rows of members that have ended, and the batch once it has none.
async fn remove(manager: &Arc<Manager>, batch: &Batch) -> Result<(), StoreError> {
    let store = &manager.records.store;
    let members = end(manager, batch, &[]).await?;
    let gone: Vec<(ObserverId, i64)> =
        members.iter().filter(|row| row.may_leave_batch()).map(|row| (row.id, row.version)).collect();
    for part in gone.chunks(PART) {
        store.forget(part).await?;
    }
    if gone.len() == members.len() && store.delete_batch(batch.id, batch.version).await? {
        info!(batch = %batch.name, "batch deleted");
        manager.records.note_change();
    }
    Ok(())
}

/// Deletes batches beyond those that are kept.
async fn forget(manager: &Manager) -> Result<(), StoreError> {
    let records = &manager.records;
    // One that ends may be the oldest; each that ends makes room for one.
    let all = records.store.batches(2 * (ENDED_KEPT + OPEN_MAX)).await?;
    let gone = beyond(all.iter().filter(|it| it.state.is_over() && it.outbox.is_empty()));
    for before in all.iter().filter(|it| gone.contains(&it.id)) {
        let mut batch = before.clone();
        if batch.act(BatchAction::Delete, Some("managers: newer ones are over"), records.clock.now())
            == Ok(true)
        {
            save_batch(records, before, batch).await?;
        }
    }
    Ok(())
}
