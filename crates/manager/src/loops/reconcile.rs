//! The reconciler: reads the database, does what is due, and repeats. It has no input: a wake only makes the next pass
//! start sooner, and the next pass retries what failed in this one.

use crate::RunError;
use crate::commit::{RowChange, Then, commit};
use crate::context::Manager;
use crate::context::records::Records;
use crate::fleet::{orders, placement, quarantine, rebalance, safe_mode, service_loss};
use crate::metric;
use crate::outgoing::commands;
use crate::settings::Settings;
use everwatch_core::record::due::{DueStep, due_step};
use everwatch_core::record::row::Row;
use everwatch_core::rollout::ENDED_KEPT;
use everwatch_store::StoreError;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use tracing::warn;

/// The longest pause between two passes. Each pass also looks whether watermarks are due.
const EVERY: Duration = Duration::from_secs(1);
const FORGET_EVERY: Duration = Duration::from_secs(60);
/// The interval between two announcements of the time: the clocks of machines drift by milliseconds in it.
const ANNOUNCES_TIME_EVERY: Duration = Duration::from_secs(60);
const BATCH: usize = 500;
/// Batches of rows in one pass.
const ROUNDS: usize = 10;

/// When the periodic steps were last done.
#[derive(Debug, Default)]
struct Done {
    ticked: Option<Instant>,
    forgot: Option<Instant>,
    announced: Option<Instant>,
}

pub(crate) async fn run(manager: Arc<Manager>) -> Result<(), RunError> {
    let mut done = Done::default();
    let mut failing = false;
    // With a fixed pause of one second, a `heartbeat_interval` of half a second or less would let watermarks expire (after
    // two intervals) before the next ones are sent, and a manager might never finish a search for orphans.
    let every = EVERY.min(manager.settings.heartbeat_interval);
    loop {
        tokio::select! {
            () = manager.stop.cancelled() => return Ok(()),
            () = manager.wake.notified() => {}
            () = tokio::time::sleep(every) => {}
        }
        let began = Instant::now();
        let passed = pass(&manager, &mut done).await;
        metrics::histogram!(metric::PASS).record(began.elapsed().as_secs_f64());
        note(passed, &mut failing);
    }
}

/// Counts every failed pass, and logs the first of several in a row.
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
    // Watermarks first: reading the queues does not depend on the database.
    let heartbeat = manager.settings.heartbeat_interval;
    if is_over(done.ticked, heartbeat) || !manager.freshness.is_within(heartbeat * 2) {
        commands::watermarks_later(manager);
        done.ticked = Some(Instant::now());
    }
    manager.refresh_clock().await?;
    let Some(session) = manager.link.session.get() else { return Ok(()) };
    if is_over(done.announced, ANNOUNCES_TIME_EVERY) && !session.is_blocked() {
        commands::time_later(manager);
        done.announced = Some(Instant::now());
    }
    manager.load_pools().await?;
    // While the broker blocks publishers, nothing can be sent, and what is due stays due.
    if !session.is_blocked() && manager.publishing.leases.have_room() && manager.has_read() {
        rows(manager).await?;
    }
    let living = manager.records.store.services(manager.records.clock.now()).await?.rows;
    manager.records.events.known.learn(&living);
    if !session.is_blocked() {
        orders::look(manager, &living).await?;
        rebalance::end(manager).await?;
    }
    if !safe_mode::is_on(&manager.records).await? {
        service_loss::look(manager, session.as_ref(), &living).await?;
        if !session.is_blocked() && manager.may_conclude() {
            placement::look(manager, &living).await?;
            rebalance::look(manager, &living).await?;
        }
    }
    if is_over(done.forgot, FORGET_EVERY) {
        forget(&manager.records, &manager.settings).await?;
        done.forgot = Some(Instant::now());
    }
    Ok(())
}

/// Deletes what is kept no longer.
async fn forget(records: &Records, settings: &Settings) -> Result<(), StoreError> {
    let before = |retention| records.clock.now().minus(retention);
    records.store.forget_services(before(settings.retention_services)).await?;
    records.store.forget_notes().await?;
    records.store.forget_events(before(settings.retention_events), settings.events_max).await?;
    records.store.forget_rollouts(ENDED_KEPT).await?;
    let forgotten =
        records.store.forget_parked(before(settings.retention_parked), settings.parked_max).await?;
    if forgotten > 0 {
        warn!(forgotten, "parked messages beyond their retention are deleted");
    }
    Ok(())
}

async fn rows(manager: &Arc<Manager>) -> Result<(), StoreError> {
    let held = safe_mode::is_on(&manager.records).await?;
    for _ in 0..ROUNDS {
        let mut due = manager.records.store.due(manager.records.clock.now(), BATCH).await?;
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
    let now = manager.records.clock.now();
    let (mut forget, mut changes) = (Vec::new(), Vec::new());
    for row in due {
        let (after, then) = match due_step(row, now, &manager.settings.row) {
            None => continue,
            Some(DueStep::Forget) => {
                forget.push((row.id, row.version));
                continue;
            }
            Some(DueStep::Revoke(after)) => (after, Then::Revoke),
            Some(DueStep::Save(after)) => (after, Then::Tell),
            Some(DueStep::Publish(after)) => (after, Then::Publish),
        };
        changes.push(RowChange { before: row.clone(), after, then });
    }
    let any = !(forget.is_empty() && changes.is_empty());
    if !forget.is_empty() {
        manager.records.store.forget(&forget).await?;
    }
    commit(manager, changes).await?;
    Ok(any)
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
