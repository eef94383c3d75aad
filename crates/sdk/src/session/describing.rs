//! Answers managers that do not know this service or what it holds, mostly after a backup was restored.

use super::ServiceSession;
use crate::session::reporter::{Reporter, Say};
use everwatch_broker::Topology;
use everwatch_core::id::{ObserverId, Pool};
use everwatch_core::wire::report::{HeldMessages, HeldWork, Report, RunReport};
use everwatch_core::wire::work::Work;
use std::sync::Arc;
use tokio::sync::mpsc;

/// Questions that may wait; a manager that gets no answer asks again.
const QUESTIONS: usize = 200;
/// The most text of messages in one report, in bytes; a single longer message is allowed.
const REPORT_MAX: usize = 128 * 1024;

type Held = Vec<(RunReport, Arc<Work>)>;

/// Describes held observers, one report after the other: the specs of a thousand observers in one message would be more
/// than a broker takes.
pub(crate) struct HeldDescriber {
    questions: mpsc::Sender<Held>,
    waiting: Option<mpsc::Receiver<Held>>,
}

impl HeldDescriber {
    pub(crate) fn new() -> Self {
        let (questions, waiting) = mpsc::channel(QUESTIONS);
        Self { questions, waiting: Some(waiting) }
    }
}

impl ServiceSession {
    /// Describes these observers to the managers; with none, the service itself and everything that it holds.
    pub(super) async fn describe(&mut self, ids: &[ObserverId]) {
        if ids.is_empty() {
            let registration = Box::new(self.registration());
            self.reporter.say(Say::Tell(Report::ServiceRegistered(registration))).await;
            return self.digest().await;
        }
        if let Some(waiting) = self.describer.waiting.take() {
            let (topology, pool) = (self.topology.clone(), self.me.settings.pool.clone());
            let replies = answer(waiting, self.reporter.clone(), (topology, pool));
            self.helpers.spawn(replies);
        }
        if self.describer.questions.try_send(self.machine.describe(ids)).is_err() {
            tracing::debug!("too many questions about what is held: this one is to be asked again");
        }
    }
}

async fn answer(mut waiting: mpsc::Receiver<Held>, reporter: Reporter, (topology, pool): (Topology, Pool)) {
    while let Some(mut held) = waiting.recv().await {
        // A description goes to the queue of its observers. Otherwise, a manager could read the end of an observer
        // first, and then adopt the observer as running.
        held.sort_by_key(|(run, _)| topology.state_of(run.id));
        for held in held.chunk_by(|(a, _), (b, _)| topology.state_of(a.id) == topology.state_of(b.id)) {
            tell_all(held, &reporter, &pool).await;
        }
    }
}

async fn tell_all(held: &[(RunReport, Arc<Work>)], reporter: &Reporter, pool: &Pool) {
    let (mut part, mut bytes) = (Vec::new(), 0);
    for (run, work) in held {
        let Ok(work) = serde_json::to_string(&**work) else { continue };
        if bytes + work.len() > REPORT_MAX && !part.is_empty() {
            tell(reporter, pool, std::mem::take(&mut part)).await;
            bytes = 0;
        }
        bytes += work.len();
        part.push(HeldWork { run: run.clone(), work });
    }
    if !part.is_empty() {
        tell(reporter, pool, part).await;
    }
}

async fn tell(reporter: &Reporter, pool: &Pool, held: Vec<HeldWork>) {
    // It waits for the confirm, so that one batch of reports has at most one of these.
    reporter.confirmed(Report::HeldMessages(HeldMessages { pool: pool.clone(), held })).await;
}
