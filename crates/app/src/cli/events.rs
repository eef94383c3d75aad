//! The arguments of `everwatch events` and `everwatch observer events`.

use super::observer::selector;
use super::{Moment, OutputArgs};
use clap::Args;

#[derive(Debug, Args)]
pub(crate) struct Events {
    /// Show only events of this observer (name or id)
    #[arg(long, value_name = "NAME", conflicts_with = "service")]
    pub(crate) observer: Option<String>,
    /// Show only events of this service: all processes of a name, or the one with an id
    #[arg(long, value_name = "NAME")]
    pub(crate) service: Option<String>,
    /// Show only events of observers whose labels currently match, as with `observer list --selector`; fails if more than 100
    /// match
    #[arg(short = 'l', long = "selector", value_name = "SELECTOR", value_parser = selector, conflicts_with_all = ["observer", "service"])]
    pub(crate) selectors: Vec<String>,
    /// Also show the individual events behind each summary
    #[arg(long)]
    pub(crate) details: bool,
    #[command(flatten)]
    pub(crate) part: EventPart,
}

impl Events {
    pub(crate) const EXAMPLES: &'static str = "Examples:
  everwatch events -f
  everwatch events --type failed,service_lost --limit 100 -o wide
  everwatch events --since 10m -l team=prices
  everwatch events -f -o json | jq -r .text";
}

/// A filter of events.
#[derive(Debug, Args)]
pub(crate) struct EventPart {
    /// Follow new events
    #[arg(short, long)]
    pub(crate) follow: bool,
    /// Show only events of these types (comma-separated), such as started,failed
    #[arg(long = "type", value_name = "TYPE", value_delimiter = ',')]
    pub(crate) kinds: Vec<String>,
    /// Show only events from this time on: RFC 3339, or how long ago, such as 10m
    #[arg(long, value_name = "TIME")]
    pub(crate) since: Option<Moment>,
    /// Show at most this many past events, the newest ones: 1 to 1000 [default: 20; with --since: 1000]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) limit: Option<u32>,
    #[command(flatten)]
    pub(crate) shown: OutputArgs,
}
