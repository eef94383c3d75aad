//! What each command does, and with which code it ends.

mod access;
mod acting;
mod apply;
mod batch;
mod bench;
mod broker;
mod bulk;
mod chaos;
mod clone;
mod completion;
mod conformance;
mod demo;
mod dev;
mod doctor;
mod edit;
mod events;
mod fan_out;
mod get;
mod health;
mod kills;
mod kind;
mod limit;
mod logs;
mod man;
mod migrate;
mod namespace;
mod new;
mod observer;
mod operations;
mod progress;
mod rate;
mod rebalance;
mod roles;
mod rollout;
mod service;
mod status;
mod timeline;
mod unknown;
mod versions;
mod waiting;
mod watch;

use crate::cli::{Cli, Command, Config, Everywhere};
use crate::client::{self, DEFAULT_SERVER, Failure};
use crate::contexts::Contexts;
use crate::output::{TerminalStyle, fitted, print};
use crate::trust;
pub(crate) use completion::answered as completion_answered;
use everwatch::host::{HostError, SettingsError, last_words};
use std::path::Path;
use std::process::ExitCode;

/// Runs a command; errors are printed here, once, with their causes.
pub(crate) fn run(cli: Cli) -> ExitCode {
    let Everywhere { config, server: given, .. } = &cli.everywhere;
    let (config, given) = (config.clone(), given.clone());
    use_credentials(cli.everywhere);
    let server = || server(given.as_deref(), config.as_deref());
    let ended = match cli.command {
        Command::Dev { options, demo } => dev::run(config.as_deref(), &options, demo),
        Command::Demo => server().and_then(|server| demo::tour(&server)),
        Command::New(arguments) => new::run(&arguments),
        Command::Run(role) => roles::run(config.as_deref(), role),
        Command::Observer(verb) => server().and_then(|server| observer::run(&server, verb)),
        Command::Service(verb) => server().and_then(|server| service::run(&server, verb)),
        Command::Rebalance(verb) => server().and_then(|server| rebalance::run(&server, verb)),
        Command::Batch(verb) => server().and_then(|server| batch::run(&server, verb)),
        Command::Rollout(verb) => server().and_then(|server| rollout::run(&server, verb)),
        Command::Bench(arguments) => bench::run(config.as_deref(), &arguments),
        Command::Conformance(arguments) => conformance::run(config.as_deref(), &arguments),
        Command::BenchHolder { queue, count } => {
            roles::configured(config.as_deref()).and_then(|settings| bench::hold(&settings, &queue, count))
        }
        Command::BenchFleet { count } => {
            roles::configured(config.as_deref()).and_then(|settings| bench::fleet(&settings, count))
        }
        Command::Health { url } => {
            let url = url.or_else(|| named(given.as_deref()).as_deref().map(health::of_server));
            roles::configured(config.as_deref()).and_then(|settings| health::run(&settings, url))
        }
        Command::Migrate { restored } => {
            roles::configured(config.as_deref()).and_then(|settings| migrate::run(&settings, restored))
        }
        Command::Timeline(arguments) => server().and_then(|server| timeline::run(&server, &arguments)),
        Command::Events(arguments) => server().and_then(|server| events::everywhere(&server, &arguments)),
        Command::Parked(verb) => server().and_then(|server| operations::parked(&server, verb)),
        Command::SafeMode(verb) => server().and_then(|server| operations::safe_mode(&server, verb)),
        Command::Limit(verb) => server().and_then(|server| limit::limit(&server, verb)),
        Command::Pool(verb) => server().and_then(|server| operations::pools(&server, verb)),
        Command::Kind(verb) => server().and_then(|server| kind::run(&server, verb)),
        Command::Namespace(verb) => server().and_then(|server| namespace::run(&server, verb)),
        Command::Rate(verb) => server().and_then(|server| rate::run(&server, verb)),
        Command::Login(arguments) => server().and_then(|server| access::login(&server, arguments)),
        Command::Logout => server().and_then(|server| access::logout(&server)),
        Command::Whoami { shown } => server().and_then(|server| access::whoami(&server, &shown)),
        Command::Token(verb) => server().and_then(|server| access::tokens(&server, verb)),
        Command::Role(verb) => server().and_then(|server| access::roles(&server, verb)),
        Command::Audit(verb) => server().and_then(|server| access::audit(&server, verb)),
        Command::Context(verb) => access::contexts(verb),
        Command::Completion { shell } => completion::script(shell),
        Command::Man { folder } => man::pages(folder.as_deref()),
        Command::Top => server().and_then(|server| crate::top::run(&server)),
        Command::Chaos(verb) => server().and_then(|server| chaos::run(&server, &verb)),
        Command::Status(shown) => server().and_then(|server| status::run(&server, &shown)),
        Command::Doctor(arguments) => server().and_then(|server| doctor::run(&server, &arguments)),
        Command::Broker(verb) => {
            roles::configured(config.as_deref()).and_then(|settings| broker::run(&settings, &verb))
        }
        Command::Config(Config::Print) => roles::configured(config.as_deref()).and_then(|settings| {
            print(&serde_json::to_string_pretty(&settings.redacted())?);
            Ok(())
        }),
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            last_words(&fitted(&format!("everwatch: {error:#}"), TerminalStyle::stderr()));
            ExitCode::from(exit_code(&error))
        }
    }
}

fn use_credentials(everywhere: Everywhere) {
    if let Some(file) = everywhere.token_file {
        client::use_token_file(file);
    }
    trust::use_files(everywhere.tls);
    if let Some(namespace) = everywhere.within.given() {
        client::use_namespace(namespace);
    }
}

/// Uses these credentials, and returns the URL of the manager.
fn connection(everywhere: Everywhere) -> anyhow::Result<String> {
    let server = server(everywhere.server.as_deref(), everywhere.config.as_deref());
    use_credentials(everywhere);
    server
}

/// The given URL of the manager, otherwise that of the environment.
fn named(given: Option<&str>) -> Option<String> {
    let of_environment = || std::env::var("EVERWATCH_SERVER").ok().filter(|url| !url.is_empty());
    given.map(str::to_owned).or_else(of_environment)
}

/// The URL of the manager: the given one, otherwise that of the environment, of the configuration file, of the context, or the default.
fn server(given: Option<&str>, config: Option<&Path>) -> anyhow::Result<String> {
    match (named(given).as_deref(), config) {
        (Some(given), _) => Ok(given.trim_end_matches('/').to_owned()),
        (None, Some(_)) => health::url(&roles::configured(config)?.manager),
        (None, None) => {
            let context = Contexts::load()?.current().map(|known| known.server.clone());
            Ok(context.unwrap_or_else(|| DEFAULT_SERVER.to_owned()))
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
