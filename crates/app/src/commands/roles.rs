//! `everwatch run manager|service`: two-stage shutdown around the roles.

use crate::cli::Role;
use crate::client::Failure;
use crate::settings::{self, Format, Settings};
use crate::wiring;
use anyhow::Context as _;
use std::path::Path;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tracing_subscriber::EnvFilter;

pub(crate) fn configured(config: Option<&Path>) -> anyhow::Result<Settings> {
    settings::load(config).map_err(|error| anyhow::Error::new(Failure::Usage(format!("{error:#}"))))
}

pub(crate) fn run(config: Option<&Path>, role: Role) -> anyhow::Result<()> {
    let settings = configured(config)?;
    log_to_stderr(&settings)?;
    match role {
        Role::Manager => manager(&settings),
        Role::Service => service(&settings),
    }
}

/// # Errors
/// If the filter cannot be read.
pub(crate) fn log_to_stderr(settings: &Settings) -> anyhow::Result<()> {
    let filter = EnvFilter::try_new(&settings.log.filter)
        .map_err(|error| Failure::Usage(format!("log.filter: `{}`: {error}", settings.log.filter)))?;
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    match settings.log.format {
        Format::Text => log.with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr())).init(),
        Format::Json => log.json().init(),
    }
    Ok(())
}

/// Cancels the first token at the first SIGTERM or Ctrl-C, the second at the second.
pub(crate) async fn on_signals(soft: CancellationToken, hard: CancellationToken) -> std::io::Result<()> {
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    for token in [soft, hard] {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        token.cancel();
    }
    Ok(())
}

fn manager(settings: &Settings) -> anyhow::Result<()> {
    let manager = wiring::manager(settings).map_err(|error| usage(&error))?;
    if !manager.listen.ip().is_loopback() {
        tracing::warn!(listen = %manager.listen, "the API has no authentication yet: whoever reaches it commands everything");
    }
    let broker = wiring::rabbit(settings).map_err(|error| usage(&error))?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let (stop, hard) = (CancellationToken::new(), CancellationToken::new());
        let work = async {
            let Some(store) = wiring::store(settings, &stop).await? else { return Ok(()) };
            let listening = |address| tracing::info!(%address, "listening");
            everwatch_manager::run(manager, store, broker, axum::Router::new(), stop.clone(), listening)
                .await?;
            anyhow::Ok(())
        };
        tokio::select! {
            ended = work => ended,
            Err(error) = on_signals(stop.clone(), hard.clone()) => Err(error.into()),
            () = hard.cancelled() => Ok(()),
        }
    })
}

fn service(settings: &Settings) -> anyhow::Result<()> {
    let (service, registry) = wiring::service(settings).map_err(|error| usage(&error))?;
    let broker = wiring::rabbit(settings).map_err(|error| usage(&error))?;
    let tasks = people_s_runtime()?;
    // The control loop has a runtime of its own: code that blocks cannot hold it up.
    let control = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let handle = everwatch::Handle::default();
    let ended = control.block_on(async {
        tokio::select! {
            ended = everwatch::run(service, registry, broker, tasks.handle().clone(), handle.clone()) => {
                ended.map_err(anyhow::Error::new)
            }
            Err(error) = on_signals(handle.stop.clone(), handle.hard_stop.clone()) => Err(error.into()),
        }
    });
    tasks.shutdown_background();
    ended
}

/// The runtime for people's code: more threads than cores, so that one that blocks leaves others free.
pub(crate) fn people_s_runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads((2 * cores).max(4))
        .thread_name("observers")
        .enable_all()
        .build()
        .context("no threads for observers")
}

fn usage(error: &anyhow::Error) -> anyhow::Error {
    Failure::Usage(format!("{error:#}")).into()
}
