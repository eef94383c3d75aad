//! Questions that a manager asks one service about, and their answers: what observers have said.
//!
//! A question goes to the command queue of one service and its answer to a queue of this session alone, so
//! neither other services, nor other managers, nor the state queue carry any of it. Nothing is stored: who is
//! not answered in time asks again.

use crate::intake;
use crate::shared::{Manager, lock};
use everwatch_broker::{BrokerError, Message, Session, Target};
use everwatch_core::id::{AnswersId, ObserverId, ServiceId};
use everwatch_core::logs::{Answer, AskLogs, Lines, LogsAnswer, Place};
use everwatch_core::message::{Command, decode, encode};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::Mutex;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use tracing::debug;
use uuid::Uuid;

/// How long a service may take to answer.
pub(crate) const ANSWER_WITHIN: Duration = Duration::from_secs(5);
/// Questions that wait for their answers at once.
const WAITING_MAX: usize = 1000;

/// Why there is no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unanswered {
    /// There is no session with the broker, or it does not take messages.
    NoBroker,
    /// The service is gone, and what it knew.
    Gone,
    /// The service lives, as far as the broker knows, and says nothing.
    Silent,
    /// Too many questions wait here.
    TooMany,
}

/// Who waits for which answer.
#[derive(Debug)]
pub(crate) struct Questions {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    to: AnswersId,
    last: u64,
    waiting: HashMap<u64, oneshot::Sender<Lines>>,
}

impl Default for Questions {
    fn default() -> Self {
        let state = State { to: AnswersId(Uuid::nil()), last: 0, waiting: HashMap::new() };
        Self { state: Mutex::new(state) }
    }
}

/// One question; dropped, nobody waits for its answer any more.
struct Asked<'a> {
    questions: &'a Questions,
    number: u64,
    to: AnswersId,
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        lock(&self.questions.state).waiting.remove(&self.number);
    }
}

impl Questions {
    /// A new queue for the answers of a new session: the broker may keep that of a lost one for a while.
    pub(crate) fn begin(&self) -> AnswersId {
        let to = AnswersId(Uuid::new_v4());
        lock(&self.state).to = to;
        to
    }
    fn to(&self) -> AnswersId {
        lock(&self.state).to
    }
    fn ask(&self) -> Option<(Asked<'_>, oneshot::Receiver<Lines>)> {
        let mut state = lock(&self.state);
        if state.waiting.len() >= WAITING_MAX {
            return None;
        }
        state.last += 1;
        let (number, to) = (state.last, state.to);
        let (sender, answer) = oneshot::channel();
        state.waiting.insert(number, sender);
        Some((Asked { questions: self, number, to }, answer))
    }
    fn on_answer(&self, LogsAnswer { number, lines }: LogsAnswer) {
        let waiting = lock(&self.state).waiting.remove(&number);
        if waiting.is_none_or(|waiting| waiting.send(lines).is_err()) {
            debug!("an answer came too late");
        }
    }
}

/// Asks a service for lines of an observer: the newest, or those after a place.
pub(crate) async fn logs(
    manager: &Manager,
    service: ServiceId,
    (id, after, most): (ObserverId, Option<Place>, u32),
) -> Result<Lines, Unanswered> {
    let session = manager.session().filter(|session| !session.is_blocked()).ok_or(Unanswered::NoBroker)?;
    let (asked, answer) = manager.questions.ask().ok_or(Unanswered::TooMany)?;
    let command = Command::Logs(AskLogs { number: asked.number, to: asked.to, id, after, most });
    let Ok(body) = encode(&command) else { return Err(Unanswered::Silent) };
    let target = Target::Queue(manager.topology.commands_of(service));
    let answered = async {
        match session.publish(&target, Message { body: body.into(), headers: Vec::new() }).await {
            Ok(()) => answer.await.map_err(|_| Unanswered::Silent),
            Err(BrokerError::Unroutable(_) | BrokerError::NoQueue(_)) => Err(Unanswered::Gone),
            Err(BrokerError::Lost(_)) => Err(Unanswered::NoBroker),
            Err(BrokerError::Refused(_) | BrokerError::NotAccepted(_) | BrokerError::Silent(_)) => {
                Err(Unanswered::Silent)
            }
        }
    };
    tokio::time::timeout(ANSWER_WITHIN, answered).await.unwrap_or(Err(Unanswered::Silent))
}

/// Hears the answers of one session.
pub(crate) async fn run(manager: Arc<Manager>, session: Arc<dyn Session>, over: CancellationToken) {
    let queue = manager.topology.answers(manager.questions.to());
    let Some(mut consumer) = intake::open(session.as_ref(), queue).await else { return };
    while let Some(delivery) = intake::next(consumer.as_mut(), &over).await {
        match decode::<Answer>(&delivery.body) {
            Ok(Answer::Logs(answer)) => manager.questions.on_answer(answer),
            Ok(Answer::Unknown(_)) => debug!("an answer of a newer version is passed over"),
            Err(unreadable) => debug!(why = %unreadable, "an unreadable answer is dropped"),
        }
        intake::ack_all(session.as_ref(), &[delivery.receipt]).await;
    }
}
