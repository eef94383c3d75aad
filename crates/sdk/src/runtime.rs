//! A service process: one incarnation after another until it is told to stop.

use crate::frost::Frost;
use crate::logs::Logs;
use crate::machine::Machine;
use crate::pulse::Pulses;
use crate::registry::Registry;
use crate::session::{self, End, Incarnation, Unlived};
use crate::settings::ServiceSettings;
use everwatch_broker::{Broker, ConnectError, Session, advice};
use everwatch_core::id::ServiceId;
use everwatch_core::message::Predecessor;
use everwatch_core::rebirth::Losses;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
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
    /// Dies like a killed process and restarts (for trying out failover).
    kill: Arc<Mutex<Option<CancellationToken>>>,
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
    /// Lets the service die like a killed process; it restarts after a pause. `false` if it does not live now,
    /// as in that pause: the call then has no effect, not even on the next incarnation.
    #[must_use]
    pub fn kill(&self) -> bool {
        match self.lock_kill().take() {
            Some(life) => {
                life.cancel();
                true
            }
            None => false,
        }
    }
    /// An incarnation lives from now on: cancelled once it is to die.
    pub(crate) fn born(&self) -> CancellationToken {
        let life = CancellationToken::new();
        *self.lock_kill() = Some(life.clone());
        life
    }
    /// No incarnation lives.
    pub(crate) fn dead(&self) {
        *self.lock_kill() = None;
    }
    fn lock_kill(&self) -> MutexGuard<'_, Option<CancellationToken>> {
        self.kill.lock().unwrap_or_else(PoisonError::into_inner)
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
    // A broker that has taken this service once refuses it for a reason that passes, as a password that is being
    // changed: only a service that never worked is refused for good.
    let mut worked = false;
    loop {
        let id = ServiceId(Uuid::new_v4());
        let connected = connect((&settings, id), broker.as_ref(), Refusal::of(worked), &handle).await?;
        let Some(session) = connected else { return Ok(()) };
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
        let end = match session::live(incarnation).await {
            Ok(end) => {
                worked = true;
                end
            }
            Err(Unlived::Lost(reason)) => End::Lost(reason),
            Err(Unlived::Refused(why)) if worked => End::Lost(why),
            Err(Unlived::Refused(why)) => return Err(RunError::Refused(why)),
            Err(Unlived::NoThread(error)) => return Err(RunError::NoThread(error)),
        };
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

/// What the broker's refusal means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Refusal {
    /// A person has to mend something: the service ends.
    IsFinal,
    /// It is waited out.
    Passes,
}

impl Refusal {
    fn of(worked: bool) -> Self {
        if worked { Self::Passes } else { Self::IsFinal }
    }
}

async fn connect(
    (settings, id): (&ServiceSettings, ServiceId),
    broker: &dyn Broker,
    refusal: Refusal,
    handle: &Handle,
) -> Result<Option<Arc<dyn Session>>, RunError> {
    let mut pause = Duration::from_millis(500);
    loop {
        let name = format!("everwatch service {} {id}", settings.name);
        let attempt = broker.connect(&name);
        match handle.stop.run_until_cancelled(attempt).await {
            None => return Ok(None),
            Some(Ok(session)) => return Ok(Some(session)),
            Some(Err(ConnectError::Refused(why))) if refusal == Refusal::IsFinal => {
                return Err(RunError::Refused(why));
            }
            Some(Err(error)) => {
                match error {
                    ConnectError::Refused(error) => {
                        tracing::warn!(error, retry_in = ?pause, "the broker refuses the connection, trying again");
                    }
                    ConnectError::Unreachable(error) => {
                        tracing::warn!(error, retry_in = ?pause, "the broker cannot be reached, trying again");
                    }
                }
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
