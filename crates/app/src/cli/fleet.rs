//! What can be typed about services and their balance.

use super::{Output, duration};
use clap::{Args, Subcommand};
use std::time::Duration;

#[derive(Debug, Subcommand)]
pub(crate) enum Service {
    /// Show all
    List {
        #[arg(short, long, default_value = "table")]
        output: Output,
    },
    /// Take nothing new there; what runs goes on
    Cordon { name: String },
    /// Take again there
    Uncordon { name: String },
    /// Give everything that it holds to others and take nothing new, until it is uncordoned
    Drain(Drain),
    /// Set how many observers it holds, until that is taken back
    Capacity {
        name: String,
        /// A number, or `default`: as its own settings say
        slots: String,
    },
}

#[derive(Debug, Args)]
pub(crate) struct Drain {
    pub(crate) name: String,
    /// Observers handed over in a second, at most
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) per_second: Option<u32>,
    /// After so long the rest is handed over whether or not anybody has room
    #[arg(long, value_parser = duration)]
    pub(crate) within: Option<Duration>,
    /// Hand over whether or not anybody has room
    #[arg(long)]
    pub(crate) force: bool,
    /// Wait until it holds nothing, and tell how far it is
    #[arg(long, value_parser = duration)]
    pub(crate) wait: Option<Duration>,
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
    #[arg(short, long, default_value = "table")]
    pub(crate) output: Output,
}
