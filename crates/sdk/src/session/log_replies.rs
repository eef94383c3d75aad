//! Answers managers that ask for the logs of observers.

use super::ServiceSession;
use crate::tasks::logs::Logs;
use everwatch_broker::{BrokerError, Message, Session, Target, Topology};
use everwatch_core::wire::logs::{Answer, AskLogs, LogsAnswer};
use everwatch_core::wire::message::encode;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::timeout;

/// Questions that may wait; a manager that gets no answer asks again.
const QUESTIONS: usize = 200;
/// Lines in one answer.
const ANSWER_LINES: usize = 1000;
/// An answer that is not confirmed by then is given up.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);

pub(super) type Questions = mpsc::Sender<AskLogs>;

/// Answers one question after the other, outside the loop of the service.
struct Teller {
    logs: Arc<Logs>,
    session: Arc<dyn Session>,
    topology: Topology,
}

impl ServiceSession {
    pub(super) fn tell_logs(&mut self, asked: AskLogs) {
        let questions = self.questions.get_or_insert_with(|| {
            let (sender, waiting) = mpsc::channel(QUESTIONS);
            let (logs, session) = (self.me.logs.clone(), self.me.session.clone());
            let teller = Teller { logs, session, topology: self.topology.clone() };
            self.helpers.spawn(teller.run(waiting));
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
            let lines = self.logs.read(id, after, (most as usize).min(ANSWER_LINES)).await;
            let Ok(body) = encode(&Answer::Logs(LogsAnswer { number, lines })) else { continue };
            let target = Target::Queue(self.topology.replies(to));
            let message = Message { body: body.into(), headers: Vec::new() };
            match timeout(ANSWER_WITHIN, self.session.publish(&target, message)).await {
                // The manager that asked is gone.
                Ok(Ok(()) | Err(BrokerError::Unroutable(_))) => {}
                Ok(Err(error)) => tracing::debug!(%error, "an answer did not go out, it is asked for again"),
                Err(_) => tracing::debug!("an answer is not confirmed yet, it is asked for again"),
            }
        }
    }
}
