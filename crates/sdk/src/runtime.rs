//! A service process: one incarnation after another until it is told to stop.

use crate::handle::Handle;
use crate::host_info::FenceOn;
use crate::safety::child_watchdog::ChildWatchdogs;
use crate::session::{self, End, Incarnation, Unlived};
use crate::settings::ServiceSettings;
use crate::tasks::log_files::LogFiles;
use crate::tasks::logs::Logs;
use crate::tasks::registry::Registry;
use crate::tasks::threads::{OwnRuntimes, Runtimes};
use everwatch_broker::{Broker, ConnectError, Session, ack_timeout};
use everwatch_core::failure::reconnect::ReconnectBackoff;
use everwatch_core::id::ServiceId;
use everwatch_core::wire::report::Predecessor;
use std::sync::Arc;
use std::time::Duration;
use uuid::Uuid;

/// The longest pause between two attempts to reach the broker. It is short, because nothing runs until one succeeds.
const CONNECT_PAUSE_MAX: Duration = Duration::from_secs(4);

/// Why a service ended without a request.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The broker refuses the service, and a retry is useless.
    #[error("{0}")]
    Refused(String),
    /// The process must be replaced: its supervisor is to start it again. Everything is handed over.
    #[error("{0}")]
    MustBeReplaced(String),
    /// The operating system starts no more threads.
    #[error("cannot start a thread: {0}")]
    NoThread(#[from] std::io::Error),
}

/// Runs a service until [`Handle::stop`]. The caller's runtime carries the control loop and must not be
/// the one that runs the code of observers, which is `tasks`.
///
/// # Errors
/// If an operator must act. A broker that cannot be reached is tried for ever.
pub async fn run(
    settings: ServiceSettings,
    registry: Registry,
    broker: Arc<dyn Broker>,
    tasks: tokio::runtime::Handle,
    handle: Handle,
) -> Result<(), RunError> {
    let frost = handle.frost.clone();
    // In simulated time, no code blocks.
    let may_block = handle.machine.fence == FenceOn::Thread;
    let own = OwnRuntimes::start(registry.own_threads())?;
    let runtimes = own.beside(tasks);
    tokio::select! {
        ended = incarnations(settings, registry, broker, runtimes.clone(), handle) => ended,
        never = runtimes.keep_served(), if may_block => match never {},
        never = frost.hold_runtime() => match never {},
    }
}

fn log_files(settings: &ServiceSettings) -> Result<Option<Arc<LogFiles>>, RunError> {
    let Some(folder) = &settings.log_dir else { return Ok(None) };
    let files = LogFiles::open(folder, settings.name.as_str(), settings.log_lines);
    files.map(Some).map_err(|error| {
        RunError::Refused(format!("service.log_dir: cannot write to {}: {error}", folder.display()))
    })
}

async fn incarnations(
    settings: ServiceSettings,
    registry: Registry,
    broker: Arc<dyn Broker>,
    runtimes: Runtimes,
    handle: Handle,
) -> Result<(), RunError> {
    let pulses = ChildWatchdogs::default();
    let logs = Arc::new(Logs::new(settings.log_lines).in_files(log_files(&settings)?));
    let registry = Arc::new(registry.share(pulses.clone()));
    let mut predecessor: Option<Predecessor> = None;
    let known_time = Arc::default();
    let mut advised = false;
    let (mut losses, mut comes_last) = (ReconnectBackoff::NONE, false);
    // A broker that has taken this service once refuses it for a reason that passes, as a password that is being
    // changed: only a service that never worked is refused for good.
    let mut worked = false;
    loop {
        let id = ServiceId(Uuid::new_v4());
        let connected = connect((&settings, id), broker.as_ref(), Refusal::of(worked), &handle).await?;
        let Some(session) = connected else { return Ok(()) };
        if !std::mem::replace(&mut advised, true) {
            let version = broker.version().await;
            if let Some(warning) = version.as_deref().and_then(ack_timeout::at_start) {
                tracing::warn!("{warning}");
            }
        }
        let registered = tokio::time::Instant::now();
        let incarnation = Incarnation {
            id,
            settings: settings.clone(),
            registry: registry.clone(),
            session,
            runtimes: runtimes.clone(),
            pulses: pulses.clone(),
            logs: logs.clone(),
            predecessor: predecessor.take(),
            known_time: Arc::clone(&known_time),
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
        logs.flush().await;
        match end {
            End::Stopped => return Ok(()),
            End::Replaced(why) => return Err(RunError::MustBeReplaced(why)),
            End::Killed => {
                tracing::warn!(service = %id, name = %settings.name, "killed; starts again in 5 s");
                comes_last = false;
                wait(Duration::from_secs(5), &handle).await;
            }
            End::Lost(reason) => {
                tracing::warn!(service = %id, reason, "the session is lost; coming back as a new incarnation");
                if let Some(cure) = ack_timeout::after_loss(&reason) {
                    tracing::error!("{cure}");
                }
                predecessor = Some(Predecessor { service: id, ended: reason });
                let back = losses.on_lost(registered.elapsed(), rand::random());
                comes_last = back.comes_last;
                wait(back.pause, &handle).await;
            }
        }
        if handle.stop.is_cancelled() {
            return Ok(());
        }
    }
}

/// What a refusal of the broker means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Refusal {
    /// An operator must act: the service ends.
    IsFinal,
    /// The service tries again.
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
