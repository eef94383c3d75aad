//! The arguments of `everwatch timeline`.

use super::{Moment, OutputArgs};
use clap::Args;

#[derive(Debug, Args)]
pub(crate) struct Timeline {
    /// Begin at this time: RFC 3339, or how long before the end, such as 1h; at most 24h ago
    #[arg(long, value_name = "TIME", default_value = "15m")]
    pub(crate) since: Moment,
    /// End at this time instead of now: RFC 3339, or how long ago, such as 15m
    #[arg(long, value_name = "TIME")]
    pub(crate) until: Option<Moment>,
    /// Show only services of this name; repeat the flag for several
    #[arg(long = "service", value_name = "NAME")]
    pub(crate) services: Vec<String>,
    /// Show only services on which this observer ran: its id or name
    #[arg(long, value_name = "OBSERVER")]
    pub(crate) observer: Option<String>,
    #[command(flatten)]
    pub(crate) shown: OutputArgs,
}

impl Timeline {
    pub(crate) const EXAMPLES: &'static str = "Examples:
  everwatch timeline
  everwatch timeline --since 24h --service s1 --service s2
  everwatch timeline --since 1h --until 30m
  everwatch timeline --observer btc-price --since 24h
  everwatch timeline --since 1h -o json | jq '.incidents[] | {from, moved, gap_ms_max}'";
}
