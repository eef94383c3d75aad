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
    /// All namespaces, also where the context or the environment names one
    #[arg(
        short = 'A',
        long,
        global = true,
        conflicts_with = "namespace",
        help_heading = "Everywhere",
        display_order = 104
    )]
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
    List(Watched),
    /// Show the quotas and pools of a namespace, and what it uses
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
        /// YAML or JSON file; `-`: standard input; without a file, a namespace that exists stays as it is
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
