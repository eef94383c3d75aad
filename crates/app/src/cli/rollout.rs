//! Commands about rollouts.

use super::observer::{LabelFilter, status};
use super::{OutputArgs, Watched};
use clap::{Args, Subcommand};
use everwatch_core::record::status::Status;
use everwatch_core::rollout::MemberState;

#[derive(Debug, Subcommand)]
pub(crate) enum Rollout {
    /// Change all matching observers by one patch, a few at a time
    #[command(after_help = Start::EXAMPLES)]
    Start(Box<Start>),
    /// List rollouts, the newest first
    #[command(alias = "ls")]
    List(Watched),
    /// Show the details of a rollout: state, reason, patch, progress, and the members that are not done
    #[command(alias = "get")]
    Describe {
        /// Name (the newest of that name) or id
        name: String,
        #[command(flatten)]
        shown: OutputArgs,
    },
    /// List the members of a rollout in the order in which they are changed
    Members {
        /// Name (the newest of that name) or id
        name: String,
        /// Show only members in these states (comma-separated): pending, changed, done, skipped, failed, reverting,
        /// reverted
        #[arg(long, value_delimiter = ',')]
        state: Vec<MemberState>,
        #[command(flatten)]
        shown: OutputArgs,
    },
    /// Pause a rollout: managers change no further observer
    Pause {
        /// Name (the newest of that name) or id
        name: String,
    },
    /// Resume a paused rollout: managers change further observers, and try its failed members again
    Resume {
        /// Name (the newest of that name) or id
        name: String,
        /// Show the progress until the rollout is over or paused; exit 1 unless all observers are changed
        #[arg(long)]
        wait: bool,
    },
    /// Restore the former definitions of all observers that a running or paused rollout has changed
    Revert {
        /// Name (the newest of that name) or id
        name: String,
        /// Show the progress until the rollout is over or paused; exit 1 unless all observers are reverted
        #[arg(long)]
        wait: bool,
    },
    /// Cancel a rollout: the observers that it has changed stay changed
    Cancel {
        /// Name (the newest of that name) or id
        name: String,
    },
}

#[derive(Debug, Args)]
pub(crate) struct Start {
    /// Name; the manager generates one by default
    pub(crate) name: Option<String>,
    #[command(flatten)]
    pub(crate) labels: LabelFilter,
    /// Match this kind
    #[arg(long)]
    pub(crate) kind: Option<String>,
    /// Match this pool
    #[arg(long)]
    pub(crate) pool: Option<String>,
    /// Match these statuses (comma-separated); the default is all but Deleted
    #[arg(long, value_delimiter = ',', value_parser = status)]
    pub(crate) status: Vec<Status>,
    /// Match names that contain this text
    #[arg(short, long, value_name = "TEXT")]
    pub(crate) query: Option<String>,
    /// Patch of each definition: the members that change, as JSON or @FILE; null restores a default
    #[arg(long, value_name = "JSON|@FILE", required_unless_present = "set")]
    pub(crate) patch: Option<String>,
    /// Field to change, such as spec.every=5s; may be repeated
    #[arg(long, value_name = "MEMBER=VALUE", conflicts_with = "patch")]
    pub(crate) set: Vec<String>,
    /// Number of observers that may be changed and not yet healthy
    #[arg(long, value_name = "COUNT", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) max_parallel: u32,
    /// Time that a changed observer must run without an error to be healthy
    #[arg(long, value_name = "TIME", default_value = "30s")]
    pub(crate) healthy_for: String,
    /// Time after which the rollout pauses if a changed observer is not healthy
    #[arg(long, value_name = "TIME", default_value = "10m")]
    pub(crate) timeout: String,
    /// What to do when an observer fails
    #[arg(long, default_value = "pause", value_parser = ["pause", "revert"])]
    pub(crate) on_failure: String,
    /// Have the manager check the request, and show how many observers would change; start nothing
    #[arg(long, conflicts_with = "wait")]
    pub(crate) dry_run: bool,
    /// Show the progress until the rollout is over or paused; exit 1 unless all observers are changed
    #[arg(long)]
    pub(crate) wait: bool,
}

impl Start {
    pub(crate) const EXAMPLES: &'static str = "Examples:
  everwatch rollout start faster -l team=prices --set spec.every=5s --max-parallel 5
  everwatch rollout start --kind exec --patch @patch.json --healthy-for 1m --on-failure revert
  everwatch rollout start -l app=feed --set labels.wave=2 --set retry.attempts=null
  everwatch rollout start -l team=prices --set spec.every=5s --dry-run";
}
