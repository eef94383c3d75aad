//! Searches a work queue for messages of observers that are to end and wait for a slot they may never
//! get. Takes at most what is ready, ends the doomed, gives the rest back, within 2 s.

use crate::RunError;
use crate::shared::Manager;
use everwatch_broker::{BrokerError, Delivery, Session, Settle};
use everwatch_core::clock::Timestamp;
use everwatch_core::epoch::Epoch;
use everwatch_core::id::{ObserverId, Pool, ServiceId};
use everwatch_core::message::{RunEvent, RunReport, Work, WorkRead};
use everwatch_core::plan::{Sweep, plan_sweep, wants_sweep};
use everwatch_core::row::Row;
use everwatch_store::StoreError;
use std::collections::HashMap;
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

pub(crate) async fn run(manager: Arc<Manager>) -> Result<(), RunError> {
    let mut swept: HashMap<Pool, Instant> = HashMap::new();
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
            match is_wanted(&manager, &pool).await {
                Ok(false) => {}
                Ok(true) => {
                    swept.insert(pool.clone(), Instant::now());
                    if let Err(error) = pass(&manager, session.as_ref(), &pool).await {
                        warn!(%pool, %error, "a sweep failed");
                    }
                }
                Err(error) => warn!(%pool, %error, "whether a sweep is due is unknown"),
            }
        }
    }
}

async fn is_wanted(manager: &Manager, pool: &Pool) -> Result<bool, StoreError> {
    // What is to end is commanded until it has. Its message may be in a pool that it was moved out of.
    let doomed = manager.store.commanded_since(Timestamp(0), READY_MAX as usize).await?;
    let (now, services) = (manager.clock.now(), manager.services(SERVICES_AGE).await?);
    let lives = |id| services.iter().any(|service| service.id == id);
    if !doomed.iter().any(|row| wants_sweep(row, now, &manager.settings.row, lives)) {
        return Ok(false);
    }
    // Of several managers one sweeps: two would each see half of the queue, and the other half as gone.
    let me = manager.id.to_string();
    Ok(manager.store.claim(&format!("sweep/{pool}"), &me, manager.settings.row.sweep_after).await? == me)
}

async fn pass(manager: &Manager, session: &dyn Session, pool: &Pool) -> Result<(), BrokerError> {
    let queue = manager.topology.work(pool);
    let ready = session.depth(&queue).await?.ready;
    if !(1..=READY_MAX).contains(&ready) {
        return Ok(());
    }
    let held = session.get(&queue, ready as usize).await?;
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
    Ok(())
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
