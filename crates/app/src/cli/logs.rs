//! `everwatch observer logs`.

use super::Moment;
use super::observer::selector;
use clap::{Args, ValueEnum};

#[derive(Debug, Args)]
pub(crate) struct Logs {
    /// Names or ids
    #[arg(value_name = "NAME", required_unless_present = "selectors", conflicts_with = "selectors")]
    pub(crate) names: Vec<String>,
    /// Show the output of all observers whose labels match, as with `observer list --selector`
    #[arg(short = 'l', long = "selector", value_name = "SELECTOR", value_parser = selector)]
    pub(crate) selectors: Vec<String>,
    /// Maximum number of observers, up to 100; the command fails if more match
    #[arg(long, value_name = "COUNT", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub(crate) max_log_requests: u32,
    /// Follow new output, on whichever services the observers run
    #[arg(short, long)]
    pub(crate) follow: bool,
    /// Show the output of the run before the newest one
    #[arg(short, long, conflicts_with_all = ["follow", "run"])]
    pub(crate) previous: bool,
    /// Show the output of the run with this epoch, such as 3.1; `everwatch observer describe` lists the runs
    #[arg(long, value_name = "EPOCH", conflicts_with = "follow")]
    pub(crate) run: Option<String>,
    /// Show only lines from this time on: RFC 3339, or how long ago, such as 10m
    #[arg(long, value_name = "TIME")]
    pub(crate) since: Option<Moment>,
    /// Number of past lines of each observer to show first, 1 to 1000 [default: 100, with --since 1000]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) tail: Option<u32>,
    /// Line format
    #[arg(short, long, default_value = "text")]
    pub(crate) output: LogOutput,
}

impl Logs {
    pub(crate) const EXAMPLES: &'static str = "Examples:
  everwatch observer logs hello
  everwatch observer logs hello -f --tail 1
  everwatch observer logs hello --previous                           the output of the run before the current one
  everwatch observer logs hello --tail 1000 -o raw | grep -c ERROR
  everwatch observer logs hello news --since 10m                     each line begins with [NAME]
  everwatch observer logs -l team=prices -f --max-log-requests 20";
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogOutput {
    /// Time, stream and text
    Text,
    /// The text alone
    Raw,
    /// One JSON object a line
    Json,
}
