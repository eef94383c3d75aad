//! Answers managers that ask what observers have said.

use super::Life;
use crate::logs::Logs;
use everwatch_broker::{BrokerError, Message, Session, Target, Topology};
use everwatch_core::logs::{Answer, AskLogs, LogsAnswer};
use everwatch_core::message::encode;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::timeout;

/// Questions that may wait for their answers; who is not answered asks again.
const QUESTIONS: usize = 200;
/// Lines in one answer.
const ANSWER_LINES: usize = 1000;
/// An answer that is not out by then is not waited for any more.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);

pub(super) type Questions = mpsc::Sender<AskLogs>;

/// Answers one question after the other, beside the loop of the service.
struct Teller {
    logs: Arc<Logs>,
    session: Arc<dyn Session>,
    topology: Topology,
}

impl Life {
    pub(super) fn tell_logs(&mut self, asked: AskLogs) {
        let questions = self.questions.get_or_insert_with(|| {
            let (sender, waiting) = mpsc::channel(QUESTIONS);
            let (logs, session) = (self.me.logs.clone(), self.me.session.clone());
            let teller = Teller { logs, session, topology: self.topology.clone() };
            let ends = self.helpers.clone();
            self.tracker.spawn(async move {
                let _over = ends.run_until_cancelled(teller.run(waiting)).await;
            });
            sender
        });
        if questions.try_send(asked).is_err() {
            tracing::debug!("too many questions about logs: this one is to be asked again");
        }
    }
}

impl Teller {
    async fn run(self, mut waiting: mpsc::Receiver<AskLogs>) {
        while let Some(AskLogs { number, to, id, after, most }) = waiting.recv().await {
            let lines = self.logs.read(id, after, (most as usize).min(ANSWER_LINES));
            let Ok(body) = encode(&Answer::Logs(LogsAnswer { number, lines })) else { continue };
            let target = Target::Queue(self.topology.answers(to));
            let message = Message { body: body.into(), headers: Vec::new() };
            match timeout(ANSWER_WITHIN, self.session.publish(&target, message)).await {
                // Whoever asked is gone.
                Ok(Ok(()) | Err(BrokerError::Unroutable(_))) => {}
                Ok(Err(error)) => tracing::debug!(%error, "an answer did not go out, it is asked for again"),
                Err(_) => tracing::debug!("an answer is not confirmed yet, it is asked for again"),
            }
        }
    }
}
