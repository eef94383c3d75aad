//! What can be typed about observers, beside the verbs themselves.

use super::{Labels, duration};
use clap::Args;
use everwatch_core::health::Health;
use everwatch_core::status::Status;
use std::path::PathBuf;
use std::time::Duration;

#[derive(Debug, Args)]
pub(crate) struct Create {
    /// Its name; without one the manager makes one up
    pub(crate) name: Option<String>,
    /// What code it runs
    #[arg(long)]
    pub(crate) kind: String,
    /// Its arguments as JSON, or @FILE
    #[arg(long, value_name = "JSON|@FILE")]
    pub(crate) spec: Option<String>,
    /// Where it is to run
    #[arg(long)]
    pub(crate) pool: Option<String>,
    #[command(flatten)]
    pub(crate) labels: Labels,
    /// What to do when the pool is full
    #[arg(long, value_parser = ["reject", "queue"])]
    pub(crate) on_full: Option<String>,
    /// When it is started again after an error, as JSON, or @FILE
    #[arg(long, value_name = "JSON|@FILE")]
    pub(crate) retry: Option<String>,
    /// Whether two runs may overlap for a blink when one service takes it over from another
    #[arg(long, value_parser = ["allow", "forbid"])]
    pub(crate) overlap: Option<String>,
    /// How long its code may take to end before it is aborted, as 10s
    #[arg(long, value_name = "TIME")]
    pub(crate) grace: Option<String>,
    /// Create it paused
    #[arg(long)]
    pub(crate) paused: bool,
    /// Wait until it runs
    #[arg(long, value_name = "TIME", value_parser = duration, conflicts_with = "paused")]
    pub(crate) wait: Option<Duration>,
}

impl Create {
    pub(crate) const EXAMPLES: &'static str = "Examples:
  everwatch observer create hello --kind ticker --spec '{\"every\": \"5s\"}'
  everwatch observer create feed --kind http --spec @feed.json --label team=prices --wait 30s
  everwatch observer create job --kind exec --spec '{\"argv\": [\"./watch.py\"]}' \\
      --retry '{\"kind\": \"fixed\", \"every\": \"5s\", \"attempts\": 10}'";
}

/// Which observers.
#[derive(Debug, Args)]
pub(crate) struct Which {
    #[command(flatten)]
    pub(crate) filter: Filter,
    /// In which order
    #[arg(long, allow_hyphen_values = true, value_parser = ["name", "-name", "created_at", "-created_at"])]
    pub(crate) sort: Option<String>,
    /// At most so many
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) limit: Option<u64>,
}

/// What observers are found by; all of it has to fit.
#[derive(Debug, Args)]
pub(crate) struct Filter {
    /// Only with this status; several: comma-separated. Without it all but Deleted
    #[arg(long, value_delimiter = ',', value_parser = status)]
    pub(crate) status: Vec<Status>,
    /// Only with this health: running, restarting, waiting, moving or stopping; several: comma-separated
    #[arg(long, value_delimiter = ',')]
    pub(crate) health: Vec<Health>,
    /// Only of this kind
    #[arg(long)]
    pub(crate) kind: Option<String>,
    /// Only in this pool
    #[arg(long)]
    pub(crate) pool: Option<String>,
    /// Only what this service holds, by its name or id
    #[arg(long)]
    pub(crate) service: Option<String>,
    #[command(flatten)]
    pub(crate) labels: Labels,
    /// Only those whose name contains this
    #[arg(short, long, value_name = "TEXT")]
    pub(crate) query: Option<String>,
}

impl Which {
    pub(crate) const EXAMPLES: &'static str = "Examples:
  everwatch observer list --status Failed -o wide
  everwatch observer list --health restarting,waiting
  everwatch observer list --service s1 --sort -created_at --limit 20
  everwatch observer list -l team=prices -o json | jq -r '.[].spec.url'
  everwatch observer list --watch";
}

/// A status, however it is capitalised.
fn status(text: &str) -> Result<Status, String> {
    let found = Status::ALL.into_iter().find(|status| status.as_str().eq_ignore_ascii_case(text));
    found.map_or_else(|| text.parse(), Ok)
}

#[derive(Debug, Args)]
pub(crate) struct Names {
    /// Names or ids
    #[arg(required = true, value_name = "NAME")]
    pub(crate) names: Vec<String>,
}

/// Those with these names, or all that a filter finds.
#[derive(Debug, Args)]
pub(crate) struct Chosen {
    /// Names or ids
    #[arg(
        value_name = "NAME",
        required_unless_present_any = Self::FILTERS,
        conflicts_with_all = Self::FILTERS
    )]
    pub(crate) names: Vec<String>,
    #[command(flatten)]
    pub(crate) filter: Filter,
    /// With a filter: only if it finds so many, without asking
    #[arg(long, value_name = "COUNT", conflicts_with = "names")]
    pub(crate) expect: Option<u64>,
    /// With a filter: however many it finds, without asking
    #[arg(short, long, conflicts_with_all = ["names", "expect"])]
    pub(crate) yes: bool,
}

impl Chosen {
    const FILTERS: [&'static str; 7] = ["status", "health", "kind", "pool", "service", "labels", "query"];
    pub(crate) const EXAMPLES: &'static str = "Examples, alike for delete, pause, resume, restart and retry:
  everwatch observer restart prices-1 prices-2
  everwatch observer restart -l team=prices                asks: Restart 37 observers?
  everwatch observer restart -l team=prices --expect 37    only if there are 37";
}

#[derive(Debug, Args)]
pub(crate) struct Wait {
    /// Name or id
    pub(crate) name: String,
    /// status=WORD, as status=Processing
    #[arg(long = "for", value_name = "status=WORD")]
    pub(crate) until: String,
    /// Give up after this, with exit code 5
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = duration)]
    pub(crate) timeout: Duration,
}

#[derive(Debug, Args)]
pub(crate) struct Apply {
    /// A YAML or JSON file of observers, a folder of such files, or - for standard input; repeatable
    #[arg(short, long = "file", required = true)]
    pub(crate) files: Vec<PathBuf>,
    /// End what has the labels of --label and is in no file
    #[arg(long)]
    pub(crate) prune: bool,
    #[command(flatten)]
    pub(crate) labels: Labels,
    /// Only say what would be done
    #[arg(long)]
    pub(crate) dry_run: bool,
}

impl Apply {
    pub(crate) const EXAMPLES: &'static str = "Examples:
  everwatch observer apply -f observers/ --dry-run
  everwatch observer apply -f prices.yaml -f feeds.yaml
  everwatch observer apply -f observers/ --prune -l team=prices";
}
