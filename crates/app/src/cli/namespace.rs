//! Commands about namespaces.

use super::{OutputArgs, Watched};
use clap::Subcommand;
use std::path::PathBuf;

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
