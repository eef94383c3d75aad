//! `everwatch dev`: everything in one process, to see it work within a minute.

mod chaos;

use self::chaos::{Chaos, Listening, Services};
use super::roles::configured;
use crate::cli::Dev;
use crate::output::print;
use crate::settings::Settings;
use crate::wiring;
use anyhow::Context as _;
use everwatch::host::{self, CapacityText, Teller, on_signals, people_s_runtime};
use everwatch::kinds::built_in;
use everwatch_broker::Broker;
use everwatch_manager::RunError;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// A broker keeps its observers for longer than a database that goes with the process.
const TEMPORARY: &str = "`everwatch dev` has a new database each time unless --store names one to keep, as \
    --store sqlite://dev.db; without it, give another --prefix each time, or --adopt";

pub(crate) fn run(config: Option<&std::path::Path>, arguments: &Dev) -> anyhow::Result<()> {
    let mut settings = configured(config)?;
    if settings.log.filter == host::Log::default().filter {
        "warn,lapin=off".clone_into(&mut settings.log.filter);
    }
    let teller = Teller { role: "everwatch-dev", instance: &settings.manager.listen };
    let _exporting = host::start_telling(&settings.log, &settings.telemetry, teller)?;
    // A database that nobody asked to keep goes with the process.
    let scratch = std::env::temp_dir().join(format!("everwatch-dev-{}", std::process::id()));
    match &arguments.store {
        Some(url) => settings.store.url.clone_from(url),
        None => {
            std::fs::create_dir_all(&scratch).with_context(|| scratch.display().to_string())?;
            settings.store.url = format!("sqlite://{}", scratch.join("everwatch.db").display());
        }
    }
    if let Some(listen) = &arguments.listen {
        settings.manager.listen.clone_from(listen);
    }
    if let Some(prefix) = &arguments.prefix {
        settings.broker.prefix.clone_from(prefix);
    }
    if settings.service.exec.allow.is_empty() {
        settings.service.exec.allow = vec!["*".to_owned()];
    }
    let broker = match &arguments.broker {
        Some(url) => {
            settings.broker.url.clone_from(url);
            wiring::rabbit(&settings)?
        }
        None => wiring::in_process(),
    };
    let ended = everything(&settings, arguments, broker);
    if arguments.store.is_none() {
        std::fs::remove_dir_all(&scratch).with_context(|| scratch.display().to_string())?;
    }
    ended
}

fn everything(settings: &Settings, arguments: &Dev, broker: Arc<dyn Broker>) -> anyhow::Result<()> {
    let mut manager = wiring::manager(settings)?;
    manager.adopt = arguments.adopt;
    let tasks = people_s_runtime(settings.service.threads)?;
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
    let ended = runtime.block_on(async {
        let work = async {
            let Some(store) = wiring::store(settings, &stop).await? else { return Ok(()) };
            let count = arguments.services;
            let listening = |address| greet(address, count);
            let ended = everwatch_manager::run(manager, store, broker, routes, stop.clone(), listening).await;
            match ended {
                Err(RunError::NotOurs(why)) if arguments.store.is_none() => {
                    anyhow::bail!("{why}. {TEMPORARY}")
                }
                ended => anyhow::Ok(ended?),
            }
        };
        let signals = CancellationToken::new();
        tokio::select! {
            ended = async {
                // The services go first, so that their goodbyes are still heard.
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
    let service = settings.service.settings(&settings.broker)?;
    let registry = built_in(settings.service.exec_settings(&settings.broker));
    let control = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (broker, tasks, handle) = (broker.clone(), tasks.clone(), handle.clone());
    let thread = std::thread::Builder::new().name(name.to_owned()).spawn(move || {
        if let Err(error) = control.block_on(everwatch::run(service, registry, broker, tasks, handle)) {
            tracing::error!(%error, "a service ended");
        }
    })?;
    Ok(thread)
}

fn greet(address: SocketAddr, services: u32) {
    let server = if address.port() == 7700 { String::new() } else { format!(" --server http://{address}") };
    print(&format!(
        "Everwatch runs: one manager at http://{address} and {services} services. In another terminal, try:

  everwatch{server} observer create hello --kind ticker
  everwatch{server} service list
  everwatch{server} chaos kill service-1      (and see with `observer list` where its observers went)

Ctrl-C stops everything."
    ));
}
