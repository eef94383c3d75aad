//! `dev`: runs a manager and services in one process, to try Everwatch and your own kinds.

mod chaos;
mod settings;

pub use settings::Settings;

use self::chaos::{Chaos, Listening, Services};
use crate::host::{
    self, CapacityText, HostError, Offer, SettingsError, Teller, observer_runtime, on_signals,
};
use crate::settings::Capacity;
use crate::tasks::registry::Registry;
use everwatch_api::Stats;
use everwatch_broker::{Broker, MemoryBroker};
use everwatch_manager::{NotOwner, RunError};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

/// How long the greeting waits for the services. `LOOK_EVERY`: the pause between two polls.
const GREET_WITHIN: Duration = Duration::from_secs(10);
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Advice for this case: the broker still contains observers of an earlier run, whose temporary database is
/// gone.
const TEMPORARY: &str = "`dev` has a new database each time unless --store names one to keep, as \
    --store sqlite://dev.db; without it, give another --prefix each time, or --adopt";

/// What the process runs.
#[derive(Debug, Clone, clap::Args)]
pub struct Options {
    /// Number of services
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub services: u32,
    /// Capacity of each service
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=200_000))]
    pub capacity: u32,
    /// RabbitMQ to use instead of the in-process broker: amqp://user:password@host:5672/%2f
    #[arg(long)]
    pub broker: Option<String>,
    /// Database to use instead of a temporary SQLite file: postgres://… or sqlite://dev.db
    #[arg(long)]
    pub store: Option<String>,
    /// Prefix of all queue names on a real RabbitMQ [default: that of the configuration, everwatch.]
    #[arg(long)]
    pub prefix: Option<String>,
    /// Address that the manager listens on [default: that of the configuration, 127.0.0.1:7700]
    #[arg(long)]
    pub listen: Option<String>,
    /// Take over observers in the broker that belong to another database
    #[arg(long)]
    pub adopt: bool,
    /// The number of deaths of services that quarantines an observer, instead of `[manager] quarantine_after`: for programs that
    /// kill services themselves
    #[arg(skip)]
    pub quarantine_after: Option<u32>,
}

/// The error that ended `dev`.
#[derive(Debug, thiserror::Error)]
pub enum DevError {
    /// A wrong option: exit code 2.
    #[error("{0}")]
    Usage(String),
    /// A service or the process that runs it: the exit code of [`HostError`].
    #[error(transparent)]
    Host(#[from] HostError),
    /// The manager: exit code 1.
    #[error("{0}")]
    Manager(String),
    /// The temporary database: exit code 1.
    #[error("the folder of the temporary database: {0}")]
    Scratch(std::io::Error),
}

impl DevError {
    /// The exit code that scripts rely on.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Usage(_) => 2,
            Self::Host(error) => error.exit_code(),
            Self::Manager(_) | Self::Scratch(_) => 1,
        }
    }
}

impl From<SettingsError> for DevError {
    fn from(error: SettingsError) -> Self {
        Self::Host(error.into())
    }
}

/// As [`crate::Service::dev`].
pub(crate) fn run(
    config: Option<&Path>,
    options: &Options,
    offer: Offer,
    greet: impl FnOnce(SocketAddr),
) -> Result<(), DevError> {
    let mut settings = Settings::load(config)?;
    let scratch = if options.store.is_some() {
        None
    } else {
        // The name is random: a killed process leaves its folder behind, and a later process may have the same id.
        Some(scratch_folder().map_err(DevError::Scratch)?)
    };
    adapt(&mut settings, options, scratch.as_ref());
    ensure_loopback(&settings.manager.listen)?;
    let teller = Teller { role: "everwatch-dev", instance: &settings.manager.listen };
    let _telling = host::init_telemetry(&settings.log, &settings.telemetry, teller)?;
    let broker: Arc<dyn Broker> = match &options.broker {
        Some(_) => Arc::new(settings.broker.for_manager()?),
        None => Arc::new(MemoryBroker::default()),
    };
    let ended = everything((&settings, options), broker, offer, greet);
    // Deleted after everything that uses it has ended.
    scratch.map_or(Ok(()), TempDir::close).map_err(DevError::Scratch)?;
    ended
}

/// In a temporary folder: the output of observers, also of those whose service was killed.
const LOGS: &str = "logs";

fn scratch_folder() -> std::io::Result<TempDir> {
    let folder = tempfile::Builder::new().prefix("everwatch-dev-").tempdir()?;
    std::fs::create_dir(folder.path().join(LOGS))?;
    Ok(folder)
}

/// Applies the options, and allows the built-in kinds everything: the API is reachable from this machine only.
fn adapt(settings: &mut Settings, options: &Options, scratch: Option<&TempDir>) {
    if settings.log.filter == host::Log::default().filter {
        "warn,lapin=off".clone_into(&mut settings.log.filter);
    }
    if let Some(folder) = scratch {
        settings.store.url = format!("sqlite://{}", folder.path().join("everwatch.db").display());
        if settings.service.log_dir.as_os_str().is_empty() {
            settings.service.log_dir = folder.path().join(LOGS);
        }
    }
    if let Some(deaths) = options.quarantine_after {
        settings.manager.quarantine_after = deaths;
    }
    let given = [
        (&options.store, &mut settings.store.url),
        (&options.listen, &mut settings.manager.listen),
        (&options.prefix, &mut settings.broker.prefix),
        (&options.broker, &mut settings.broker.url),
    ];
    for (option, setting) in given {
        if let Some(value) = option {
            setting.clone_from(value);
        }
    }
    let service = &mut settings.service;
    service.capacity = CapacityText(Capacity::Fixed(options.capacity));
    let lists = [
        &mut service.exec.allow,
        &mut service.exec.env_allow,
        &mut service.files.read,
        &mut service.files.write,
        &mut service.postgres.allow,
    ];
    for list in lists.into_iter().filter(|list| list.is_empty()) {
        *list = vec!["*".to_owned()];
    }
    service.http.allow_private = true;
}

/// In this mode, every client that reaches the API may run any program.
fn ensure_loopback(listen: &str) -> Result<(), DevError> {
    match listen.parse::<SocketAddr>() {
        Ok(address) if !address.ip().is_loopback() => Err(DevError::Usage(format!(
            "`dev` cannot listen on {listen}, because every client of its API may run any program: use \
             --listen 127.0.0.1:{}, or `everwatch run manager` and separate services",
            address.port()
        ))),
        _ => Ok(()),
    }
}

fn everything(
    (settings, options): (&Settings, &Options),
    broker: Arc<dyn Broker>,
    offer: Offer,
    greet: impl FnOnce(SocketAddr),
) -> Result<(), DevError> {
    let no_thread = |error| HostError::NoThread { purpose: "the manager", error };
    let tasks = observer_runtime(settings.service.threads)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(no_thread)?;
    let names = (1..=options.services).map(|number| format!("service-{number}"));
    let fleet = Fleet {
        services: Arc::new(names.map(|name| (name, crate::Handle::default())).collect()),
        broker: Arc::new(Listening::to(broker)),
        tasks: tasks.handle().clone(),
    };
    let (told, hard) = (CancellationToken::new(), CancellationToken::new());
    let (registry, resources) = offer.complete(&settings.broker, &settings.service);
    let ended = runtime.block_on(async {
        let work = resources.around(registry, (tasks.handle(), &told), |registry| {
            fleet.run((settings, options), registry, &told, greet)
        });
        tokio::select! {
            ended = work => ended,
            Err(error) = on_signals(told.clone(), hard.clone()) => Err(HostError::NoSignals(error).into()),
            () = hard.cancelled() => Ok(()),
        }
    });
    tasks.shutdown_background();
    runtime.shutdown_background();
    ended
}

/// The services of the process, and what they share.
struct Fleet {
    services: Services,
    broker: Arc<Listening>,
    tasks: tokio::runtime::Handle,
}

impl Fleet {
    /// Runs a manager and the services until `told`.
    async fn run(
        &self,
        (settings, options): (&Settings, &Options),
        registry: Registry,
        told: &CancellationToken,
        greet: impl FnOnce(SocketAddr),
    ) -> Result<(), DevError> {
        let mut manager = settings.manager()?;
        manager.adopt = options.adopt;
        // It listens on loopback, where its users and its own requests reach it over HTTP.
        manager.tls = None;
        manager.dev = true;
        let stop = CancellationToken::new();
        let mut threads = Vec::new();
        for (name, handle) in self.services.iter() {
            threads.push(self.start(settings, (name, handle), registry.clone())?);
        }
        let link = (self.broker.clone(), settings.broker.heartbeat);
        let chaos = Chaos::new(self.services.clone(), link, manager.excused.clone());
        let (bound, binds) = tokio::sync::oneshot::channel();
        let work = async {
            let opened = settings.store.open(settings.manager.row_policy(), &stop).await;
            let store = opened.map_err(|error| DevError::Manager(error.to_string()))?;
            let Some(store) = store else { return Ok(()) };
            let listening = |address| {
                let _over = bound.send(address);
            };
            let broker: Arc<dyn Broker> = self.broker.clone();
            let opened = async { Ok(Some(store)) };
            let ended =
                everwatch_manager::run(manager, opened, broker, chaos.routes(), stop.clone(), listening)
                    .await;
            ended.map_err(|error| match error {
                RunError::NotOwner(error @ NotOwner::Other { .. }) if options.store.is_none() => {
                    DevError::Manager(format!("{error}. {TEMPORARY}"))
                }
                error => DevError::Manager(error.to_string()),
            })
        };
        let greeted = async {
            if let Ok(address) = binds.await {
                until_active(address, options.services).await;
                greet(address);
            }
            std::future::pending().await
        };
        let stopped = async {
            // The services stop first, so that the manager can still process their unregistration.
            told.cancelled().await;
            for handle in self.services.values() {
                handle.frost.thaw();
                handle.stop.cancel();
            }
            let join = move || threads.into_iter().for_each(|thread| drop(thread.join()));
            let _joined = tokio::task::spawn_blocking(join).await;
            stop.cancel();
            std::future::pending().await
        };
        tokio::select! {
            ended = greeted => ended,
            ended = stopped => ended,
            ended = work => ended,
        }
    }

    fn start(
        &self,
        settings: &Settings,
        (name, handle): (&str, &crate::Handle),
        registry: Registry,
    ) -> Result<std::thread::JoinHandle<()>, DevError> {
        let no_thread = |error| HostError::NoThread { purpose: "a service", error };
        let mut section = settings.service.clone();
        name.clone_into(&mut section.name);
        let mut service = section.settings(&settings.broker)?;
        section.prepare(&settings.broker)?;
        // All services and the manager share this process: a stall is shown, and ends nothing.
        (service.stall_limit, service.memory_limit) = (None, None);
        let control =
            tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(no_thread)?;
        let (tasks, handle) = (self.tasks.clone(), handle.clone());
        let broker: Arc<dyn Broker> = self.broker.clone();
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(move || {
            if let Err(error) = control.block_on(crate::run(service, registry, broker, tasks, handle)) {
                tracing::error!(%error, "a service ended");
            }
        });
        Ok(thread.map_err(no_thread)?)
    }
}

/// Waits until the manager lists all services as active, so that the commands in the greeting find them.
async fn until_active(address: SocketAddr, services: u32) {
    let Ok(http) = reqwest::Client::builder().no_proxy().build() else { return };
    let stats = async || {
        let answer = http.get(format!("http://{address}/v1/stats")).send().await.ok()?;
        answer.json::<Stats>().await.ok()
    };
    let all_active = async {
        while stats().await.and_then(|it| it.services.get("active").copied()) != Some(services.into()) {
            tokio::time::sleep(LOOK_EVERY).await;
        }
    };
    let _late = tokio::time::timeout(GREET_WITHIN, all_active).await;
}
