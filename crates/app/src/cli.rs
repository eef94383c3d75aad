//! What can be typed.

mod fleet;

pub(crate) use fleet::{Balance, Drain, Rebalance, Service};

use clap::{Args, Parser, Subcommand, ValueEnum};
use everwatch_core::clock::parse_duration;
use std::path::PathBuf;
use std::time::Duration;

/// Everwatch: the orchestrator for tasks that never end.
#[derive(Debug, Parser)]
#[command(name = "everwatch", version, propagate_version = true)]
pub(crate) struct Cli {
    /// Configuration file
    #[arg(long, env = "EVERWATCH_CONFIG", global = true)]
    pub(crate) config: Option<PathBuf>,
    /// The manager that client commands talk to
    #[arg(long, env = "EVERWATCH_SERVER", global = true, default_value = "http://127.0.0.1:7700")]
    pub(crate) server: String,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Everything in one process on embedded parts
    Dev(Dev),
    /// Run one role
    #[command(subcommand)]
    Run(Role),
    /// Create, look at and delete observers
    #[command(subcommand)]
    Observer(Observer),
    /// Look at services, empty and resize them
    #[command(subcommand)]
    Service(Service),
    /// Make services evenly used
    #[command(subcommand)]
    Rebalance(Rebalance),
    /// What happened, newest last
    Events(Events),
    /// Messages that nobody could read
    #[command(subcommand)]
    Parked(Parked),
    /// Switch off what is concluded from silence
    #[command(subcommand)]
    Hold(Hold),
    /// Look at pools
    #[command(subcommand)]
    Pool(Pool),
    /// Break things on purpose (only against `everwatch dev`)
    #[command(subcommand)]
    Chaos(Chaos),
    /// Print what makes a shell complete commands, as: everwatch completion bash >…/completions/everwatch
    Completion { shell: clap_complete::Shell },
    /// What is wrong, why it matters, and the command that cures it
    #[command(long_about = Doctor::LONG_ABOUT)]
    Doctor(Doctor),
    /// Look at the configuration
    #[command(subcommand)]
    Config(Config),
    /// Bring the tables of the database up to date, as managers do when they start
    Migrate {
        /// The database was restored from a backup: make it fit for what has run on meanwhile (stop all
        /// managers first)
        #[arg(long)]
        restored: bool,
    },
    /// Measure what Everwatch costs on a real broker, beside what the bare broker does
    Bench(Bench),
    /// The bare consumer that `bench` compares with
    #[command(hide = true)]
    BenchHolder {
        queue: String,
        #[arg(value_parser = clap::value_parser!(u32).range(1..=40_000))]
        count: u32,
    },
    /// Ask a process on this host whether it is well: ends with 0 if it is
    Health {
        /// What to ask instead of the manager of the configuration, as http://127.0.0.1:7700/readyz
        #[arg(long)]
        url: Option<String>,
    },
}

#[derive(Debug, Args)]
pub(crate) struct Dev {
    /// How many services run
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub(crate) services: u32,
    /// How many observers each takes
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=40_000))]
    pub(crate) capacity: u32,
    /// A real RabbitMQ instead of the in-process broker, as amqp://user:password@host:5672/%2f
    #[arg(long)]
    pub(crate) broker: Option<String>,
    /// A real PostgreSQL, or a SQLite file to keep, instead of a temporary one
    #[arg(long)]
    pub(crate) store: Option<String>,
    /// Where the manager listens
    #[arg(long)]
    pub(crate) listen: Option<String>,
    /// Take over the observers of another database, where the broker holds some
    #[arg(long)]
    pub(crate) adopt: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Bench {
    /// The RabbitMQ to measure, instead of that of the configuration
    #[arg(long)]
    pub(crate) broker: Option<String>,
    /// An empty PostgreSQL database instead of temporary SQLite files
    #[arg(long)]
    pub(crate) store: Option<String>,
    /// Measure only these
    #[arg(long, value_delimiter = ',')]
    pub(crate) only: Vec<Part>,
    /// How many observers are created for the rate of creates
    #[arg(long, default_value_t = 5000, value_parser = clap::value_parser!(u32).range(100..=40_000))]
    pub(crate) creates: u32,
    /// How many observers a killed service holds
    #[arg(long, value_delimiter = ',', default_values_t = [1000, 10_000],
          value_parser = clap::value_parser!(u32).range(1..=40_000))]
    pub(crate) failover: Vec<u32>,
    /// How often a service is killed; the median counts
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=25))]
    pub(crate) rounds: u32,
    /// How many observers idle
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(100..=40_000))]
    pub(crate) idle: u32,
    #[arg(short, long, default_value = "table")]
    pub(crate) output: BenchOutput,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Part {
    Creates,
    Failover,
    Idle,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum BenchOutput {
    Table,
    Json,
}

#[derive(Debug, Clone, Copy, Subcommand)]
pub(crate) enum Role {
    /// HTTP API and reconciler
    Manager {
        /// Take over the observers of another database, where the broker holds some
        #[arg(long)]
        adopt: bool,
    },
    /// An observer service with the built-in kinds
    Service,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Output {
    Table,
    Json,
    Name,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Observer {
    /// Create one
    Create {
        name: String,
        /// What code it runs
        #[arg(long)]
        kind: String,
        /// Its arguments as JSON, or @FILE
        #[arg(long)]
        spec: Option<String>,
        #[arg(long)]
        pool: Option<String>,
        /// key=value, repeatable
        #[arg(long = "label")]
        labels: Vec<String>,
        /// What to do when the pool is full
        #[arg(long, value_parser = ["reject", "queue"])]
        on_full: Option<String>,
    },
    /// Make observers what files say
    Apply(Apply),
    /// Show one, by name or id
    Get {
        name: String,
        #[arg(short, long, default_value = "table")]
        output: Output,
    },
    /// Show many
    List {
        #[arg(long)]
        status: Option<String>,
        #[arg(long)]
        kind: Option<String>,
        #[arg(long)]
        pool: Option<String>,
        #[arg(long)]
        service: Option<String>,
        #[arg(short, long, default_value = "table")]
        output: Output,
    },
    /// Delete some, by name or id
    Delete {
        #[arg(required = true)]
        names: Vec<String>,
        /// Wait until they are deleted
        #[arg(long, value_parser = duration)]
        wait: Option<Duration>,
    },
    /// Wait until one has a status
    Wait {
        name: String,
        /// status=WORD
        #[arg(long = "for")]
        until: String,
        #[arg(long, default_value = "30s", value_parser = duration)]
        timeout: Duration,
    },
    /// Bring a failed one back
    Retry { name: String },
    /// End its run until it is resumed
    Pause { name: String },
    /// Let a paused one run again
    Resume { name: String },
    /// End its run and begin a new one
    Restart { name: String },
    /// Let another service run it
    Move {
        name: String,
        /// In another pool
        #[arg(long)]
        pool: Option<String>,
    },
    /// What happened to it
    Events {
        name: String,
        #[arg(short, long, default_value = "table")]
        output: Output,
    },
}

#[derive(Debug, Args)]
pub(crate) struct Apply {
    /// A YAML or JSON file of observers, a folder of such files, or - for standard input; repeatable
    #[arg(short, long = "file", required = true)]
    pub(crate) files: Vec<PathBuf>,
    /// End what has the labels of --label and is in no file
    #[arg(long)]
    pub(crate) prune: bool,
    /// key=value, repeatable: what --prune is about
    #[arg(short, long = "label")]
    pub(crate) labels: Vec<String>,
    /// Only say what would be done
    #[arg(long)]
    pub(crate) dry_run: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Events {
    /// Go on with what happens from now
    #[arg(short, long)]
    pub(crate) follow: bool,
    /// How many of the newest are shown first
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) limit: u32,
    #[arg(short, long, default_value = "table")]
    pub(crate) output: Output,
}

#[derive(Debug, Clone, Copy, Subcommand)]
pub(crate) enum Parked {
    /// Show all, newest first
    List {
        #[arg(short, long, default_value = "table")]
        output: Output,
    },
    /// Send one back to the queue that it came from
    Retry { id: i64 },
    /// Forget one
    Discard { id: i64 },
}

#[derive(Debug, Subcommand)]
pub(crate) enum Hold {
    /// Conclude nothing from silence, for an incident
    On {
        #[arg(long, default_value = "")]
        reason: String,
    },
    /// Conclude again
    Off,
    /// Show whether it is on
    Show,
}

#[derive(Debug, Clone, Copy, Subcommand)]
pub(crate) enum Pool {
    /// Show all
    List {
        #[arg(short, long, default_value = "table")]
        output: Output,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum Chaos {
    /// End a service like `kill -9` would
    Kill { service: String },
}

#[derive(Debug, Args)]
pub(crate) struct Doctor {
    #[arg(short, long, default_value = "table")]
    pub(crate) output: Output,
}

impl Doctor {
    const LONG_ABOUT: &str = "What is wrong, why it matters, and the command that cures it, the worst first.\n\n\
        Exit code: 0 nothing but information, 4 warnings, 1 something critical, 6 no manager answers.\n\
        With [broker] management_url the manager sees the broker's policies, alarms, nodes and queues as well.";
}

#[derive(Debug, Subcommand)]
pub(crate) enum Config {
    /// Show what is in force, secrets hidden
    Print,
}

fn duration(text: &str) -> Result<Duration, String> {
    parse_duration(text)
}
