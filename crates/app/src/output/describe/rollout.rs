//! The text of `describe` for a rollout.

use super::{aligned, because, block, listed, when};
use crate::item::Item;
use crate::output::views::{MEMBERS, counts};
use crate::output::{TerminalStyle, yaml};
use everwatch_api::{Rollout, RolloutMember};
use everwatch_core::clock::{Timestamp, show};
use everwatch_core::rollout::OnFailure;

/// A rollout, and some of its members that are changed, skipped or failed.
pub(crate) fn rollout(
    it: &Rollout,
    members: &[Item<RolloutMember>],
    on: (TerminalStyle, Timestamp),
) -> String {
    let (_, now) = on;
    let on_failure = match it.on_failure {
        OnFailure::Pause => "pause",
        OnFailure::Revert => "revert",
    };
    let mut facts = vec![
        ("Name", it.name.clone()),
        ("Id", it.id.to_string()),
        ("State", because(it.state.as_str(), &it.reason)),
        ("Members", format!("{} ({})", it.members, counts(it))),
        ("Max parallel", it.max_parallel.to_string()),
        ("Healthy for", show(it.healthy_for)),
        ("Timeout", show(it.timeout)),
        ("On failure", on_failure.to_owned()),
        ("Started by", it.by.clone().unwrap_or_default()),
        ("Started", when(it.created_at, now)),
        ("Changed", when(it.modified_at, now)),
        ("Ended", it.ended_at.map_or_else(String::new, |at| when(at, now))),
    ];
    facts.retain(|(_, told)| !told.is_empty());
    let text = |value: &serde_json::Value| yaml(value).unwrap_or_else(|_| value.to_string());
    let blocks = [
        aligned(&facts),
        block("Selector", &text(&it.selector)),
        block("Patch", &text(&it.patch)),
        listed("Members that are changed, skipped or failed", &MEMBERS, members, on),
    ];
    blocks.join("\n\n")
}
