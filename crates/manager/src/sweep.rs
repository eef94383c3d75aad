//! Searches a work queue for messages of observers that are to end and wait for a slot they may never
//! get. Takes what is ready part by part, ends the doomed, gives the rest back after 2 to 10 s at the latest.

use crate::orphans::{self, People};
use crate::shared::Manager;
use crate::{RunError, hold};
use everwatch_broker::{BrokerError, Delivery, Receipt, Session, Settle};
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
/// How long a sweep may take, for each [`WITHIN_OF`] messages that are ready, and in all.
const WITHIN: Duration = Duration::from_secs(2);
const WITHIN_OF: u32 = 500;
const WITHIN_MAX: Duration = Duration::from_secs(10);
/// How old what is known of services may be.
const SERVICES_AGE: Duration = Duration::from_secs(5);
/// A longer queue is not searched for what is missing in it: services may take and give back much of it meanwhile.
const READY_MAX: u32 = 1000;
/// Messages taken at once. Each part is judged, and its doomed messages end, before the next is taken.
const PART: usize = 250;
/// Messages in hand at once: what stands behind them is reached once the queue is shorter.
const IN_HAND_MAX: usize = 10_000;
/// Observers that are looked at whose end is asked for and not reported.
const ENDING_MAX: usize = 1000;
const DEPTH_WITHIN: Duration = Duration::from_secs(5);
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
}

impl Searching {
    /// Sweeps the queue if there is a reason to; answers whether it did.
    async fn turn(
        &mut self,
        manager: &Arc<Manager>,
        session: &dyn Session,
        pool: &Pool,
    ) -> Result<bool, StoreError> {
        let queue = manager.topology.work(pool);
        // A queue without a leader answers nothing.
        let depth = tokio::time::timeout(DEPTH_WITHIN, session.depth(&queue)).await;
        let Some(depth) = depth.ok().and_then(Result::ok) else { return Ok(false) };
        let ready = depth.ready;
        // `orphans` watches empty queues that have consumers. An empty queue without consumers (all services are full or
        // cordoned) reads like a queue whose state is unknown, so it is searched like a queue that is never empty.
        if ready == 0 && depth.consumers > 0 {
            return Ok(false);
        }
        let concludes = ready <= READY_MAX && manager.may_conclude() && !hold::is_on(manager).await?;
        let searches = self.pools.entry(pool.clone()).or_default();
        let due = concludes && searches.is_due(manager.clock.now(), manager.settings.orphan_after);
        let due = due && {
            let (_, rows) = lonely(manager, pool).await?;
            if rows.is_empty() {
                searches.look(&[], &BTreeSet::new(), manager.clock.now());
            }
            !rows.is_empty()
        };
        let doomed = ready > 0 && is_doomed(manager).await?;
        if !(due || doomed) || !is_ours(manager, pool).await? {
            return Ok(false);
        }
        let found = match pass(manager, session, (pool, ready)).await {
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
        orphans::conclude(manager, (pool, &people), rows).await?;
        Ok(true)
    }
}

/// What should have a message and has had no holder for long.
async fn lonely(manager: &Manager, pool: &Pool) -> Result<(People, Vec<Row>), StoreError> {
    let mut people = People::load(manager).await?;
    let mut rows = people.unheld(manager, pool, UNHELD_MAX).await?;
    rows.retain(|row| people.orphan(manager, row) != Orphan::No);
    Ok((people, rows))
}

async fn is_doomed(manager: &Manager) -> Result<bool, StoreError> {
    // The message may be in a pool that its observer was moved out of.
    let (now, services) = (manager.clock.now(), manager.services(SERVICES_AGE).await?);
    let doomed = manager.store.ending(ENDING_MAX).await?;
    let lives = |id| services.iter().any(|service| service.id == id);
    Ok(doomed.iter().any(|row| wants_sweep(row, now, &manager.settings.row, lives)))
}

async fn is_ours(manager: &Manager, pool: &Pool) -> Result<bool, StoreError> {
    // Of several managers one sweeps: two would each see half of the queue, and the other half as gone.
    let me = manager.id.to_string();
    Ok(manager.store.claim(&format!("sweep/{pool}"), &me, manager.settings.row.sweep_after).await? == me)
}

/// What a sweep has seen, and has in hand.
#[derive(Debug, Default)]
struct Swept {
    found: BTreeSet<ObserverId>,
    /// To be given back.
    kept: Vec<Receipt>,
    looked_at: usize,
    ended: usize,
}

/// Answers what was in the queue, if it was seen whole.
async fn pass(
    manager: &Manager,
    session: &dyn Session,
    (pool, ready): (&Pool, u32),
) -> Result<Option<BTreeSet<ObserverId>>, BrokerError> {
    let queue = manager.topology.work(pool);
    let mut swept = Swept::default();
    let deadline = Instant::now() + (WITHIN * ready.max(1).div_ceil(WITHIN_OF)).min(WITHIN_MAX);
    let whole = parts(manager, session, (&queue, deadline), &mut swept).await;
    // What is given back stands before the rest of the queue, in the order in which it was given back.
    for receipt in &swept.kept {
        session.requeue(*receipt).await;
    }
    if swept.ended > 0 {
        let Swept { looked_at, ended, .. } = swept;
        info!(%pool, looked_at, ended, "swept the queue for observers that are to end");
        manager.note_change();
    }
    Ok(whole?.then_some(swept.found))
}

/// Takes one part after the other and ends what is doomed there; answers whether the end of the queue was seen.
///
/// What stands at the head must stay in hand, as it would come again. So the time limits the depth of a sweep.
async fn parts(
    manager: &Manager,
    session: &dyn Session,
    (queue, deadline): (&str, Instant),
    swept: &mut Swept,
) -> Result<bool, BrokerError> {
    while Instant::now() < deadline && swept.kept.len() < IN_HAND_MAX {
        let part = session.get(queue, PART).await?;
        swept.looked_at += part.len();
        swept.found.extend(part.iter().filter_map(label).map(|(id, _)| id));
        let judged = tokio::time::timeout_at(deadline, judge(manager, &part)).await;
        let over = match judged {
            Ok(Ok(over)) => Some(over),
            Ok(Err(error)) => {
                warn!(queue, %error, "a sweep gives back what it took");
                None
            }
            Err(_) => None,
        };
        let Some(over) = over else {
            swept.kept.extend(part.iter().map(|delivery| delivery.receipt));
            return Ok(false);
        };
        for (delivery, over) in part.iter().zip(over) {
            if !over {
                swept.kept.push(delivery.receipt);
            } else if session.ack(delivery.receipt).await == Settle::Done {
                swept.ended += 1;
            }
        }
        if part.len() < PART {
            return Ok(true);
        }
    }
    Ok(false)
}

/// For each delivery whether it may be ended; rows that this settles are saved by then.
async fn judge(manager: &Manager, held: &[Delivery]) -> Result<Vec<bool>, StoreError> {
    let labels: Vec<Option<(ObserverId, u32)>> = held.iter().map(label).collect();
    let ids: Vec<ObserverId> = labels.iter().flatten().map(|(id, _)| *id).collect();
    let rows = manager.store.load(&ids).await?.rows;
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
