//! Commands about rates.

use super::{OutputArgs, Watched};
use clap::Subcommand;

#[derive(Debug, Clone, Subcommand)]
pub(crate) enum Rate {
    /// List rates
    #[command(alias = "ls")]
    List(Watched),
    /// Show a rate: its settings, the permits that are left, and those for which code waits
    #[command(alias = "get")]
    Describe {
        /// Key
        key: String,
        #[command(flatten)]
        shown: OutputArgs,
    },
    /// Create or change a rate, which all services share
    #[command(after_help = "Example:\n  everwatch rate set openai --permits 600 --per 1m --burst 50")]
    Set {
        /// Key
        key: String,
        /// Number of permits in each `--per`
        #[arg(long, value_name = "COUNT")]
        permits: u32,
        /// Time for which `--permits` counts, from 1s to 24h
        #[arg(long, value_name = "TIME", default_value = "1s")]
        per: String,
        /// Permits that may be used beyond the rate, after a pause: at least 2 s of the rate, and 1 more. Code gets at most the rest beyond
        /// those 2 s at once
        #[arg(long, value_name = "COUNT")]
        burst: u32,
    },
    /// Delete a rate
    Delete {
        /// Key
        key: String,
    },
}
