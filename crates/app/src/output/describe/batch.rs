//! The text of `describe` for a batch.

use super::{aligned, because, listed, when};
use crate::item::Item;
use crate::output::TerminalStyle;
use crate::output::views::{BATCH_MEMBERS, batch_counts};
use everwatch_api::{Batch, BatchMember};
use everwatch_core::clock::{Timestamp, show};

/// A batch, and some of its members that have failed.
pub(crate) fn batch(it: &Batch, failed: &[Item<BatchMember>], on: (TerminalStyle, Timestamp)) -> String {
    let (_, now) = on;
    let mut facts = vec![
        ("Name", it.name.clone()),
        ("Id", it.id.to_string()),
        ("State", because(it.state.as_str(), &it.reason)),
        ("Settled", format!("{} of {} ({})", it.settled, it.members, batch_counts(it))),
        ("Rate", it.rate_per_minute.map_or_else(String::new, |rate| format!("{rate} a minute"))),
        ("Time left", it.time_left.map_or_else(String::new, show)),
        ("Max running", it.max_running.map_or_else(String::new, |max| max.to_string())),
        ("Created by", it.by.clone().unwrap_or_default()),
        ("Created", when(it.created_at, now)),
        ("Changed", when(it.modified_at, now)),
        ("Ended", it.ended_at.map_or_else(String::new, |at| when(at, now))),
    ];
    facts.retain(|(_, told)| !told.is_empty());
    [aligned(&facts), listed("Failed members", &BATCH_MEMBERS, failed, on)].join("\n\n")
}
