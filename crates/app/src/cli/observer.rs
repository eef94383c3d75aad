//! Arguments of the commands about observers.

use super::moment::later;
use super::{Labels, duration, label};
use clap::Args;
use everwatch_core::clock::Timestamp;
use everwatch_core::observer::labels::Selector;
use everwatch_core::observer::windows::{Days, Opening};
use everwatch_core::record::health::Health;
use everwatch_core::record::reason::ReasonCode;
use everwatch_core::record::status::Status;
use everwatch_core::spelling::nearest;
use std::path::PathBuf;
use std::time::Duration;

#[derive(Debug, Args)]
pub(crate) struct Create {
    /// Name; the manager generates one by default
    pub(crate) name: Option<String>,
    /// Kind: the code to run
    #[arg(long)]
    pub(crate) kind: String,
    /// Spec: the arguments of the kind, as JSON or @FILE
    #[arg(long, value_name = "JSON|@FILE")]
    pub(crate) spec: Option<String>,
    /// Pool to run in
    #[arg(long)]
    pub(crate) pool: Option<String>,
    #[command(flatten)]
    pub(crate) labels: Labels,
    /// What to do when the pool is full
    #[arg(long, value_parser = ["reject", "queue"])]
    pub(crate) on_full: Option<String>,
    /// Priority from -100 to 100: free slots go to the highest priority first
    #[arg(long, allow_negative_numbers = true, value_parser = clap::value_parser!(i8).range(-100..=100))]
    pub(crate) priority: Option<i8>,
    /// Number of slots that it takes, from 1 to 1000
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub(crate) weight: Option<u16>,
    /// Key of a limit that it counts towards, such as account-42; may be repeated
    #[arg(long = "limit-key", alias = "limit", value_name = "KEY")]
    pub(crate) limits: Vec<String>,
    /// Earliest time at which it may start: RFC 3339, or relative to now, such as +10m
    #[arg(long, value_name = "TIME", value_parser = later)]
    pub(crate) start_at: Option<Timestamp>,
    /// Time at which it ends: RFC 3339, or relative to now, such as +8h
    #[arg(long, value_name = "TIME", value_parser = later)]
    pub(crate) finish_at: Option<Timestamp>,
    /// Hours in which it may run, such as 'mon-fri 09:30-16:00'; may be repeated
    #[arg(long = "window", value_name = "DAYS FROM-TO", requires = "time_zone", value_parser = window, group = "calendar")]
    pub(crate) windows: Vec<Opening>,
    /// Cron expression of the times at which it executes, such as '0 3 * * *'
    #[arg(long, value_name = "CRON", group = "calendar")]
    pub(crate) schedule: Option<String>,
    /// Time zone, such as America/New_York: required with --window, default UTC with --schedule
    #[arg(long, value_name = "NAME", requires = "calendar")]
    pub(crate) time_zone: Option<String>,
    /// Date on which no window opens, such as 2030-12-25; may be repeated
    #[arg(long, value_name = "DATE", requires = "windows")]
    pub(crate) except: Vec<String>,
    /// How late it may execute for a time at which no manager was alive (default 1h)
    #[arg(long, value_name = "TIME", requires = "schedule")]
    pub(crate) catch_up: Option<String>,
    /// What to do at a time of the schedule while an execution is active (default skip)
    #[arg(long, requires = "schedule", value_parser = ["skip", "queue", "restart"])]
    pub(crate) if_running: Option<String>,
    /// Largest delay after the times of the schedule, such as 5m; each observer has its own
    #[arg(long, value_name = "TIME", requires = "schedule")]
    pub(crate) jitter: Option<String>,
    /// Time after which it fails if it still waits for a slot, such as 10m
    #[arg(long, value_name = "TIME")]
    pub(crate) start_within: Option<String>,
    /// Time after which its service stops an attempt, such as 30m
    #[arg(long, value_name = "TIME")]
    pub(crate) attempt_timeout: Option<String>,
    /// Retry policy after an error, as JSON or @FILE; `never`: the first error fails the observer
    #[arg(long, value_name = "never|JSON|@FILE")]
    pub(crate) retry: Option<String>,
    /// Whether two runs may overlap briefly during a failover
    #[arg(long, value_parser = ["allow", "forbid"])]
    pub(crate) overlap: Option<String>,
    /// Time that the code may take to stop before it is aborted, such as 10s
    #[arg(long, value_name = "TIME")]
    pub(crate) grace: Option<String>,
    /// Create it paused
    #[arg(long)]
    pub(crate) paused: bool,
    /// Check the definition, and create nothing; free slots and quotas are not checked
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Wait at most this long until the observer runs
    #[arg(long, value_name = "TIME", value_parser = duration, conflicts_with_all = ["paused", "dry_run"])]
    pub(crate) wait: Option<Duration>,
}

impl Create {
    pub(crate) const EXAMPLES: &'static str = "Examples:
  everwatch observer create hello --kind ticker --spec '{\"every\": \"5s\"}'
  everwatch observer create feed --kind http --spec @feed.json --label team=prices --wait 30s
  everwatch observer create job --kind exec --spec '{\"argv\": [\"./watch.py\"]}' \\
      --retry '{\"kind\": \"fixed\", \"every\": \"5s\", \"attempts\": 10}'
  everwatch observer create auction --kind websocket --spec @auction.json \\
      --start-at 2030-01-31T09:30:00Z --finish-at 2030-01-31T16:00:00Z
  everwatch observer create trades --kind websocket --spec @trades.json \\
      --window 'mon-fri 09:30-16:00' --time-zone America/New_York --except 2030-12-25
  everwatch observer create report --kind exec --spec '{\"argv\": [\"./report.sh\"]}' \\
      --schedule '0 3 * * *' --time-zone Europe/Berlin --if-running queue";
}

/// An opening in words, as in `mon-fri 09:30-16:00`.
fn window(text: &str) -> Result<Opening, String> {
    let (days, hours) = text.trim().rsplit_once(char::is_whitespace).unwrap_or(("", text.trim()));
    let (from, to) = hours.split_once('-').ok_or_else(|| {
        format!("`{text}` is not a window: write days, a space, and two times with a hyphen and no space between them, as in 'mon-fri 09:30-16:00'")
    })?;
    let days = if days.is_empty() { Days::default() } else { days.parse()? };
    Ok(Opening { days, from: from.parse()?, to: to.parse()? })
}

/// Observers to list.
#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    #[command(flatten)]
    pub(crate) filter: Filter,
    /// Sort order
    #[arg(long, allow_hyphen_values = true, value_parser = ["name", "-name", "created_at", "-created_at"])]
    pub(crate) sort: Option<String>,
    /// Maximum number of observers
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) limit: Option<u64>,
}

/// A filter of observers; all conditions must match.
#[derive(Debug, Args)]
pub(crate) struct Filter {
    /// Match these statuses (comma-separated); the default is all but Deleted
    #[arg(long, value_delimiter = ',', value_parser = status_in_filter)]
    pub(crate) status: Vec<Status>,
    /// Match these healths (comma-separated): running, restarting, waiting, moving, stopping
    #[arg(long, value_delimiter = ',', value_parser = health)]
    pub(crate) health: Vec<Health>,
    /// Match these reason codes (comma-separated), such as pool-is-full
    #[arg(long, value_delimiter = ',', value_name = "CODE")]
    pub(crate) reason: Vec<ReasonCode>,
    /// Match this kind
    #[arg(long)]
    pub(crate) kind: Option<String>,
    /// Match this pool
    #[arg(long)]
    pub(crate) pool: Option<String>,
    /// Match the observers that this service holds (name or id)
    #[arg(long)]
    pub(crate) service: Option<String>,
    #[command(flatten)]
    pub(crate) labels: LabelFilter,
    /// Match names that contain this text
    #[arg(short, long, value_name = "TEXT")]
    pub(crate) query: Option<String>,
}

impl Filter {
    /// The parameters of a request for the observers that match.
    pub(crate) fn query(&self) -> Vec<(&'static str, String)> {
        let statuses: Vec<_> = self.status.iter().map(|status| status.as_str()).collect();
        let status = Some(statuses.join(",")).filter(|text| !text.is_empty());
        let healths: Vec<_> = self.health.iter().map(|health| health.as_str()).collect();
        let health = Some(healths.join(",")).filter(|text| !text.is_empty());
        let codes: Vec<_> = self.reason.iter().map(|code| code.as_str()).collect();
        let reason = Some(codes.join(",")).filter(|text| !text.is_empty());
        let one = [
            ("status", status),
            ("health", health),
            ("reason_code", reason),
            ("kind", self.kind.clone()),
            ("pool", self.pool.clone()),
            ("service", self.service.clone()),
            ("q", self.query.clone()),
        ];
        let given = one.into_iter().filter_map(|(key, value)| Some((key, value?)));
        given.chain(self.labels.query()).collect()
    }
}

impl ListArgs {
    pub(crate) const EXAMPLES: &'static str = "Examples:
  everwatch observer list --status Failed -o wide
  everwatch observer list --health restarting,waiting
  everwatch observer list --service s1 --sort -created_at --limit 20
  everwatch observer list -l 'team in (prices, news), !old'
  everwatch observer list -l team=prices -o json | jq -r '.[].spec.url'
  everwatch observer list -o jsonpath='{.items[*].name}'
  everwatch observer list -o custom-columns=NAME:.name,TEAM:.labels.team --no-headers
  everwatch observer list --watch";
}

/// Which labels observers must have.
#[derive(Debug, Args)]
pub(crate) struct LabelFilter {
    /// Match labels: key=value, key!=value, 'key in (a, b)', 'key notin (a, b)', key, '!key'; comma-separated
    #[arg(short = 'l', long = "selector", value_name = "SELECTOR", value_parser = selector)]
    pub(crate) selectors: Vec<String>,
    /// Match a label, whose value may contain commas; repeat the flag for several labels
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = label)]
    pub(crate) labels: Vec<(String, String)>,
}

impl LabelFilter {
    /// The parameters of a request for the observers that match.
    pub(crate) fn query(&self) -> Vec<(&'static str, String)> {
        let labels = self.labels.iter().map(|(key, value)| ("label", format!("{key}={value}")));
        self.selector().map(|selector| ("selector", selector)).into_iter().chain(labels).collect()
    }

    /// All selectors as one.
    pub(crate) fn selector(&self) -> Option<String> {
        Some(self.selectors.join(",")).filter(|text| !text.is_empty())
    }
}

/// The text of a valid selector.
pub(super) fn selector(text: &str) -> Result<String, String> {
    text.parse::<Selector>().map(|_| text.to_owned())
}

/// A status, however it is capitalised.
pub(crate) fn status(text: &str) -> Result<Status, String> {
    let found = Status::ALL.into_iter().find(|status| status.as_str().eq_ignore_ascii_case(text));
    let known = Status::ALL.iter().map(|status| status.as_str());
    found.map_or_else(|| text.parse().map_err(|told: String| suggested(text, told, known)), Ok)
}

/// As [`status`], where one can also filter by health.
fn status_in_filter(text: &str) -> Result<Status, String> {
    let is_health = Health::ALL.iter().find(|health| health.as_str().eq_ignore_ascii_case(text));
    status(text).map_err(|told| match is_health {
        Some(health) => format!("{told}; {health} is a health: write --health {health}"),
        None => told,
    })
}

pub(crate) fn health(text: &str) -> Result<Health, String> {
    let known = Health::ALL.iter().map(|health| health.as_str());
    text.to_lowercase().parse().map_err(|told: String| suggested(text, told, known))
}

/// The error, with the word that was probably meant.
fn suggested<'a>(text: &str, told: String, known: impl IntoIterator<Item = &'a str>) -> String {
    match nearest(text, known) {
        Some(near) => format!("{told}; did you mean {near}?"),
        None => told,
    }
}

#[derive(Debug, Args)]
pub(crate) struct Names {
    /// Names or ids
    #[arg(required = true, value_name = "NAME")]
    pub(crate) names: Vec<String>,
}

/// A form of the answer that a command does not have.
#[derive(Debug, Args)]
pub(crate) struct NoOutput {
    /// Not available: the error names the command that has it
    #[arg(short, long, hide = true, value_name = "FORM")]
    pub(crate) output: Option<String>,
}

impl NoOutput {
    /// Refuses the form.
    ///
    /// # Errors
    /// If the user gives one.
    pub(crate) fn refuse(&self, command: &str) -> Result<(), String> {
        match &self.output {
            None => Ok(()),
            Some(form) => Err(format!("descriptions are text only: use `{command} -o {form}`")),
        }
    }
}

impl Names {
    pub(crate) const OUTPUT_EXAMPLES: &'static str = "Examples:
  everwatch observer get prices-1 prices-2
  everwatch observer get prices-1 -o jsonpath={.status}
  everwatch observer get prices-1 prices-2 -o custom-columns=NAME:.name,SERVICE:.service.name --no-headers

If some of several names have errors, all errors are shown, and the highest of their exit codes is returned.";
}

/// Observers by name, or all that match a filter.
#[derive(Debug, Args)]
pub(crate) struct Selection {
    /// Names or ids
    #[arg(
        value_name = "NAME",
        required_unless_present_any = Self::FILTERS,
        conflicts_with_all = Self::FILTERS
    )]
    pub(crate) names: Vec<String>,
    #[command(flatten)]
    pub(crate) filter: Filter,
    /// With a filter: skip the confirmation, and proceed only if exactly this many observers match
    #[arg(long, value_name = "COUNT", conflicts_with = "names")]
    pub(crate) expect: Option<u64>,
    /// With a filter: skip the confirmation
    #[arg(short, long, conflicts_with = "expect")]
    pub(crate) yes: bool,
}

impl Selection {
    const FILTERS: [&'static str; 9] =
        ["status", "health", "reason", "kind", "pool", "service", "labels", "selectors", "query"];
    pub(crate) const EXAMPLES: &'static str =
        "Examples (the same for delete, pause, resume, restart and retry):
  everwatch observer restart prices-1 prices-2
  everwatch observer restart prices-1 --wait 30s           not with retry
  everwatch observer restart -l team=prices                asks: Restart 37 observers?
  everwatch observer restart -l team=prices --expect 37    proceeds only if exactly 37 match";
}

/// How long a command waits for its effect.
#[derive(Debug, Args)]
pub(crate) struct WaitFor {
    /// Wait at most this long until the observers are paused or run again (restart: in a new run; move: on another service)
    #[arg(long = "wait", id = "wait_for", value_name = "TIME", value_parser = duration)]
    pub(crate) time: Option<Duration>,
}

/// The observer to clone, and the name of the clone.
#[derive(Debug, Args)]
pub(crate) struct CloneArgs {
    /// Name or id
    pub(crate) name: String,
    /// Name of the new observer
    #[arg(value_name = "NEW_NAME")]
    pub(crate) new_name: String,
    /// Create it paused
    #[arg(long)]
    pub(crate) paused: bool,
}

/// Observers to move, and where to.
#[derive(Debug, Args)]
pub(crate) struct Move {
    /// Names or ids
    #[arg(
        value_name = "NAME",
        required_unless_present_any = ["labels", "selectors"],
        conflicts_with_all = ["labels", "selectors"]
    )]
    pub(crate) names: Vec<String>,
    #[command(flatten)]
    pub(crate) labels: LabelFilter,
    /// With labels: skip the confirmation, and proceed only if exactly this many observers match
    #[arg(long, value_name = "COUNT", conflicts_with = "names")]
    pub(crate) expect: Option<u64>,
    /// With labels: skip the confirmation
    #[arg(short, long, conflicts_with = "expect")]
    pub(crate) yes: bool,
    /// Move them to this pool
    #[arg(long)]
    pub(crate) pool: Option<String>,
    /// Move them to this service of their pool. The manager refuses the request if the service has no free slot. If other observers take the slot first, another service runs them
    #[arg(long = "to", value_name = "SERVICE", conflicts_with = "pool")]
    pub(crate) service: Option<String>,
    #[command(flatten)]
    pub(crate) wait: WaitFor,
}

impl Move {
    pub(crate) const EXAMPLES: &'static str = "Examples:
  everwatch observer move prices-1                         to any other service that has room
  everwatch observer move prices-1 prices-2 --to service-3 --wait 30s
  everwatch observer move -l team=prices --pool trading    asks: Move 37 observers?";
}

#[derive(Debug, Args)]
pub(crate) struct Wait {
    /// Name or id
    pub(crate) name: String,
    /// Status or health to wait for, such as status=Processing or health=running
    #[arg(long = "for", value_name = "status=WORD|health=WORD")]
    pub(crate) until: String,
    /// Give up after this, with exit code 5
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = duration)]
    pub(crate) timeout: Duration,
}

#[derive(Debug, Args)]
pub(crate) struct Apply {
    /// YAML or JSON file of observers, a folder of such files, or - for standard input; repeatable
    #[arg(short, long = "file", required = true)]
    pub(crate) files: Vec<PathBuf>,
    /// Delete observers that match --label and that no file defines, in the command's namespace and in those that the files
    /// name
    #[arg(long, requires = "labels")]
    pub(crate) prune: bool,
    /// With --prune: delete only observers with this label, as key=value; repeat the flag for several labels
    #[arg(short, long = "label", value_name = "KEY=VALUE", value_parser = label, requires = "prune")]
    pub(crate) labels: Vec<(String, String)>,
    /// Show what would be done, and each value that would change
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Wait at most this long until the observers of the files run with these definitions, or are paused if these say so
    #[arg(long, value_name = "TIME", value_parser = duration, conflicts_with = "dry_run")]
    pub(crate) wait: Option<Duration>,
}

impl Apply {
    pub(crate) const EXAMPLES: &'static str = "Examples:
  everwatch observer apply -f observers/ --dry-run
  everwatch observer apply -f prices.yaml --wait 30s
  everwatch observer apply -f prices.yaml -f feeds.yaml
  everwatch observer apply -f observers/ --prune -l team=prices";
}
