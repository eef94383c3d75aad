//! Looks for observers whose message is gone: nobody holds it and it is in no queue, or the queue itself
//! was made anew. The conclusions are `core::missing`'s; here are the looks.

use crate::shared::{Manager, lock};
use crate::{RunError, hold, metric, outbox, telling};
use everwatch_broker::Session;
use everwatch_core::clock::Timestamp;
use everwatch_core::history::What;
use everwatch_core::id::{ObserverId, Pool, ServiceId};
use everwatch_core::message::Floor;
use everwatch_core::missing::{InLostQueue, Orphan, Quiet, last_holder, listed_at, orphan};
use everwatch_core::row::Row;
use everwatch_core::status::Status;
use everwatch_store::{After, Filter, Found, Sort, StoreError};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::time::Instant;
use tracing::{info, warn};

const EVERY: Duration = Duration::from_secs(5);
const DEPTH_WITHIN: Duration = Duration::from_secs(5);
const BATCH: usize = 500;
/// Conclusions from silence in a minute, for each manager: a mistake must not republish everything at once. Three
/// managers that make the same mistake publish three times as many.
const REISSUES_A_MINUTE: usize = 500;
const MINUTE: Duration = Duration::from_secs(60);
/// How long a note of a new queue waits for a manager.
const QUEUE_NOTE: Duration = Duration::from_secs(3600);
/// A queue's message may be confirmed a moment before the report of the queue's making is written.
const SLACK: Duration = Duration::from_secs(1);

/// The part of `orphan_after` in which a mark must have come out of the queues for a look to count.
const READS: u32 = 3;

#[derive(Debug, Default)]
struct Looks {
    quiet: HashMap<Pool, Quiet>,
}

/// What may be concluded in a minute, and since when how much was. All searches of a manager share it.
#[derive(Debug, Default)]
pub(crate) struct Budget(Mutex<Option<(Instant, usize)>>);

pub(crate) async fn run(manager: Arc<Manager>) -> Result<(), RunError> {
    let every = EVERY.min(manager.settings.orphan_after / 4);
    let mut looks = Looks::default();
    loop {
        tokio::select! {
            () = manager.stop.cancelled() => return Ok(()),
            () = tokio::time::sleep(every) => {}
        }
        let Some(session) = manager.session().filter(|session| !session.is_blocked()) else {
            looks.quiet.clear();
            continue;
        };
        if let Err(error) = pass(&manager, session.as_ref(), &mut looks).await {
            warn!(%error, "what is missing is not looked for now");
            looks.quiet.clear();
        }
    }
}

async fn pass(manager: &Arc<Manager>, session: &dyn Session, looks: &mut Looks) -> Result<(), StoreError> {
    let held = hold::is_on(manager).await?;
    let orphan_after = manager.settings.orphan_after;
    for pool in manager.pools() {
        new_queue(manager, &pool).await?;
        let quiet = looks.quiet.entry(pool.clone()).or_default();
        let queue = manager.topology.work(&pool);
        // Naively, no look counts while a sweep has the queue: but as long as one waits whose message is gone,
        // sweeps are wanted. What a sweep hides for two seconds, the other looks of `orphan_after` see.
        //
        // A look counts while marks come out of the queues now and then. Managers share the queues, so for some seconds
        // all marks may come to another manager: to interrupt for that kept two managers from ever concluding anything.
        match tokio::time::timeout(DEPTH_WITHIN, session.depth(&queue)).await {
            Ok(Ok(depth)) if !held && manager.reads_within(orphan_after / READS) => {
                quiet.look(depth.ready, depth.consumers, manager.clock.now());
            }
            _ => quiet.interrupt(),
        }
        if manager.may_conclude() && quiet.lasts(manager.clock.now(), orphan_after) {
            let mut people = People::load(manager).await?;
            let rows = people.unheld(manager, &pool, BATCH).await?;
            conclude(manager, (&pool, &people), rows).await?;
        }
    }
    Ok(())
}

impl Budget {
    /// Takes as much of `wanted` as there is room for.
    fn take(&self, wanted: usize, now: Instant) -> usize {
        let mut used = lock(&self.0);
        let (since, count) = used.filter(|(since, _)| now - *since < MINUTE).unwrap_or((now, 0));
        let taken = wanted.min(REISSUES_A_MINUTE - count.min(REISSUES_A_MINUTE));
        *used = Some((since, count + taken));
        taken
    }
}

/// The services that may hold something.
pub(crate) struct People {
    pub(crate) living: Vec<ServiceId>,
    /// Of the last holders of the rows that were read last.
    ended: BTreeMap<ServiceId, Timestamp>,
    /// Since when all that live have told what they hold.
    pub(crate) listed_at: Option<Timestamp>,
}

impl People {
    pub(crate) async fn load(manager: &Manager) -> Result<Self, StoreError> {
        let Found { rows, unreadable } = manager.store.services(manager.clock.now()).await?;
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
        manager: &Manager,
        pool: &Pool,
        most: usize,
    ) -> Result<Vec<Row>, StoreError> {
        let rows = manager.store.unheld(pool, &self.living, most).await?;
        let holders: BTreeSet<ServiceId> = rows.iter().filter_map(last_holder).collect();
        self.ended = if holders.is_empty() {
            BTreeMap::new()
        } else {
            manager.store.ends(&holders.into_iter().collect::<Vec<_>>()).await?
        };
        Ok(rows)
    }

    pub(crate) fn orphan(&self, manager: &Manager, row: &Row) -> Orphan {
        let (now, after) = (manager.clock.now(), manager.settings.orphan_after);
        orphan(row, &self.living, &self.ended, now, after)
    }
}

/// Ends or publishes anew what of these nobody holds.
pub(crate) async fn conclude(
    manager: &Arc<Manager>,
    (pool, people): (&Pool, &People),
    rows: Vec<Row>,
) -> Result<(), StoreError> {
    let now = manager.clock.now();
    let mut changes = Vec::new();
    for row in rows {
        let mut next = row.clone();
        match people.orphan(manager, &row) {
            Orphan::No => continue,
            Orphan::End => next.end_orphan(now),
            Orphan::Reissue => next.reissue(now, &manager.settings.row),
        }
        changes.push((row, next));
    }
    let most = manager.reissues.take(changes.len(), Instant::now());
    if changes.len() > most {
        let text = format!(
            "{} observers of pool {pool} seem to be lost: {most} are published anew now",
            changes.len()
        );
        manager.tell_all(What::ReissuesCapped, text);
        changes.truncate(most);
    }
    let count = changes.len();
    if count > 0 {
        warn!(%pool, count, "observers without a message are published anew");
    }
    carry_out(manager, changes).await
}

/// Says that the queue of a pool was made anew; kept until some manager has dealt with it.
pub(crate) async fn note_new_queue(manager: &Manager, pool: &Pool, at: Timestamp) -> Result<(), StoreError> {
    manager.store.set_note(&note(pool), &at.minus(SLACK).0.to_string(), QUEUE_NOTE).await
}

fn note(pool: &Pool) -> String {
    format!("queue/{pool}")
}

async fn new_queue(manager: &Arc<Manager>, pool: &Pool) -> Result<(), StoreError> {
    let Some(made_at) = manager.store.note(&note(pool)).await? else { return Ok(()) };
    let made_at = Timestamp(made_at.parse().unwrap_or_default());
    let status = vec![Status::Created, Status::Processing, Status::OnDeleting];
    let filter = Filter { pool: Some(pool.clone()), status, sort: Sort::CreatedAt, ..Filter::default() };
    let people = People::load(manager).await?;
    let (mut after, mut count, mut held) = (None, 0, 0);
    loop {
        let page = manager.store.list(&filter, after.as_ref(), BATCH).await?;
        let now = manager.clock.now();
        after = page.rows.last().map(|row| After { value: row.created_at.0.to_string(), id: row.id });
        let mut lost = page.rows;
        lost.retain(|row| match row.in_lost_queue(made_at, &people.living) {
            InLostQueue::No => false,
            InLostQueue::Held => {
                held += 1;
                false
            }
            InLostQueue::Yes => true,
        });
        count += lost.len();
        let changes = lost.into_iter().map(|row| {
            let mut next = row.clone();
            next.reissue(now, &manager.settings.row);
            (row, next)
        });
        carry_out(manager, changes.collect()).await?;
        if !page.more {
            break;
        }
    }
    // One look is not enough: a row that a person changed in the same moment was passed over, and a service that
    // ended with the old queue may not be known to have ended yet.
    let long = manager.clock.now().since(made_at) >= manager.settings.orphan_after;
    if count == 0 && (held == 0 || long) {
        return manager.store.set_note(&note(pool), "", Duration::ZERO).await;
    }
    if count > 0 {
        info!(%pool, count, "work queue created again; its observers are republished");
    }
    Ok(())
}

/// Saves changed rows; of those that nobody else has changed, sends the floors and publishes.
async fn carry_out(manager: &Arc<Manager>, changes: Vec<(Row, Row)>) -> Result<(), StoreError> {
    if changes.is_empty() {
        return Ok(());
    }
    let rows: Vec<Row> = changes.iter().map(|(_, next)| next.clone()).collect();
    let lost: HashSet<ObserverId> = manager.store.save(&rows).await?.into_iter().collect();
    let won: Vec<(Row, Row)> = changes.into_iter().filter(|(_, next)| !lost.contains(&next.id)).collect();
    for (before, after) in &won {
        manager.tell(Some(before), after);
    }
    let floors: Vec<Floor> = won.iter().map(|(_, next)| next.floor()).collect();
    telling::floors(manager, &floors).await;
    let publish: Vec<Row> = won.into_iter().map(|(_, next)| next).filter(|row| row.mark.is_some()).collect();
    metrics::counter!(metric::REISSUES).increment(publish.len() as u64);
    outbox::publish(manager, publish);
    manager.note_change();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_searches_of_a_manager_share_what_may_be_concluded_in_a_minute() {
        let (budget, began) = (Budget::default(), Instant::now());
        assert_eq!(budget.take(REISSUES_A_MINUTE - 10, began), REISSUES_A_MINUTE - 10);
        assert_eq!((budget.take(30, began), budget.take(30, began)), (10, 0));
        assert_eq!(budget.take(1, began + MINUTE / 2), 0);
        assert_eq!(budget.take(usize::MAX, began + MINUTE), REISSUES_A_MINUTE);
    }
}
