//! Keeps one session with the broker: connects, declares, reads the queues until the session is lost, then starts
//! over. The manager serves HTTP all the time.

mod ownership;

use self::ownership::NotOwner;
use crate::context::Manager;
use crate::intake::parked;
use crate::outgoing::log_requests;
use crate::outgoing::work_queues;
use crate::{RunError, intake};
use everwatch_broker::{BrokerError, ConnectError, QueueKind, Session};
use everwatch_store::StoreError;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(4);

/// Why a session could not be used.
enum Trouble {
    Wait(String),
    Person(String),
    NotOurs(String),
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
            Ok(session) => {
                (worked, pause) = (true, FIRST_PAUSE);
                serve(&manager, session).await;
            }
            Err(Trouble::Person(why)) if !worked => return Err(RunError::BrokerRefused(why)),
            Err(Trouble::NotOurs(why)) if !worked => return Err(RunError::NotOurs(why)),
            Err(Trouble::Person(why) | Trouble::NotOurs(why) | Trouble::Wait(why)) => {
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

async fn open(manager: &Manager) -> Result<Arc<dyn Session>, Trouble> {
    let name = format!("everwatch manager {}", manager.id);
    let session = manager.broker.connect(&name).await.map_err(|error| match error {
        ConnectError::Unreachable(why) => Trouble::Wait(why),
        ConnectError::Refused(why) => Trouble::Person(why),
    })?;
    let prepared = async {
        declare(manager, session.as_ref()).await?;
        ownership::check(manager, session.as_ref()).await
    };
    if let Err(error) = prepared.await {
        session.close().await;
        return Err(match error {
            NotOwner::Broker(BrokerError::Refused(_))
            | NotOwner::Store(StoreError::Refused(_) | StoreError::Corrupt(_)) => {
                Trouble::Person(error.to_string())
            }
            NotOwner::Other { .. } => Trouble::NotOurs(error.to_string()),
            NotOwner::Broker(
                BrokerError::Lost(_)
                | BrokerError::NoQueue(_)
                | BrokerError::Unroutable(_)
                | BrokerError::Silent(_)
                | BrokerError::NotAccepted(_),
            )
            | NotOwner::Store(StoreError::Unavailable(_) | StoreError::Contended(_))
            | NotOwner::Busy(_) => Trouble::Wait(error.to_string()),
        });
    }
    Ok(session)
}

async fn declare(manager: &Manager, session: &dyn Session) -> Result<(), BrokerError> {
    for (queue, kind) in manager.topology.durable_queues() {
        session.declare(&queue, &kind).await?;
    }
    for exchange in manager.topology.exchanges() {
        session.declare_exchange(&exchange).await?;
    }
    let replies = manager.topology.replies(manager.questions.begin());
    session.declare(&replies, &QueueKind::Exclusive).await.map(drop)
}

/// Reads the queues of one session until it is lost or the manager stops.
async fn serve(manager: &Arc<Manager>, session: Arc<dyn Session>) {
    manager.connected(Arc::clone(&session));
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
    let (it, session_of, token) = parts();
    readers.spawn(async move { intake::state::run(it, session_of, token).await });
    let (it, session_of, token) = parts();
    readers.spawn(async move { intake::heartbeats::run(it, session_of, token).await });
    let (it, session_of, token) = parts();
    readers.spawn(async move { log_requests::run(it, session_of, token).await });
    let (it, session_of, token) = parts();
    readers.spawn(async move { parked::run(it, session_of, token).await });
}
