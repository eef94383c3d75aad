//! `everwatch observer logs`.

use clap::{Args, ValueEnum};

#[derive(Debug, Args)]
pub(crate) struct Logs {
    /// Name or id
    pub(crate) name: String,
    /// Follow new output, on whichever service the observer runs
    #[arg(short, long)]
    pub(crate) follow: bool,
    /// Number of past lines to show first
    #[arg(long, value_name = "COUNT", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) tail: u32,
    /// Line format
    #[arg(short, long, default_value = "text")]
    pub(crate) output: LogOutput,
}

impl Logs {
    pub(crate) const EXAMPLES: &'static str = "Examples:
  everwatch observer logs hello
  everwatch observer logs hello -f --tail 1
  everwatch observer logs hello --tail 1000 -o raw | grep -c ERROR";
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
