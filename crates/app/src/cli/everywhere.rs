//! The arguments of all commands: the manager and the credentials for it.

use super::namespace::Within;
use crate::trust::TlsFiles;
use clap::Args;
use std::path::PathBuf;

#[derive(Debug, Default, Args)]
pub(crate) struct Everywhere {
    /// Configuration file
    #[arg(
        long,
        env = "EVERWATCH_CONFIG",
        global = true,
        hide_env_values = true,
        value_name = "FILE",
        help_heading = "Global options",
        display_order = 100
    )]
    pub(crate) config: Option<PathBuf>,
    /// URL of the manager, instead of the context's [env: EVERWATCH_SERVER]
    // Not read by clap, whose usage errors would list it as required.
    #[arg(long, global = true, value_name = "URL", help_heading = "Global options", display_order = 101)]
    pub(crate) server: Option<String>,
    /// File with the token for the manager
    #[arg(
        long,
        env = "EVERWATCH_TOKEN_FILE",
        global = true,
        hide_env_values = true,
        value_name = "FILE",
        help_heading = "Global options",
        display_order = 102
    )]
    pub(crate) token_file: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) within: Within,
    #[command(flatten)]
    pub(crate) tls: TlsFiles,
}
