use super::*;
use serde_json::{Value, json};

fn windows(zone: &str, open: &Value, except: &Value) -> Windows {
    let windows: Windows =
        serde_json::from_value(json!({"time_zone": zone, "open": open, "except": except})).unwrap();
    windows.check().unwrap();
    windows
}
fn at(text: &str) -> Timestamp {
    serde_json::from_value(json!(text)).unwrap()
}
/// The opening at that time or after it, in UTC without seconds.
fn open(windows: &Windows, now: &str) -> String {
    let short = |at: Timestamp| at.to_string()[..16].replace('T', " ");
    match windows.open_at(at(now)) {
        None => "never".to_owned(),
        Some(Open { from, until: None }) => format!("{} – for ever", short(from)),
        Some(Open { from, until: Some(until) }) => format!("{} – {}", short(from), short(until)),
    }
}

#[test]
fn trading_hours_open_and_close_by_the_clocks_of_their_zone() {
    let hours = windows(
        "America/New_York",
        &json!([{"days": "mon-fri", "from": "09:30", "to": "16:00"}]),
        &json!(["2026-12-25"]),
    );
    // 2026-11-25 is a Wednesday; New York is five hours behind UTC.
    assert_eq!(open(&hours, "2026-11-25T14:29:59Z"), "2026-11-25 14:30 – 2026-11-25 21:00");
    assert_eq!(open(&hours, "2026-11-25T20:59:59.999Z"), "2026-11-25 14:30 – 2026-11-25 21:00");
    assert_eq!(open(&hours, "2026-11-25T21:00:00Z"), "2026-11-26 14:30 – 2026-11-26 21:00");
    assert_eq!(open(&hours, "2026-11-28T12:00:00Z"), "2026-11-30 14:30 – 2026-11-30 21:00", "a weekend");
    assert_eq!(open(&hours, "2026-12-24T22:00:00Z"), "2026-12-28 14:30 – 2026-12-28 21:00", "an exception");
    assert_eq!(open(&hours, "2026-07-01T12:00:00Z"), "2026-07-01 13:30 – 2026-07-01 20:00", "summer");
}

#[test]
fn a_window_over_midnight_belongs_to_the_day_on_which_it_opens() {
    let night = windows("UTC", &json!([{"days": "fri", "from": "22:00", "to": "06:00"}]), &json!([]));
    assert_eq!(open(&night, "2026-11-28T05:59:00Z"), "2026-11-27 22:00 – 2026-11-28 06:00");
    assert_eq!(open(&night, "2026-11-28T06:00:00Z"), "2026-12-04 22:00 – 2026-12-05 06:00");
    let excepted =
        windows("UTC", &json!([{"days": "fri", "from": "22:00", "to": "06:00"}]), &json!(["2026-11-28"]));
    assert_eq!(open(&excepted, "2026-11-28T05:59:00Z"), "2026-11-27 22:00 – 2026-11-28 06:00");
}

#[test]
fn openings_without_a_gap_are_one() {
    let halves = windows(
        "UTC",
        &json!([{"from": "00:00", "to": "12:00"}, {"from": "11:00", "to": "24:00"}]),
        &json!([]),
    );
    assert_eq!(open(&halves, "2026-11-25T11:30:00Z"), "2026-11-25 00:00 – for ever");
    let but_one = Windows { except: vec!["2027-03-01".parse().unwrap()], ..halves };
    assert_eq!(open(&but_one, "2026-11-25T11:30:00Z"), "2026-11-25 00:00 – 2027-03-01 00:00");
    assert_eq!(open(&but_one, "2027-03-01T00:00:00Z"), "2027-03-02 00:00 – for ever");
    let week = windows("UTC", &json!([{"days": "mon-thu", "from": "00:00", "to": "24:00"}]), &json!([]));
    assert_eq!(open(&week, "2026-11-25T11:30:00Z"), "2026-11-25 00:00 – 2026-11-27 00:00");
}

#[test]
fn clocks_that_change_open_early_and_close_late() {
    let night =
        |from: &str, to: &str| windows("Europe/Berlin", &json!([{"from": from, "to": to}]), &json!([]));
    // On 2026-03-29, 02:00 becomes 03:00 at 01:00 UTC.
    assert_eq!(open(&night("02:30", "05:00"), "2026-03-29T00:00:00Z"), "2026-03-29 01:00 – 2026-03-29 03:00");
    assert_eq!(open(&night("01:00", "02:30"), "2026-03-29T00:00:00Z"), "2026-03-29 00:00 – 2026-03-29 01:00");
    assert_eq!(open(&night("02:10", "02:50"), "2026-03-29T00:00:00Z"), "2026-03-30 00:10 – 2026-03-30 00:50");
    // On 2026-10-25, 03:00 becomes 02:00 at 01:00 UTC: 02:30 comes at 00:30 and at 01:30 UTC.
    assert_eq!(open(&night("02:30", "05:00"), "2026-10-25T00:00:00Z"), "2026-10-25 00:30 – 2026-10-25 04:00");
    assert_eq!(open(&night("01:00", "02:30"), "2026-10-25T00:00:00Z"), "2026-10-24 23:00 – 2026-10-25 01:30");
    // In Cairo, the clocks skip the hour after midnight on 2026-04-24.
    let cairo = windows("Africa/Cairo", &json!([{"from": "00:00", "to": "24:00"}]), &json!(["2026-04-23"]));
    assert_eq!(open(&cairo, "2026-04-23T12:00:00Z"), "2026-04-23 22:00 – for ever");
    let leap = windows("UTC", &json!([{"from": "10:00", "to": "11:00"}]), &json!([]));
    assert_eq!(open(&leap, "2028-02-28T11:00:00Z"), "2028-02-29 10:00 – 2028-02-29 11:00");
}

#[test]
fn each_exception_may_take_the_only_opening_of_a_week() {
    let mondays: Vec<String> =
        (0..60).map(|week| ("2026-11-30".parse::<Date>().unwrap() + (week * 7).days()).to_string()).collect();
    let rare = windows("UTC", &json!([{"days": "mon", "from": "10:00", "to": "11:00"}]), &json!(mondays));
    assert_eq!(open(&rare, "2026-11-25T00:00:00Z"), "2028-01-24 10:00 – 2028-01-24 11:00");
}

#[test]
fn days_and_times_are_read_and_written() {
    for (text, shown) in
        [("mon-fri", "mon-fri"), ("sat-mon", "mon,sat-sun"), ("Mon, wed", "mon,wed"), ("sun", "sun")]
    {
        assert_eq!(text.parse::<Days>().unwrap().to_string(), shown);
    }
    assert_eq!(Days::default().to_string(), "mon-sun");
    for wrong in ["", "monday", "mon-", "mon;tue"] {
        assert!(wrong.parse::<Days>().is_err(), "{wrong}");
    }
    for (text, right) in [
        ("09:30", true),
        ("24:00", true),
        ("24:01", false),
        ("9:30", false),
        ("09:60", false),
        ("+9:30", false),
        ("-1:00", false),
    ] {
        assert_eq!(text.parse::<TimeOfDay>().is_ok(), right, "{text}");
    }
}

#[test]
fn windows_are_shown_in_words() {
    let open = json!([{"days": "mon-fri", "from": "09:30", "to": "16:00"}, {"days": "sat", "from": "22:00", "to": "02:00"}]);
    let hours = windows("America/New_York", &open, &json!(["2026-12-25", "2027-01-01"]));
    let shown = "mon-fri 09:30-16:00; sat 22:00-02:00 in America/New_York, except 2026-12-25, 2027-01-01";
    assert_eq!(hours.to_string(), shown);
}

#[test]
fn what_is_wrong_is_named() {
    let pointers = |value: Value| -> Vec<String> {
        let windows: Windows = serde_json::from_value(value).unwrap();
        windows.check().unwrap_err().into_iter().map(|(pointer, _)| pointer).collect()
    };
    let open = json!([{"from": "09:00", "to": "09:00"}, {"from": "24:00", "to": "08:00"}]);
    let wrong = pointers(json!({"time_zone": "Berlin", "open": open}));
    assert_eq!(wrong, ["/time_zone", "/open/0/to", "/open/1/from"]);
    assert_eq!(pointers(json!({"time_zone": "UTC", "open": []})), ["/open"]);
}
