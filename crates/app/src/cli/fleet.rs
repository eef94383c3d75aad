//! Commands about services and their balance.

use super::observer::NoOutput;
use super::{OutputArgs, Watched, duration};
use clap::{Args, Subcommand};
use std::time::Duration;

#[derive(Debug, Subcommand)]
pub(crate) enum Service {
    /// List services
    #[command(alias = "ls")]
    List {
        #[command(flatten)]
        which: WhichServices,
        #[command(flatten)]
        watched: Watched,
    },
    /// Show services in one line each, or as JSON or YAML
    Get {
        #[command(flatten)]
        names: ServiceNames,
        #[command(flatten)]
        watched: Watched,
    },
    /// Show the details of services: state, observers and events
    Describe {
        #[command(flatten)]
        names: ServiceNames,
        #[command(flatten)]
        form: NoOutput,
    },
    /// Stop services from accepting observers; their current observers continue to run
    Cordon(ServiceNames),
    /// Let services accept observers again
    Uncordon(ServiceNames),
    /// Hand over all observers of services, and keep the services cordoned until you uncordon them
    #[command(after_help = Drain::EXAMPLES)]
    Drain(Drain),
    /// Set the capacity of a service
    Capacity {
        /// Name or id
        name: String,
        /// Number of slots, or `default` for its own configuration
        slots: String,
    },
}

#[derive(Debug, Args)]
pub(crate) struct ServiceNames {
    /// Names (of their newest incarnations) or ids
    #[arg(required = true, value_name = "NAME")]
    pub(crate) names: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct WhichServices {
    /// Show only services in these states (comma-separated)
    #[arg(long, value_delimiter = ',',
          value_parser = ["active", "standby", "cordoned", "draining", "suspect", "lost", "gone"])]
    pub(crate) state: Vec<String>,
    /// Show only services of this pool
    #[arg(long)]
    pub(crate) pool: Option<String>,
    /// Include services that ended recently
    #[arg(short, long, conflicts_with = "state")]
    pub(crate) all: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Drain {
    #[command(flatten)]
    pub(crate) services: ServiceNames,
    /// Maximum number of observers that each service hands over per second
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) per_second: Option<u32>,
    /// Deadline, after which the service hands over all remaining observers even if no service has room
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) within: Option<Duration>,
    /// Hand over even if no service has room
    #[arg(long)]
    pub(crate) force: bool,
    /// Wait at most this long until the services hold no observers, and show the progress
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) wait: Option<Duration>,
}

impl Drain {
    const EXAMPLES: &'static str = "Examples:
  everwatch service drain s1 --wait 5m                     only while other services have room
  everwatch service drain s1 --per-second 20 --within 10m
  everwatch service drain s1 s2 --wait 10m                 both at the same time";
}

#[derive(Debug, Subcommand)]
pub(crate) enum Rebalance {
    /// Show the moves that would even out the services
    Plan(Balance),
    /// Carry out the moves
    Apply {
        #[command(flatten)]
        balance: Balance,
        /// Wait at most this long until the moves are done, and show the progress
        #[arg(long, value_name = "TIME", value_parser = duration)]
        wait: Option<Duration>,
    },
}

#[derive(Debug, Args)]
pub(crate) struct Balance {
    /// Rebalance only this pool
    #[arg(long)]
    pub(crate) pool: Option<String>,
    /// Maximum number of observers to move in each pool
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) moves: Option<u32>,
    #[command(flatten)]
    pub(crate) shown: OutputArgs,
}
