//! Searches a work queue for messages of observers that are to end and wait for a slot they may never
//! get. Takes at most what is ready, ends the doomed, gives the rest back, within 2 s.

use crate::orphans::{self, Budget, People};
use crate::shared::Manager;
use crate::{RunError, hold};
use everwatch_broker::{BrokerError, Delivery, Session, Settle};
use everwatch_core::clock::Timestamp;
use everwatch_core::epoch::Epoch;
use everwatch_core::id::{ObserverId, Pool, ServiceId};
use everwatch_core::message::{RunEvent, RunReport, Work, WorkRead};
use everwatch_core::missing::{Orphan, Searches};
use everwatch_core::plan::{Sweep, plan_sweep, wants_sweep};
use everwatch_core::row::Row;
use everwatch_store::StoreError;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use tracing::{info, warn};
use uuid::Uuid;

const EVERY: Duration = Duration::from_secs(5);
const WITHIN: Duration = Duration::from_secs(2);
/// How old what is known of services may be.
const SERVICES_AGE: Duration = Duration::from_secs(5);
/// A longer queue is left to its deliveries.
const READY_MAX: u32 = 1000;
/// Rows without a holder that are looked at: what may be ready, and what may be missing.
const UNHELD_MAX: usize = 1500;

pub(crate) async fn run(manager: Arc<Manager>) -> Result<(), RunError> {
    let mut swept: HashMap<Pool, Instant> = HashMap::new();
    let mut searching = Searching::default();
    let pause = manager.settings.row.sweep_after;
    loop {
        tokio::select! {
            () = manager.stop.cancelled() => return Ok(()),
            () = tokio::time::sleep(EVERY.min(pause)) => {}
        }
        let Some(session) = manager.session() else { continue };
        swept.retain(|_, at| at.elapsed() < pause);
        for pool in manager.pools() {
            if swept.contains_key(&pool) {
                continue;
            }
            match searching.turn(&manager, session.as_ref(), &pool).await {
                Ok(false) => {}
                Ok(true) => {
                    swept.insert(pool.clone(), Instant::now());
                }
                Err(error) => warn!(%pool, %error, "whether a sweep is due is unknown"),
            }
        }
    }
}

/// Searches for what should be in a queue that is never empty, and is not.
#[derive(Debug, Default)]
struct Searching {
    pools: HashMap<Pool, Searches>,
    budget: Budget,
}

impl Searching {
    /// Sweeps the queue if there is a reason to; answers whether it did.
    async fn turn(
        &mut self,
        manager: &Arc<Manager>,
        session: &dyn Session,
        pool: &Pool,
    ) -> Result<bool, StoreError> {
        let ready = session.depth(&manager.topology.work(pool)).await.map_or(0, |depth| depth.ready);
        if !(1..=READY_MAX).contains(&ready) {
            return Ok(false);
        }
        let concludes = manager.may_conclude() && !hold::is_on(manager).await?;
        let searches = self.pools.entry(pool.clone()).or_default();
        let due = concludes && searches.is_due(manager.clock.now(), manager.settings.orphan_after);
        let due = due && {
            let (_, rows) = lonely(manager, pool).await?;
            if rows.is_empty() {
                searches.look(&[], &BTreeSet::new(), manager.clock.now());
            }
            !rows.is_empty()
        };
        if !(due || is_doomed(manager).await?) || !is_ours(manager, pool).await? {
            return Ok(false);
        }
        let found = match pass(manager, session, pool).await {
            Ok(found) => found,
            Err(error) => {
                warn!(%pool, %error, "a sweep failed");
                None
            }
        };
        let Some(found) = found.filter(|_| concludes) else { return Ok(true) };
        let (people, mut rows) = lonely(manager, pool).await?;
        let (now, after) = (manager.clock.now(), manager.settings.orphan_after);
        searches.look(&rows, &found, now);
        rows.retain(|row| searches.is_missed(row, people.listed_at, now, after));
        orphans::conclude(manager, (pool, &people), rows, &mut self.budget).await?;
        Ok(true)
    }
}

/// What should have a message and has had no holder for long.
async fn lonely(manager: &Manager, pool: &Pool) -> Result<(People, Vec<Row>), StoreError> {
    let people = People::load(manager).await?;
    let mut rows = manager.store.unheld(pool, &people.living, UNHELD_MAX).await?;
    rows.retain(|row| people.orphan(manager, row) != Orphan::No);
    Ok((people, rows))
}

async fn is_doomed(manager: &Manager) -> Result<bool, StoreError> {
    // What is to end is commanded until it has. Its message may be in a pool that it was moved out of.
    let doomed = manager.store.commanded_since(Timestamp(0), READY_MAX as usize).await?;
    let (now, services) = (manager.clock.now(), manager.services(SERVICES_AGE).await?);
    let lives = |id| services.iter().any(|service| service.id == id);
    Ok(doomed.iter().any(|row| wants_sweep(row, now, &manager.settings.row, lives)))
}

async fn is_ours(manager: &Manager, pool: &Pool) -> Result<bool, StoreError> {
    // Of several managers one sweeps: two would each see half of the queue, and the other half as gone.
    let me = manager.id.to_string();
    Ok(manager.store.claim(&format!("sweep/{pool}"), &me, manager.settings.row.sweep_after).await? == me)
}

/// Answers what was in the queue, if it was seen whole.
async fn pass(
    manager: &Manager,
    session: &dyn Session,
    pool: &Pool,
) -> Result<Option<BTreeSet<ObserverId>>, BrokerError> {
    let queue = manager.topology.work(pool);
    let ready = session.depth(&queue).await?.ready;
    if !(1..=READY_MAX).contains(&ready) {
        return Ok(None);
    }
    // One more than there is: whoever gets less has seen the end of the queue.
    let most = ready as usize + 1;
    let held = session.get(&queue, most).await?;
    let found = held.iter().filter_map(label).map(|(id, _)| id).collect();
    let judged = tokio::time::timeout(WITHIN, judge(manager, &held)).await;
    let over = match judged {
        Ok(Ok(over)) => over,
        Ok(Err(error)) => {
            warn!(%pool, %error, "a sweep gives back what it took");
            vec![false; held.len()]
        }
        Err(_) => vec![false; held.len()],
    };
    let mut ended = 0;
    // What is given back stands before the rest of the queue, in the order in which it was given back.
    for (delivery, over) in held.iter().zip(over) {
        let settled =
            if over { session.ack(delivery.receipt).await } else { session.requeue(delivery.receipt).await };
        ended += usize::from(over && settled == Settle::Done);
    }
    if ended > 0 {
        info!(%pool, looked_at = held.len(), ended, "swept the queue for observers that are to end");
        manager.note_change();
    }
    Ok((held.len() < most).then_some(found))
}

/// For each delivery whether it may be ended; rows that this settles are saved by then.
async fn judge(manager: &Manager, held: &[Delivery]) -> Result<Vec<bool>, StoreError> {
    let labels: Vec<Option<(ObserverId, u32)>> = held.iter().map(label).collect();
    let ids: Vec<ObserverId> = labels.iter().flatten().map(|(id, _)| *id).collect();
    let rows = manager.store.load(&ids).await?;
    let rows: HashMap<ObserverId, &Row> = rows.iter().map(|row| (row.id, row)).collect();
    let now = manager.clock.now();
    let mut settled = HashMap::new();
    let mut verdicts = Vec::with_capacity(held.len());
    for (delivery, label) in held.iter().zip(&labels) {
        let verdict = match label {
            None => Sweep::Keep,
            Some((id, generation)) => {
                let row = rows.get(id).copied();
                let verdict = plan_sweep(row, *generation);
                if let (Sweep::Settle, Some(row)) = (verdict, row) {
                    let epoch = Epoch::new(*generation, delivery.acquisitions);
                    let report = RunReport { id: *id, epoch, event: RunEvent::Stopped };
                    let mut row = row.clone();
                    row.apply(ServiceId(Uuid::nil()), 1, now, &report, now);
                    settled.insert(*id, row);
                }
                verdict
            }
        };
        verdicts.push(verdict);
    }
    let settled: Vec<Row> = settled.into_values().collect();
    let lost = if settled.is_empty() { Vec::new() } else { manager.store.save(&settled).await? };
    for row in settled.iter().filter(|row| !lost.contains(&row.id)) {
        manager.tell(rows.get(&row.id).copied(), row);
    }
    let over = |(verdict, label): (Sweep, &Option<(ObserverId, u32)>)| match verdict {
        Sweep::Keep => false,
        Sweep::Stale => true,
        Sweep::Settle => label.is_some_and(|(id, _)| !lost.contains(&id)),
    };
    Ok(verdicts.into_iter().zip(&labels).map(over).collect())
}

fn label(delivery: &Delivery) -> Option<(ObserverId, u32)> {
    match Work::read(&delivery.body) {
        Ok(WorkRead::Ours(work)) => Some((work.id, work.generation)),
        Ok(WorkRead::Foreign(label, _)) => Some((label.id, label.generation)),
        // A service parks it.
        Err(_) => None,
    }
}
