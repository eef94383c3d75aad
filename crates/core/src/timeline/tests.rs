use super::*;
use std::collections::BTreeSet;
use uuid::Uuid;

mod lost;
use lost::three_on_a;

fn service(number: u128) -> ServiceId {
    ServiceId(Uuid::from_u128(number))
}

fn observer(number: u128) -> ObserverId {
    ObserverId(Uuid::from_u128(number))
}

fn at(secs: i64) -> Timestamp {
    Timestamp(secs * 1000)
}

/// A run of an observer: each next run has a greater epoch.
fn run(number: u128, on: u128, epoch: u64) -> Run {
    Run { observer: observer(number), service: service(on), epoch: epoch.into() }
}

fn registered(line: &mut Timeline, secs: i64, number: u128, name: &str) {
    line.add(at(secs), Fact::Registered { service: service(number), name: name.to_owned() });
}

fn started(line: &mut Timeline, secs: i64, run: Run, moved: Option<(u128, u64, u64)>) {
    let moved = moved.map(|(from, gap, overlap)| Moved {
        from: service(from),
        gap: Duration::from_millis(gap),
        gap_is_bound: gap > 0,
        overlap: Duration::from_millis(overlap),
    });
    line.add(at(secs), Fact::Started { run, moved });
}

fn ended(line: &mut Timeline, secs: i64, run: Run, moves: bool) {
    line.add(at(secs), Fact::Ended { run, moves, why: None });
}

fn gone(line: &mut Timeline, secs: i64, number: u128, name: &str, lost: bool) {
    gone_after(line, secs, number, name, (lost, None));
}

fn gone_after(line: &mut Timeline, secs: i64, number: u128, name: &str, (lost, heard): (bool, Option<i64>)) {
    let heard_at = heard.map(at);
    let (name, text) = (name.to_owned(), String::new());
    line.add(at(secs), Fact::Gone { service: service(number), name, lost, heard_at, text });
}

fn picture(line: &Timeline, (since, until, columns): (i64, i64, usize)) -> Picture {
    let window = Window { since: at(since), until: at(until), columns };
    line.picture(&window, &BTreeSet::new(), at(until))
}

fn parts(segments: &[Segment]) -> String {
    let segment = |it: &Segment| {
        let held = if it.held_min == it.held_max {
            it.held_max.to_string()
        } else {
            format!("{}..{}", it.held_min, it.held_max)
        };
        let gap = if it.gap == 0 { String::new() } else { format!(" gap {}", it.gap) };
        let overlap = if it.overlap == 0 { String::new() } else { format!(" overlap {}", it.overlap) };
        format!("{}-{} {held}{gap}{overlap}", it.since.0 / 1000, it.until.0 / 1000)
    };
    segments.iter().map(segment).collect::<Vec<_>>().join(", ")
}

/// Each lane as `name: since-until held`, with `min..max`, `gap` and `overlap` where they are.
fn shown(line: &Timeline, window: (i64, i64, usize)) -> Vec<String> {
    let lane = |lane: &Lane| format!("{}: {}", lane.name, parts(&lane.segments));
    picture(line, window).lanes.iter().map(lane).collect()
}

/// Each incident as `from cause since-until moved`, with `waiting` and its longest gap.
fn incidents(line: &Timeline, until: i64) -> Vec<String> {
    let one = |it: &Incident| {
        let open = if it.waiting == 0 { String::new() } else { format!(" waiting {}", it.waiting) };
        let (since, until) = (it.since.0 / 1000, it.until.0 / 1000);
        format!(
            "{} {:?} {since}-{until} moved {}{open} gap {} ms",
            it.from_name,
            it.cause,
            it.moved,
            it.gap_max.as_millis()
        )
    };
    picture(line, (0, until, 1)).incidents.iter().map(one).collect()
}

/// Service `a` with two observers is lost at 100; they start on `b` at 101 and 103.
fn killed() -> Timeline {
    let mut line = Timeline::new(at(0));
    registered(&mut line, 10, 1, "a");
    registered(&mut line, 10, 2, "b");
    started(&mut line, 20, run(1, 1, 1), None);
    started(&mut line, 20, run(2, 1, 1), None);
    started(&mut line, 101, run(1, 2, 2), Some((1, 1000, 0)));
    gone(&mut line, 102, 1, "a", true);
    started(&mut line, 103, run(2, 2, 2), Some((1, 3000, 0)));
    line
}

#[test]
fn a_killed_service_leaves_a_gap_in_its_lane_until_its_observers_run_elsewhere() {
    let line = killed();
    assert_eq!(
        shown(&line, (90, 110, 20)),
        ["a: 90-100 2, 100-101 0 gap 2, 101-103 0 gap 1", "b: 101-103 1, 103-110 2"]
    );
}

#[test]
fn a_service_that_was_killed_at_once_shows_what_it_held_and_its_gap_begins_with_its_run() {
    let mut line = Timeline::new(at(0));
    registered(&mut line, 10, 1, "a");
    registered(&mut line, 10, 2, "b");
    started(&mut line, 20, run(1, 1, 1), None);
    // Its last sign of life was at 18, before the run.
    started(&mut line, 22, run(1, 2, 2), Some((1, 4000, 0)));
    gone(&mut line, 23, 1, "a", true);
    assert_eq!(shown(&line, (10, 30, 20)), ["a: 20-21 1 gap 1, 21-22 0 gap 1", "b: 22-30 1"]);
    assert_eq!(incidents(&line, 30), ["a Lost 20-22 moved 1 gap 2000 ms"]);
    // Wide columns show it, too.
    assert_eq!(shown(&line, (0, 60, 2)), ["a: 0-30 0..1 gap 1", "b: 0-30 0..1, 30-60 1"]);
}

#[test]
fn the_gaps_of_an_incident_are_upper_bounds_if_one_of_its_runs_did_not_report_its_end() {
    for (bounds, expected) in [([false, false], false), ([false, true], true), ([true, false], true)] {
        let mut line = Timeline::new(at(0));
        registered(&mut line, 0, 1, "a");
        registered(&mut line, 0, 2, "b");
        for (number, gap_is_bound) in (1..).zip(bounds) {
            started(&mut line, 5, run(number, 1, 1), None);
            let (gap, overlap) = (Duration::from_secs(1), Duration::ZERO);
            let moved = Some(Moved { from: service(1), gap, gap_is_bound, overlap });
            line.add(at(20), Fact::Started { run: run(number, 2, 2), moved });
        }
        let found = picture(&line, (0, 30, 1)).incidents;
        assert_eq!(found.iter().map(|it| it.gap_is_bound).collect::<Vec<_>>(), [expected], "{bounds:?}");
    }
    let mut line = Timeline::new(at(0));
    registered(&mut line, 0, 1, "a");
    started(&mut line, 5, run(1, 1, 1), None);
    gone(&mut line, 10, 1, "a", true);
    let open = &picture(&line, (0, 30, 1)).incidents[0];
    assert!(!open.gap_is_bound && open.gap_max == Duration::from_secs(20), "counted from the conclusion");
}

#[test]
fn a_run_shorter_than_a_second_is_shown() {
    let mut line = Timeline::new(at(0));
    registered(&mut line, 0, 1, "a");
    started(&mut line, 5, run(1, 1, 1), None);
    ended(&mut line, 5, run(1, 1, 1), false);
    assert_eq!(shown(&line, (0, 10, 10)), ["a: 5-6 1"]);
}

#[test]
fn observers_of_a_lost_service_stand_still_until_they_start() {
    let mut line = Timeline::new(at(0));
    registered(&mut line, 10, 1, "a");
    for number in [1, 2, 3] {
        started(&mut line, 20, run(number, 1, 1), None);
    }
    gone(&mut line, 50, 1, "a", true);
    assert_eq!(shown(&line, (40, 60, 20)), ["a: 40-50 3, 50-51 3 gap 3, 51-60 0 gap 3"]);
    assert_eq!(incidents(&line, 60), ["a Lost 50-50 moved 0 waiting 3 gap 10000 ms"]);
    let nowhere = |line: &Timeline| picture(line, (0, 70, 1)).incidents[0].nowhere.clone();
    assert_eq!(nowhere(&line), [1, 2, 3].map(observer));
    // One starts, one is deleted.
    registered(&mut line, 55, 2, "b");
    started(&mut line, 60, run(1, 2, 2), Some((1, 12_000, 0)));
    line.add(at(62), Fact::AtRest { observer: observer(2) });
    let lanes = [
        "a: 45-48 3, 48-50 2 gap 1, 50-51 1 gap 3, 51-60 0 gap 3, 60-62 0 gap 2, 62-70 0 gap 1",
        "b: 60-70 1",
    ];
    assert_eq!(shown(&line, (45, 70, 25)), lanes);
    assert_eq!(incidents(&line, 70), ["a Lost 48-60 moved 1 waiting 1 gap 22000 ms"]);
    assert_eq!(nowhere(&line), [observer(3)]);
    // The last one starts ten minutes later: it is the same incident.
    started(&mut line, 650, run(3, 2, 2), Some((1, 602_000, 0)));
    assert_eq!(incidents(&line, 700), ["a Lost 48-650 moved 2 gap 602000 ms"]);
    assert!(nowhere(&line).is_empty());
}

#[test]
fn a_handover_of_a_few_milliseconds_is_no_gap_in_a_lane() {
    for (gap, is_drawn) in [(0, false), (9, false), (10, true), (1000, true)] {
        let mut line = three_on_a();
        ended(&mut line, 100, run(1, 1, 1), true);
        started(&mut line, 100, run(1, 2, 2), Some((1, gap, 0)));
        let begins = if gap == 0 { 100 } else { 99 };
        let lanes = shown(&line, (begins, 101, 2));
        assert_eq!(lanes[0].contains("gap"), is_drawn, "{gap} ms: {lanes:?}");
        assert_eq!(incidents(&line, 200), [format!("a HandedOver {begins}-100 moved 1 gap {gap} ms")]);
    }
}

#[test]
fn observers_that_were_handed_over_stand_still_until_they_start() {
    let mut line = Timeline::new(at(0));
    registered(&mut line, 0, 1, "a");
    started(&mut line, 5, run(1, 1, 1), None);
    ended(&mut line, 10, run(1, 1, 1), true);
    // Another one runs on.
    line.runs(observer(7), service(3));
    assert_eq!(shown(&line, (0, 20, 20)), ["a: 5-10 1, 10-20 0 gap 1"]);
    assert_eq!(incidents(&line, 20), ["a HandedOver 10-10 moved 0 waiting 1 gap 10000 ms"]);
    assert_eq!(picture(&line, (0, 20, 1)).incidents[0].nowhere, [observer(1)]);
    // Its message was lost, and a manager has published it again.
    registered(&mut line, 20, 2, "b");
    started(&mut line, 30, run(1, 2, 9), None);
    assert_eq!(shown(&line, (0, 40, 40)), ["a: 5-10 1, 10-30 0 gap 1", "b: 30-40 1"]);
    assert_eq!(incidents(&line, 40), ["a HandedOver 10-30 moved 1 gap 20000 ms"]);
    // A restart on the same service is no move.
    ended(&mut line, 50, run(1, 2, 9), false);
    started(&mut line, 51, run(1, 2, 10), None);
    assert_eq!(shown(&line, (45, 55, 10))[1..], ["b: 45-50 1, 51-55 1"]);
    assert_eq!(incidents(&line, 60).len(), 1);
}

#[test]
fn an_incident_tells_how_many_moved_why_and_how_long_they_stood_still() {
    let line = killed();
    let picture = picture(&line, (0, 200, 10));
    let [incident] = picture.incidents.as_slice() else { panic!("{:?}", picture.incidents) };
    assert_eq!((incident.cause, incident.moved, incident.waiting), (Cause::Lost, 2, 0));
    assert_eq!((incident.since, incident.until), (at(100), at(103)));
    assert_eq!(incident.to, [("b".to_owned(), 2)].into());
    let secs = Duration::from_secs;
    assert_eq!([incident.gap_median(), incident.gap_p99(), incident.gap_max], [secs(1), secs(3), secs(3)]);
    assert_eq!(incident.overlap_max, Duration::ZERO);
    let kinds: Vec<EventKind> = picture.marks.iter().map(|mark| mark.kind).collect();
    assert_eq!(kinds, [EventKind::ServiceRegistered, EventKind::ServiceRegistered, EventKind::ServiceLost]);
}

#[test]
fn a_later_move_of_the_same_service_is_another_incident() {
    let mut line = Timeline::new(at(0));
    for (number, secs) in [(1, 100), (2, 101), (3, 140)] {
        started(&mut line, secs, run(number, 2, 2), Some((1, 20, 0)));
    }
    let moved =
        |since| picture(&line, (since, 200, 10)).incidents.iter().map(|it| it.moved).collect::<Vec<_>>();
    assert_eq!(moved(0), [2, 1]);
    assert_eq!(moved(120), [1]);
}

#[test]
fn what_a_service_held_before_the_first_event_follows_from_ends_and_from_rows() {
    let mut line = Timeline::new(at(50));
    line.name(service(1), "a");
    started(&mut line, 60, run(1, 1, 1), None);
    ended(&mut line, 70, run(2, 1, 1), false);
    started(&mut line, 75, run(3, 2, 2), Some((1, 0, 0)));
    // Rows name these as well as the one whose start is known.
    for number in [1, 4, 5] {
        line.runs(observer(number), service(1));
    }
    assert_eq!(shown(&line, (50, 80, 6)), ["a: 50-60 4, 60-70 5, 70-75 4, 75-80 3"]);
    // An event may say what a row has said: this one started after the events were read.
    started(&mut line, 78, run(5, 1, 3), None);
    assert_eq!(shown(&line, (50, 80, 6)), ["a: 50-60 3, 60-70 4, 70-75 3, 75-80 2..3"]);
    // A lost service ran those that its rows name.
    gone(&mut line, 85, 1, "a", true);
    assert_eq!(incidents(&line, 90), ["a Lost 75-75 moved 1 waiting 3 gap 5000 ms"]);
}

#[test]
fn a_run_that_was_handed_over_ended_when_its_service_said_so() {
    let mut line = Timeline::new(at(0));
    registered(&mut line, 0, 1, "a");
    started(&mut line, 5, run(1, 1, 1), None);
    started(&mut line, 5, run(2, 1, 1), None);
    ended(&mut line, 10, run(1, 1, 1), true);
    started(&mut line, 12, run(1, 2, 2), Some((1, 2000, 0)));
    // What its first service says late changes nothing.
    ended(&mut line, 13, run(1, 1, 1), true);
    assert_eq!(shown(&line, (0, 20, 20)), ["a: 5-10 2, 10-12 1 gap 1, 12-20 1"]);
}

#[test]
fn a_start_that_is_stored_after_the_next_one_is_shown() {
    let mut line = Timeline::new(at(0));
    registered(&mut line, 0, 1, "a");
    registered(&mut line, 0, 2, "b");
    started(&mut line, 9, run(1, 2, 3), None);
    started(&mut line, 5, run(1, 1, 2), None);
    assert_eq!(shown(&line, (0, 20, 20)), ["a: 5-9 1", "b: 9-20 1"]);
}

#[test]
fn overlaps_and_restarts_under_the_same_name_are_in_one_lane() {
    let mut line = Timeline::new(at(0));
    registered(&mut line, 0, 1, "a");
    started(&mut line, 5, run(1, 1, 1), None);
    gone(&mut line, 10, 1, "a", false);
    registered(&mut line, 12, 2, "a");
    started(&mut line, 13, run(1, 2, 2), Some((1, 0, 2000)));
    assert_eq!(shown(&line, (0, 20, 20)), ["a: 5-11 1, 13-15 1 overlap 1, 15-20 1"]);
}

#[test]
fn services_of_one_name_that_share_a_column_are_not_added_up() {
    let mut line = Timeline::new(at(0));
    for number in 1..=3 {
        let begin = i64::try_from(number).unwrap() * 10;
        registered(&mut line, begin, number, "a");
        started(&mut line, begin + 1, run(1, number, number.try_into().unwrap()), None);
        ended(&mut line, begin + 5, run(1, number, number.try_into().unwrap()), false);
        gone(&mut line, begin + 6, number, "a", false);
    }
    assert_eq!(shown(&line, (0, 60, 1)), ["a: 0-60 0..1"]);
}

#[test]
fn wide_columns_show_the_least_and_the_most() {
    let mut line = Timeline::new(at(0));
    registered(&mut line, 0, 1, "a");
    for (number, secs) in [(1, 1), (2, 2), (3, 11), (4, 12)] {
        started(&mut line, secs, run(number, 1, 1), None);
    }
    assert_eq!(shown(&line, (0, 30, 3)), ["a: 0-10 0..2, 10-20 2..4, 20-30 4"]);
    let held = |line: &Timeline, until| picture(line, (0, until, 1)).lanes[0].held;
    assert_eq!([held(&line, 5), held(&line, 30)], [2, 4]);
    ended(&mut line, 40, run(1, 1, 1), false);
    assert_eq!([held(&line, 39), held(&line, 60)], [4, 3], "not the most of the only column");
}

#[test]
fn a_picture_has_a_limited_number_of_lanes_columns_and_marks() {
    let mut line = Timeline::new(at(0));
    for number in 1..=120_u128 {
        registered(&mut line, 1, number, &format!("s{number:03}"));
        for run_of in 0..number {
            started(&mut line, 10, run(number * 1000 + run_of, number, 1), None);
        }
    }
    // A service that lost an observer has a lane of its own, however few it held.
    started(&mut line, 20, run(1000, 120, 2), Some((1, 1000, 0)));
    for _ in 0..2000 {
        line.add(
            at(30),
            Fact::Mark(Mark {
                at: at(0),
                since: None,
                kind: EventKind::SafeMode,
                service: None,
                service_id: None,
                text: String::new(),
            }),
        );
    }
    let all = picture(&line, (0, 86_400, 2000));
    let names: Vec<&str> = all.lanes.iter().map(|lane| lane.name.as_str()).collect();
    assert_eq!((names.len(), names[0], names[1], names[99]), (LANES_MAX, "s001", "s022", "s120"));
    assert_eq!(all.columns, CELLS_MAX / (LANES_MAX + 1));
    let others = all.others.unwrap();
    // 2 + 3 + … + 21.
    assert_eq!((others.lanes, others.segments.last().unwrap().held_max), (20, 230));
    assert_eq!((all.marks.len(), all.marks_left_out), (MARKS_SHOWN_MAX, 2000 + 120 - MARKS_SHOWN_MAX));
    let few = Window { since: at(0), until: at(86_400), columns: 5000 };
    let few = line.picture(&few, &["s002".to_owned()].into(), at(86_400));
    assert_eq!((few.lanes.len(), few.columns, few.others), (1, COLUMNS_MAX, None));
}

#[test]
fn the_timeline_of_one_observer_has_its_services_and_what_happened_to_them() {
    let mut all = killed();
    registered(&mut all, 110, 3, "c");
    all.add(
        at(150),
        Fact::Mark(Mark {
            at: at(0),
            since: None,
            kind: EventKind::Rebalanced,
            service: None,
            service_id: None,
            text: String::new(),
        }),
    );
    gone(&mut all, 160, 3, "c", false);
    // An observer that ran on `a` until it was lost, and that waits since.
    let mut one = Timeline::new(at(0));
    started(&mut one, 20, run(1, 1, 1), None);
    one.add_services_of(&all);
    assert_eq!(shown(&one, (90, 120, 30)), ["a: 90-102 1, 102-103 1 gap 1, 103-120 0 gap 1"]);
    let picture = picture(&one, (0, 200, 1));
    let marks: Vec<_> = picture.marks.iter().map(|mark| (mark.at, mark.kind)).collect();
    assert_eq!(marks, [(at(102), EventKind::ServiceLost)]);
    // Its process was started again: the name lives, though the observer never ran there.
    assert!(!picture.lanes[0].lives);
    registered(&mut all, 170, 4, "a");
    one.add_services_of(&all);
    let lane = &self::picture(&one, (0, 200, 1)).lanes[0];
    assert!(lane.lives && lane.held == 0, "{lane:?}");
}

#[test]
fn it_forgets_what_is_older_than_a_day() {
    let mut line = killed();
    let now = at(24 * 60 * 60 + 102);
    line.forget(now);
    let picture_at = |line: &Timeline, now| {
        line.picture(&Window { since: at(0), until: now, columns: 100 }, &BTreeSet::new(), now)
    };
    let picture = picture_at(&line, now);
    assert_eq!(picture.complete_since, Some(at(102)));
    assert_eq!(picture.marks.len(), 1);
    assert_eq!(shown(&line, (110, 120, 1)), ["b: 110-120 2"]);
    line.forget(now.plus(KEPT));
    let picture = picture_at(&line, now.plus(KEPT));
    assert!(picture.marks.is_empty() && picture.incidents.is_empty());
    assert_eq!(picture.lanes.iter().map(|it| it.name.as_str()).collect::<Vec<_>>(), ["b"]);
    assert_eq!(picture.lanes[0].segments.last().unwrap().held_max, 2);
}

#[test]
fn the_cause_is_unknown_until_it_is_told_or_the_service_lives_on() {
    // It was killed: its observer runs elsewhere before a manager concludes that it is lost.
    let mut line = Timeline::new(at(0));
    registered(&mut line, 10, 1, "a");
    registered(&mut line, 10, 2, "b");
    started(&mut line, 20, run(1, 1, 1), None);
    started(&mut line, 101, run(1, 2, 2), Some((1, 1000, 0)));
    assert_eq!(incidents(&line, 105), ["a Unknown 100-101 moved 1 gap 1000 ms"]);
    // It lives on: only its connection was broken.
    assert_eq!(incidents(&line, 161), ["a HandedOver 100-101 moved 1 gap 1000 ms"]);
    gone(&mut line, 106, 1, "a", true);
    assert_eq!(incidents(&line, 161), ["a Lost 100-101 moved 1 gap 1000 ms"]);

    // It handed the observer over, but this is told after the next start.
    started(&mut line, 201, run(1, 3, 3), Some((2, 100, 0)));
    assert_eq!(incidents(&line, 202)[1..], ["b Unknown 200-201 moved 1 gap 100 ms"]);
    ended(&mut line, 201, run(1, 2, 2), true);
    assert_eq!(incidents(&line, 202)[1..], ["b HandedOver 200-201 moved 1 gap 100 ms"]);
}

#[test]
fn the_timeline_of_one_observer_knows_why_its_services_ended() {
    let all = killed();
    let mut line = Timeline::new(at(0));
    line.name(service(1), "a");
    started(&mut line, 20, run(1, 1, 1), None);
    started(&mut line, 101, run(1, 2, 2), Some((1, 1000, 0)));
    line.add_services_of(&all);
    assert_eq!(incidents(&line, 110), ["a Lost 100-101 moved 1 gap 1000 ms"]);
}

#[test]
fn an_incident_says_why_its_service_handed_over() {
    let mut line = three_on_a();
    let mut moved = |secs: i64, observer: u128, why: Option<Reason>| {
        let run_on = |service: u128, epoch: u64| run(observer, service, epoch);
        line.add(at(secs), Fact::Ended { run: run_on(1, 1), moves: true, why });
        started(&mut line, secs, run_on(2, 2), Some((1, 20, 0)));
    };
    moved(100, 1, Some(Reason::Move));
    moved(110, 2, Some(Reason::Drain));
    moved(300, 3, None);
    let told = picture(&line, (0, 400, 1)).incidents;
    let reasons = |it: &Incident| it.reasons.iter().map(|why| why.as_str()).collect::<Vec<_>>();
    assert_eq!(told.iter().map(reasons).collect::<Vec<_>>(), [vec!["drain", "move"], vec![]]);
}
