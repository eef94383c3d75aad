//! A service as a program: configuration, log, signals and health around [`crate::run`].

mod health;
mod resources;
mod settings;
mod shutdown;
mod stderr;
mod telemetry;

pub use crate::limit_text::{SizeLimitText, TimeLimitText};
pub use settings::{
    Broker, CapacityText, Log, LogFormat, Service as ServiceSection, Settings, SettingsError, Telemetry,
    check, load,
};
pub use shutdown::on_signals;
pub use stderr::last_words;
pub use telemetry::{Teller, Telling, init_telemetry};

pub(crate) use self::resources::Resources;
use crate::handle::Handle;
use crate::runtime::{self, RunError};
use crate::safety::fence::MUST_BE_REPLACED;
use crate::tasks::registry::Registry;
use std::path::Path;
use std::sync::Arc;
use tokio::runtime::Runtime;

/// The error that ended a service program.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// The configuration is wrong: exit code 2.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// Access refused, unknown vhost, no threads: exit code 1. The process must be replaced: exit code 70.
    #[error(transparent)]
    Run(#[from] RunError),
    /// The address `service.listen` cannot be used: exit code 1.
    #[error("service.listen: cannot listen on {address}: {error}; choose another address and port")]
    CannotListen {
        /// The configured address.
        address: String,
        /// Why not.
        error: std::io::Error,
    },
    /// Another recorder of metrics is installed in this process: exit code 1.
    #[error("service.listen: cannot record metrics: {0}; set service.listen to \"\" to serve none")]
    NoMetrics(metrics_exporter_prometheus::BuildError),
    /// The listener of `service.listen` ended: exit code 1.
    #[error("service.listen: the listener ended")]
    ListenerEnded,
    /// The operating system starts no more threads: exit code 1.
    #[error("cannot start the threads for {purpose}: {error}")]
    NoThread {
        /// What they are for.
        purpose: &'static str,
        /// Why not.
        error: std::io::Error,
    },
    /// A shared value could not be set up: exit code 1.
    #[error("the set-up of the shared value {name} failed: {error}")]
    SetUp {
        /// Its type.
        name: &'static str,
        /// The error or the panic.
        error: String,
    },
    /// The operating system delivers no signals: exit code 1.
    #[error("cannot listen for signals: {0}")]
    NoSignals(std::io::Error),
}

impl HostError {
    /// The exit code that scripts rely on.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Settings(_) => 2,
            Self::Run(RunError::MustBeReplaced(_)) => MUST_BE_REPLACED,
            Self::Run(_)
            | Self::CannotListen { .. }
            | Self::NoMetrics(_)
            | Self::ListenerEnded
            | Self::NoThread { .. }
            | Self::SetUp { .. }
            | Self::NoSignals(_) => 1,
        }
    }
}

/// What a program offers.
#[derive(Default)]
pub(crate) struct Offer {
    pub(crate) registry: Registry,
    pub(crate) built_in: bool,
    pub(crate) resources: Resources,
}

impl Offer {
    /// With the built-in kinds, which depend on the configuration.
    pub(crate) fn complete(self, broker: &Broker, section: &ServiceSection) -> (Registry, Resources) {
        let Self { registry, built_in, resources } = self;
        let registry = registry.secrets(section.secrets());
        if built_in {
            return (crate::kinds::add_built_in(registry, section.kind_settings(broker)), resources);
        }
        (registry, resources)
    }
}

/// Runs one service with the configuration of this file and the environment until a signal.
pub(crate) fn run_configured(config: Option<&Path>, offer: Offer) -> Result<(), HostError> {
    let settings: Settings = load(config)?;
    check(&settings.broker, &settings.service)?;
    settings.telemetry.check()?;
    let teller = Teller { role: "everwatch-service", instance: &settings.service.instance() };
    let _telling = init_telemetry(&settings.log, &settings.telemetry, teller)?;
    let (registry, resources) = offer.complete(&settings.broker, &settings.service);
    host(&settings.broker, &settings.service, registry, resources)
}

/// Runs one service on RabbitMQ until a signal.
///
/// # Errors
/// If an operator must act; the error says how.
pub fn run(broker: &Broker, section: &ServiceSection, registry: Registry) -> Result<(), HostError> {
    host(broker, section, registry, Resources::default())
}

fn host(
    broker: &Broker,
    section: &ServiceSection,
    registry: Registry,
    resources: Resources,
) -> Result<(), HostError> {
    let service = section.settings(broker)?;
    section.prepare(broker)?;
    let broker = Arc::new(broker.for_service()?);
    let tasks = observer_runtime(section.threads)?;
    // The control loop has a runtime of its own: code that blocks cannot hold it up.
    let control = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let control = control.map_err(|error| HostError::NoThread { purpose: "the control loop", error })?;
    let handle = Handle::default();
    let ended = control.block_on(async {
        let health = health::Listener::bind(&section.listen, &handle)?;
        let work = async {
            let (tasks, stop) = (tasks.handle(), &handle.stop);
            let run = |registry| async {
                Ok(runtime::run(service, registry, broker, tasks.clone(), handle.clone()).await?)
            };
            resources.around(registry, (tasks, stop), run).await
        };
        tokio::select! {
            ended = work => ended,
            error = health.serve() => Err(error),
            Err(error) = on_signals(handle.stop.clone(), handle.hard_stop.clone()) => {
                Err(HostError::NoSignals(error))
            }
        }
    });
    tasks.shutdown_background();
    ended
}

/// The runtime for the code of observers: many more threads than cores, so that code that blocks leaves others free.
/// `threads` 0: four for each core, at least 16.
///
/// # Errors
/// If the machine gives no threads.
pub fn observer_runtime(threads: u16) -> Result<Runtime, HostError> {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let threads = if threads == 0 { (4 * cores).max(16) } else { usize::from(threads) };
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(threads)
        .thread_name("observers")
        .enable_all()
        .build()
        .map_err(|error| HostError::NoThread { purpose: "observers", error })
}

/// The text of a file that holds a secret, without the line's end.
///
/// # Errors
/// If the file cannot be read; names it.
pub fn secret(path: &Path) -> Result<String, SettingsError> {
    std::fs::read_to_string(path)
        .map(|text| text.trim_end_matches(['\r', '\n']).to_owned())
        .map_err(|error| SettingsError::new(format!("{} cannot be read: {error}", path.display())))
}
