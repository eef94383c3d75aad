//! One state queue: folds run reports into rows, and applies registrations, ends of services and watermarks.
//!
//! If there are several, all reports about one observer are in one queue, and those of a service about itself are in the
//! first. The queues are read independently, so a manager may read the two sorts in another order than they were sent:
//! - a run before the registration of its service: a row needs no row of its holder;
//! - `service_gone` before the last reports of its runs: it ends no run. An observer is an orphan only after
//!   `orphan_after`, and managers conclude this only while they are up to date with every queue;
//! - an inventory before older events, or after newer ones: one service numbers all of its reports in one sequence, so
//!   the later report wins, and `Row::on_unlisted` ignores an observer with a later report. An end that waits in
//!   another queue is read within `orphan_after`, as above;
//! - a digest before older events: see `may_compare`.

use super::inventories::{self, Part};
use super::registrations::{self, NewService};
use super::runs::{Run, RunSource};
use super::unknown::{self, Answers};
use super::{checkpoints, insist, refused_messages};
use crate::commit::CAS_TRIES;
use crate::commit::{RowChange, Then, save};
use crate::context::Manager;
use crate::context::freshness::WatermarkQueue;
use crate::context::records::Records;
use crate::context::revocations::Recipients;
use crate::excused::Excused;
use crate::fleet::{safe_mode, service_loss};
use crate::metric;
use crate::outgoing::spans;
use crate::outgoing::work_queues;
use crate::queue_reader::{PREFETCH, ack_all, next, next_ready, open};
use everwatch_broker::{Delivery, Receipt, Session};
use everwatch_core::clock::Timestamp;
use everwatch_core::id::{ObserverId, Pool, ServiceId};
use everwatch_core::record::events::EventKind;
use everwatch_core::record::row::{Applied, Row};
use everwatch_core::wire::heartbeat::Watermark;
use everwatch_core::wire::message::{BATCH_MAX, decode, encode};
use everwatch_core::wire::report::{
    HeldMessages, HeldWork, InventoryDigest, RefusedMessages, Report, Reports, SequencedReport, StateMessage,
};
use everwatch_store::{Found, Parked, StoreError};
use everwatch_trace::Span;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use tokio_util::sync::CancellationToken;
use tracing::{debug, error, info, warn};

/// What was taken from the queue in one go.
#[derive(Debug, Default)]
struct Batch {
    /// The queue that it was taken from.
    queue: String,
    receipts: Vec<Receipt>,
    runs: Vec<Run>,
    new_services: Vec<NewService>,
    gone: Vec<ServiceId>,
    /// Pools whose work queues were created again, and when.
    pools: Vec<(Pool, Timestamp)>,
    /// One for each report that came with a trace: they end with the batch.
    spans: Vec<Span>,
    described: Vec<HeldMessages>,
    digests: Vec<(ServiceId, InventoryDigest)>,
    lists: Vec<Part>,
    watermarks: Vec<Watermark>,
    parked: Vec<Parked>,
    refused: Vec<(ServiceId, RefusedMessages)>,
    saved: checkpoints::Saved,
}

/// Deliveries in hand at least, in each of many state queues.
const PREFETCH_MIN: u16 = 16;

pub(crate) async fn run(
    manager: Arc<Manager>,
    session: Arc<dyn Session>,
    over: CancellationToken,
    index: u16,
) {
    let queue = manager.link.topology.state_queue(index);
    // The queues share the limit, which bounds the memory of the manager.
    let prefetch = (PREFETCH / manager.freshness.state_queues()).max(PREFETCH_MIN);
    let Some(mut consumer) = open(session.as_ref(), queue.clone(), prefetch).await else { return };
    while let Some(first) = next(consumer.as_mut(), &over).await {
        let mut batch = Batch { queue: queue.clone(), ..Batch::default() };
        batch.add(&manager, &first);
        while batch.runs.len() < BATCH_MAX
            && let Some(delivery) = next_ready(consumer.as_mut())
        {
            batch.add(&manager, &delivery);
        }
        let Some(answers) = insist(&over, || apply(&manager, &batch)).await else { return };
        #[expect(clippy::cast_precision_loss, reason = "a small number")]
        metrics::histogram!(metric::INTAKE_BATCH).record(batch.runs.len() as f64);
        ack_all(session.as_ref(), &batch.receipts).await;
        for watermark in &batch.watermarks {
            manager.freshness.on_watermark(WatermarkQueue::State(index), watermark.sent_at);
        }
        after(&manager, session.as_ref(), batch, answers).await;
    }
}

impl Batch {
    fn add(&mut self, manager: &Manager, delivery: &Delivery) {
        self.receipts.push(delivery.receipt);
        match decode::<StateMessage>(&delivery.body) {
            Ok(StateMessage::Watermark(watermark)) => self.watermarks.push(watermark),
            Ok(StateMessage::Reports(Reports { service, entries })) => {
                for entry in entries {
                    self.add_report(service, entry);
                }
            }
            Err(unreadable) => {
                metrics::counter!(metric::UNREADABLE, "queue" => "state").increment(1);
                warn!(why = %unreadable, "an unreadable report is parked");
                self.parked.push(Parked {
                    id: 0,
                    queue: self.queue.clone(),
                    reason: unreadable.to_string(),
                    body: delivery.body.to_vec(),
                    at: manager.records.clock.now(),
                });
            }
        }
    }

    fn add_report(
        &mut self,
        service: ServiceId,
        SequencedReport { seq, at, report, trace }: SequencedReport,
    ) {
        metrics::counter!(metric::REPORTS).increment(1);
        if let (Report::Run(run), Some(trace)) = (&report, &trace) {
            self.spans.push(spans::report(service, run, trace));
        }
        match report {
            Report::Run(report) => {
                self.saved.add_result(&report);
                self.runs.push(Run { service, seq, at, report, told: RunSource::Event });
            }
            Report::Checkpoint(checkpoint) => self.saved.add_checkpoint(service, checkpoint),
            Report::CheckpointWanted(wanted) => self.saved.add_wanted(service, wanted),
            Report::InventoryDigest(digest) => self.digests.push((service, digest)),
            Report::Inventory(chunk) => {
                self.lists.push(Part::of(service, seq, &chunk));
                let run = |report| Run { service, seq, at, report, told: RunSource::List };
                self.runs.extend(chunk.entries.into_iter().map(run));
            }
            Report::ServiceRegistered(registration) => {
                self.new_services.push(NewService { service, registration: *registration, at });
            }
            Report::ServiceGone => self.gone.push(service),
            Report::HeldMessages(described) => {
                let run = |held: &HeldWork| Run {
                    service,
                    seq,
                    at,
                    report: held.run.clone(),
                    told: RunSource::HeldMessages,
                };
                self.runs.extend(described.held.iter().map(run));
                self.described.push(described);
            }
            Report::WorkQueueCreated { pool } => self.pools.push((pool, at)),
            Report::MessagesRefused(refused) => self.refused.push((service, refused)),
            Report::Unknown(_) => {
                metrics::counter!(metric::UNKNOWN_REPORTS).increment(1);
                debug!(%service, seq, "a report of a newer version is passed over");
            }
        }
    }
}

/// Commits the batch and returns the answers to its senders.
async fn apply(manager: &Manager, batch: &Batch) -> Result<Answers, StoreError> {
    registrations::apply(manager, &batch.new_services, &batch.gone).await?;
    for (pool, at) in &batch.pools {
        work_queues::note_report(&manager.records, pool, *at).await?;
    }
    unknown::adopt(manager, &batch.described).await?;
    if !batch.parked.is_empty() {
        manager.records.store.park(&batch.parked).await?;
    }
    checkpoints::save_results(&manager.records, &batch.saved).await?;
    let mut by_id: HashMap<ObserverId, Vec<&Run>> = HashMap::new();
    for run in &batch.runs {
        by_id.entry(run.report.id).or_default().push(run);
    }
    let mut answers = match apply_runs(manager, &batch.queue, by_id.clone()).await {
        Err(StoreError::Corrupt(_)) => apply_singly(manager, &batch.queue, by_id).await?,
        applied => applied?,
    };
    answers.checkpoints = checkpoints::apply(&manager.records, &batch.saved).await?;
    inventories::apply(&manager.records, &batch.lists).await?;
    if may_compare(manager) {
        answers.list = inventories::compare(&manager.records, &batch.digests).await?;
    }
    // Last, because a batch that fails is applied again.
    refused_messages::store(manager, &batch.refused).await?;
    Ok(answers)
}

/// Whether to compare digests with the database. In a single queue, every report is applied before the digest that
/// covers it. If another queue is far behind, as after a restart of the broker, almost every range would differ, and
/// services would send their whole inventories in addition to the waiting reports. So this manager waits for the next
/// digests, a minute later; it concludes nothing from silence until then either.
fn may_compare(manager: &Manager) -> bool {
    manager.freshness.state_queues() == 1
        || manager.freshness.state_is_within(manager.settings.heartbeat_interval * 2)
}

/// One row that cannot be read must not stop the others.
async fn apply_singly(
    manager: &Manager,
    queue: &str,
    by_id: HashMap<ObserverId, Vec<&Run>>,
) -> Result<Answers, StoreError> {
    let mut answers = Answers::default();
    for (id, runs) in by_id {
        match apply_runs(manager, queue, HashMap::from([(id, runs)])).await {
            Err(StoreError::Corrupt(why)) => {
                error!(observer = %id, why, "reports dropped, the row is damaged");
            }
            applied => answers.extend(applied?),
        }
    }
    Ok(answers)
}

async fn apply_runs(
    manager: &Manager,
    queue: &str,
    mut pending: HashMap<ObserverId, Vec<&Run>>,
) -> Result<Answers, StoreError> {
    let mut answers = Answers::default();
    for _ in 0..CAS_TRIES {
        if pending.is_empty() {
            return Ok(answers);
        }
        let ids: Vec<ObserverId> = pending.keys().copied().collect();
        let Found { rows, unreadable } = manager.records.store.load(&ids).await?;
        let mut known: HashSet<ObserverId> = rows.iter().map(|row| row.id).collect();
        known.extend(&unreadable);
        let about: Vec<&Run> =
            unreadable.iter().filter_map(|id| pending.get(id)).flatten().copied().collect();
        pass_over(manager, queue, &about).await?;
        let unknown = pending.values().flatten().copied().filter(|run| !known.contains(&run.report.id));
        answers.add_unknown(&manager.records, &unknown.collect::<Vec<_>>()).await?;
        let (mut changes, mut same) = (Vec::new(), Vec::new());
        for mut row in rows {
            let runs = pending.get(&row.id).map_or(&[][..], Vec::as_slice);
            let before = row.clone();
            if let Some(run) = runs.iter().find(|run| row.is_behind(&run.report)) {
                safe_mode::on_behind(&manager.records, &row, &run.report).await?;
            }
            if fold(&manager.records, &manager.settings.excused, &mut row, runs) {
                changes.push(RowChange { before, after: row, then: Then::Tell });
            } else {
                same.push(row);
            }
        }
        // Rows that another manager has changed in the meantime are loaded and folded again: folding is a join, so the
        // order does not matter.
        let mut lost: HashSet<ObserverId> = changes.iter().map(|it| it.after.id).collect();
        let saved = save(&manager.records, changes).await?;
        for RowChange { before, after, .. } in &saved {
            lost.remove(&after.id);
            // The previous holder may not know that the broker has redelivered its messages.
            let taken_over = after.taken_over_from(before);
            if let Some((service, revocation)) = taken_over {
                service_loss::doubt(manager, service);
                answers.revocations.push((Recipients::Service(service), revocation));
            }
        }
        for row in saved.iter().map(|it| &it.after).chain(&same) {
            let runs = pending.get(&row.id).map_or(&[][..], Vec::as_slice);
            let answer = |run: &&Run| Some((Recipients::Service(run.service), row.answer(&run.report)?));
            answers.revocations.extend(runs.iter().filter_map(answer));
            if row.wants_republish() {
                manager.wake.notify_one();
            }
        }
        pending.retain(|id, _| lost.contains(id));
    }
    Err(StoreError::Contended("the rows keep changing".to_owned()))
}

/// Parks reports about rows that cannot be read, so that an operator can send them back once the row is repaired. To
/// wait for that would delay the reports of all other observers. Inventories are repeated, so they are not parked.
async fn pass_over(manager: &Manager, queue: &str, runs: &[&Run]) -> Result<(), StoreError> {
    let mut parked = Vec::new();
    for run in runs {
        metrics::counter!(metric::PASSED_OVER).increment(1);
        if run.told == RunSource::Event {
            let entries = vec![SequencedReport::new(run.seq, run.at, Report::Run(run.report.clone()))];
            let body = encode(&StateMessage::Reports(Reports { service: run.service, entries }));
            parked.push(Parked {
                id: 0,
                queue: queue.to_owned(),
                reason: format!("the row of observer {} cannot be read", run.report.id),
                body: body.map_err(|error| StoreError::Corrupt(error.to_string()))?,
                at: manager.records.clock.now(),
            });
        }
    }
    if parked.is_empty() { Ok(()) } else { manager.records.store.park(&parked).await }
}

fn fold(records: &Records, excused: &Excused, row: &mut Row, runs: &[&Run]) -> bool {
    let now = records.clock.now();
    let mut changed = row.excuse(|service| excused.contains(service));
    for run in runs {
        if run.told != RunSource::Event && row.repeats(run.service, &run.report) {
            continue;
        }
        match row.apply(run.service, run.seq, run.at, &run.report, now) {
            Applied::Changed => changed = true,
            Applied::Same => {}
            Applied::Stale => {
                metrics::counter!(metric::STALE_REPORTS).increment(1);
                debug!(observer = %row.id, service = %run.service, epoch = %run.report.epoch, "stale report");
            }
        }
    }
    row.excuse(|service| excused.contains(service)) || changed
}

/// What follows the commit: answers and work queues.
async fn after(manager: &Arc<Manager>, session: &dyn Session, batch: Batch, answers: Answers) {
    answers.tell_later(manager);
    for (pool, _) in &batch.pools {
        info!(%pool, "a service created the work queue of its pool");
        manager.records.events.tell_all(EventKind::WorkQueueCreated, format!("pool {pool}"));
    }
    let new_service_pools = batch.new_services.iter().map(|new_service| &new_service.registration.pool);
    for pool in new_service_pools.chain(batch.pools.iter().map(|(pool, _)| pool)) {
        if let Err(error) = work_queues::ensure(manager, session, pool).await {
            warn!(%pool, %error, "a work queue could not be declared");
        }
    }
    if !batch.new_services.is_empty() {
        registrations::welcome(manager, &batch.new_services).await;
        manager.wake.notify_one();
    }
    if batch.receipts.len() > batch.watermarks.len() {
        manager.records.note_change();
    }
}
