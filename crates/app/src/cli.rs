//! The command-line interface: commands, flags and arguments.

mod access;
mod batch;
mod bench;
mod conformance;
mod events;
mod everywhere;
mod fleet;
mod groups;
mod kind;
mod limit;
mod logs;
mod moment;
mod namespace;
mod new;
mod observer;
mod rate;
mod rollout;
#[cfg(test)]
mod tests;
mod timeline;
mod usage;

pub(crate) use crate::output::OutputArgs;
pub(crate) use access::{Audit, Context, Login, Role as AccessRole, Token};
pub(crate) use batch::{Batch, CreateBatch};
pub(crate) use bench::{Bench, BenchOutput, Part};
pub(crate) use conformance::Conformance;
pub(crate) use events::{EventPart, Events};
pub(crate) use everywhere::Everywhere;
pub(crate) use fleet::{Balance, Drain, Rebalance, Service, ServiceNames, WhichServices};
pub(crate) use kind::{Kind, Pool};
pub(crate) use limit::Limit;
pub(crate) use logs::{LogOutput, Logs};
pub(crate) use moment::Moment;
pub(crate) use namespace::Namespace;
pub(crate) use new::New;
pub(crate) use observer::{
    Apply, CloneArgs, Create, Filter, ListArgs, Move, Names, NoOutput, Selection, Wait, WaitFor,
    health as health_word, status as status_word,
};
pub(crate) use rate::Rate;
pub(crate) use rollout::{Rollout, Start};
pub(crate) use timeline::Timeline;

use clap::{Args, Parser, Subcommand};
use everwatch_core::clock::parse_duration;
use std::path::PathBuf;
use std::time::Duration;

const AFTER_ALL: &str = "To try Everwatch, run `everwatch dev` and follow its output.

Without --server and EVERWATCH_SERVER, commands use the manager of the configuration file, then that
of the context, then http://127.0.0.1:7700. Without --ca-file, they trust the CAs of this machine.
EVERWATCH_TOKEN may contain the token itself. Without a namespace, names refer to the namespace of
the token, otherwise to `default`, and lists show all namespaces.

Exit codes of commands that send requests to a manager: 0 done, 1 failed, 2 wrong usage,
3 not found, 4 conflict, 5 timed out, 6 no manager responds, 7 not permitted.
`everwatch doctor` also ends with 8 for warnings, and with 9 for critical findings.";

const COMPLETION_EXAMPLES: &str = "Examples:
  everwatch completion bash > ~/.local/share/bash-completion/completions/everwatch
  everwatch completion zsh > ~/.zfunc/_everwatch          with ~/.zfunc in fpath
  everwatch completion fish > ~/.config/fish/completions/everwatch.fish

For names, the script runs everwatch with the manager, token and namespace of the environment, the context, or the command line. It waits at most 1 s, and completes no names if it does not get them. Bash splits words at `:` and `=`, so there, name the manager in the environment or a context.";

const STATUS_EXAMPLES: &str = "Examples:
  everwatch status
  everwatch status -o jsonpath={.stats.health.running}
  everwatch status -o custom-columns=VERSION:.version,HELD:.stats.held,CAPACITY:.stats.capacity";

/// Everwatch: the orchestrator for tasks that never end.
#[derive(Debug, Parser)]
#[command(name = "everwatch", version, after_help = AFTER_ALL)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) everywhere: Everywhere,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a manager and services in one process, without RabbitMQ
    ///
    /// Unless you name others, the broker runs in this process, and SQLite stores the state in a temporary folder.
    Dev {
        #[command(flatten)]
        options: everwatch::dev::Options,
        /// Create observers of several kinds, and kill a service at this interval: 60s, unless you give another
        #[arg(long, value_name = "INTERVAL", num_args = 0..=1, require_equals = true, default_missing_value = "60s", value_parser = duration)]
        demo: Option<Duration>,
    },
    /// List commands to try while `everwatch dev --demo` runs
    Demo,
    /// Create the project of a service with a kind of your own
    #[command(after_help = New::EXAMPLES)]
    New(New),
    /// Run a manager or a service
    #[command(subcommand)]
    Run(Role),
    /// Show on one screen whether all observers run, and what to do
    #[command(after_help = STATUS_EXAMPLES)]
    Status(OutputArgs),
    /// Create, show, change and delete observers
    #[command(subcommand, aliases = ["obs", "observers"])]
    Observer(Observer),
    /// Show, cordon, drain and resize services
    #[command(subcommand, aliases = ["svc", "services"])]
    Service(Service),
    /// Spread the observers of each pool in proportion to capacity
    #[command(subcommand)]
    Rebalance(Rebalance),
    /// Create many observers as one batch, follow it and end it
    #[command(subcommand, aliases = ["batches"])]
    Batch(Batch),
    /// Change many observers by one patch, a few at a time
    #[command(subcommand, aliases = ["rollouts"])]
    Rollout(Rollout),
    /// Show events, the newest last
    ///
    /// `-o json` prints one event a line.
    #[command(after_help = Events::EXAMPLES)]
    Events(Events),
    /// Show what each service held over time, and what moved
    #[command(after_help = Timeline::EXAMPLES)]
    Timeline(Timeline),
    /// List, retry and discard messages that managers could not read
    #[command(subcommand)]
    Parked(Parked),
    /// Suspend decisions based on missing heartbeats
    #[command(subcommand)]
    SafeMode(SafeMode),
    /// Manage pools: list, describe, create, delete, pause, resume
    #[command(subcommand, aliases = ["pools"])]
    Pool(Pool),
    /// List and describe the kinds of observers that services can run
    #[command(subcommand, aliases = ["kinds"])]
    Kind(Kind),
    /// Manage limits: how many observers of a key may run at once
    #[command(subcommand, aliases = ["limits"])]
    Limit(Limit),
    /// Set, show and delete rates
    #[command(subcommand, aliases = ["rates"])]
    Rate(Rate),
    /// Manage namespaces: parts of a deployment, with quotas and pools
    #[command(subcommand, aliases = ["ns", "namespaces"])]
    Namespace(Namespace),
    /// Log in: store a token, and make its manager the current one
    #[command(after_help = Login::EXAMPLES)]
    Login(Login),
    /// Delete the stored token of a manager
    Logout,
    /// Show the current user and its permissions
    Whoami {
        #[command(flatten)]
        shown: OutputArgs,
    },
    /// Manage tokens, which authenticate clients of the API
    #[command(subcommand, aliases = ["tokens"])]
    Token(Token),
    /// Manage roles: what the owners of tokens may do
    #[command(subcommand, aliases = ["roles"])]
    Role(AccessRole),
    /// Show the audit log
    #[command(subcommand)]
    Audit(Audit),
    /// Manage contexts: managers with your tokens for them
    #[command(subcommand, aliases = ["contexts"])]
    Context(Context),
    /// Show and manage services and observers, live, on a full screen
    #[command(after_help = "The last line of the screen shows the main keys; press ? to show all keys.")]
    Top,
    /// Inject faults (only with `everwatch dev`)
    #[command(subcommand)]
    Chaos(Chaos),
    /// Print a completion script for a shell
    ///
    /// The script also completes the names that the manager knows.
    #[command(after_help = COMPLETION_EXAMPLES)]
    Completion { shell: clap_complete::Shell },
    /// Write the manual pages of all commands to a folder
    ///
    /// Without a folder, it prints the main page.
    #[command(
        after_help = "Example:\n  everwatch man /usr/local/share/man/man1; man everwatch-observer-create"
    )]
    Man { folder: Option<PathBuf> },
    /// Show problems, their effects, and the commands that cure them
    #[command(long_about = Doctor::LONG_ABOUT)]
    Doctor(Doctor),
    /// Show the configuration
    #[command(subcommand)]
    Config(Config),
    /// Print how to set up the RabbitMQ broker
    #[command(subcommand)]
    Broker(Broker),
    /// Migrate the database schema, as managers do when they start
    Migrate {
        /// Prepare a database that was restored from a backup, so that managers can adopt the observers that
        /// continued to run (stop all managers first)
        #[arg(long)]
        restored: bool,
    },
    /// Measure Everwatch on RabbitMQ, and compare it with RabbitMQ alone
    Bench(Bench),
    /// Check a service in any language against the rules of the protocol
    #[command(after_help = Conformance::EXAMPLES)]
    Conformance(Conformance),
    /// Run the bare consumer that `bench` compares with
    #[command(hide = true)]
    BenchHolder {
        queue: String,
        #[arg(value_parser = clap::value_parser!(u32).range(1..=200_000))]
        count: u32,
    },
    /// Run the services that `bench` measures the manager beside
    #[command(hide = true)]
    BenchFleet {
        #[arg(value_parser = clap::value_parser!(u32).range(1..=2000))]
        count: u32,
    },
    /// Check a local process; exit 0 if it is healthy
    Health {
        /// Check this URL instead of the manager that --server, EVERWATCH_SERVER or the configuration names, such as
        /// http://127.0.0.1:7700/readyz
        #[arg(long, conflicts_with = "server")]
        url: Option<String>,
    },
}

#[derive(Debug, Clone, Copy, Subcommand)]
pub(crate) enum Role {
    /// Run a manager: HTTP API, console and reconciler
    Manager {
        /// Take over observers in the broker that belong to another database
        #[arg(long)]
        adopt: bool,
    },
    /// Run an observer service with the built-in kinds
    Service,
}

/// How the answer looks, now and later.
#[derive(Debug, Clone, Args)]
pub(crate) struct Watched {
    #[command(flatten)]
    pub(crate) shown: OutputArgs,
    /// Keep showing changes until Ctrl-C
    #[arg(short, long)]
    pub(crate) watch: bool,
}

/// The command line. Ends the process if it is wrong, or asks for help.
pub(crate) fn parse() -> Cli {
    usage::parsed()
}

#[derive(Debug, Args)]
pub(crate) struct Labels {
    /// Label as key=value; repeat the flag for several labels
    #[arg(short, long = "label", value_name = "KEY=VALUE", value_parser = label)]
    pub(crate) labels: Vec<(String, String)>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Observer {
    /// Create an observer
    #[command(after_help = Create::EXAMPLES)]
    Create(Box<Create>),
    /// Create or update observers from files
    #[command(after_help = Apply::EXAMPLES)]
    Apply(Apply),
    /// Show observers in one line each, or in another form
    #[command(after_help = Names::OUTPUT_EXAMPLES)]
    Get {
        #[command(flatten)]
        names: Names,
        #[command(flatten)]
        watched: Watched,
    },
    /// List observers
    #[command(after_help = ListArgs::EXAMPLES, alias = "ls")]
    List {
        #[command(flatten)]
        which: ListArgs,
        #[command(flatten)]
        watched: Watched,
    },
    /// Show the details of observers: definition, state, reason, runs and events
    Describe {
        #[command(flatten)]
        names: Names,
        #[command(flatten)]
        form: NoOutput,
    },
    /// Print the result of a completed observer as JSON
    Result {
        /// Name or id
        name: String,
    },
    /// Delete observers
    #[command(after_help = Selection::EXAMPLES)]
    Delete {
        #[command(flatten)]
        chosen: Selection,
        /// Wait at most this long until the runs of the deleted observers have ended
        #[arg(long, value_name = "TIME", value_parser = duration)]
        wait: Option<Duration>,
        /// Show which observers would be deleted
        #[arg(long)]
        dry_run: bool,
    },
    /// Wait until an observer has a status
    Wait(Wait),
    /// Retry failed observers
    #[command(after_help = Selection::EXAMPLES)]
    Retry(Selection),
    /// Pause observers: stop them until they are resumed
    #[command(after_help = Selection::EXAMPLES)]
    Pause {
        #[command(flatten)]
        chosen: Selection,
        #[command(flatten)]
        wait: WaitFor,
    },
    /// Resume paused observers
    #[command(after_help = Selection::EXAMPLES)]
    Resume {
        #[command(flatten)]
        chosen: Selection,
        #[command(flatten)]
        wait: WaitFor,
    },
    /// Restart observers: stop their runs and start new ones
    #[command(after_help = Selection::EXAMPLES)]
    Restart {
        #[command(flatten)]
        chosen: Selection,
        #[command(flatten)]
        wait: WaitFor,
    },
    /// Start an execution of scheduled observers now
    Trigger(Names),
    /// Show when an observer executes next
    Schedule {
        /// Name or id
        name: String,
        /// Number of times to show
        #[arg(long, value_name = "COUNT", default_value = "10", value_parser = clap::value_parser!(u8).range(1..=100))]
        next: u8,
    },
    /// List the versions of the definition of an observer
    #[command(visible_alias = "history")]
    Versions {
        /// Name or id
        name: String,
        #[command(flatten)]
        watched: Watched,
    },
    /// Compare two versions of the definition of an observer
    Diff {
        /// Name or id
        name: String,
        /// Older version [default: the version before --to]
        #[arg(long, value_name = "VERSION", value_parser = clap::value_parser!(u32).range(1..))]
        from: Option<u32>,
        /// Newer version [default: the current one]
        #[arg(long, value_name = "VERSION", value_parser = clap::value_parser!(u32).range(1..))]
        to: Option<u32>,
    },
    /// Change the definition of an observer in your editor ($VISUAL, $EDITOR or vi)
    Edit {
        /// Name or id
        name: String,
    },
    /// Create an observer with the definition of another one
    Clone(CloneArgs),
    /// Restore an earlier version of the definition of an observer
    Revert {
        /// Name or id
        name: String,
        /// Version to restore: see `everwatch observer versions`; by default the one before the current one
        #[arg(long, value_name = "VERSION", value_parser = clap::value_parser!(u32).range(1..))]
        to: Option<u32>,
    },
    /// Move observers to another service
    #[command(after_help = Move::EXAMPLES)]
    Move(Move),
    /// Show the output of observers
    #[command(after_help = Logs::EXAMPLES)]
    Logs(Logs),
    /// Show the events of an observer, the newest last; -o json prints one event a line
    Events {
        /// Name or id
        name: String,
        #[command(flatten)]
        part: EventPart,
    },
}

#[derive(Debug, Clone, Subcommand)]
pub(crate) enum Parked {
    /// List parked messages, the newest first
    #[command(alias = "ls")]
    List(Watched),
    /// Send a parked message back to its queue
    Retry { id: i64 },
    /// Delete a parked message
    Discard { id: i64 },
}

#[derive(Debug, Subcommand)]
pub(crate) enum SafeMode {
    /// Switch safe mode on, for example for maintenance or a network problem
    On {
        /// Reason, shown to other operators
        #[arg(long, default_value = "", hide_default_value = true)]
        reason: String,
    },
    /// Switch safe mode off
    Off,
    /// Show whether safe mode is on
    #[command(alias = "status")]
    Show,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Chaos {
    /// End a service as `kill -9` does, and wait until its observers run on other services, at most 10 s
    Kill {
        service: String,
        /// Do not wait until the observers run on other services
        #[arg(long)]
        no_wait: bool,
    },
    /// Freeze a service as SIGSTOP does: after two heartbeats the broker redelivers its messages
    Freeze { service: String },
    /// Thaw a frozen service
    Thaw { service: String },
}

#[derive(Debug, Args)]
pub(crate) struct Doctor {
    #[command(flatten)]
    pub(crate) shown: OutputArgs,
}

impl Doctor {
    const LONG_ABOUT: &str = "Show problems, their effects, and the commands that cure them, the worst first.\n\n\
        Exit codes: 0 at most informational findings, 8 warnings, 9 critical findings, 6 no manager responds.\n\
        If [broker] management_url is set, they also cover the broker's policies, alarms, nodes and queues.";
}

#[derive(Debug, Subcommand)]
pub(crate) enum Broker {
    /// Print the commands that create broker users with limited permissions: one for the managers, and one for the services
    /// of each pool
    Permissions {
        /// Pool whose services get a user; may be repeated
        #[arg(long = "pool", value_name = "POOL", default_value = "default")]
        pools: Vec<everwatch_core::id::Pool>,
        /// Vhost of the deployment; default: the vhost of [broker] url
        #[arg(long)]
        vhost: Option<String>,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum Config {
    /// Print the effective configuration without secrets
    Print,
}

fn label(text: &str) -> Result<(String, String), String> {
    let pair = text.split_once('=').filter(|(key, _)| !key.is_empty());
    let (key, value) = pair.ok_or_else(|| format!("`{text}` has no `=`: write key=value"))?;
    if key.ends_with('!') || value.starts_with('=') {
        return Err("this is not key=value; filters accept it as -l".to_owned());
    }
    if value.split_once(',').is_some_and(|(_, more)| more.contains('=')) {
        return Err("this is not one label: repeat the flag for each".to_owned());
    }
    Ok((key.to_owned(), value.to_owned()))
}

fn duration(text: &str) -> Result<Duration, String> {
    parse_duration(text)
}
