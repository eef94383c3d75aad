//! What can be typed.

mod fleet;
mod logs;
mod observer;
#[cfg(test)]
mod tests;

pub(crate) use crate::output::Output;
pub(crate) use fleet::{Balance, Drain, Rebalance, Service, WhichServices};
pub(crate) use logs::{LogOutput, Logs};
pub(crate) use observer::{Apply, Chosen, Create, Filter, Names, Wait, Which};

use clap::{Args, Parser, Subcommand, ValueEnum};
use everwatch_core::clock::parse_duration;
use std::path::PathBuf;
use std::time::Duration;

const EXIT_CODES: &str = "A first look: `everwatch dev`, and what it prints.

Exit codes of commands that ask a manager: 0 done, 1 failed, 2 wrong usage, 3 not found, 4 conflict,
5 timed out, 6 no manager answers.";

/// Everwatch: the orchestrator for tasks that never end.
#[derive(Debug, Parser)]
#[command(name = "everwatch", version, after_help = EXIT_CODES)]
pub(crate) struct Cli {
    /// Configuration file
    #[arg(
        long,
        env = "EVERWATCH_CONFIG",
        global = true,
        hide_env_values = true,
        value_name = "FILE",
        help_heading = "Everywhere",
        display_order = 100
    )]
    pub(crate) config: Option<PathBuf>,
    /// The manager that is asked; else that of the configuration file, else http://127.0.0.1:7700
    #[arg(
        long,
        env = "EVERWATCH_SERVER",
        global = true,
        hide_env_values = true,
        value_name = "URL",
        help_heading = "Everywhere",
        display_order = 101
    )]
    pub(crate) server: Option<String>,
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
    #[command(after_help = Events::EXAMPLES)]
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
    /// Services and observers on the full screen, live, with the same verbs
    #[command(after_help = "The keys are shown at its foot; ? shows all of them.")]
    Top,
    /// Break things on purpose (only against `everwatch dev`)
    #[command(subcommand)]
    Chaos(Chaos),
    /// Print what makes a shell complete commands, as: everwatch completion bash >…/completions/everwatch
    Completion { shell: clap_complete::Shell },
    /// Write the manual pages of all commands into a folder, or print that of everwatch itself
    #[command(
        after_help = "Example:\n  everwatch man /usr/local/share/man/man1; man everwatch-observer-create"
    )]
    Man { folder: Option<PathBuf> },
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
    /// A real PostgreSQL, or a SQLite file to keep, instead of a temporary one, as sqlite://dev.db
    #[arg(long)]
    pub(crate) store: Option<String>,
    /// What the names of all queues begin with, on a real RabbitMQ
    #[arg(long)]
    pub(crate) prefix: Option<String>,
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
    /// As a table, or for programs
    #[arg(short, long, value_name = "FORM", default_value = "table")]
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

/// How the answer looks.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct Shown {
    /// As a table, with all columns, or for programs
    #[arg(short, long, value_name = "FORM", default_value = "table")]
    pub(crate) output: Output,
}

/// How the answer looks, now and later.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct Watched {
    #[command(flatten)]
    pub(crate) shown: Shown,
    /// Go on showing what changes, until Ctrl-C
    #[arg(short, long)]
    pub(crate) watch: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Labels {
    /// key=value; repeatable
    #[arg(short, long = "label", value_name = "KEY=VALUE", value_parser = label)]
    pub(crate) labels: Vec<(String, String)>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Observer {
    /// Create one
    #[command(after_help = Create::EXAMPLES)]
    Create(Create),
    /// Make observers what files say
    #[command(after_help = Apply::EXAMPLES)]
    Apply(Apply),
    /// Show one in a line, or for programs
    Get {
        /// Name or id
        name: String,
        #[command(flatten)]
        watched: Watched,
    },
    /// Show many
    #[command(after_help = Which::EXAMPLES)]
    List {
        #[command(flatten)]
        which: Which,
        #[command(flatten)]
        watched: Watched,
    },
    /// Tell everything about one: what it is, why it is so, its runs and what happened to it
    Describe {
        /// Name or id
        name: String,
    },
    /// End some for good
    #[command(after_help = Chosen::EXAMPLES)]
    Delete {
        #[command(flatten)]
        chosen: Chosen,
        /// Wait until they are deleted
        #[arg(long, value_name = "TIME", value_parser = duration)]
        wait: Option<Duration>,
        /// Only say which would be deleted
        #[arg(long)]
        dry_run: bool,
    },
    /// Wait until one has a status
    Wait(Wait),
    /// Bring failed ones back
    #[command(after_help = Chosen::EXAMPLES)]
    Retry(Chosen),
    /// End their runs until they are resumed
    #[command(after_help = Chosen::EXAMPLES)]
    Pause(Chosen),
    /// Let paused ones run again
    #[command(after_help = Chosen::EXAMPLES)]
    Resume(Chosen),
    /// End their runs and begin new ones
    #[command(after_help = Chosen::EXAMPLES)]
    Restart(Chosen),
    /// Let another service run them
    Move {
        #[command(flatten)]
        names: Names,
        /// In another pool
        #[arg(long)]
        pool: Option<String>,
    },
    /// What one said lately, and live
    #[command(after_help = Logs::EXAMPLES)]
    Logs(Logs),
    /// What happened to one, newest last
    Events {
        /// Name or id
        name: String,
        #[command(flatten)]
        part: EventPart,
    },
}

#[derive(Debug, Args)]
pub(crate) struct Events {
    /// Only of this observer, by name or id
    #[arg(long, value_name = "NAME", conflicts_with = "service")]
    pub(crate) observer: Option<String>,
    /// Only of this service, by name or id
    #[arg(long, value_name = "NAME")]
    pub(crate) service: Option<String>,
    #[command(flatten)]
    pub(crate) part: EventPart,
}

impl Events {
    const EXAMPLES: &'static str = "Examples:
  everwatch events -f
  everwatch events --what failed,service_lost --limit 100 -o wide
  everwatch events -f -o json | jq -r .text";
}

/// Which events of those that there are.
#[derive(Debug, Args)]
pub(crate) struct EventPart {
    /// Go on with what happens from now
    #[arg(short, long)]
    pub(crate) follow: bool,
    /// Only these, as started,failed
    #[arg(long, value_name = "WORD", value_delimiter = ',')]
    pub(crate) what: Vec<String>,
    /// How many of the newest are shown first
    #[arg(long, value_name = "COUNT", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) limit: u32,
    /// As a table, with all columns, or for programs (json: one event a line)
    #[arg(short, long, value_name = "FORM", default_value = "table")]
    pub(crate) output: Output,
}

#[derive(Debug, Clone, Copy, Subcommand)]
pub(crate) enum Parked {
    /// Show all, newest first
    List(Watched),
    /// Send one back to the queue that it came from
    Retry { id: i64 },
    /// Forget one
    Discard { id: i64 },
}

#[derive(Debug, Subcommand)]
pub(crate) enum Hold {
    /// Conclude nothing from silence, for an incident
    On {
        /// Why, for those who come later
        #[arg(long, default_value = "", hide_default_value = true)]
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
    List(Watched),
}

#[derive(Debug, Subcommand)]
pub(crate) enum Chaos {
    /// End a service like `kill -9` would
    Kill { service: String },
    /// Stand a service still like SIGSTOP would: after two heartbeats the broker gives what it holds to others
    Freeze { service: String },
    /// Let it go on
    Thaw { service: String },
}

#[derive(Debug, Args)]
pub(crate) struct Doctor {
    #[command(flatten)]
    pub(crate) shown: Shown,
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

fn label(text: &str) -> Result<(String, String), String> {
    let pair = text.split_once('=').filter(|(key, _)| !key.is_empty());
    let (key, value) = pair.ok_or_else(|| format!("`{text}` has no `=`: write key=value"))?;
    Ok((key.to_owned(), value.to_owned()))
}

fn duration(text: &str) -> Result<Duration, String> {
    parse_duration(text)
}
