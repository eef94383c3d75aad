use super::*;
use serde_json::json;
use uuid::Uuid;

fn key(text: &str) -> RateKey {
    RateKey::new(text).unwrap()
}

fn service(number: u128) -> ServiceId {
    ServiceId(Uuid::from_u128(number))
}

/// 10 permits a second; the bucket holds 30.
fn ten_a_second() -> Rate {
    Rate { permits: 600, per: Duration::from_secs(60), burst: 50 }
}

fn rows(keys: &[&str]) -> Vec<RateRow> {
    keys.iter().map(|it| RateRow::new(key(it), ten_a_second(), Timestamp(0))).collect()
}

fn ask(turn: u64, permits: &[(&str, u32)], count: u32) -> PermitAsk {
    let permits = permits.iter().map(|(name, cost)| (key(name), *cost)).collect();
    PermitAsk { turn, permits, count }
}

/// What a service is granted at a time in ms, as "turn × count".
fn granted_at(rows: &mut [RateRow], ms: i64, of: u128, asks: &[PermitAsk]) -> Vec<String> {
    let request = PermitRequest { service: service(of), number: 1, asks: asks.to_vec() };
    let answers = grant(rows, &request, Timestamp(ms));
    let granted = answers.granted.iter().map(|it| format!("{} × {}", it.turn, it.count));
    granted.chain(answers.refused.iter().map(|it| format!("{}: {}", it.turn, it.error))).collect()
}

#[test]
fn a_bucket_refills_exactly_and_never_beyond_its_size() {
    let mut rows = rows(&["a"]);
    assert_eq!(granted_at(&mut rows, 0, 1, &[ask(1, &[("a", 1)], 40)]), ["1 × 30"]);
    // One permit each 100 ms, however often the bucket is asked.
    for ms in 1..100 {
        assert_eq!(granted_at(&mut rows, ms, 1, &[ask(1, &[("a", 1)], 10)]), [""; 0], "{ms}");
    }
    assert_eq!(granted_at(&mut rows, 100, 1, &[ask(1, &[("a", 1)], 10)]), ["1 × 1"]);
    assert_eq!(rows[0].bucket.waiting(Timestamp(100)), 9);
    assert_eq!(rows[0].bucket.available(&ten_a_second(), Timestamp(1_000_000)), 30);
}

#[test]
fn a_slow_rate_loses_no_part_of_a_permit() {
    let rate = Rate { permits: 1, per: Duration::from_secs(24 * 3600), burst: 2 };
    let mut rows = vec![RateRow::new(key("a"), rate, Timestamp(0))];
    assert_eq!(granted_at(&mut rows, 0, 1, &[ask(1, &[("a", 1)], 1)]), ["1 × 1"]);
    let mut granted = Vec::new();
    for second in 1..=86_400 {
        granted.extend(granted_at(&mut rows, second * 1000, 1, &[ask(2, &[("a", 1)], 1)]));
    }
    assert_eq!(granted, ["2 × 1"], "one a day");
}

#[test]
fn a_large_request_is_not_overtaken() {
    let mut rows = rows(&["a"]);
    assert_eq!(granted_at(&mut rows, 0, 1, &[ask(1, &[("a", 30)], 1)]), ["1 × 1"]);
    assert_eq!(granted_at(&mut rows, 10, 1, &[ask(2, &[("a", 30)], 1)]), [""; 0]);
    for second in 1..3 {
        assert_eq!(granted_at(&mut rows, second * 1000 - 5, 2, &[ask(1, &[("a", 1)], 1)]), [""; 0]);
        assert_eq!(granted_at(&mut rows, second * 1000, 1, &[ask(2, &[("a", 30)], 1)]), [""; 0]);
    }
    assert_eq!(granted_at(&mut rows, 3000, 1, &[ask(2, &[("a", 30)], 1)]), ["2 × 1"]);
    assert_eq!(granted_at(&mut rows, 3100, 2, &[ask(1, &[("a", 1)], 1)]), ["1 × 1"]);
}

#[test]
fn permits_beyond_those_ahead_are_granted_at_once() {
    let mut rows = rows(&["a"]);
    assert_eq!(granted_at(&mut rows, 0, 1, &[ask(1, &[("a", 20)], 2)]), ["1 × 1"]);
    // 10 are left, 20 are for the first in line.
    assert_eq!(granted_at(&mut rows, 500, 2, &[ask(1, &[("a", 1)], 9)]), [""; 0]);
    // 10 + 15 are left, 20 of them for the first in line.
    assert_eq!(granted_at(&mut rows, 1500, 2, &[ask(1, &[("a", 1)], 9)]), ["1 × 5"]);
    assert_eq!(granted_at(&mut rows, 1500, 1, &[ask(1, &[("a", 20)], 1)]), ["1 × 1"]);
}

#[test]
fn a_turn_ends_when_it_is_not_renewed_or_given_up() {
    let mut rows = rows(&["a"]);
    assert_eq!(granted_at(&mut rows, 0, 1, &[ask(1, &[("a", 30)], 2)]), ["1 × 1"]);
    assert_eq!(granted_at(&mut rows, 2999, 2, &[ask(1, &[("a", 1)], 1)]), [""; 0]);
    assert_eq!(granted_at(&mut rows, 3000, 2, &[ask(1, &[("a", 1)], 1)]), ["1 × 1"]);
    assert_eq!(granted_at(&mut rows, 3000, 2, &[ask(2, &[("a", 30)], 1)]), [""; 0]);
    assert_eq!(
        granted_at(&mut rows, 3000, 2, &[ask(3, &[("a", 1)], 1)]),
        ["3 × 1"],
        "it has given up turn 2"
    );
}

#[test]
fn several_keys_are_granted_together_or_not_at_all() {
    let mut rows = rows(&["a", "b"]);
    assert_eq!(granted_at(&mut rows, 0, 1, &[ask(1, &[("a", 25)], 1)]), ["1 × 1"]);
    assert_eq!(granted_at(&mut rows, 0, 2, &[ask(1, &[("a", 10), ("b", 30)], 1)]), [""; 0]);
    assert_eq!(granted_at(&mut rows, 0, 3, &[ask(1, &[("b", 1)], 1)]), [""; 0], "b is for service 2");
    assert_eq!(granted_at(&mut rows, 500, 2, &[ask(1, &[("a", 10), ("b", 30)], 1)]), ["1 × 1"]);
    assert_eq!(granted_at(&mut rows, 600, 3, &[ask(1, &[("b", 1)], 1)]), ["1 × 1"]);
}

#[test]
fn what_can_never_be_granted_is_refused_with_the_reason() {
    let mut rows = rows(&["a"]);
    let asks = [
        ask(1, &[("a", 31)], 1),
        ask(2, &[("a", 1), ("b", 1)], 1),
        ask(3, &[("a", 0)], 1),
        ask(4, &[], 1),
        ask(5, &[("a", 30)], 1),
    ];
    assert_eq!(
        granted_at(&mut rows, 0, 1, &asks),
        [
            "5 × 1",
            "1: 31 permits of rate `a`: at most 30 at once, its burst of 50 less 2s of the rate",
            "2: there is no rate `b`: create it with `everwatch rate set b --permits N --per TIME --burst N`",
            "3: 0 permits of rate `a`: acquire at least 1",
            "4: no rate is named",
        ]
    );
}

#[test]
fn a_full_line_takes_no_more_turns() {
    let mut rows = rows(&["a"]);
    for number in 1..=LINE_MAX as u128 + 5 {
        granted_at(&mut rows, 0, number, &[ask(1, &[("a", 30)], 1)]);
    }
    assert_eq!(rows[0].bucket.line.len(), LINE_MAX);
}

#[test]
fn a_clock_that_is_set_back_neither_grants_too_much_nor_stops_the_rate() {
    let mut rows = rows(&["a"]);
    let hour = 3_600_000;
    assert_eq!(granted_at(&mut rows, hour, 1, &[ask(1, &[("a", 1)], 31)]), ["1 × 30"]);
    assert_eq!(granted_at(&mut rows, 0, 2, &[ask(1, &[("a", 1)], 1)]), [""; 0]);
    assert_eq!(granted_at(&mut rows, 2999, 1, &[ask(1, &[("a", 1)], 1)]), ["1 × 1"], "2.9 s refill 29");
    assert_eq!(granted_at(&mut rows, 2999, 2, &[ask(1, &[("a", 1)], 40)]), ["1 × 28"]);
}

#[test]
fn a_changed_rate_keeps_what_is_left() {
    let mut row = RateRow::new(key("a"), ten_a_second(), Timestamp(0));
    let small = Rate { permits: 10, per: Duration::from_secs(1), burst: 25 };
    row = row.changed(small, Timestamp(0));
    assert_eq!(row.bucket.available(&small, Timestamp(0)), 5, "the new bucket holds 5");
    row = row.changed(ten_a_second(), Timestamp(0));
    assert_eq!(row.bucket.available(&ten_a_second(), Timestamp(0)), 5);
    assert_eq!(row.bucket.available(&ten_a_second(), Timestamp(1000)), 15);
    let empty = Bucket::empty(Timestamp(0));
    assert_eq!(empty.available(&ten_a_second(), Timestamp(950)), 9);
}

#[test]
fn a_rate_is_refused_with_the_member_and_the_limit() {
    let told = |body: Value| match Rate::parse(body) {
        Ok(rate) => vec![format!("holds {}", rate.bucket())],
        Err(errors) => errors.into_iter().map(|it| format!("{} {}", it.pointer, it.detail)).collect(),
    };
    let least = json!({"permits": 600, "per": "1m", "burst": 21});
    assert_eq!(told(least), ["holds 1"]);
    assert_eq!(
        told(json!({"permits": 600, "per": "1m", "burst": 20})),
        ["/burst must be at least 21 = 2s of the rate (20) + 1"]
    );
    assert_eq!(told(json!({"permits": 1, "per": "1h", "burst": 2})), ["holds 1"]);
    assert_eq!(
        told(json!({"permits": 0, "per": 5, "burst": 1.5, "bust": 1})),
        [
            "/permits is 0: write a whole number from 1 to 1000000",
            "/per is 5: write a duration from 1s to 24h, such as \"1m\"",
            "/burst is 1.5: write a whole number from 1 to 10000000",
            "/bust is unknown: a rate has the fields permits, per and burst",
        ]
    );
    assert_eq!(told(json!([])), [" must be a JSON object"]);
}
