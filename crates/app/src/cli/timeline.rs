//! The arguments of `everwatch timeline`.

use super::{Moment, OutputArgs};
use clap::Args;
use std::time::Duration;

#[derive(Debug, Args)]
pub(crate) struct Timeline {
    /// Begin at this time: RFC 3339, or how long before the end, such as 1h; at most 24h ago. By default, 15m; if nothing is
    /// older, the picture begins with what happened first
    #[arg(long, value_name = "TIME")]
    pub(crate) since: Option<Moment>,
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
    /// How long a timeline is by default.
    const SPAN: Duration = Duration::from_secs(15 * 60);

    /// The start, as the user gives it or by default.
    pub(crate) fn since(&self) -> Moment {
        self.since.unwrap_or(Moment::Before(Self::SPAN))
    }

    pub(crate) const EXAMPLES: &'static str = "Examples:
  everwatch timeline
  everwatch timeline --since 24h --service s1 --service s2
  everwatch timeline --since 1h --until 30m
  everwatch timeline --observer btc-price --since 24h
  everwatch timeline --since 1h -o json | jq '.incidents[] | {from, moved, gap_ms_max}'";
}
