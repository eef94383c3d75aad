//! An incident of the timeline in words.

use super::cells::{gap, or_dash, time_of_day};
use everwatch_api::Incident;
use everwatch_core::clock::Timestamp;
use everwatch_core::wording::{counted, counted_subject};
use unicode_width::UnicodeWidthStr as _;

/// The services to which the observers moved, each with their number: `s2 (4), s3 (2)`.
pub(crate) fn destinations(it: &Incident) -> String {
    let others = Some(format!("others ({})", it.to_others)).filter(|_| it.to_others > 0);
    let mut to: Vec<_> = it.to.iter().collect();
    to.sort_by_key(|(_, moved)| std::cmp::Reverse(**moved));
    let named = to.into_iter().map(|(name, moved)| format!("{name} ({moved})"));
    named.chain(others).collect::<Vec<_>>().join(", ")
}

/// The service to which most observers moved, and the number of other services: `s2 (4), 1 other`.
pub(crate) fn main_destination(it: &Incident) -> String {
    let Some((name, moved)) = it.to.iter().max_by_key(|(_, moved)| **moved) else { return String::new() };
    let others = it.to.len() - 1;
    let more = match (others, it.to_others > 0) {
        (0, false) => String::new(),
        (_, false) => format!(", {}", counted(others, "other")),
        (_, true) => ", and others".to_owned(),
    };
    format!("{name} ({moved}){more}")
}

/// The incident at this moment: gaps that have not ended have grown since it was read.
pub(crate) fn grown(it: &Incident, now: Timestamp) -> Incident {
    let until_now = u64::try_from(now.since(it.since).as_millis()).unwrap_or(u64::MAX);
    let gap_ms_max = if it.waiting > 0 { it.gap_ms_max.max(until_now) } else { it.gap_ms_max };
    Incident { gap_ms_max, ..it.clone() }
}

/// Why the observers moved; the reasons of a handover tell more than the word.
pub(super) fn cause_of(it: &Incident) -> String {
    if it.reasons.is_empty() { it.cause.clone() } else { it.reasons.join(", ") }
}

/// The longest gap, with a sign if it is an upper bound.
pub(super) fn longest_gap(it: &Incident) -> String {
    gap(it.gap_ms_max, it.gap_is_bound)
}

/// A number about the gaps of those that run again; nothing if none does.
pub(super) fn gap_of_moves(it: &Incident, ms: u64) -> String {
    or_dash((it.moved > 0).then(|| gap(ms, it.gap_is_bound)))
}

/// What happened, as one sentence. If it does not fit this width, the services are counted instead of named.
pub(crate) fn incident(it: &Incident, now: Timestamp, width: usize) -> String {
    let whole = sentence(it, now, &destinations(it));
    if whole.width() <= width {
        return whole;
    }
    let more = if it.to_others > 0 { "more than " } else { "" };
    let short = sentence(it, now, &format!("{more}{}", counted(it.to.len(), "other service")));
    if short.width() <= width { short } else { shortest(it, now) }
}

/// Without the places to which the observers moved.
fn shortest(it: &Incident, now: Timestamp) -> String {
    told(it, now, &format!("{} moved", counted(it.moved, "observer")))
}

fn sentence(it: &Incident, now: Timestamp, to: &str) -> String {
    let run = counted_subject(it.moved, "observer", ["runs", "run"]);
    told(it, now, &format!("{run} on {to}"))
}

/// `moved` says what became of the observers that run again.
fn told(it: &Incident, now: Timestamp, moved: &str) -> String {
    let happened = match it.cause.as_str() {
        "lost" => "lost",
        "stopped" => "stopped",
        "handed_over" => "handed over",
        _ => "silent",
    };
    let longest = longest_gap(it);
    let wait = counted_subject(it.waiting, "observer", ["does", "do"]);
    let became = match (it.moved, it.waiting) {
        (0, 1..) => format!("{wait} not run yet; gap so far {longest}"),
        (_, 0) => format!("{moved}, longest gap {longest}"),
        (_, 1..) => format!("{moved}, {} not yet, longest gap {longest}", it.waiting),
    };
    let reasons = if it.reasons.is_empty() { String::new() } else { format!(" ({})", it.reasons.join(", ")) };
    format!("{} {happened}{reasons} {}: {became}", it.from, time_of_day(it.since, now))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn lost(to: &serde_json::Value, waiting: u64) -> Incident {
        let moved: u64 = to.as_object().unwrap().values().filter_map(serde_json::Value::as_u64).sum();
        serde_json::from_value(json!({
            "from": "service-1", "cause": "lost", "since": Timestamp(1_800_000_741_000), "until": null, "moved": moved,
            "waiting": waiting, "to": to, "to_others": 0, "gap_ms_median": 20, "gap_ms_p99": 900, "gap_ms_max": 1100,
            "gap_is_bound": true, "overlap_ms_max": 0,
        }))
        .unwrap()
    }

    const NOW: Timestamp = Timestamp(1_800_000_800_000);

    #[test]
    fn an_incident_is_told_with_where_its_observers_run() {
        let both = json!({"service-2": 4, "service-3": 2});
        assert_eq!(
            incident(&lost(&both, 0), NOW, 120),
            "service-1 lost 08:12:21: 6 observers run on service-2 (4), service-3 (2), longest gap ≤ 1.1 s"
        );
        assert_eq!(
            incident(&lost(&both, 0), NOW, 85),
            "service-1 lost 08:12:21: 6 observers run on 2 other services, longest gap ≤ 1.1 s"
        );
        assert_eq!(
            incident(&lost(&both, 0), NOW, 80),
            "service-1 lost 08:12:21: 6 observers moved, longest gap ≤ 1.1 s"
        );
        assert_eq!(
            incident(&lost(&json!({"service-2": 1}), 5), NOW, 120),
            "service-1 lost 08:12:21: 1 observer runs on service-2 (1), 5 not yet, longest gap ≤ 1.1 s"
        );
        assert_eq!(
            incident(&lost(&json!({}), 1), NOW, 120),
            "service-1 lost 08:12:21: 1 observer does not run yet; gap so far ≤ 1.1 s"
        );
    }

    #[test]
    fn gaps_that_have_not_ended_grow() {
        let (open, over) = (lost(&json!({}), 1), lost(&json!({"service-2": 1}), 0));
        let gap = |it: &Incident, secs: i64| grown(it, Timestamp(it.since.0 + secs * 1000)).gap_ms_max;
        assert_eq!([gap(&open, 1), gap(&open, 9), gap(&over, 9)], [1100, 9000, 1100]);
    }

    #[test]
    fn the_cause_decides_the_word_and_further_services_are_counted() {
        let many = Incident { to_others: 30, ..lost(&json!({"a": 9}), 0) };
        for (cause, words) in [
            ("stopped", "service-1 stopped "),
            ("handed_over", "service-1 handed over "),
            ("unknown", "service-1 silent "),
        ] {
            let told = incident(&Incident { cause: cause.to_owned(), ..many.clone() }, NOW, 200);
            assert!(told.starts_with(words) && told.contains("on a (9), others (30), "), "{told}");
        }
        assert_eq!(cause_of(&many), "lost");
        let drain = Incident { cause: "handed_over".to_owned(), reasons: vec!["drain".to_owned()], ..many };
        assert_eq!(cause_of(&drain), "drain");
        assert!(incident(&drain, NOW, 200).starts_with("service-1 handed over (drain) 08:"));
        let long = json!({"a-service-with-a-long-name": 4, "another-service-with-a-long-name": 5});
        let many = Incident { to_others: 30, ..lost(&long, 0) };
        assert!(incident(&many, NOW, 100).contains("on more than 2 other services, "));
    }
}
