//! Commands about limits.

use super::{OutputArgs, Watched};
use clap::Subcommand;

#[derive(Debug, Subcommand)]
pub(crate) enum Limit {
    /// List limits and how much of each is in use
    #[command(alias = "ls")]
    List(Watched),
    /// Show a limit, the observers that use its places, and those that wait for one
    #[command(alias = "get")]
    Describe {
        /// Key, such as account-42
        key: String,
        #[command(flatten)]
        shown: OutputArgs,
    },
    /// Create a limit or replace its maximum and whether it is enforced
    #[command(after_help = SET_EXAMPLES)]
    Set {
        /// Key, such as account-42, or the beginning of keys and a *, such as 'account-*'
        key: String,
        /// Maximum number of observers that run at once
        #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
        max: u32,
        /// End the newest observers if more than the maximum run; they wait for a place again
        #[arg(long)]
        enforce: bool,
    },
    /// Delete a limit; refused while observers name a key that no other limit covers
    Delete {
        /// Key, as it was set
        key: String,
    },
}

const SET_EXAMPLES: &str = "Examples:
  everwatch limit set account-42 --max 3
  everwatch limit set 'account-*' --max 2             for each key that begins with account-
  everwatch limit set account-42 --max 1 --enforce    ends the newest observers beyond 1";
