//! Formats the values of an answer as the text of table cells.

use everwatch_api::{Event, NamedThing};
use everwatch_core::clock::Timestamp;
use everwatch_core::epoch::Epoch;
use everwatch_core::id::Namespace;
use everwatch_core::record::events::EventKind;
use std::collections::BTreeMap;
use std::fmt::Display;
use std::time::Duration;

/// Text on one line, without control characters that a terminal would execute.
pub(crate) fn line(text: &str) -> String {
    text.chars().map(|it| if it.is_control() { ' ' } else { it }).collect()
}

/// A moment as its time of day: `13:35:26`; on another day than `now`, with the day: `11-20 13:35`.
pub(crate) fn time_of_day(then: Timestamp, now: Timestamp) -> String {
    let (then, now) = (then.to_string(), now.to_string());
    let part = |text: &str, part: std::ops::Range<usize>| text.get(part).unwrap_or_default().to_owned();
    if part(&then, 0..10) == part(&now, 0..10) {
        part(&then, 11..19)
    } else {
        format!("{} {}", part(&then, 5..10), part(&then, 11..16))
    }
}

/// The sentence, with each RFC 3339 time replaced by its time of day.
pub(crate) fn with_times_of_day(text: &str, now: Timestamp) -> String {
    let word = |word: &str| {
        let bare = word.trim_end_matches([',', ';', ':', ')', '.']);
        let then = bare.ends_with('Z').then(|| bare.parse::<Timestamp>().ok()).flatten();
        then.map_or_else(|| word.to_owned(), |then| word.replacen(bare, &time_of_day(then, now), 1))
    };
    text.split(' ').map(word).collect::<Vec<_>>().join(" ")
}

/// The slots in use. The slots of services that drain or are silent are no capacity: more may be in use than the others have.
pub(super) fn slots(held: u64, (free, capacity): (u64, u64)) -> String {
    match (held + free).checked_sub(capacity) {
        Some(0) => format!("{held} of {capacity} used, {free} free"),
        Some(others) => {
            format!("{held} used, {others} of them on services that drain or are silent; {free} free")
        }
        None => format!("{held} used, {free} free"),
    }
}

/// How long ago a moment was.
pub(super) fn since(then: Timestamp, now: Timestamp) -> String {
    age(now.since(then))
}

/// Formats a duration in its largest useful unit: `45s`, `3m`, `5h`, `9d`.
pub(crate) fn age(time: Duration) -> String {
    match time.as_secs() {
        secs @ 0..120 => format!("{secs}s"),
        secs @ 120..7200 => format!("{}m", secs / 60),
        secs @ 7200..172_800 => format!("{}h", secs / 3600),
        secs => format!("{}d", secs / 86_400),
    }
}

/// A moment to the second: `2026-11-21T13:35:26Z`.
pub(crate) fn second(then: Timestamp) -> String {
    let whole = then.to_string();
    whole.split_once('.').map_or_else(|| whole.clone(), |(secs, _)| format!("{secs}Z"))
}

/// The text, with the milliseconds removed from its times.
pub(super) fn without_millis(text: &str) -> String {
    let is_millis = |it: &str| {
        it.len() >= 4 && it.as_bytes()[3] == b'Z' && it.bytes().take(3).all(|it| it.is_ascii_digit())
    };
    let mut parts = text.split('.');
    let mut kept = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let is_of_moment =
            is_millis(part) && kept.get(kept.len().saturating_sub(3)..).is_some_and(|it| it.starts_with(':'));
        if is_of_moment {
            kept.push_str(&part[3..]);
        } else {
            kept.push('.');
            kept.push_str(part);
        }
    }
    kept
}

/// The reason of an observer. While it restarts, its last error: what a narrow column must not lose.
pub(crate) fn reason_or_error(reason: &str, last_error: Option<&str>, restarts: bool) -> String {
    let Some(error) = last_error.filter(|error| restarts && !error.is_empty()) else {
        return reason.to_owned();
    };
    match reason.strip_prefix("restarting after an error, ") {
        Some(next) => format!("{error}; {next}"),
        None if reason.is_empty() => error.to_owned(),
        None if reason.starts_with("started again") => format!("{error}; {reason}"),
        None => reason.to_owned(),
    }
}

/// The value as text, or a dash if there is none.
pub(super) fn or_dash(it: Option<impl ToString>) -> String {
    it.map(|it| it.to_string()).filter(|text| !text.is_empty()).unwrap_or_else(|| "-".to_owned())
}

/// `key=value`, comma-separated.
pub(super) fn labels(labels: &BTreeMap<String, String>) -> String {
    labels.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(",")
}

/// An epoch for display: generation, acquisitions.
pub(super) fn epoch(epoch: u64) -> String {
    Epoch::from(epoch).to_string()
}

/// `3 active, 1 draining`: the counts that are not zero.
pub(super) fn in_words<T: Display>(counts: impl IntoIterator<Item = (u64, T)>) -> String {
    let some = counts.into_iter().filter(|(count, _)| *count > 0);
    some.map(|(count, word)| format!("{count} {word}")).collect::<Vec<_>>().join(", ")
}

/// A duration in milliseconds for display: `52 ms`, `1.3 s`.
pub(super) fn millis(ms: u64) -> String {
    if ms < 1000 { format!("{ms} ms") } else { format!("{}.{} s", ms / 1000, ms % 1000 / 100) }
}

/// A time without a run for display: `≤ 1.3 s` if it is an upper bound, which is never rounded down. Zero needs no sign.
pub(super) fn gap(ms: u64, is_bound: bool) -> String {
    if !is_bound || ms == 0 {
        return millis(ms);
    }
    let shown = if ms < 1000 { ms } else { ms.div_ceil(100) * 100 };
    format!("≤ {}", millis(shown))
}

/// A size in bytes for display: `512 KiB`, `46.0 MiB`.
pub(super) fn bytes(bytes: u64) -> String {
    const KIB: u64 = 1 << 10;
    let tenths = |unit: u64| (bytes / unit, bytes % unit * 10 / unit);
    let ((whole, part), unit) = match bytes {
        0..KIB => return format!("{bytes} B"),
        KIB..0x10_0000 => return format!("{} KiB", bytes / KIB),
        0x10_0000..0x4000_0000 => (tenths(1 << 20), "MiB"),
        _ => (tenths(1 << 30), "GiB"),
    };
    format!("{whole}.{part} {unit}")
}

/// The observer that it is about, or how many observers a summary stands for.
pub(super) fn observers(event: &Event) -> Option<String> {
    match &event.burst {
        Some(burst) => Some(format!("{} more", burst.count)),
        None => event.observer.as_ref().map(qualified),
    }
}

/// Its name, after its namespace if that is not the default one.
fn qualified(it: &NamedThing) -> String {
    match it.namespace.as_deref() {
        Some(namespace) if namespace != Namespace::default().as_str() => format!("{namespace}/{}", it.name),
        _ => it.name.clone(),
    }
}

/// How the move went, why it happened, and who asked. The numbers come first: a narrow table cuts the end.
pub(super) fn cause(event: &Event) -> String {
    let text = Some(without_millis(&event.text)).filter(|text| !text.is_empty());
    // A gap is the time without a run of an observer. For a lost service, it is the time until managers knew of the loss.
    let gap = event.gap_ms.map(|ms| match event.kind {
        EventKind::ServiceLost => format!("known after {}", gap(ms, event.gap_is_bound)),
        _ => format!("gap {}", gap(ms, event.gap_is_bound)),
    });
    let overlap = event.overlap_ms.filter(|ms| *ms > 0).map(|ms| format!("overlap {}", millis(ms)));
    // The texts about batches and rollouts name the user.
    let who =
        event.by.as_ref().and_then(|by| by.who.as_ref()).filter(|who| !event.text.contains(who.as_str()));
    let by = who.map(|who| format!("by {who}"));
    [gap, overlap, text, by].into_iter().flatten().collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_told_in_their_largest_unit() {
        for (size, text) in [(0, "0 B"), (2047, "1 KiB"), (46 << 20, "46.0 MiB"), (3 << 29, "1.5 GiB")] {
            assert_eq!(bytes(size), text);
        }
    }

    #[test]
    fn moments_in_a_sentence_become_times_of_day() {
        let now: Timestamp = "2026-03-01T09:20:00Z".parse().unwrap();
        for (text, told) in [
            ("next attempt at 2026-03-01T09:21:04.250Z", "next attempt at 09:21:04"),
            ("waits (since 2026-02-28T09:21:04Z), Z", "waits (since 02-28 09:21), Z"),
            ("until 2026-02-28T09:21:04Z, at most", "until 02-28 09:21, at most"),
        ] {
            assert_eq!(with_times_of_day(text, now), told);
        }
    }

    #[test]
    fn the_reason_of_an_observer_that_restarts_is_its_error() {
        for (reason, error, restarts, told) in [
            (
                "restarting after an error, next attempt at T",
                Some("refused"),
                true,
                "refused; next attempt at T",
            ),
            ("", Some("refused"), true, "refused"),
            ("started again after 3 errors", Some("refused"), true, "refused; started again after 3 errors"),
            ("held: by an operator", Some("refused"), true, "held: by an operator"),
            ("", Some("refused"), false, ""),
            (
                "restarting after an error, next attempt at T",
                None,
                true,
                "restarting after an error, next attempt at T",
            ),
        ] {
            assert_eq!(reason_or_error(reason, error, restarts), told);
        }
    }

    #[test]
    fn an_upper_bound_is_not_rounded_down() {
        for (ms, is_bound, text) in [
            (0, true, "0 ms"),
            (999, true, "≤ 999 ms"),
            (10_900, true, "≤ 10.9 s"),
            (10_901, true, "≤ 11.0 s"),
            (10_999, false, "10.9 s"),
        ] {
            assert_eq!(gap(ms, is_bound), text, "{ms}");
        }
    }

    #[test]
    fn ages_are_told_in_their_largest_unit() {
        let told = |secs| age(Duration::from_secs(secs));
        assert_eq!(
            [told(0), told(119), told(120), told(7199), told(7200), told(172_799), told(172_800)],
            ["0s", "119s", "2m", "119m", "2h", "47h", "2d"]
        );
    }

    #[test]
    fn the_day_is_told_if_it_is_another() {
        let noon = 1_800_014_400_123;
        assert_eq!(time_of_day(Timestamp(noon - 3_600_000), Timestamp(noon)), "11:00:00");
        assert_eq!(time_of_day(Timestamp(noon - 46_800_000), Timestamp(noon)), "01-14 23:00");
    }

    #[test]
    fn moments_in_a_text_are_to_the_second() {
        for (text, shown) in [
            ("starts at 2026-11-28T10:03:00.000Z", "starts at 2026-11-28T10:03:00Z"),
            ("at 10:03:00.5Z, 1.234Z. 01:02:03.456Z.", "at 10:03:00.5Z, 1.234Z. 01:02:03Z."),
            ("é.123Z", "é.123Z"),
            ("", ""),
        ] {
            assert_eq!(without_millis(text), shown);
        }
    }

    #[test]
    fn a_terminal_is_not_commanded_by_what_is_shown() {
        assert_eq!(line("a\u{1b}[2Jb\nc"), "a [2Jb c");
    }
}
