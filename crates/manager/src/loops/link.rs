//! Keeps one session with the broker: connects, declares, reads the queues until the session is lost, then starts
//! over. The manager serves HTTP all the time.

pub(crate) mod ownership;

use self::ownership::NotOwner;
use crate::context::Manager;
use crate::context::link::Link;
use crate::intake::{parked, rates};
use crate::outgoing::log_requests;
use crate::outgoing::state_queues;
use crate::outgoing::work_queues;
use crate::{RunError, intake};
use everwatch_broker::{BrokerError, ConnectError, QueueKind, Session};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(4);

/// Why there is no session that can be used.
#[derive(Debug, thiserror::Error)]
enum NoSession {
    #[error(transparent)]
    Connect(#[from] ConnectError),
    #[error(transparent)]
    Ownership(#[from] NotOwner),
}

impl NoSession {
    /// This error again if a retry may help; else the error that ends a manager at its start.
    fn retryable(self) -> Result<Self, RunError> {
        match self {
            Self::Connect(error @ ConnectError::Refused(_)) => Err(RunError::ConnectRefused(error)),
            Self::Ownership(error) if !error.may_pass() => Err(RunError::NotOwner(error)),
            Self::Connect(ConnectError::Unreachable(_)) | Self::Ownership(_) => Ok(self),
        }
    }
}

/// # Errors
/// If the broker refuses this manager at its start; later refusals are retried.
pub(crate) async fn run(manager: Arc<Manager>) -> Result<(), RunError> {
    let mut pause = FIRST_PAUSE;
    let mut worked = false;
    while !manager.stop.is_cancelled() {
        let opened = tokio::select! {
            () = manager.stop.cancelled() => break,
            opened = open(&manager) => opened,
        };
        match opened {
            Ok((session, state_queues)) => {
                (worked, pause) = (true, FIRST_PAUSE);
                serve(&manager, session, state_queues).await;
            }
            Err(error) => {
                let error = if worked { error } else { error.retryable()? };
                let why = error.to_string();
                warn!(why, again_in_ms = pause.as_millis(), "no session with the broker");
                manager.disconnected(why);
            }
        }
        let jittered = pause.mul_f64(rand::random_range(0.5..1.0));
        tokio::select! {
            () = manager.stop.cancelled() => break,
            () = tokio::time::sleep(jittered) => {}
        }
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
    Ok(())
}

/// A session whose queues exist, and the number of state queues to read.
async fn open(manager: &Manager) -> Result<(Arc<dyn Session>, u16), NoSession> {
    let name = format!("everwatch manager {}", manager.link.id);
    let session = manager.link.broker.connect(&name).await?;
    let prepared = async {
        declare(&manager.link, session.as_ref()).await?;
        let state_queues = state_queues::to_read(&manager.link, session.as_ref()).await?;
        ownership::check(manager, session.as_ref()).await?;
        Ok::<_, NotOwner>(state_queues)
    };
    match prepared.await {
        Ok(state_queues) => Ok((session, state_queues)),
        Err(error) => {
            session.close().await;
            Err(error.into())
        }
    }
}

async fn declare(link: &Link, session: &dyn Session) -> Result<(), BrokerError> {
    for (queue, kind) in link.topology.durable_queues() {
        session.declare(&queue, &kind).await?;
    }
    for exchange in link.topology.exchanges() {
        session.declare_exchange(&exchange).await?;
    }
    let replies = link.topology.replies(link.questions.begin());
    session.declare(&replies, &QueueKind::Exclusive).await.map(drop)
}

/// Reads the queues of one session until it is lost or the manager stops.
async fn serve(manager: &Arc<Manager>, session: Arc<dyn Session>, state_queues: u16) {
    manager.connected(Arc::clone(&session), state_queues);
    for pool in &manager.settings.pools {
        if let Err(error) = work_queues::declare(manager, session.as_ref(), pool).await {
            warn!(%pool, %error, "a work queue could not be declared");
        }
    }
    info!("connected to the broker");
    manager.wake.notify_one();
    let over = manager.stop.child_token();
    let mut readers = JoinSet::new();
    spawn_readers(&mut readers, manager, &session, &over);
    let why = tokio::select! {
        why = session.lost() => why,
        () = manager.stop.cancelled() => "the manager stops".to_owned(),
        ended = readers.join_next() => match ended {
            Some(Err(error)) => format!("a reader failed: {error}"),
            Some(Ok(())) | None => "a queue is no longer delivered".to_owned(),
        },
    };
    // The broker requeues unacknowledged messages with the end of the session. Another manager, or the next session,
    // applies them again, which changes nothing.
    over.cancel();
    if manager.stop.is_cancelled() {
        while readers.join_next().await.is_some() {}
        manager.tasks.close();
        if tokio::time::timeout(Duration::from_secs(2), manager.tasks.wait()).await.is_err() {
            info!("some publishes were not confirmed before the stop");
        }
    } else {
        warn!(why, "the session with the broker is over");
    }
    manager.disconnected(why);
    readers.shutdown().await;
    session.close().await;
}

fn spawn_readers(
    readers: &mut JoinSet<()>,
    manager: &Arc<Manager>,
    session: &Arc<dyn Session>,
    over: &CancellationToken,
) {
    let parts = || (Arc::clone(manager), Arc::clone(session), over.clone());
    // One loop for each state queue, so that a large batch of one does not delay the reports in the others.
    for index in 0..manager.freshness.state_queues() {
        let (it, session_of, token) = parts();
        readers.spawn(async move { intake::state::run(it, session_of, token, index).await });
    }
    let (it, session_of, token) = parts();
    readers.spawn(async move { intake::heartbeats::run(it, session_of, token).await });
    let (it, session_of, token) = parts();
    readers.spawn(async move { rates::run(it, session_of, token).await });
    let (it, session_of, token) = parts();
    readers.spawn(async move { log_requests::run(it, session_of, token).await });
    let (it, session_of, token) = parts();
    readers.spawn(async move { parked::run(it, session_of, token).await });
}
