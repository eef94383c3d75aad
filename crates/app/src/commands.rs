//! What each command does, and with which code it ends.

mod apply;
mod bench;
mod dev;
mod doctor;
mod events;
mod health;
mod logs;
mod man;
mod many;
mod migrate;
pub(crate) mod observer;
mod operations;
mod roles;
pub(crate) mod service;
mod watch;

use crate::cli::{Cli, Command, Config};
use crate::client::Failure;
use crate::output::print;
use everwatch::host::{HostError, SettingsError};
use std::process::ExitCode;

/// Runs a command; errors are printed here, once, with their causes.
#[expect(clippy::print_stderr, reason = "why a command failed")]
pub(crate) fn run(cli: Cli) -> ExitCode {
    let ended = match cli.command {
        Command::Dev(arguments) => dev::run(cli.config.as_deref(), &arguments),
        Command::Run(role) => roles::run(cli.config.as_deref(), role),
        Command::Observer(verb) => observer::run(&cli.server, verb),
        Command::Service(verb) => service::run(&cli.server, verb),
        Command::Rebalance(verb) => service::rebalance(&cli.server, verb),
        Command::Bench(arguments) => bench::run(cli.config.as_deref(), &arguments),
        Command::BenchHolder { queue, count } => roles::configured(cli.config.as_deref())
            .and_then(|settings| bench::hold(&settings, &queue, count)),
        Command::Health { url } => {
            roles::configured(cli.config.as_deref()).and_then(|settings| health::run(&settings, url))
        }
        Command::Migrate { restored } => {
            roles::configured(cli.config.as_deref()).and_then(|settings| migrate::run(&settings, restored))
        }
        Command::Events(arguments) => events::everywhere(&cli.server, &arguments),
        Command::Parked(verb) => operations::parked(&cli.server, verb),
        Command::Hold(verb) => operations::hold(&cli.server, verb),
        Command::Pool(verb) => operations::pools(&cli.server, verb),
        Command::Completion { shell } => man::completion(shell),
        Command::Man { folder } => man::pages(folder.as_deref()),
        Command::Top => crate::top::run(&cli.server),
        Command::Chaos(verb) => service::chaos(&cli.server, verb),
        Command::Doctor(arguments) => doctor::run(&cli.server, &arguments),
        Command::Config(Config::Print) => roles::configured(cli.config.as_deref()).and_then(|settings| {
            print(&serde_json::to_string_pretty(&settings.redacted())?);
            Ok(())
        }),
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("everwatch: {error:#}");
            ExitCode::from(exit_code(&error))
        }
    }
}

fn exit_code(error: &anyhow::Error) -> u8 {
    if let Some(failure) = error.downcast_ref::<Failure>() {
        failure.exit_code()
    } else if let Some(error) = error.downcast_ref::<HostError>() {
        error.exit_code()
    } else if error.downcast_ref::<SettingsError>().is_some() {
        2
    } else {
        1
    }
}
