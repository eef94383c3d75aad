//! Commands about namespaces.

use super::{OutputArgs, Watched};
use clap::{Args, Subcommand};
use std::path::PathBuf;

/// The namespace of all commands.
#[derive(Debug, Args)]
pub(crate) struct Within {
    /// Namespace of observers and batches; the default is that of the context, then of the token, then `default`. Lists
    /// without one show all namespaces
    #[arg(
        short,
        long,
        env = "EVERWATCH_NAMESPACE",
        global = true,
        hide_env_values = true,
        value_name = "NAME",
        help_heading = "Everywhere",
        display_order = 103
    )]
    pub(crate) namespace: Option<String>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Namespace {
    /// List namespaces and how much of their quotas is in use
    List(Watched),
    /// Show the quotas and pools of a namespace, and what it uses
    Describe {
        /// Name
        name: String,
        #[command(flatten)]
        shown: OutputArgs,
    },
    /// Create or replace a namespace from a file; without a file, it has no quotas
    #[command(after_help = APPLY_EXAMPLE)]
    Apply {
        /// Name
        name: String,
        /// YAML or JSON file; `-`: standard input
        #[arg(short, long, value_name = "FILE")]
        file: Option<PathBuf>,
    },
    /// Delete a namespace that has no observers
    Delete {
        /// Name
        name: String,
    },
}

const APPLY_EXAMPLE: &str = "Example:
  everwatch namespace apply team-a -f - <<'END'
  quotas:
    observers: 500
    running: 50
    creates_per_minute: 60
  pools: [default]
  END";
