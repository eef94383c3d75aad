//! Looks for observers whose message is gone: no service holds it and no queue has it, or the queue was created again.
//! `core::failure::orphans` draws the conclusions.

use crate::RunError;
use crate::commit::{RowChange, Then, commit};
use crate::context::Manager;
use crate::context::records::Records;
use crate::fleet::safe_mode;
use crate::outgoing::work_queues;
use everwatch_broker::Session;
use everwatch_core::clock::Timestamp;
use everwatch_core::failure::lost_queue::InLostQueue;
use everwatch_core::failure::orphans::{Orphan, last_holder, orphan};
use everwatch_core::failure::queue_search::{Quiet, listed_at};
use everwatch_core::id::{Pool, ServiceId};
use everwatch_core::record::events::EventKind;
use everwatch_core::record::row::Row;
use everwatch_core::record::status::Status;
use everwatch_core::wording::counted;
use everwatch_store::{Filter, Found, ListCursor, Sort, StoreError};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use tracing::{info, warn};

const EVERY: Duration = Duration::from_secs(5);
const DEPTH_WITHIN: Duration = Duration::from_secs(5);
const BATCH: usize = 500;

/// The part of `orphan_after` in which a mark must have come out of the queues for a look to count.
const READS: u32 = 3;

#[derive(Debug, Default)]
struct Looks {
    quiet: HashMap<Pool, Quiet>,
}

pub(crate) async fn run(manager: Arc<Manager>) -> Result<(), RunError> {
    let every = EVERY.min(manager.settings.orphan_after / 4);
    let mut looks = Looks::default();
    loop {
        tokio::select! {
            () = manager.stop.cancelled() => return Ok(()),
            () = tokio::time::sleep(every) => {}
        }
        let Some(session) = manager.link.open_session() else {
            looks.quiet.clear();
            continue;
        };
        if let Err(error) = pass(&manager, session.as_ref(), &mut looks).await {
            warn!(%error, "search for orphans failed; retrying");
            looks.quiet.clear();
        }
    }
}

async fn pass(manager: &Arc<Manager>, session: &dyn Session, looks: &mut Looks) -> Result<(), StoreError> {
    let held = safe_mode::is_on(&manager.records).await?;
    let orphan_after = manager.settings.orphan_after;
    for pool in manager.link.pools.all() {
        new_queue(manager, &pool).await?;
        let quiet = looks.quiet.entry(pool.clone()).or_default();
        let queue = manager.link.topology.work(&pool);
        // A look counts even while a sweep holds messages of the queue: sweeps go on for as long as an observer waits
        // whose message is gone. The other looks within `orphan_after` see what a sweep hides for two seconds.
        //
        // A look counts while marks come out of the queues now and then. Managers share the queues, so for some seconds
        // all marks may come to another manager: to interrupt for that kept two managers from ever concluding anything.
        match tokio::time::timeout(DEPTH_WITHIN, session.depth(&queue)).await {
            Ok(Ok(depth)) if !held && manager.freshness.is_within(orphan_after / READS) => {
                quiet.look(depth.ready, depth.consumers, manager.records.clock.now());
            }
            _ => quiet.interrupt(),
        }
        if manager.may_conclude() && quiet.lasts(manager.records.clock.now(), orphan_after) {
            let mut roster = ServiceRoster::load(&manager.records).await?;
            let rows = roster.unheld(&manager.records, &pool, BATCH).await?;
            conclude(manager, (&pool, &roster), rows).await?;
            release(manager, (&pool, &roster)).await?;
        }
    }
    Ok(())
}

/// Releases the places of observers that have ended, and whose messages would have come back by now.
async fn release(manager: &Arc<Manager>, (pool, roster): (&Pool, &ServiceRoster)) -> Result<(), StoreError> {
    let rows = overdue_unreleased(manager, pool, roster).await?;
    release_all(manager, pool, rows).await
}

/// Observers that ended at least `orphan_after` ago, and whose messages no living service holds.
pub(crate) async fn overdue_unreleased(
    manager: &Manager,
    pool: &Pool,
    roster: &ServiceRoster,
) -> Result<Vec<Row>, StoreError> {
    let (now, after) = (manager.records.clock.now(), manager.settings.orphan_after);
    let mut rows = manager.records.store.unreleased(pool, BATCH).await?;
    rows.retain(|row| row.is_surely_gone(&roster.living, roster.listed_at, now, after));
    Ok(rows)
}

/// Their messages are gone.
pub(crate) async fn release_all(
    manager: &Arc<Manager>,
    pool: &Pool,
    rows: Vec<Row>,
) -> Result<(), StoreError> {
    let now = manager.records.clock.now();
    let released = rows.into_iter().map(|row| {
        let mut after = row.clone();
        after.release_places(now);
        RowChange { before: row, after, then: Then::Tell }
    });
    let released: Vec<RowChange> = released.collect();
    if !released.is_empty() {
        let count = released.len();
        info!(%pool, count, "the messages of ended observers are gone: their limits have places again");
    }
    commit(manager, released).await.map(drop)
}

/// The services that may hold something.
pub(crate) struct ServiceRoster {
    pub(crate) living: Vec<ServiceId>,
    /// Of the last holders of the rows that were read last.
    ended: BTreeMap<ServiceId, Timestamp>,
    /// Since when all that live have told what they hold.
    pub(crate) listed_at: Option<Timestamp>,
}

impl ServiceRoster {
    pub(crate) async fn load(records: &Records) -> Result<Self, StoreError> {
        let Found { rows, unreadable } = records.store.services(records.clock.now()).await?;
        // A service whose row cannot be read may hold anything, and when it last listed that is unknown.
        let listed_at = if unreadable.is_empty() { listed_at(rows.iter()) } else { Some(Timestamp(0)) };
        let living = rows.iter().filter(|it| it.end.is_none()).map(|it| it.id).chain(unreadable).collect();
        Ok(Self { living, ended: BTreeMap::new(), listed_at })
    }

    /// Observers of the pool that none of the living services holds, the oldest first.
    ///
    /// The obvious way to learn when their last holders ended is to read all services that ended lately. But one
    /// that starts and dies once a second has left tens of thousands of them in a day.
    pub(crate) async fn unheld(
        &mut self,
        records: &Records,
        pool: &Pool,
        most: usize,
    ) -> Result<Vec<Row>, StoreError> {
        let rows = records.store.unheld(pool, &self.living, most).await?;
        let holders: BTreeSet<ServiceId> = rows.iter().filter_map(last_holder).collect();
        self.ended = if holders.is_empty() {
            BTreeMap::new()
        } else {
            records.store.ends(&holders.into_iter().collect::<Vec<_>>()).await?
        };
        Ok(rows)
    }

    pub(crate) fn orphan(&self, manager: &Manager, row: &Row) -> Orphan {
        let (now, after) = (manager.records.clock.now(), manager.settings.orphan_after);
        orphan(row, &self.living, &self.ended, now, after)
    }
}

/// Ends or republishes those of these rows that no service holds.
pub(crate) async fn conclude(
    manager: &Arc<Manager>,
    (pool, roster): (&Pool, &ServiceRoster),
    rows: Vec<Row>,
) -> Result<(), StoreError> {
    let now = manager.records.clock.now();
    let mut changes = Vec::new();
    for row in rows {
        let mut after = row.clone();
        let then = match roster.orphan(manager, &row) {
            Orphan::No => continue,
            Orphan::End => {
                after.end_orphan(now);
                Then::Revoke
            }
            Orphan::Republish => {
                after.replace_lost(now, &manager.settings.row);
                if after.waiting.is_some() { Then::Revoke } else { Then::Publish }
            }
        };
        changes.push(RowChange { before: row, after, then });
    }
    let most = manager.republishes.take(changes.len(), Instant::now());
    if changes.len() > most {
        let text = format!(
            "pool {pool} seems to have lost {}: {most} are republished now",
            counted(changes.len(), "observer")
        );
        manager.records.events.tell_all(EventKind::RepublishCapped, text);
        changes.truncate(most);
    }
    let count = changes.len();
    if count > 0 {
        warn!(%pool, count, "observers without a message are republished");
    }
    commit(manager, changes).await.map(drop)
}

async fn new_queue(manager: &Arc<Manager>, pool: &Pool) -> Result<(), StoreError> {
    let Some(made_at) = manager.records.store.note(&work_queues::note(pool)).await? else { return Ok(()) };
    let made_at = Timestamp(made_at.parse().unwrap_or_default());
    let status = vec![Status::Created, Status::Processing, Status::OnDeleting];
    let filter = Filter { pool: Some(pool.clone()), status, sort: Sort::CreatedAt, ..Filter::default() };
    let roster = ServiceRoster::load(&manager.records).await?;
    let (mut after, mut count, mut held) = (None, 0, 0);
    loop {
        let page = manager.records.store.list(&filter, after.as_ref(), BATCH).await?;
        let now = manager.records.clock.now();
        after = page.rows.last().map(|row| ListCursor { value: row.created_at.0.to_string(), id: row.id });
        let mut lost = page.rows;
        lost.retain(|row| match row.in_lost_queue(made_at, &roster.living) {
            InLostQueue::No => false,
            InLostQueue::Held => {
                held += 1;
                false
            }
            InLostQueue::Yes => true,
        });
        count += lost.len();
        let changes = lost.into_iter().map(|row| {
            let mut after = row.clone();
            after.republish_unsure(now, &manager.settings.row);
            RowChange { before: row, after, then: Then::Publish }
        });
        commit(manager, changes.collect()).await?;
        if !page.more {
            break;
        }
    }
    // One look is not enough: a row that a user changed in the same moment was passed over, and a service that
    // ended with the old queue may not be known to have ended yet.
    let long = manager.records.clock.now().since(made_at) >= manager.settings.orphan_after;
    if count == 0 && (held == 0 || long) {
        return manager.records.store.set_note(&work_queues::note(pool), "", Duration::ZERO).await;
    }
    if count > 0 {
        info!(%pool, count, "work queue created again; its observers are republished");
    }
    Ok(())
}
