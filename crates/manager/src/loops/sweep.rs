//! Searches a work queue for the messages of observers that are meant to end and may never get a slot. It takes ready
//! messages part by part, settles those observers, and gives the rest back within 2 to 10 s.

use crate::RunError;
use crate::commit::{RowChange, Then, save};
use crate::context::Manager;
use crate::context::records::Records;
use crate::fleet::safe_mode;
use crate::loops::orphans::{self, ServiceRoster};
use crate::outgoing::work_queues;
use everwatch_broker::{BrokerError, Consume, Delivery, Receipt, Session, Settle};
use everwatch_core::failure::orphans::Orphan;
use everwatch_core::failure::queue_search::Searches;
use everwatch_core::failure::sweep::{Sweep, plan_sweep, wants_sweep};
use everwatch_core::id::{ObserverId, Pool};
use everwatch_core::record::row::Row;
use everwatch_core::wire::work::{DecodedWork, Work};
use everwatch_store::StoreError;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use tracing::{info, warn};

const EVERY: Duration = Duration::from_secs(5);
/// The time limit of a sweep, for each [`WITHIN_OF`] ready messages and in total.
const WITHIN: Duration = Duration::from_secs(2);
const WITHIN_OF: u32 = 500;
const WITHIN_MAX: Duration = Duration::from_secs(10);
/// The maximum age of the cached services.
const SERVICES_AGE: Duration = Duration::from_secs(5);
/// A longer queue is not searched for missing messages: services may take and return many of them during the search.
const READY_MAX: u32 = 1000;
/// Messages taken at once. Each part is judged and its observers are settled before the next part is taken.
const PART: usize = 250;
/// Messages held at once: those behind them are reached when the queue is shorter.
const IN_HAND_MAX: usize = 10_000;
/// Observers to check whose end was requested and not reported.
const ENDING_MAX: usize = 1000;
const DEPTH_WITHIN: Duration = Duration::from_secs(5);
/// A single queue that delivers nothing for this long is considered empty.
const NEXT_WITHIN: Duration = Duration::from_millis(200);
/// Rows without a holder to check: their messages may be ready or missing.
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
        let Some(session) = manager.link.session.get() else { continue };
        swept.retain(|_, at| at.elapsed() < pause);
        for pool in manager.link.pools.all() {
            if swept.contains_key(&pool) {
                continue;
            }
            match searching.turn(&manager, session.as_ref(), &pool).await {
                Ok(false) => {}
                Ok(true) => {
                    swept.insert(pool.clone(), Instant::now());
                }
                Err(error) => warn!(%pool, %error, "cannot determine whether a sweep is due"),
            }
        }
    }
}

/// Searches for messages that are missing from a queue that is never empty.
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
        let queue = manager.link.topology.work(pool);
        // A queue without a leader does not answer.
        let depth = match tokio::time::timeout(DEPTH_WITHIN, session.depth(&queue)).await {
            Ok(Ok(depth)) => depth,
            Ok(Err(BrokerError::NoQueue(_))) => {
                work_queues::on_missing(manager, session, pool).await?;
                return Ok(false);
            }
            Ok(Err(_)) | Err(_) => return Ok(false),
        };
        let ready = depth.ready;
        // `orphans` watches empty queues that have consumers. An empty queue without consumers (all services are full
        // or cordoned) reads like a queue whose state is unknown, so it is searched like a queue that is never empty.
        if ready == 0 && depth.consumers > 0 {
            return Ok(false);
        }
        let single = manager.records.is_single(pool);
        // No search can read a single queue while a service is active, so only an empty one, which `orphans` watches, says
        // that a message is missing.
        let concludes = !single
            && ready <= READY_MAX
            && manager.may_conclude()
            && !safe_mode::is_on(&manager.records).await?;
        let searches = self.pools.entry(pool.clone()).or_default();
        let due = concludes && searches.is_due(manager.records.clock.now(), manager.settings.orphan_after);
        let due = due && {
            let (roster, rows) = overdue_unheld(manager, pool).await?;
            let ended = orphans::overdue_unreleased(manager, pool, &roster).await?;
            let rows = [rows, ended].concat();
            if rows.is_empty() {
                searches.look(&[], &BTreeSet::new(), manager.records.clock.now());
            }
            !rows.is_empty()
        };
        let doomed = ready > 0 && !(single && depth.consumers > 0) && is_deleting(manager).await?;
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
        let (roster, mut rows) = overdue_unheld(manager, pool).await?;
        let (now, after) = (manager.records.clock.now(), manager.settings.orphan_after);
        let mut ended = orphans::overdue_unreleased(manager, pool, &roster).await?;
        searches.look(&[rows.clone(), ended.clone()].concat(), &found, now);
        rows.retain(|row| searches.is_missed(row, roster.listed_at, now, after));
        ended.retain(|row| searches.is_missed(row, roster.listed_at, now, after));
        orphans::conclude(manager, (pool, &roster), rows).await?;
        orphans::release_all(manager, pool, ended).await?;
        Ok(true)
    }
}

/// Takes the messages of observers that give their slots to others from the queue, without waiting for the next sweep.
pub(crate) async fn recall(manager: &Manager, pool: &Pool) -> Result<(), StoreError> {
    // No sweep can read a single queue while a service is active.
    let (Some(session), false) = (manager.link.session.get(), manager.records.is_single(pool)) else {
        return Ok(());
    };
    let queue = manager.link.topology.work(pool);
    let depth = tokio::time::timeout(DEPTH_WITHIN, session.depth(&queue)).await;
    let ready = depth.ok().and_then(Result::ok).map_or(0, |depth| depth.ready);
    if ready == 0 || !is_ours(manager, pool).await? {
        return Ok(());
    }
    if let Err(error) = pass(manager, session.as_ref(), (pool, ready)).await {
        warn!(%pool, %error, "a recall failed");
    }
    Ok(())
}

/// Rows that should have a message and have had no holder for long.
async fn overdue_unheld(manager: &Manager, pool: &Pool) -> Result<(ServiceRoster, Vec<Row>), StoreError> {
    let mut roster = ServiceRoster::load(&manager.records).await?;
    let mut rows = roster.unheld(&manager.records, pool, UNHELD_MAX).await?;
    rows.retain(|row| roster.orphan(manager, row) != Orphan::No);
    Ok((roster, rows))
}

async fn is_deleting(manager: &Manager) -> Result<bool, StoreError> {
    // The message may be in the queue of a pool that its observer was moved out of.
    let (now, services) = (manager.records.clock.now(), manager.records.services(SERVICES_AGE).await?);
    let doomed = manager.records.store.ending(ENDING_MAX).await?;
    let lives = |id| services.iter().any(|service| service.id == id);
    Ok(doomed.iter().any(|row| wants_sweep(row, now, &manager.settings.row, lives)))
}

async fn is_ours(manager: &Manager, pool: &Pool) -> Result<bool, StoreError> {
    // Only one of several managers sweeps: each of two would see half of the queue and miss the other half.
    let me = manager.link.id.to_string();
    Ok(manager.records.store.claim(&format!("sweep/{pool}"), &me, manager.settings.row.sweep_after).await?
        == me)
}

/// What a sweep has seen and holds.
#[derive(Debug, Default)]
struct Swept {
    found: BTreeSet<ObserverId>,
    /// To be given back.
    kept: Vec<Receipt>,
    looked_at: usize,
    ended: usize,
}

/// Returns what was in the queue, if the sweep has seen all of it.
async fn pass(
    manager: &Manager,
    session: &dyn Session,
    (pool, ready): (&Pool, u32),
) -> Result<Option<BTreeSet<ObserverId>>, BrokerError> {
    let queue = manager.link.topology.work(pool);
    let mut swept = Swept::default();
    let deadline = Instant::now() + (WITHIN * ready.max(1).div_ceil(WITHIN_OF)).min(WITHIN_MAX);
    let taking = Taking { queue: &queue, single: manager.records.is_single(pool), deadline };
    let whole = parts(&manager.records, session, taking, &mut swept).await;
    // Messages that are given back go to the head of the queue, in the order in which they are given back.
    for receipt in &swept.kept {
        session.requeue(*receipt).await;
    }
    if swept.ended > 0 {
        let Swept { looked_at, ended, .. } = swept;
        info!(%pool, looked_at, ended, "swept the queue for observers that are to end");
        manager.records.note_change();
    }
    Ok(whole?.then_some(swept.found))
}

/// The queue of a sweep, and how it is read.
#[derive(Debug, Clone, Copy)]
struct Taking<'a> {
    queue: &'a str,
    single: bool,
    deadline: Instant,
}

/// Takes one part of a single queue, which refuses `get`, as its consumer: no service consumes it currently. A service that
/// begins to consume meanwhile is active when this has ended.
async fn consume_part(session: &dyn Session, queue: &str) -> Result<Vec<Delivery>, BrokerError> {
    let prefetch = u16::try_from(PART).unwrap_or(u16::MAX);
    let consume = Consume { queue: queue.to_owned(), prefetch, priority: 0 };
    let mut consumer = session.consume(&consume).await?;
    let mut part = Vec::new();
    while part.len() < PART
        && let Ok(Some(delivery)) = tokio::time::timeout(NEXT_WITHIN, consumer.next()).await
    {
        part.push(delivery);
    }
    consumer.cancel().await?;
    while let Some(delivery) = consumer.next().await {
        part.push(delivery);
    }
    Ok(part)
}

/// Takes one part after the other and settles what must end; returns whether the end of the queue was seen.
///
/// Messages at the head must stay held, because they would be delivered again. So the time limits the depth of a sweep.
async fn parts(
    records: &Records,
    session: &dyn Session,
    taking: Taking<'_>,
    swept: &mut Swept,
) -> Result<bool, BrokerError> {
    let Taking { queue, single, deadline } = taking;
    while Instant::now() < deadline && swept.kept.len() < IN_HAND_MAX {
        let part =
            if single { consume_part(session, queue).await? } else { session.get(queue, PART).await? };
        swept.looked_at += part.len();
        swept.found.extend(part.iter().filter_map(label).map(|(id, _)| id));
        let judged = tokio::time::timeout_at(deadline, judge(records, &part)).await;
        let over = match judged {
            Ok(Ok(over)) => Some(over),
            Ok(Err(error)) => {
                warn!(queue, %error, "sweep failed; its messages return to the queue");
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

/// For each delivery, whether it may be acknowledged; the rows that this settles are saved by then.
async fn judge(records: &Records, held: &[Delivery]) -> Result<Vec<bool>, StoreError> {
    let labels: Vec<Option<(ObserverId, u32)>> = held.iter().map(label).collect();
    let ids: Vec<ObserverId> = labels.iter().flatten().map(|(id, _)| *id).collect();
    let rows = records.store.load(&ids).await?.rows;
    let rows: HashMap<ObserverId, &Row> = rows.iter().map(|row| (row.id, row)).collect();
    let now = records.clock.now();
    let mut settled: HashMap<ObserverId, RowChange> = HashMap::new();
    let mut verdicts = Vec::with_capacity(held.len());
    for (delivery, label) in held.iter().zip(&labels) {
        let verdict = match label {
            None => Sweep::Keep,
            Some((id, generation)) => {
                let row = rows.get(id).copied();
                let verdict = plan_sweep(row, *generation);
                if let (Sweep::Settle, Some(row)) = (verdict, row) {
                    let mut after = row.clone();
                    after.settle_swept(delivery.acquisitions, now);
                    settled.insert(*id, RowChange { before: row.clone(), after, then: Then::Tell });
                }
                verdict
            }
        };
        verdicts.push(verdict);
    }
    let saved = save(records, settled.into_values().collect()).await?;
    let saved: HashSet<ObserverId> = saved.iter().map(|it| it.after.id).collect();
    let over = |(verdict, label): (Sweep, &Option<(ObserverId, u32)>)| match verdict {
        Sweep::Keep => false,
        Sweep::Stale => true,
        Sweep::Settle => label.is_some_and(|(id, _)| saved.contains(&id)),
    };
    Ok(verdicts.into_iter().zip(&labels).map(over).collect())
}

fn label(delivery: &Delivery) -> Option<(ObserverId, u32)> {
    match Work::read(&delivery.body) {
        Ok(DecodedWork::Ours(work)) => Some((work.id, work.generation)),
        Ok(DecodedWork::Foreign(label, _)) => Some((label.id, label.generation)),
        // A service parks it.
        Err(_) => None,
    }
}
