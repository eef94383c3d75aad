//! What stands in a cell, from what the manager sent.

use everwatch_core::clock::Timestamp;
use serde::Deserialize as _;
use serde_json::Value;
use std::time::Duration;

/// A member as text; empty if it is not there.
pub(crate) fn text(it: &Value, member: &str) -> String {
    match &it[member] {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    }
}

/// Text on one line that a terminal does not obey.
pub(crate) fn line(text: &str) -> String {
    text.chars().map(|it| if it.is_control() { ' ' } else { it }).collect()
}

/// A moment, if there is one.
pub(super) fn moment(it: &Value, member: &str) -> Option<Timestamp> {
    Timestamp::deserialize(&it[member]).ok()
}

/// How long ago a moment was; empty if there was none.
pub(super) fn since(it: &Value, member: &str, now: Timestamp) -> String {
    moment(it, member).map_or_else(String::new, |then| age(now.since(then)))
}

/// Time in its largest unit that still says something: `45s`, `3m`, `5h`, `9d`.
pub(crate) fn age(time: Duration) -> String {
    match time.as_secs() {
        secs @ 0..120 => format!("{secs}s"),
        secs @ 120..7200 => format!("{}m", secs / 60),
        secs @ 7200..172_800 => format!("{}h", secs / 3600),
        secs => format!("{}d", secs / 86_400),
    }
}

/// A moment to the second: `2026-11-21T13:35:26Z`.
pub(super) fn second(it: &Value, member: &str) -> String {
    let whole = text(it, member);
    whole.split_once('.').map_or_else(|| whole.clone(), |(secs, _)| format!("{secs}Z"))
}

pub(super) fn name_of(it: &Value, thing: &str) -> String {
    text(&it[thing], "name")
}

/// `key=value`, comma-separated.
pub(super) fn labels(it: &Value) -> String {
    let pairs = it["labels"].as_object().into_iter().flatten();
    let told = pairs.map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()));
    told.collect::<Vec<_>>().join(",")
}

/// An epoch for display: generation, acquisitions.
pub(super) fn epoch(it: &Value) -> String {
    match it["epoch"].as_u64() {
        Some(epoch) => format!("{}.{}", epoch >> 32, epoch & u64::from(u32::MAX)),
        None => String::new(),
    }
}

/// A duration in milliseconds for display: `52 ms`, `1.3 s`.
pub(super) fn millis(ms: u64) -> String {
    if ms < 1000 { format!("{ms} ms") } else { format!("{}.{} s", ms / 1000, ms % 1000 / 100) }
}

/// Why it happened, how the move went, and who asked.
pub(super) fn cause(event: &Value) -> String {
    let gap = event["gap_ms"].as_u64().map(|ms| format!("gap {}", millis(ms)));
    let overlap = event["overlap_ms"].as_u64().filter(|ms| *ms > 0);
    let overlap = overlap.map(|ms| format!("overlap {}", millis(ms)));
    let by = event["by"]["who"].as_str().map(|who| format!("by {who}"));
    let parts = [Some(text(event, "text")).filter(|text| !text.is_empty()), gap, overlap, by];
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_told_in_their_largest_unit() {
        let told = |secs| age(Duration::from_secs(secs));
        assert_eq!(
            [told(0), told(119), told(120), told(7199), told(7200), told(172_799), told(172_800)],
            ["0s", "119s", "2m", "119m", "2h", "47h", "2d"]
        );
    }

    #[test]
    fn a_terminal_is_not_commanded_by_what_is_shown() {
        assert_eq!(line("a\u{1b}[2Jb\nc"), "a [2Jb c");
    }
}
