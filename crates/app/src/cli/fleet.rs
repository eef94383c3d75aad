//! What can be typed about services and their balance.

use super::{Shown, Watched, duration};
use clap::{Args, Subcommand};
use std::time::Duration;

#[derive(Debug, Subcommand)]
pub(crate) enum Service {
    /// Show those that live
    List {
        #[command(flatten)]
        which: WhichServices,
        #[command(flatten)]
        watched: Watched,
    },
    /// Show one in a line, or for programs
    Get {
        /// Name (the newest of it) or id
        name: String,
        #[command(flatten)]
        watched: Watched,
    },
    /// Tell everything about one: what it is, what it holds and what happened to it
    Describe {
        /// Name (the newest of it) or id
        name: String,
    },
    /// Take nothing new there; what runs goes on
    Cordon {
        /// Name or id
        name: String,
    },
    /// Take again there
    Uncordon {
        /// Name or id
        name: String,
    },
    /// Give everything that it holds to others and take nothing new, until it is uncordoned
    #[command(after_help = Drain::EXAMPLES)]
    Drain(Drain),
    /// Set how many observers it holds, until that is taken back
    Capacity {
        /// Name or id
        name: String,
        /// A number, or `default`: as its own settings say
        slots: String,
    },
}

#[derive(Debug, Args)]
pub(crate) struct WhichServices {
    /// Only in this state; several: comma-separated
    #[arg(long, value_delimiter = ',',
          value_parser = ["active", "cordoned", "draining", "suspect", "lost", "gone"])]
    pub(crate) state: Vec<String>,
    /// Only of this pool
    #[arg(long)]
    pub(crate) pool: Option<String>,
    /// Those that ended lately as well
    #[arg(short, long, conflicts_with = "state")]
    pub(crate) all: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Drain {
    /// Name or id
    pub(crate) name: String,
    /// Observers handed over in a second, at most
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) per_second: Option<u32>,
    /// After so long the rest is handed over whether or not anybody has room
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) within: Option<Duration>,
    /// Hand over whether or not anybody has room
    #[arg(long)]
    pub(crate) force: bool,
    /// Wait until it holds nothing, and tell how far it is
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) wait: Option<Duration>,
}

impl Drain {
    const EXAMPLES: &'static str = "Examples:
  everwatch service drain s1 --wait 5m                     as far as others have room
  everwatch service drain s1 --per-second 20 --within 10m";
}

#[derive(Debug, Subcommand)]
pub(crate) enum Rebalance {
    /// Show what would make services evenly used
    Plan(Balance),
    /// Do it
    Apply(Balance),
}

#[derive(Debug, Args)]
pub(crate) struct Balance {
    /// Only this pool
    #[arg(long)]
    pub(crate) pool: Option<String>,
    /// Move at most so many observers of each pool
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) moves: Option<u32>,
    #[command(flatten)]
    pub(crate) shown: Shown,
}
