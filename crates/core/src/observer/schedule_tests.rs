use super::*;
use serde_json::json;
use uuid::Uuid;

const ID: ObserverId = ObserverId(Uuid::from_u128(7));

fn schedule(cron: &str, time_zone: &str) -> Schedule {
    let schedule: Schedule = serde_json::from_value(json!({"cron": cron, "time_zone": time_zone})).unwrap();
    schedule.check().unwrap();
    schedule
}
fn at(text: &str) -> Timestamp {
    serde_json::from_value(json!(text)).unwrap()
}
/// The next times after `start`, in UTC; each is also the latest one at its time, and until just before the next.
fn times(schedule: &Schedule, start: &str, count: usize) -> Vec<String> {
    let times = schedule.preview(at(start), ID, count);
    let mut before = at(start);
    for (place, time) in times.iter().enumerate() {
        let latest = |now| schedule.latest(at(start), now, ID);
        assert_eq!(latest(*time), Some(*time));
        let just_before = time.minus(Duration::from_millis(1));
        assert_eq!(latest(just_before), (place > 0).then_some(before), "before {time}");
        before = *time;
    }
    let short = |time: &Timestamp| time.to_string().replace(".000Z", "").replace('T', " ");
    times.iter().map(short).collect()
}

#[test]
fn times_are_those_of_the_clocks_of_the_zone() {
    let nightly = schedule("0 3 * * *", "Europe/Berlin");
    assert_eq!(times(&nightly, "2026-11-25T02:00:00Z", 2), ["2026-11-26 02:00:00", "2026-11-27 02:00:00"]);
    assert_eq!(times(&nightly, "2026-11-25T01:59:59.999Z", 1), ["2026-11-25 02:00:00"]);
    assert_eq!(times(&nightly, "2026-07-01T00:00:00Z", 1), ["2026-07-01 01:00:00"], "summer");
    let weekly = schedule("30 9 * * mon-fri", "America/New_York");
    assert_eq!(
        times(&weekly, "2026-11-27T14:00:00Z", 2),
        ["2026-11-27 14:30:00", "2026-11-30 14:30:00"],
        "a weekend"
    );
    let fast = schedule("*/20 * * * * *", "UTC");
    assert_eq!(times(&fast, "2026-11-25T00:00:50.5Z", 2), ["2026-11-25 00:01:00", "2026-11-25 00:01:20"]);
}

#[test]
fn a_leap_day_comes_every_four_years() {
    let leap = schedule("0 0 29 2 *", "UTC");
    assert_eq!(times(&leap, "2026-11-25T00:00:00Z", 2), ["2028-02-29 00:00:00", "2032-02-29 00:00:00"]);
}

#[test]
fn a_time_in_the_skipped_hour_comes_at_its_end() {
    // In Berlin, clocks go from 02:00 to 03:00 on 2026-03-29, at 01:00 UTC.
    let fixed = schedule("30 2 * * *", "Europe/Berlin");
    assert_eq!(
        times(&fixed, "2026-03-28T12:00:00Z", 2),
        ["2026-03-29 01:00:00", "2026-03-30 00:30:00"],
        "not at 03:30 by the clocks"
    );
    let hourly = schedule("30 * * * *", "Europe/Berlin");
    assert_eq!(times(&hourly, "2026-03-29T00:00:00Z", 2), ["2026-03-29 00:30:00", "2026-03-29 01:30:00"]);
    // Clocks of Asunción went from 24:00 to 01:00 on 2023-10-01: that day had no midnight.
    let midnight = schedule("0 0 * * *", "America/Asuncion");
    assert_eq!(times(&midnight, "2023-09-30T12:00:00Z", 2), ["2023-10-01 04:00:00", "2023-10-02 03:00:00"]);
}

#[test]
fn a_time_in_the_repeated_hour_comes_once_and_every_hour_runs_through_both() {
    // In Berlin, clocks go from 03:00 back to 02:00 on 2026-10-25, at 01:00 UTC.
    let fixed = schedule("30 2 * * *", "Europe/Berlin");
    assert_eq!(times(&fixed, "2026-10-24T12:00:00Z", 2), ["2026-10-25 00:30:00", "2026-10-26 01:30:00"]);
    let hourly = schedule("30 * * * *", "Europe/Berlin");
    assert_eq!(
        times(&hourly, "2026-10-25T00:00:00Z", 3),
        ["2026-10-25 00:30:00", "2026-10-25 01:30:00", "2026-10-25 02:30:00"]
    );
}

#[test]
fn jitter_delays_each_observer_by_a_fixed_part() {
    let hourly = Schedule { jitter: Duration::from_secs(600), ..schedule("0 * * * *", "UTC") };
    let id = ObserverId(Uuid::from_u128(600_000 * 3 + 90_000));
    assert_eq!(hourly.delay(id), Duration::from_secs(90));
    let start = at("2026-11-25T12:01:00Z");
    assert_eq!(hourly.next_after(start, id), Some(at("2026-11-25T12:01:30Z")));
    assert_eq!(hourly.latest(start, at("2026-11-25T12:01:29Z"), id), None);
    assert_eq!(hourly.latest(start, at("2026-11-25T12:50:00Z"), id), Some(at("2026-11-25T12:01:30Z")));
    assert_eq!(hourly.next_after(at("2026-11-25T12:01:30Z"), id), Some(at("2026-11-25T13:01:30Z")));
}

#[test]
fn errors_name_the_member_and_the_cure() {
    let wrong = |body: serde_json::Value| {
        let schedule: Schedule = serde_json::from_value(body).unwrap();
        schedule.check().unwrap_err().remove(0)
    };
    let (member, rule) = wrong(json!({"cron": "0 0 30 2 *"}));
    assert_eq!(member, "/cron");
    assert!(rule.contains("matches no date"), "{rule}");
    let (member, rule) = wrong(json!({"cron": "every day"}));
    assert_eq!(member, "/cron");
    assert!(rule.contains("`every day` has 2 fields") && rule.contains("0 3 * * *"), "{rule}");
    let (_, rule) = wrong(json!({"cron": "61 * * * *"}));
    assert!(rule.contains("cannot be read (number out of bounds)"), "{rule}");
    for cron in ["61 * * * *", "* * * *", "0 0 * * * * 2027", ""] {
        assert_eq!(wrong(json!({"cron": cron})).0, "/cron", "{cron}");
    }
    let (member, rule) = wrong(json!({"cron": "0 3 * * *", "time_zone": "Europe/Nowhere"}));
    assert_eq!(member, "/time_zone");
    assert!(rule.contains("Europe/Nowhere"), "{rule}");
    assert_eq!(wrong(json!({"cron": "0 3 * * *", "jitter": "169h"})).0, "/jitter");
}

#[test]
fn an_expression_is_described_in_english() {
    assert_eq!(schedule("0 3 * * *", "UTC").description(), "At 03:00.");
    let all = Schedule {
        if_running: IfRunning::Queue,
        jitter: Duration::from_secs(5),
        catch_up: Duration::ZERO,
        ..schedule("0 3 * * *", "UTC")
    };
    assert_eq!(all.to_string(), "0 3 * * * in UTC, if running queue, catches up 0s, jitter 5s");
}
