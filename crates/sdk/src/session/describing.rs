//! Answers managers that do not know this service or what it holds: after a backup was restored.

use super::Life;
use crate::reporter::{Reporter, Say};
use everwatch_core::id::{ObserverId, Pool, ServiceId};
use everwatch_core::message::{Described, HeldWork, Report, RunReport, Work};
use std::sync::Arc;
use tokio::sync::mpsc;

/// Questions that may wait for their answers; who is not answered asks again.
const QUESTIONS: usize = 200;
/// The most text of messages in one report, but for a single message.
const REPORT_MAX: usize = 128 * 1024;

type Held = Vec<(RunReport, Arc<Work>)>;

/// Tells what is held, one report after the other: naively all at once, and the specs of a thousand observers
/// make a message that no broker takes.
pub(crate) struct Describer {
    questions: mpsc::Sender<Held>,
    waiting: Option<mpsc::Receiver<Held>>,
}

impl Describer {
    pub(crate) fn new() -> Self {
        let (questions, waiting) = mpsc::channel(QUESTIONS);
        Self { questions, waiting: Some(waiting) }
    }
}

impl Life {
    /// Shows managers what these are; with none, who it is itself and all that it holds.
    pub(super) async fn describe(&mut self, asked: ServiceId, ids: &[ObserverId]) {
        if asked != self.me.id {
            return;
        }
        if ids.is_empty() {
            let birth = Box::new(self.birth());
            self.reporter.say(Say::Tell(Report::ServiceBorn(birth))).await;
            return self.list().await;
        }
        if let Some(waiting) = self.describer.waiting.take() {
            let answers = answer(waiting, self.reporter.clone(), self.me.settings.pool.clone());
            let ends = self.helpers.clone();
            self.tracker.spawn(async move {
                let _over = ends.run_until_cancelled(answers).await;
            });
        }
        if self.describer.questions.try_send(self.slots.describe(ids, self.now())).is_err() {
            tracing::debug!("too many questions about what is held: this one is to be asked again");
        }
    }
}

async fn answer(mut waiting: mpsc::Receiver<Held>, reporter: Reporter, pool: Pool) {
    while let Some(held) = waiting.recv().await {
        let (mut part, mut bytes) = (Vec::new(), 0);
        for (run, work) in held {
            let Ok(work) = serde_json::to_string(&*work) else { continue };
            if bytes + work.len() > REPORT_MAX && !part.is_empty() {
                tell(&reporter, &pool, std::mem::take(&mut part)).await;
                bytes = 0;
            }
            bytes += work.len();
            part.push(HeldWork { run, work });
        }
        if !part.is_empty() {
            tell(&reporter, &pool, part).await;
        }
    }
}

async fn tell(reporter: &Reporter, pool: &Pool, held: Vec<HeldWork>) {
    // Confirmed: so one batch of reports has at most one of these.
    reporter.confirmed(Report::Described(Described { pool: pool.clone(), held })).await;
}
