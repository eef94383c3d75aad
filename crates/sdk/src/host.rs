//! A service as a program: configuration, log, signals and health around [`crate::run`].

mod health;
mod limits;
mod resources;
mod settings;
mod shutdown;
mod stderr;
mod telemetry;

pub use limits::{SizeLimitText, TimeLimitText};
pub use settings::{
    Broker, CapacityText, Log, LogFormat, Service as ServiceSection, Settings, SettingsError, Telemetry,
    check, load,
};
pub use shutdown::on_signals;
pub use stderr::last_words;
pub use telemetry::{Teller, Telling, init_telemetry};

use self::resources::Resources;
use crate::error::Error;
use crate::handle::Handle;
use crate::runtime::{self, RunError};
use crate::safety::fence::MUST_BE_REPLACED;
use crate::tasks::context::Context;
use crate::tasks::exit::Exit;
use crate::tasks::observer::Observer;
use crate::tasks::registry::{Registry, RunFuture};
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use tokio::runtime::Runtime;

/// Why a service program ended other than as asked.
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
    CannotListen { address: String, error: std::io::Error },
    /// Another recorder of metrics is installed in this process: exit code 1.
    #[error("service.listen: cannot record metrics: {0}; set service.listen to \"\" to serve none")]
    NoMetrics(metrics_exporter_prometheus::BuildError),
    /// The listener of `service.listen` ended: exit code 1.
    #[error("service.listen: the listener ended")]
    ListenerEnded,
    /// The operating system starts no more threads: exit code 1.
    #[error("cannot start the threads for {purpose}: {error}")]
    NoThread { purpose: &'static str, error: std::io::Error },
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

/// A program that is an observer service: say which observers it offers, then [`Service::main`].
///
/// ```no_run
/// # use everwatch::{Context, Error, Exit, Observer};
/// # #[derive(serde::Deserialize, schemars::JsonSchema)]
/// # struct Hello {}
/// # impl Observer for Hello {
/// #     const KIND: &'static str = "hello";
/// #     async fn run(self, ctx: Context) -> Result<Exit, Error> { ctx.cancelled().await; Ok(Exit::Done) }
/// # }
/// fn main() -> std::process::ExitCode {
///     everwatch::Service::new().observer::<Hello>().main()
/// }
/// ```
#[derive(Default)]
pub struct Service {
    registry: Registry,
    built_in: bool,
    resources: Resources,
}

impl Service {
    /// Offers nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }
    /// Offers a kind of one's own.
    #[must_use]
    pub fn observer<O: Observer>(mut self) -> Self {
        self.registry = self.registry.observer::<O>();
        self
    }
    /// Offers a kind whose code is a function of its spec and its context, beside the trait [`Observer`]. It is ready at
    /// its start and gives no signs of life.
    ///
    /// ```no_run
    /// use everwatch::{Context, Exit, Service};
    ///
    /// #[derive(serde::Deserialize, schemars::JsonSchema)]
    /// struct Greeting { to: String }
    ///
    /// fn main() -> std::process::ExitCode {
    ///     let greet = |greeting: Greeting, ctx: Context| async move {
    ///         ctx.emit(greeting.to).await?;
    ///         ctx.cancelled().await;
    ///         Ok(Exit::Stopped)
    ///     };
    ///     Service::new().observer_fn("greeting", greet).main()
    /// }
    /// ```
    ///
    /// # Panics
    /// If `kind` is not 1 to 64 of `a-z 0-9 . _ -`: that is a mistake in the program.
    #[must_use]
    pub fn observer_fn<S, F, R>(mut self, kind: &str, code: F) -> Self
    where
        S: DeserializeOwned + JsonSchema,
        F: Fn(S, Context) -> R + Send + Sync + 'static,
        R: Future<Output = Result<Exit, Error>> + Send + 'static,
    {
        self.registry = self.registry.observer_fn(kind, code);
        self
    }
    /// Runs a function around the code of every attempt, of every kind of this service. The code runs when the function
    /// awaits it, and the function returns how the attempt ends. The function that was added first is the outermost.
    ///
    /// ```no_run
    /// # fn service() -> everwatch::Service {
    /// everwatch::Service::new().around(|ctx, code| async move {
    ///     let ended = code.await;
    ///     tracing::info!(attempt = ctx.attempt(), ?ended, "the code has ended");
    ///     ended
    /// })
    /// # }
    /// ```
    #[must_use]
    pub fn around<F, R>(mut self, hook: F) -> Self
    where
        F: Fn(Context, RunFuture) -> R + Send + Sync + 'static,
        R: Future<Output = Result<Exit, Error>> + Send + 'static,
    {
        self.registry = self.registry.around(hook);
        self
    }
    /// Offers the built-in kinds too ([`crate::kinds`]).
    #[must_use]
    pub fn built_in(mut self) -> Self {
        self.built_in = true;
        self
    }
    /// Gives every observer access to a value, by its type ([`crate::Context::shared`]).
    #[must_use]
    pub fn share<T: Send + Sync + 'static>(mut self, value: T) -> Self {
        self.registry = self.registry.share(value);
        self
    }
    /// Gives every observer access to the output of a future, by its type. The future runs once, before the service
    /// takes its first observer. If it fails, the program ends with exit code 1.
    ///
    /// ```no_run
    /// # struct Pool;
    /// # impl Pool {
    /// #     async fn connect(url: &str) -> Result<Self, everwatch::Error> { Ok(Self) }
    /// #     async fn close(&self) {}
    /// # }
    /// # fn service() -> everwatch::Service {
    /// everwatch::Service::new()
    ///     .share_with(async { Pool::connect("postgres://localhost/prices").await })
    ///     .tear_down(|pool: std::sync::Arc<Pool>| async move { pool.close().await })
    /// # }
    /// ```
    #[must_use]
    pub fn share_with<T, F>(mut self, set_up: F) -> Self
    where
        T: Send + Sync + 'static,
        F: Future<Output = Result<T, Error>> + Send + 'static,
    {
        self.resources.add(set_up);
        self
    }
    /// Runs a function on a shared value after all observers of the service have stopped, for at most 10 s. Values are
    /// torn down in reverse order of these calls. A process that is killed tears nothing down.
    #[must_use]
    pub fn tear_down<T, F, R>(mut self, tear_down: F) -> Self
    where
        T: Send + Sync + 'static,
        F: FnOnce(Arc<T>) -> R + Send + 'static,
        R: Future<Output = ()> + Send + 'static,
    {
        self.resources.tear_down(tear_down);
        self
    }

    /// Reads the configuration (`--config FILE` or `EVERWATCH_CONFIG`, then `EVERWATCH_SECTION__KEY`), runs
    /// until SIGTERM or Ctrl-C, hands everything over and ends: 0 as asked, 1 refused by broker or machine,
    /// 2 wrong configuration, 70 code that could not be stopped, or that blocks a thread or uses memory beyond the
    /// limits of `[service]`: start the program again.
    #[must_use]
    pub fn main(self) -> ExitCode {
        crate::kinds::exec::run_helper_if_asked();
        // A second provider is refused: then the program has chosen one itself.
        let _chosen = rustls::crypto::ring::default_provider().install_default();
        match self.hosted() {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                last_words(&error.to_string());
                ExitCode::from(error.exit_code())
            }
        }
    }

    fn hosted(mut self) -> Result<(), HostError> {
        let settings: Settings = load(config_file()?.as_deref())?;
        check(&settings.broker, &settings.service)?;
        settings.telemetry.check()?;
        let teller = Teller { role: "everwatch-service", instance: &settings.service.instance() };
        let _telling = init_telemetry(&settings.log, &settings.telemetry, teller)?;
        if self.built_in {
            self.registry =
                crate::kinds::add_built_in(self.registry, settings.service.kind_settings(&settings.broker));
        }
        host(&settings.broker, &settings.service, self.registry, self.resources)
    }
}

fn config_file() -> Result<Option<PathBuf>, SettingsError> {
    let mut arguments = std::env::args_os().skip(1);
    match arguments.next() {
        None => Ok(std::env::var_os("EVERWATCH_CONFIG").map(PathBuf::from)),
        Some(flag) if flag == "--config" => match arguments.next() {
            Some(path) => Ok(Some(path.into())),
            None => Err(SettingsError::new("--config: name a file".to_owned())),
        },
        Some(other) => {
            Err(SettingsError::new(format!("{}: the only argument is --config FILE", other.display())))
        }
    }
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
    let broker = Arc::new(broker.connectable()?);
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
