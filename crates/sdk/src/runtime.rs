//! A service process: one incarnation after another until it is told to stop.

use crate::frost::Frost;
use crate::logs::Logs;
use crate::machine::Machine;
use crate::pulse::Pulses;
use crate::registry::Registry;
use crate::session::{self, End, Incarnation};
use crate::settings::ServiceSettings;
use everwatch_broker::{Broker, ConnectError, Session, advice};
use everwatch_core::id::ServiceId;
use everwatch_core::message::Predecessor;
use everwatch_core::rebirth::Losses;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

/// The longest pause between two attempts to reach the broker: it is short, because nothing runs until one
/// succeeds.
const CONNECT_PAUSE_MAX: Duration = Duration::from_secs(4);

/// Why a service ended though nobody asked it to.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The broker will not have it, and trying again is no use.
    #[error("{0}")]
    Refused(String),
    /// The machine gives no more threads.
    #[error("no thread can be started: {0}")]
    NoThread(#[from] std::io::Error),
}

/// Holds of a service from outside.
#[derive(Debug, Clone, Default)]
pub struct Handle {
    /// Hand everything over, say goodbye, end.
    pub stop: CancellationToken,
    /// End at once: requeue everything without waiting for code.
    pub hard_stop: CancellationToken,
    /// Die like a killed process and be born anew (for trying out failover).
    pub kill: Arc<Notify>,
    /// Stand still, as after SIGSTOP (for trying out failover). The control loop's runtime has to have one thread.
    pub frost: Frost,
    /// The machine under it.
    pub machine: Machine,
    ready: Arc<AtomicBool>,
}

impl Handle {
    /// Whether the service has been born and still has its session with the broker.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.ready.load(Ordering::Relaxed)
    }
    pub(crate) fn set_ready(&self, ready: bool) {
        self.ready.store(ready, Ordering::Relaxed);
    }
}

/// Runs a service until [`Handle::stop`]. The caller's runtime carries the control loop and must not be
/// the one that runs people's code: that is `tasks`.
///
/// # Errors
/// Only what a person has to mend; a broker that cannot be reached is tried for ever.
pub async fn run(
    settings: ServiceSettings,
    registry: Registry,
    broker: Arc<dyn Broker>,
    tasks: tokio::runtime::Handle,
    handle: Handle,
) -> Result<(), RunError> {
    let frost = handle.frost.clone();
    tokio::select! {
        ended = incarnations(settings, registry, broker, tasks, handle) => ended,
        never = frost.hold_runtime() => match never {},
    }
}

async fn incarnations(
    settings: ServiceSettings,
    registry: Registry,
    broker: Arc<dyn Broker>,
    tasks: tokio::runtime::Handle,
    handle: Handle,
) -> Result<(), RunError> {
    let pulses = Pulses::default();
    let logs = Arc::new(Logs::new(settings.log_lines));
    let registry = Arc::new(registry.share(pulses.clone()));
    let mut predecessor: Option<Predecessor> = None;
    let mut advised = false;
    let (mut losses, mut comes_last) = (Losses::NONE, false);
    loop {
        let id = ServiceId(Uuid::new_v4());
        let Some(session) = connect(&settings, broker.as_ref(), id, &handle).await? else { return Ok(()) };
        if !std::mem::replace(&mut advised, true) {
            let version = broker.version().await;
            if let Some(warning) = version.as_deref().and_then(advice::at_start) {
                tracing::warn!("{warning}");
            }
        }
        let born = tokio::time::Instant::now();
        let incarnation = Incarnation {
            id,
            settings: settings.clone(),
            registry: registry.clone(),
            session,
            tasks: tasks.clone(),
            pulses: pulses.clone(),
            logs: logs.clone(),
            predecessor: predecessor.take(),
            comes_last,
            handle: handle.clone(),
        };
        let end = session::live(incarnation).await?;
        logs.close_all();
        match end {
            End::Stopped => return Ok(()),
            End::Killed => {
                tracing::warn!(service = %id, "killed; born again in 5 s");
                comes_last = false;
                wait(Duration::from_secs(5), &handle).await;
            }
            End::Lost(reason) => {
                tracing::warn!(service = %id, reason, "the session is lost; coming back as a new incarnation");
                if let Some(cure) = advice::after_loss(&reason) {
                    tracing::error!("{cure}");
                }
                predecessor = Some(Predecessor { service: id, ended: reason });
                let back = losses.on_lost(born.elapsed(), rand::random());
                comes_last = back.comes_last;
                wait(back.pause, &handle).await;
            }
        }
        if handle.stop.is_cancelled() {
            return Ok(());
        }
    }
}

async fn connect(
    settings: &ServiceSettings,
    broker: &dyn Broker,
    id: ServiceId,
    handle: &Handle,
) -> Result<Option<Arc<dyn Session>>, RunError> {
    let mut pause = Duration::from_millis(500);
    loop {
        let name = format!("everwatch service {} {id}", settings.name);
        let attempt = broker.connect(&name);
        match handle.stop.run_until_cancelled(attempt).await {
            None => return Ok(None),
            Some(Ok(session)) => return Ok(Some(session)),
            Some(Err(ConnectError::Refused(why))) => return Err(RunError::Refused(why)),
            Some(Err(ConnectError::Unreachable(why))) => {
                tracing::warn!(error = why, retry_in = ?pause, "the broker cannot be reached, trying again");
                wait(jittered(pause), handle).await;
                if handle.stop.is_cancelled() {
                    return Ok(None);
                }
                pause = (pause * 2).min(CONNECT_PAUSE_MAX);
            }
        }
    }
}

fn jittered(pause: Duration) -> Duration {
    pause.mul_f64(rand::random_range(0.25..1.0))
}

async fn wait(pause: Duration, handle: &Handle) {
    let _stopped = handle.stop.run_until_cancelled(tokio::time::sleep(pause)).await;
}
