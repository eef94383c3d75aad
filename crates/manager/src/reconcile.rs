//! The reconciler: looks at what is stored, does what is due, and looks again. It has no input: a wake
//! only makes the next pass sooner, and the next pass is the retry of whatever failed in this one.

use crate::intake::births::{Changed, change};
use crate::shared::Manager;
use crate::{RunError, fleet, hold, metric, outbox, placement, quarantine, rebalance, telling};
use everwatch_broker::{Fate, Session};
use everwatch_core::history::What;
use everwatch_core::id::{ObserverId, ServiceId};
use everwatch_core::message::Floor;
use everwatch_core::plan::{on_alive, plan_row, plan_services};
use everwatch_core::row::Row;
use everwatch_core::service::ServiceRow;
use everwatch_store::StoreError;
use futures::StreamExt as _;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use tracing::{info, warn};

const EVERY: Duration = Duration::from_secs(1);
const FORGET_EVERY: Duration = Duration::from_secs(60);
const BATCH: usize = 500;
/// Batches of rows in one pass.
const ROUNDS: usize = 10;
/// Questions to the broker at once, and how long one may take.
const ASK_AT_ONCE: usize = 16;
const ASK_WITHIN: Duration = Duration::from_secs(5);

/// When what is done by the clock was done last.
#[derive(Debug, Default)]
struct Done {
    ticked: Option<Instant>,
    forgot: Option<Instant>,
}

pub(crate) async fn run(manager: Arc<Manager>) -> Result<(), RunError> {
    let mut done = Done::default();
    let mut failing = false;
    loop {
        tokio::select! {
            () = manager.stop.cancelled() => return Ok(()),
            () = manager.wake.notified() => {}
            () = tokio::time::sleep(EVERY) => {}
        }
        let began = Instant::now();
        let passed = pass(&manager, &mut done).await;
        metrics::histogram!(metric::PASS).record(began.elapsed().as_secs_f64());
        note(passed, &mut failing);
    }
}

/// Counts every failed pass; of those in a row, the log tells the first.
fn note(passed: Result<(), StoreError>, failing: &mut bool) {
    let failed_before = std::mem::replace(failing, passed.is_err());
    let Err(error) = passed else { return };
    metrics::counter!(metric::FAILED_PASSES).increment(1);
    if !failed_before {
        warn!(%error, "a reconciler pass failed, the next one tries again");
    }
}

fn is_over(last: Option<Instant>, every: Duration) -> bool {
    last.is_none_or(|last| last.elapsed() >= every)
}

async fn pass(manager: &Arc<Manager>, done: &mut Done) -> Result<(), StoreError> {
    // Marks first: whether the queues are read does not depend on the database's health.
    let beat = manager.settings.beat;
    if is_over(done.ticked, beat) || !manager.reads_within(beat * 2) {
        telling::ticks_later(manager);
        done.ticked = Some(Instant::now());
    }
    manager.refresh_clock().await?;
    let Some(session) = manager.session() else { return Ok(()) };
    manager.load_pools().await?;
    // While the broker blocks publishers nothing can be said: what is due stays due. And what stood in the
    // state queue may answer what seems due. A manager that looks at the rows alone publishes an observer again whose
    // lease ended while the database was away or no manager was there, though it has run or completed since. So
    // the pass waits until recent marks of this manager have come out of both queues.
    let has_read = manager.lacks().is_empty() && manager.reads_within((beat + EVERY) * 2);
    if !session.is_blocked() && manager.leases.have_room() && has_read {
        rows(manager).await?;
    }
    let living = manager.store.services(manager.clock.now()).await?.rows;
    manager.known.learn(&living);
    if !session.is_blocked() {
        fleet::look(manager, &living).await?;
    }
    if !hold::is_on(manager).await? {
        services(manager, session.as_ref(), &living).await?;
        if !session.is_blocked() && manager.may_conclude() {
            placement::look(manager, &living).await?;
            rebalance::look(manager, &living).await?;
        }
    }
    if is_over(done.forgot, FORGET_EVERY) {
        let before = manager.clock.now().minus(manager.settings.retention_services);
        manager.store.forget_services(before).await?;
        manager.store.forget_notes().await?;
        let before = manager.clock.now().minus(manager.settings.retention_events);
        manager.store.forget_events(before, manager.settings.events_max).await?;
        let before = manager.clock.now().minus(manager.settings.retention_parked);
        let forgotten = manager.store.forget_parked(before, manager.settings.parked_max).await?;
        if forgotten > 0 {
            warn!(forgotten, "parked messages beyond their retention are deleted");
        }
        done.forgot = Some(Instant::now());
    }
    Ok(())
}

async fn rows(manager: &Arc<Manager>) -> Result<(), StoreError> {
    let held = hold::is_on(manager).await?;
    for _ in 0..ROUNDS {
        let mut due = manager.store.due(manager.clock.now(), BATCH).await?;
        let full = due.len() == BATCH;
        due.retain(|row| !held || !row.waits_for_lists());
        quarantine::look(manager, &due).await?;
        if !steps(manager, &due).await? || !full {
            return Ok(());
        }
    }
    Ok(())
}

/// Takes the steps of these rows; answers whether there were any.
async fn steps(manager: &Arc<Manager>, due: &[Row]) -> Result<bool, StoreError> {
    let now = manager.clock.now();
    let steps: Vec<_> = due.iter().filter_map(|row| plan_row(row, now, &manager.settings.row)).collect();
    if steps.is_empty() {
        return Ok(false);
    }
    let (forget, keep): (Vec<_>, Vec<_>) = steps.into_iter().partition(|step| step.forget);
    if !forget.is_empty() {
        let forget: Vec<_> = forget.iter().map(|step| (step.row.id, step.row.version)).collect();
        manager.store.forget(&forget).await?;
    }
    if keep.is_empty() {
        return Ok(true);
    }
    let rows: Vec<Row> = keep.iter().map(|step| step.row.clone()).collect();
    // Whoever lost the race here was beaten by a report, a person or another manager: their turn.
    let lost: HashSet<ObserverId> = manager.store.save(&rows).await?.into_iter().collect();
    let won: Vec<_> = keep.into_iter().filter(|step| !lost.contains(&step.row.id)).collect();
    let before: HashMap<ObserverId, &Row> = due.iter().map(|row| (row.id, row)).collect();
    for step in &won {
        manager.tell(before.get(&step.row.id).copied(), &step.row);
    }
    let floors: Vec<Floor> = won.iter().filter_map(|step| step.floor).collect();
    telling::floors(manager, &floors).await;
    let publish: Vec<Row> = won.into_iter().filter(|step| step.publish).map(|step| step.row).collect();
    metrics::counter!(metric::REISSUES).increment(publish.len() as u64);
    outbox::publish(manager, publish);
    manager.note_change();
    Ok(true)
}

async fn services(manager: &Manager, session: &dyn Session, living: &[ServiceRow]) -> Result<(), StoreError> {
    let now = manager.clock.now();
    let lost_after = manager.settings.lost_after;
    let plan = plan_services(living, now, lost_after, manager.may_conclude());
    for service in plan.suspect {
        // Looked at again on the row as it is: a beat may have come in meanwhile.
        let suspected = |row: &mut ServiceRow| row.is_silent(now, lost_after) && row.suspect(now);
        if let Changed::Saved(row) = change(manager, service, suspected).await? {
            manager.tell_service(What::ServiceSuspect, &row, "nothing was heard of it".to_owned());
            warn!(%service, "service is silent, the broker is asked about its session");
        }
    }
    let answers: Vec<(ServiceId, Option<Fate>)> = futures::stream::iter(plan.ask)
        .map(|service| async move { (service, ask(manager, session, service).await) })
        .buffer_unordered(ASK_AT_ONCE)
        .collect()
        .await;
    for (service, fate) in answers {
        match fate {
            Some(Fate::Gone) => {
                let lost = change(manager, service, |row| row.on_session_gone(manager.clock.now())).await?;
                if let Changed::Saved(row) = lost {
                    manager.tell_service(
                        What::ServiceLost,
                        &row,
                        "the broker has no session of it".to_owned(),
                    );
                    info!(%service, "service lost: its session with the broker is gone");
                    manager.note_change();
                }
            }
            Some(Fate::Alive) => {
                let at = manager.clock.now();
                change(manager, service, |row| on_alive(row, at, lost_after)).await?;
            }
            None => {}
        }
    }
    Ok(())
}

async fn ask(manager: &Manager, session: &dyn Session, service: ServiceId) -> Option<Fate> {
    let queue = manager.topology.commands_of(service);
    match tokio::time::timeout(ASK_WITHIN, session.fate(&queue)).await {
        Ok(Ok(fate)) => Some(fate),
        Ok(Err(error)) => {
            warn!(%service, %error, "the broker does not say what became of a service");
            None
        }
        Err(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use metrics_exporter_prometheus::PrometheusBuilder;

    #[test]
    fn every_failed_pass_is_counted_also_where_every_other_one_succeeds() {
        let recorder = PrometheusBuilder::new().build_recorder();
        metrics::with_local_recorder(&recorder, || {
            let mut failing = false;
            for _ in 0..3 {
                note(Err(StoreError::Unavailable("away".to_owned())), &mut failing);
                note(Ok(()), &mut failing);
            }
            note(Err(StoreError::Unavailable("away".to_owned())), &mut failing);
            note(Err(StoreError::Unavailable("away".to_owned())), &mut failing);
        });
        let text = recorder.handle().render();
        assert!(text.contains(&format!("{} 5", metric::FAILED_PASSES)), "{text}");
    }
}
