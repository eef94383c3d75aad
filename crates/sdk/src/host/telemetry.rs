//! The log, on standard error.

use super::settings::{Log, LogFormat, SettingsError};
use tracing_subscriber::EnvFilter;

/// Starts the process's log.
///
/// # Errors
/// If the filter cannot be read.
pub fn log_to_stderr(settings: &Log) -> Result<(), SettingsError> {
    let filter = EnvFilter::try_new(&settings.filter)
        .map_err(|error| SettingsError::new(format!("log.filter: `{}`: {error}", settings.filter)))?;
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    let begun = match settings.format {
        LogFormat::Text => log.with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr())).try_init(),
        LogFormat::Json => log.json().try_init(),
    };
    begun.map_err(|error| SettingsError::new(format!("the log cannot be started: {error}")))
}
