//! Requests for the logs of observers: a manager asks one service, and the service replies.
//!
//! A question goes to the command queue of one service and its answer to a queue of this session alone, so
//! neither other services, nor other managers, nor the state queue carry any of it. Nothing is stored: who is
//! not answered in time asks again.

use crate::context::Manager;
use crate::outgoing::commands;
use crate::queue_reader;
use everwatch_broker::{BrokerError, Message, Session, Target};
use everwatch_core::id::{ObserverId, ServiceId};
use everwatch_core::wire::command::Command;
use everwatch_core::wire::logs::{Answer, AskLogs, Lines, LogCursor};
use everwatch_core::wire::message::{decode, encode};
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;
use tracing::debug;

/// How long a service may take to answer.
pub(crate) const ANSWER_WITHIN: Duration = Duration::from_secs(5);

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

/// Asks a service for lines of an observer: the newest, or those after a place.
pub(crate) async fn logs(
    manager: &Manager,
    service: ServiceId,
    (id, after, most): (ObserverId, Option<LogCursor>, u32),
) -> Result<Lines, Unanswered> {
    let link = &manager.link;
    let session = link.open_session().ok_or(Unanswered::NoBroker)?;
    let (asked, answer) = link.questions.ask().ok_or(Unanswered::TooMany)?;
    let command = Command::Logs(AskLogs { number: asked.number, to: asked.to, id, after, most });
    let Ok(body) = encode(&command) else { return Err(Unanswered::Silent) };
    let target = Target::Queue(commands::queue_of(manager, service).await.ok_or(Unanswered::Gone)?);
    let answered = async {
        match session.publish(&target, Message { body: body.into(), headers: Vec::new() }).await {
            Ok(()) => answer.await.map_err(|_| Unanswered::Silent),
            Err(BrokerError::Unroutable(_) | BrokerError::NoQueue(_)) => Err(Unanswered::Gone),
            Err(BrokerError::Lost(_)) => Err(Unanswered::NoBroker),
            Err(
                BrokerError::Refused(_)
                | BrokerError::Forbidden(_)
                | BrokerError::NotAccepted(_)
                | BrokerError::Silent(_),
            ) => Err(Unanswered::Silent),
        }
    };
    tokio::time::timeout(ANSWER_WITHIN, answered).await.unwrap_or(Err(Unanswered::Silent))
}

/// Hears the answers of one session.
pub(crate) async fn run(manager: Arc<Manager>, session: Arc<dyn Session>, over: CancellationToken) {
    let queue = manager.link.topology.replies(manager.link.questions.to());
    let Some(mut consumer) = queue_reader::open(session.as_ref(), queue, queue_reader::PREFETCH).await else {
        return;
    };
    while let Some(delivery) = queue_reader::next(consumer.as_mut(), &over).await {
        match decode::<Answer>(&delivery.body) {
            Ok(Answer::Logs(answer)) => manager.link.questions.on_answer(answer),
            Ok(Answer::Unknown(_)) => debug!("an answer of a newer version is passed over"),
            Err(unreadable) => debug!(why = %unreadable, "an unreadable answer is dropped"),
        }
        queue_reader::ack_all(session.as_ref(), &[delivery.receipt]).await;
    }
}
