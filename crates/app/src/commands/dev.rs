//! `everwatch dev`: runs a manager and services in one process, to try Everwatch within a minute.

mod chaos;

use self::chaos::{Chaos, Listening, Services};
use super::roles::configured;
use crate::cli::Dev;
use crate::client::{Client, Failure};
use crate::output::print;
use crate::settings::Settings;
use crate::wiring;
use anyhow::Context as _;
use everwatch::host::{self, CapacityText, Teller, observer_runtime, on_signals};
use everwatch::kinds::built_in;
use everwatch_api::Stats;
use everwatch_broker::Broker;
use everwatch_manager::{NotOwner, RunError};
use std::ffi::OsStr;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

/// How long the greeting waits for the services. `LOOK_EVERY`: the pause between two polls.
const GREET_WITHIN: Duration = Duration::from_secs(10);
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Advice for this case: the broker still contains observers of an earlier run, whose temporary database is
/// gone.
const TEMPORARY: &str = "`everwatch dev` has a new database each time unless --store names one to keep, as \
    --store sqlite://dev.db; without it, give another --prefix each time, or --adopt";

pub(crate) fn run(config: Option<&std::path::Path>, arguments: &Dev) -> anyhow::Result<()> {
    let mut settings = configured(config)?;
    if settings.log.filter == host::Log::default().filter {
        "warn,lapin=off".clone_into(&mut settings.log.filter);
    }
    let teller = Teller { role: "everwatch-dev", instance: &settings.manager.listen };
    let _telling = host::init_telemetry(&settings.log, &settings.telemetry, teller)?;
    // The temporary database is deleted with its folder. The folder's name is random: a killed process leaves its
    // folder behind, and a later process may have the same id.
    let scratch = match &arguments.store {
        Some(url) => {
            settings.store.url.clone_from(url);
            None
        }
        None => {
            let folder = tempfile::Builder::new().prefix("everwatch-dev-").tempdir()?;
            settings.store.url = format!("sqlite://{}", folder.path().join("everwatch.db").display());
            Some(folder)
        }
    };
    if let Some(listen) = &arguments.listen {
        settings.manager.listen.clone_from(listen);
    }
    ensure_loopback(&settings.manager.listen)?;
    if let Some(prefix) = &arguments.prefix {
        settings.broker.prefix.clone_from(prefix);
    }
    if settings.service.exec.allow.is_empty() {
        settings.service.exec.allow = vec!["*".to_owned()];
    }
    if settings.service.exec.env_allow.is_empty() {
        settings.service.exec.env_allow = vec!["*".to_owned()];
    }
    let service = &mut settings.service;
    for list in [&mut service.files.read, &mut service.files.write, &mut service.postgres.allow] {
        if list.is_empty() {
            *list = vec!["*".to_owned()];
        }
    }
    let broker = match &arguments.broker {
        Some(url) => {
            settings.broker.url.clone_from(url);
            wiring::rabbit(&settings)?
        }
        None => wiring::in_process(),
    };
    let ended = everything(&settings, arguments, broker);
    scratch.map_or(Ok(()), TempDir::close).context("the temporary database could not be deleted")?;
    ended
}

fn everything(settings: &Settings, arguments: &Dev, broker: Arc<dyn Broker>) -> anyhow::Result<()> {
    let mut manager = wiring::manager(settings)?;
    manager.adopt = arguments.adopt;
    let tasks = observer_runtime(settings.service.threads)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let names = (1..=arguments.services).map(|number| format!("service-{number}"));
    let services: Services = Arc::new(names.map(|name| (name, everwatch::Handle::default())).collect());
    let listening_in = Arc::new(Listening::to(Arc::clone(&broker)));
    let of_services: Arc<dyn Broker> = listening_in.clone();
    let (stop, hard) = (CancellationToken::new(), CancellationToken::new());
    let mut threads = Vec::new();
    for (name, handle) in services.iter() {
        threads.push(start_service(settings, arguments, name, handle, (&of_services, tasks.handle()))?);
    }
    let routes = Chaos::new(services.clone(), listening_in, settings.broker.heartbeat).routes();
    let (bound, binds) = tokio::sync::oneshot::channel();
    let ended = runtime.block_on(async {
        let work = async {
            let Some(store) = wiring::store(settings, &stop).await? else { return Ok(()) };
            let listening = |address| {
                let _over = bound.send(address);
            };
            let ended = everwatch_manager::run(manager, store, broker, routes, stop.clone(), listening).await;
            match ended {
                Err(RunError::NotOwner(error @ NotOwner::Other { .. })) if arguments.store.is_none() => {
                    anyhow::bail!("{error}. {TEMPORARY}")
                }
                ended => anyhow::Ok(ended?),
            }
        };
        let greeted = async {
            if let Ok(address) = binds.await {
                until_active(address, arguments.services).await;
                greet(address, arguments.services);
            }
            std::future::pending::<anyhow::Result<()>>().await
        };
        let signals = CancellationToken::new();
        tokio::select! {
            ended = greeted => ended,
            ended = async {
                // The services stop first, so that the manager can still process their unregistration.
                signals.cancelled().await;
                for handle in services.values() {
                    handle.frost.thaw();
                    handle.stop.cancel();
                }
                let _joined = tokio::task::spawn_blocking(move || {
                    threads.into_iter().for_each(|thread| drop(thread.join()));
                }).await;
                stop.cancel();
                std::future::pending::<anyhow::Result<()>>().await
            } => ended,
            ended = work => ended,
            Err(error) = on_signals(signals.clone(), hard.clone()) => Err(error.into()),
            () = hard.cancelled() => Ok(()),
        }
    });
    tasks.shutdown_background();
    runtime.shutdown_background();
    ended
}

fn start_service(
    settings: &Settings,
    arguments: &Dev,
    name: &str,
    handle: &everwatch::Handle,
    (broker, tasks): (&Arc<dyn Broker>, &tokio::runtime::Handle),
) -> anyhow::Result<std::thread::JoinHandle<()>> {
    let mut settings = settings.clone();
    name.clone_into(&mut settings.service.name);
    settings.service.capacity = CapacityText(everwatch::Capacity::Fixed(arguments.capacity));
    let mut service = settings.service.settings(&settings.broker)?;
    // All services and the manager share this process: a stall is shown, and ends nothing.
    (service.stall_limit, service.memory_limit) = (None, None);
    let registry = built_in(settings.service.kind_settings(&settings.broker));
    let control = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (broker, tasks, handle) = (broker.clone(), tasks.clone(), handle.clone());
    let thread = std::thread::Builder::new().name(name.to_owned()).spawn(move || {
        if let Err(error) = control.block_on(everwatch::run(service, registry, broker, tasks, handle)) {
            tracing::error!(%error, "a service ended");
        }
    })?;
    Ok(thread)
}

/// In this mode, every client that reaches the API may run any program.
fn ensure_loopback(listen: &str) -> anyhow::Result<()> {
    match listen.parse::<SocketAddr>() {
        Ok(address) if !address.ip().is_loopback() => Err(Failure::Usage(format!(
            "`everwatch dev` cannot listen on {listen}, because every client of its API may run any program: use \
             --listen 127.0.0.1:{}, or `everwatch run manager` and `everwatch run service`",
            address.port()
        ))
        .into()),
        _ => Ok(()),
    }
}

/// Waits until the manager lists all services as active, so that the commands in the greeting find them.
async fn until_active(address: SocketAddr, services: u32) {
    let Ok(client) = Client::new(&format!("http://{address}")) else { return };
    let all_active = async {
        loop {
            let stats = client.read::<Stats>("/v1/stats").await;
            if stats.is_ok_and(|stats| stats.services.get("active") == Some(&u64::from(services))) {
                return;
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    };
    let _late = tokio::time::timeout(GREET_WITHIN, all_active).await;
}

fn greet(address: SocketAddr, services: u32) {
    let program = started_as(std::env::args_os().next().as_deref());
    let here = if program.starts_with('/') || !program.contains('/') { "" } else { ", in this folder" };
    let everwatch = match server(address) {
        Some(server) => format!("{program} --server {server}"),
        None => program,
    };
    print(&format!(
        "Everwatch runs: one manager at http://{address} and {services} services. In another terminal{here}, try:

  {everwatch} observer create hello --kind ticker
  {everwatch} service list
  {everwatch} chaos kill service-1
  {everwatch} observer list      # where its observers went

Ctrl-C stops everything."
    ));
}

/// The manager's URL for the commands in the greeting, or `None` if it is the default of the commands.
fn server(address: SocketAddr) -> Option<String> {
    let asked_anyway =
        address.to_string() == "127.0.0.1:7700" && std::env::var_os("EVERWATCH_SERVER").is_none();
    (!asked_anyway).then(|| format!("http://{address}"))
}

/// The command that starts this program from a shell: the original argument if it was a path or if `PATH`
/// finds the program, otherwise the full path.
fn started_as(argument: Option<&OsStr>) -> String {
    let this = std::env::current_exe().ok();
    let by_path = |name: &Path| {
        let folders = std::env::var_os("PATH").unwrap_or_default();
        let found = std::env::split_paths(&folders).map(|folder| folder.join(name)).find(|it| it.is_file());
        found.and_then(|it| it.canonicalize().ok()) == this.as_ref().and_then(|it| it.canonicalize().ok())
    };
    let path = match argument.map(Path::new) {
        Some(path) if path.components().count() > 1 || path.is_absolute() => path.to_owned(),
        Some(name) if by_path(name) => name.to_owned(),
        _ => this.unwrap_or_else(|| PathBuf::from("everwatch")),
    };
    quoted(&path.display().to_string())
}

/// Quotes a word for the shell.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+=:@%,".contains(c);
    if word.chars().all(plain) { word.to_owned() } else { format!("'{}'", word.replace('\'', r"'\''")) }
}
