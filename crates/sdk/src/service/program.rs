//! The arguments of a service program.

use crate::host::SettingsError;
use std::path::PathBuf;

/// What the program is asked to do.
pub(super) enum Arguments {
    Service {
        config: Option<PathBuf>,
    },
    #[cfg(feature = "dev")]
    Dev {
        config: Option<PathBuf>,
        options: crate::dev::Options,
    },
}

#[cfg(not(feature = "dev"))]
pub(super) fn arguments() -> Result<Arguments, SettingsError> {
    let mut arguments = std::env::args_os().skip(1);
    let config = match arguments.next() {
        None => std::env::var_os("EVERWATCH_CONFIG").map(PathBuf::from),
        Some(flag) if flag == "--config" => match arguments.next() {
            Some(path) => Some(path.into()),
            None => return Err(SettingsError::new("--config: name a file".to_owned())),
        },
        Some(dev) if dev == "dev" => {
            return Err(SettingsError::new(
                "dev: this program was built without the feature `dev` of the crate `everwatch`: add \
                 features = [\"dev\"] to that dependency"
                    .to_owned(),
            ));
        }
        Some(other) => {
            let text = format!("{}: the only argument is --config FILE", other.display());
            return Err(SettingsError::new(text));
        }
    };
    Ok(Arguments::Service { config })
}

#[cfg(feature = "dev")]
#[expect(
    clippy::unnecessary_wraps,
    reason = "without the feature, wrong arguments are errors of this function"
)]
pub(super) fn arguments() -> Result<Arguments, SettingsError> {
    use clap::Parser as _;

    let Cli { config, command } = Cli::parse();
    Ok(match command {
        None => Arguments::Service { config },
        Some(Command::Dev(options)) => Arguments::Dev { config, options },
    })
}

/// Run the service until SIGTERM or Ctrl-C
#[cfg(feature = "dev")]
#[derive(clap::Parser)]
struct Cli {
    /// Configuration file
    #[arg(long, global = true, env = "EVERWATCH_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(subcommand)]
    command: Option<Command>,
}

#[cfg(feature = "dev")]
#[derive(clap::Subcommand)]
enum Command {
    /// Run a manager and services with the kinds of this program in one process
    Dev(crate::dev::Options),
}

/// Says what runs and what to try.
#[cfg(feature = "dev")]
pub(super) fn greet(kinds: &[String], address: std::net::SocketAddr, services: u32) {
    use std::io::Write as _;

    let offered = if kinds.is_empty() { "no kinds".to_owned() } else { kinds.join(", ") };
    // A closed pipe, as after `head`, is not a failure.
    let _closed = writeln!(
        std::io::stdout(),
        "Everwatch runs: one manager and {services} services, which offer {offered}.
Create an observer in the console: http://{address}/

In another terminal, try:

  curl http://{address}/v1/observers      # the observers, and where each runs
  curl -X POST http://{address}/dev/chaos/service-1/kill
  curl http://{address}/v1/kinds          # the kinds, and the schemas of their specs

Ctrl-C stops everything."
    );
}
