//! The state queue: run reports folded into rows, births and ends of services, marks.

use super::births::{self, Newborn};
use super::lists::{self, Part};
use super::unknown::{self, Answers};
use super::{ack_all, insist, next, next_ready, open};
use crate::shared::{CAS_TRIES, Manager, Marked};
use crate::{hold, metric, orphans, traced};
use everwatch_broker::{Delivery, Receipt, Session};
use everwatch_core::clock::Timestamp;
use everwatch_core::history::What;
use everwatch_core::id::{ObserverId, Pool, ServiceId};
use everwatch_core::message::{
    BATCH_MAX, Described, HeldWork, Numbered, Report, Reports, RunReport, StateMessage, Tick, decode, encode,
};
use everwatch_core::row::{Applied, Row};
use everwatch_store::{Found, Parked, StoreError};
use everwatch_trace::Span;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use tokio_util::sync::CancellationToken;
use tracing::{debug, error, info, warn};

/// One report about one run, with who said it and when.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) service: ServiceId,
    seq: u64,
    at: Timestamp,
    pub(super) report: RunReport,
    pub(super) told: Told,
}

/// What makes a service tell of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Told {
    /// Something happened to it.
    Event,
    /// It lists all that it holds.
    List,
    /// It was asked what it holds there.
    Described,
}

/// What was taken from the queue in one go.
#[derive(Debug, Default)]
struct Batch {
    receipts: Vec<Receipt>,
    runs: Vec<Run>,
    newborns: Vec<Newborn>,
    gone: Vec<ServiceId>,
    /// Whose work queues were made anew, and when.
    pools: Vec<(Pool, Timestamp)>,
    /// One for each report that came with a trace: they end with the batch.
    spans: Vec<Span>,
    described: Vec<Described>,
    lists: Vec<Part>,
    ticks: Vec<Tick>,
    parked: Vec<Parked>,
}

pub(crate) async fn run(manager: Arc<Manager>, session: Arc<dyn Session>, over: CancellationToken) {
    let queue = manager.topology.state();
    let Some(mut consumer) = open(session.as_ref(), queue).await else { return };
    while let Some(first) = next(consumer.as_mut(), &over).await {
        let mut batch = Batch::default();
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
        after(&manager, session.as_ref(), batch, answers).await;
    }
}

impl Batch {
    fn add(&mut self, manager: &Manager, delivery: &Delivery) {
        self.receipts.push(delivery.receipt);
        match decode::<StateMessage>(&delivery.body) {
            Ok(StateMessage::Tick(tick)) => self.ticks.push(tick),
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
                    queue: manager.topology.state(),
                    reason: unreadable.to_string(),
                    body: delivery.body.to_vec(),
                    at: manager.clock.now(),
                });
            }
        }
    }

    fn add_report(&mut self, service: ServiceId, Numbered { seq, at, report, trace }: Numbered) {
        metrics::counter!(metric::REPORTS).increment(1);
        if let (Report::Run(run), Some(trace)) = (&report, &trace) {
            self.spans.push(traced::report(service, run, trace));
        }
        match report {
            Report::Run(report) => self.runs.push(Run { service, seq, at, report, told: Told::Event }),
            Report::List(chunk) => {
                self.lists.push(Part::of(service, seq, &chunk));
                let run = |report| Run { service, seq, at, report, told: Told::List };
                self.runs.extend(chunk.entries.into_iter().map(run));
            }
            Report::ServiceBorn(birth) => self.newborns.push(Newborn { service, birth: *birth, at }),
            Report::ServiceGone => self.gone.push(service),
            Report::Described(described) => {
                let run = |held: &HeldWork| Run {
                    service,
                    seq,
                    at,
                    report: held.run.clone(),
                    told: Told::Described,
                };
                self.runs.extend(described.held.iter().map(run));
                self.described.push(described);
            }
            Report::WorkQueueCreated { pool } => self.pools.push((pool, at)),
            Report::Unknown(_) => {
                metrics::counter!(metric::UNKNOWN_REPORTS).increment(1);
                debug!(%service, seq, "a report of a newer version is passed over");
            }
        }
    }
}

/// Commits the batch; answers what its senders must hear.
async fn apply(manager: &Manager, batch: &Batch) -> Result<Answers, StoreError> {
    births::apply(manager, &batch.newborns, &batch.gone).await?;
    for (pool, at) in &batch.pools {
        // By the service's clock, which may be ahead: nothing was created later than now.
        orphans::note_new_queue(manager, pool, (*at).min(manager.clock.now())).await?;
    }
    unknown::adopt(manager, &batch.described).await?;
    if !batch.parked.is_empty() {
        manager.store.park(&batch.parked).await?;
    }
    let mut by_id: HashMap<ObserverId, Vec<&Run>> = HashMap::new();
    for run in &batch.runs {
        by_id.entry(run.report.id).or_default().push(run);
    }
    let answers = match apply_runs(manager, by_id.clone()).await {
        Err(StoreError::Corrupt(_)) => apply_singly(manager, by_id).await?,
        applied => applied?,
    };
    lists::apply(manager, &batch.lists).await?;
    Ok(answers)
}

/// One row that cannot be read must not stop the others.
async fn apply_singly(
    manager: &Manager,
    by_id: HashMap<ObserverId, Vec<&Run>>,
) -> Result<Answers, StoreError> {
    let mut answers = Answers::default();
    for (id, runs) in by_id {
        match apply_runs(manager, HashMap::from([(id, runs)])).await {
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
    mut pending: HashMap<ObserverId, Vec<&Run>>,
) -> Result<Answers, StoreError> {
    let mut answers = Answers::default();
    for _ in 0..CAS_TRIES {
        if pending.is_empty() {
            return Ok(answers);
        }
        let ids: Vec<ObserverId> = pending.keys().copied().collect();
        let Found { rows, unreadable } = manager.store.load(&ids).await?;
        let mut known: HashSet<ObserverId> = rows.iter().map(|row| row.id).collect();
        known.extend(&unreadable);
        let about: Vec<&Run> =
            unreadable.iter().filter_map(|id| pending.get(id)).flatten().copied().collect();
        pass_over(manager, &about).await?;
        let unknown = pending.values().flatten().copied().filter(|run| !known.contains(&run.report.id));
        answers.add_unknown(manager, &unknown.collect::<Vec<_>>()).await?;
        let (mut changed, mut same, mut before) = (Vec::new(), Vec::new(), HashMap::new());
        for mut row in rows {
            let runs = pending.get(&row.id).map_or(&[][..], Vec::as_slice);
            let was = row.clone();
            if let Some(run) = runs.iter().find(|run| row.is_behind(&run.report)) {
                hold::on_behind(manager, &row, &run.report).await?;
            }
            if fold(manager, &mut row, runs) {
                before.insert(row.id, was);
                changed.push(row);
            } else {
                same.push(row);
            }
        }
        // Those that another manager has changed meanwhile are loaded and folded again: a join, so
        // that the order in which the two come does not matter.
        let lost: HashSet<ObserverId> = if changed.is_empty() {
            HashSet::new()
        } else {
            manager.store.save(&changed).await?.into_iter().collect()
        };
        for row in changed.iter().filter(|row| !lost.contains(&row.id)) {
            let was = before.get(&row.id);
            manager.tell(was, row);
            if let Some((service, floor)) = was.and_then(|was| row.taken_over_from(was)) {
                answers.taken_over.entry(service).or_default().push(floor);
            }
        }
        for row in changed.iter().chain(&same).filter(|row| !lost.contains(&row.id)) {
            let runs = pending.get(&row.id).map_or(&[][..], Vec::as_slice);
            answers.floors.extend(runs.iter().filter_map(|run| row.answer(&run.report)));
            if row.wants_reissue() {
                manager.wake.notify_one();
            }
        }
        pending.retain(|id, _| lost.contains(id));
    }
    Err(StoreError::Contended("the rows keep changing".to_owned()))
}

/// Reports about rows that cannot be read are parked, so that a person can send them back once the cure is done.
/// The obvious way, to wait for that, would hold up the reports of all others. What a list says is said again.
async fn pass_over(manager: &Manager, runs: &[&Run]) -> Result<(), StoreError> {
    let mut parked = Vec::new();
    for run in runs {
        metrics::counter!(metric::PASSED_OVER).increment(1);
        if run.told == Told::Event {
            let entries = vec![Numbered::new(run.seq, run.at, Report::Run(run.report.clone()))];
            let body = encode(&StateMessage::Reports(Reports { service: run.service, entries }));
            parked.push(Parked {
                id: 0,
                queue: manager.topology.state(),
                reason: format!("the row of observer {} cannot be read", run.report.id),
                body: body.map_err(|error| StoreError::Corrupt(error.to_string()))?,
                at: manager.clock.now(),
            });
        }
    }
    if parked.is_empty() { Ok(()) } else { manager.store.park(&parked).await }
}

fn fold(manager: &Manager, row: &mut Row, runs: &[&Run]) -> bool {
    let now = manager.clock.now();
    let mut changed = false;
    for run in runs {
        if run.told != Told::Event && row.repeats(run.service, &run.report) {
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
    changed
}

/// What follows the commit: answers, work queues, marks.
async fn after(manager: &Arc<Manager>, session: &dyn Session, batch: Batch, answers: Answers) {
    answers.tell_later(manager);
    for tick in &batch.ticks {
        manager.on_tick(Marked::State, tick.sent_at);
    }
    for (pool, _) in &batch.pools {
        info!(%pool, "a service made the work queue of its pool");
        manager.tell_all(What::WorkQueueCreated, format!("pool {pool}"));
    }
    let newborn_pools = batch.newborns.iter().map(|newborn| &newborn.birth.pool);
    for pool in newborn_pools.chain(batch.pools.iter().map(|(pool, _)| pool)) {
        if let Err(error) = manager.ensure_work(session, pool).await {
            warn!(%pool, %error, "a work queue could not be declared");
        }
    }
    if !batch.newborns.is_empty() {
        births::welcome(manager, &batch.newborns).await;
        manager.wake.notify_one();
    }
    if batch.receipts.len() > batch.ticks.len() {
        manager.note_change();
    }
}
