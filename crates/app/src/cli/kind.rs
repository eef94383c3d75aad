//! Arguments of the commands about kinds and pools.

use super::{OutputArgs, Watched};
use clap::Subcommand;

#[derive(Debug, Subcommand)]
pub(crate) enum Kind {
    /// List the kinds that living services can run
    #[command(alias = "ls")]
    List(Watched),
    /// Show a kind: the members of its spec, and where it can run
    #[command(alias = "get")]
    Describe {
        /// Name
        name: String,
        #[command(flatten)]
        shown: OutputArgs,
    },
}

#[derive(Debug, Clone, Subcommand)]
pub(crate) enum Pool {
    /// List pools
    #[command(alias = "ls")]
    List(Watched),
    /// Show a pool: its services, slots, failure tolerance, and observers
    #[command(alias = "get")]
    Describe {
        /// Name
        name: String,
        #[command(flatten)]
        shown: OutputArgs,
    },
    /// Create a pool: a single pool, or one whose services may not create its queue
    Create {
        /// Name
        name: String,
        /// Let one service at a time run all observers of the pool, while the others stand by
        #[arg(long)]
        single: bool,
    },
    /// Delete a pool that has no services and no observers, with its work queue
    Delete {
        /// Name
        name: String,
    },
    /// Pause a pool: managers admit no observer to it; observers that have a slot keep it
    Pause {
        /// Name
        name: String,
    },
    /// Resume a paused pool
    Resume {
        /// Name
        name: String,
    },
}
