//! Saving changed rows by compare-and-set, and what follows a save: events, revocations, publishes. Every pass of the
//! manager that changes rows does it here.

use crate::context::Manager;
use crate::context::records::Records;
use crate::events::actor;
use crate::metric;
use crate::outgoing::{commands, publish};
use async_trait::async_trait;
use everwatch_core::batch::Batch;
use everwatch_core::id::{ObserverId, ServiceId};
use everwatch_core::record::row::Row;
use everwatch_core::record::service::ServiceRow;
use everwatch_store::{Change, Created, StoreError};
use std::collections::HashSet;
use std::sync::Arc;
use tracing::info;

/// How often a change is tried again after another manager changed the row in the meantime.
pub(crate) const CAS_TRIES: usize = 20;

/// The result of a change of one row.
#[derive(Debug)]
pub(crate) enum Changed<T> {
    /// The row as it was saved.
    Saved(T),
    /// There was nothing to change: another manager has done it, or the reason is gone.
    Unchanged(T),
    /// The row does not exist (any more).
    Missing,
}

impl<T> Changed<T> {
    /// The row as it is now, if it exists.
    pub(crate) fn row(self) -> Option<T> {
        match self {
            Self::Saved(row) | Self::Unchanged(row) => Some(row),
            Self::Missing => None,
        }
    }
}

/// A row that one change at a time is saved of.
#[async_trait]
trait Stored: Clone + PartialEq + Send + Sync {
    type Id: Copy + std::fmt::Display + Send + Sync;
    const WHAT: &'static str;
    async fn load(records: &Records, id: Self::Id) -> Result<Option<Self>, StoreError>;
    /// Saves it; `false` if another manager has changed the row in the meantime.
    async fn save(&mut self, records: &Records, before: &Self) -> Result<bool, StoreError>;
}

#[async_trait]
impl Stored for Row {
    type Id = ObserverId;
    const WHAT: &'static str = "observer";
    async fn load(records: &Records, id: ObserverId) -> Result<Option<Self>, StoreError> {
        records.store.load(&[id]).await?.one()
    }
    async fn save(&mut self, records: &Records, before: &Self) -> Result<bool, StoreError> {
        self.trace = everwatch_trace::current().or_else(|| self.trace.take());
        self.revised_by(before, actor::name());
        if !records.saves.save(records.store.as_ref(), before, self).await? {
            return Ok(false);
        }
        self.version += 1;
        records.events.tell(Some(before), self);
        records.note_change();
        Ok(true)
    }
}

#[async_trait]
impl Stored for ServiceRow {
    type Id = ServiceId;
    const WHAT: &'static str = "service";
    async fn load(records: &Records, id: ServiceId) -> Result<Option<Self>, StoreError> {
        records.store.service(&id.into()).await
    }
    async fn save(&mut self, records: &Records, _before: &Self) -> Result<bool, StoreError> {
        Ok(records.store.save_services(std::slice::from_ref(self)).await?.is_empty())
    }
}

/// Changes one row by compare-and-set; `change` returns whether there is anything to save. Corrupt if the row cannot be
/// read.
async fn change<T: Stored>(
    records: &Records,
    (id, mut read): (T::Id, Option<T>),
    mut change: impl FnMut(&mut T) -> bool + Send,
) -> Result<Changed<T>, StoreError> {
    for _ in 0..CAS_TRIES {
        let row = match read.take() {
            Some(row) => Some(row),
            None => T::load(records, id).await?,
        };
        let Some(mut row) = row else { return Ok(Changed::Missing) };
        let before = row.clone();
        if !change(&mut row) || row == before {
            return Ok(Changed::Unchanged(row));
        }
        if row.save(records, &before).await? {
            return Ok(Changed::Saved(row));
        }
    }
    Err(StoreError::Contended(format!("{} {id} keeps changing: read it again and retry", T::WHAT)))
}

/// Changes the row of an observer, and tells the events of the change.
pub(crate) async fn change_row(
    records: &Records,
    id: ObserverId,
    how: impl FnMut(&mut Row) -> bool + Send,
) -> Result<Changed<Row>, StoreError> {
    change(records, (id, None), how).await
}

/// Changes the row of an observer that was just read: it is read again only if it has changed in the meantime.
pub(crate) async fn change_read_row(
    records: &Records,
    row: Row,
    how: impl FnMut(&mut Row) -> bool + Send,
) -> Result<Changed<Row>, StoreError> {
    change(records, (row.id, Some(row)), how).await
}

/// The rows of a batch after one try to change them.
#[derive(Debug, Default)]
pub(crate) struct Tried {
    /// As they were before the save.
    pub(crate) saved: Vec<Row>,
    /// Another manager has changed them in the meantime.
    pub(crate) lost: HashSet<ObserverId>,
}

/// Changes the rows of observers, each at most once; `how` returns whether there is anything to save. Tells no events.
pub(crate) async fn try_change_rows(
    records: &Records,
    ids: &[ObserverId],
    mut how: impl FnMut(&mut Row) -> bool,
) -> Result<Tried, StoreError> {
    let rows = records.store.load(ids).await?.rows;
    let mut changed: Vec<(Row, Row)> = rows.into_iter().map(|row| (row.clone(), row)).collect();
    changed.retain_mut(|(_, after)| how(after));
    if changed.is_empty() {
        return Ok(Tried::default());
    }
    let changes: Vec<Change<'_>> = changed.iter().map(|(before, after)| Change { before, after }).collect();
    let lost: HashSet<ObserverId> = records.store.save(&changes).await?.into_iter().collect();
    let saved = changed.into_iter().map(|(_, after)| after).filter(|row| !lost.contains(&row.id)).collect();
    records.note_change();
    Ok(Tried { saved, lost })
}

/// Changes the row of a service.
pub(crate) async fn change_service(
    records: &Records,
    id: ServiceId,
    how: impl FnMut(&mut ServiceRow) -> bool + Send,
) -> Result<Changed<ServiceRow>, StoreError> {
    change(records, (id, None), how).await
}

/// What follows the save of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Then {
    /// Nothing but its events.
    Tell,
    /// Its revocation is sent.
    Revoke,
    /// Its revocation is sent, then its new generation is published.
    Publish,
}

/// A row before and after a change that a pass has decided.
#[derive(Debug)]
pub(crate) struct RowChange {
    pub(crate) before: Row,
    pub(crate) after: Row,
    pub(crate) then: Then,
}

/// Saves the changes and does what follows. Returns those that were saved: the others were changed by a report, a user
/// or another manager in the meantime, and the next pass decides about them again.
pub(crate) async fn commit(
    manager: &Arc<Manager>,
    changes: Vec<RowChange>,
) -> Result<Vec<RowChange>, StoreError> {
    let saved = save(&manager.records, changes).await?;
    follow(manager, &saved).await;
    Ok(saved)
}

/// Sends the revocations and publishes that follow from saved changes.
pub(crate) async fn follow(manager: &Arc<Manager>, saved: &[RowChange]) {
    saved
        .iter()
        .filter(|it| it.then == Then::Revoke)
        .for_each(|it| commands::revoke_later(manager, &it.after));
    let published = saved.iter().filter(|it| it.then == Then::Publish).map(|it| it.after.clone());
    publish_rows(manager, published.collect()).await;
}

/// Publishes saved rows whose generation is new. The revocation of each comes first: no run of an earlier generation may
/// meet the new one, and any service may hold one.
pub(crate) async fn publish_rows(manager: &Arc<Manager>, rows: Vec<Row>) {
    let earlier: Vec<&Row> = rows.iter().filter(|row| row.generation > 1).collect();
    commands::revocations(manager, &earlier).await;
    metrics::counter!(metric::REPUBLISHES).increment(earlier.len() as u64);
    publish::publish(manager, rows);
}

/// What follows stored creates: their events, and the publishes of those that have a slot.
pub(crate) fn follow_creates(manager: &Arc<Manager>, created: impl Iterator<Item = (Row, Created)>) {
    let mut published = Vec::new();
    for (row, created) in created {
        if let Some(stored) = created.stored(&row) {
            manager.records.events.tell(None, &stored);
        }
        if created == Created::Done {
            published.push(row);
        }
    }
    manager.records.note_change();
    publish::publish(manager, published);
}

/// Saves a changed batch and tells its event; `None` if it has changed since `before` was read.
pub(crate) async fn save_batch(
    records: &Records,
    before: &Batch,
    after: Batch,
) -> Result<Option<Batch>, StoreError> {
    if !records.store.save_batch(&after).await? {
        return Ok(None);
    }
    let saved = Batch { version: after.version + 1, ..after };
    if let Some((kind, text)) = saved.event(Some(before)) {
        info!(batch = %saved.name, state = %saved.state, reason = saved.reason, "batch changed its state");
        records.events.tell_all(kind, text);
    }
    records.note_change();
    Ok(Some(saved))
}

/// Saves the changes and tells their events; returns those that were saved.
pub(crate) async fn save(records: &Records, changes: Vec<RowChange>) -> Result<Vec<RowChange>, StoreError> {
    if changes.is_empty() {
        return Ok(changes);
    }
    let saves: Vec<Change<'_>> =
        changes.iter().map(|RowChange { before, after, .. }| Change { before, after }).collect();
    let lost: HashSet<ObserverId> = records.store.save(&saves).await?.into_iter().collect();
    let mut saved = changes;
    saved.retain(|it| !lost.contains(&it.after.id));
    for it in &saved {
        records.events.tell(Some(&it.before), &it.after);
    }
    if !saved.is_empty() {
        records.note_change();
    }
    Ok(saved)
}
