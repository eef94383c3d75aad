//! Commands about namespaces.

use super::{OutputArgs, Watched};
use clap::{Args, Subcommand};
use std::path::PathBuf;

/// The namespace of all commands.
#[derive(Debug, Default, Args)]
pub(crate) struct Within {
    /// Namespace, instead of the context's
    #[arg(
        short,
        long,
        env = "EVERWATCH_NAMESPACE",
        global = true,
        hide_env_values = true,
        value_name = "NAME",
        help_heading = "Global options",
        display_order = 103
    )]
    pub(crate) namespace: Option<String>,
    /// Match observers of all namespaces, whatever the context says
    #[arg(short = 'A', long, global = true, help_heading = "Global options", display_order = 104)]
    pub(crate) all_namespaces: bool,
}

impl Within {
    /// What the command line says; `None`: nothing.
    pub(crate) fn given(self) -> Option<Option<String>> {
        let named = self.namespace.filter(|name| !name.is_empty());
        if self.all_namespaces { Some(None) } else { named.map(Some) }
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum Namespace {
    /// List namespaces and how much of their quotas is in use
    #[command(alias = "ls")]
    List(Watched),
    /// Show the quotas and pools of a namespace, and what it uses
    #[command(alias = "get")]
    Describe {
        /// Name
        name: String,
        #[command(flatten)]
        shown: OutputArgs,
    },
    /// Create a namespace, or replace its quotas and pools with those of a file
    #[command(after_help = APPLY_EXAMPLE)]
    Apply {
        /// Name
        name: String,
        /// YAML or JSON file, or - for standard input; without it, create the namespace if it does not exist, and change
        /// nothing otherwise
        #[arg(short, long, value_name = "FILE")]
        file: Option<PathBuf>,
    },
    /// Delete a namespace that has no observers, open batches or valid tokens; of `default`, remove the quotas and pools
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
