//! The log, on standard error.

use super::settings::{Log, LogFormat, SettingsError};
use crate::logs::Eavesdropper;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

/// Starts the process's log; what the code of an observer tells is kept beside its lines, too.
///
/// # Errors
/// If the filter cannot be read.
pub fn log_to_stderr(settings: &Log) -> Result<(), SettingsError> {
    let filter = EnvFilter::try_new(&settings.filter)
        .map_err(|error| SettingsError::new(format!("log.filter: `{}`: {error}", settings.filter)))?;
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    let begun = match settings.format {
        LogFormat::Text => {
            let colours = std::io::IsTerminal::is_terminal(&std::io::stderr());
            log.with_ansi(colours).finish().with(Eavesdropper).try_init()
        }
        LogFormat::Json => log.json().finish().with(Eavesdropper).try_init(),
    };
    begun.map_err(|error| SettingsError::new(format!("the log cannot be started: {error}")))
}
