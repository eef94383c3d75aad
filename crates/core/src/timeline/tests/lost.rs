//! Services that are lost, and what moved from them before.

use super::*;

/// Service `a` runs three observers, and service `b` none.
pub(super) fn three_on_a() -> Timeline {
    let mut line = Timeline::new(at(0));
    registered(&mut line, 10, 1, "a");
    registered(&mut line, 10, 2, "b");
    for number in 1..=3 {
        started(&mut line, 20, run(number, 1, 1), None);
    }
    line
}

#[test]
fn a_service_that_is_lost_after_an_observer_was_moved_from_it_is_another_incident() {
    let moved_then_lost = |lost_at: i64| {
        let mut line = three_on_a();
        ended(&mut line, 100, run(1, 1, 1), true);
        started(&mut line, 100, run(1, 2, 2), Some((1, 0, 0)));
        started(&mut line, lost_at + 1, run(2, 2, 2), Some((1, 1000, 0)));
        gone(&mut line, lost_at + 2, 1, "a", true);
        started(&mut line, lost_at + 3, run(3, 2, 2), Some((1, 3000, 0)));
        incidents(&line, 200)
    };
    let expected = ["a HandedOver 100-100 moved 1 gap 0 ms", "a Lost 111-114 moved 2 gap 3000 ms"];
    assert_eq!(moved_then_lost(111), expected);
    let expected = ["a HandedOver 100-100 moved 1 gap 0 ms", "a Lost 102-105 moved 2 gap 3000 ms"];
    assert_eq!(moved_then_lost(102), expected);
}

#[test]
fn handovers_that_are_told_late_are_one_incident_with_the_others() {
    let mut line = three_on_a();
    ended(&mut line, 100, run(1, 1, 1), true);
    started(&mut line, 101, run(1, 2, 2), Some((1, 0, 0)));
    // The end of this run is told after the next start.
    started(&mut line, 102, run(2, 2, 2), Some((1, 2000, 0)));
    assert_eq!(
        incidents(&line, 103),
        ["a Unknown 100-102 moved 1 gap 2000 ms", "a HandedOver 101-101 moved 1 gap 0 ms"]
    );
    ended(&mut line, 100, run(2, 1, 1), true);
    assert_eq!(incidents(&line, 200), ["a HandedOver 100-102 moved 2 gap 2000 ms"]);
    // But if the service turns out to be lost, it is not a handover.
    started(&mut line, 104, run(3, 2, 2), Some((1, 1000, 0)));
    gone(&mut line, 105, 1, "a", true);
    assert_eq!(
        incidents(&line, 200),
        ["a HandedOver 100-102 moved 2 gap 2000 ms", "a Lost 103-104 moved 1 gap 1000 ms"]
    );
}

#[test]
fn the_gap_of_a_lost_service_begins_with_its_last_sign_of_life() {
    for (heard, since) in [(None, 110), (Some(102), 102), (Some(15), 20)] {
        let mut line = three_on_a();
        gone_after(&mut line, 110, 1, "a", (true, heard));
        let open = picture(&line, (0, 120, 120));
        assert_eq!((open.incidents[0].since, open.incidents[0].gap_is_bound), (at(since), heard.is_some()));
        assert_eq!(open.incidents[0].gap_max, Duration::from_secs(120 - since.unsigned_abs()), "{heard:?}");
        assert_eq!(open.marks.last().unwrap().since, heard.map(|_| at(since)), "a start is a sign of life");
        // It does not jump when the observers start.
        for number in 1..=3 {
            let gap = 1000 * (115 - since.unsigned_abs());
            started(&mut line, 115, run(number, 2, 2), heard.map(|_| (1, gap, 0)));
        }
        assert_eq!(picture(&line, (0, 120, 120)).incidents[0].since, at(since), "{heard:?}");
    }
}

#[test]
fn an_observer_that_left_before_the_last_sign_of_life_was_not_lost() {
    for (heard, expected) in [(150, 0), (139, 1)] {
        let mut all = three_on_a();
        gone_after(&mut all, 160, 1, "a", (true, Some(heard)));
        let mut one = Timeline::new(at(0));
        started(&mut one, 20, run(1, 1, 1), None);
        ended(&mut one, 140, run(1, 1, 1), true);
        started(&mut one, 140, run(1, 2, 2), Some((1, 0, 0)));
        one.add_services_of(&all);
        assert_eq!(picture(&one, (0, 200, 1)).marks.len(), expected, "{heard}");
    }
}

#[test]
fn an_open_incident_begins_at_the_same_millisecond_as_a_closed_one() {
    let mut line = three_on_a();
    let (service, name, text) = (service(1), "a".to_owned(), "killed".to_owned());
    line.add(at(110), Fact::Gone { service, name, lost: true, heard_at: Some(Timestamp(102_345)), text });
    assert_eq!(picture(&line, (0, 120, 120)).marks.last().map(|it| it.text.as_str()), Some("killed"));
    assert_eq!(picture(&line, (0, 120, 120)).incidents[0].since, Timestamp(102_345));
    started(&mut line, 115, run(1, 2, 2), Some((1, 12_655, 0)));
    assert_eq!(picture(&line, (0, 120, 120)).incidents[0].since, Timestamp(102_345));
}

/// A user drains service `a`.
fn drained(line: &mut Timeline, secs: i64) {
    operated(line, secs, EventKind::ServiceDraining);
}

/// An operation that concerns service `a` begins.
fn operated(line: &mut Timeline, secs: i64, kind: EventKind) {
    let mut mark = Mark::of_service(at(secs), kind, (service(1), "a".to_owned()));
    if kind == EventKind::Rebalanced {
        (mark.service, mark.service_id) = (None, None);
    }
    line.add(at(secs), Fact::Mark(mark));
}

#[test]
fn an_operation_soon_after_another_one_is_another_incident() {
    let twice = |is_told_late: bool, [first, second]: [EventKind; 2]| {
        let mut line = three_on_a();
        let moves = |line: &mut Timeline, secs: i64, number: u128| {
            if !is_told_late {
                ended(line, secs, run(number, 1, 1), true);
            }
            started(line, secs, run(number, 2, 2), Some((1, 20, 0)));
        };
        operated(&mut line, 100, first);
        moves(&mut line, 100, 1);
        // Observers of one operation may start some seconds apart.
        moves(&mut line, 104, 2);
        operated(&mut line, 107, second);
        moves(&mut line, 107, 3);
        for (number, secs) in [(3, 107), (1, 100), (2, 104)] {
            ended(&mut line, secs, run(number, 1, 1), true);
        }
        incidents(&line, 200)
    };
    let expected = ["a HandedOver 99-104 moved 2 gap 20 ms", "a HandedOver 106-107 moved 1 gap 20 ms"]
        .map(str::to_owned);
    let all = [EventKind::ServiceDraining, EventKind::ServiceResized, EventKind::Rebalanced];
    for (first, second) in all.into_iter().flat_map(|first| all.map(|second| (first, second))) {
        for is_told_late in [false, true] {
            assert_eq!(twice(is_told_late, [first, second]), expected, "{first:?}, {second:?}");
        }
    }
    let merged = twice(false, [EventKind::ServiceDraining, EventKind::ServiceUncordoned]);
    assert_eq!(merged, ["a HandedOver 99-107 moved 3 gap 20 ms"]);
}

#[test]
fn a_drain_within_a_second_after_a_move_is_another_incident() {
    let mut line = three_on_a();
    let mut moved = |ms: i64, number: u128| {
        line.add(Timestamp(ms), Fact::Ended { run: run(number, 1, 1), moves: true, why: None });
        let moved =
            Moved { from: service(1), gap: Duration::ZERO, gap_is_bound: false, overlap: Duration::ZERO };
        line.add(Timestamp(ms), Fact::Started { run: run(number, 2, 2), moved: Some(moved) });
        if number == 1 {
            let mark = Mark::of_service(
                Timestamp(ms + 900),
                EventKind::ServiceDraining,
                (service(1), "a".to_owned()),
            );
            line.add(Timestamp(ms + 900), Fact::Mark(mark));
        }
    };
    moved(100_000, 1);
    moved(102_200, 2);
    assert_eq!(incidents(&line, 200).len(), 2);
}

#[test]
fn the_timeline_of_one_observer_parts_two_drains_of_its_service() {
    let mut all = three_on_a();
    drained(&mut all, 100);
    drained(&mut all, 107);
    let mut one = Timeline::new(at(0));
    one.add_operations_of(&all);
    one.name(service(1), "a");
    started(&mut one, 20, run(1, 1, 1), None);
    for (secs, to, epoch) in [(100, 2, 2), (103, 1, 3), (107, 2, 4)] {
        let from = if to == 2 { 1 } else { 2 };
        ended(&mut one, secs, run(1, from, epoch - 1), true);
        started(&mut one, secs, run(1, to, epoch), Some((from, 0, 0)));
    }
    one.add_services_of(&all);
    let of_a: Vec<String> = incidents(&one, 200).into_iter().filter(|it| it.starts_with("a ")).collect();
    assert_eq!(of_a, ["a HandedOver 100-100 moved 1 gap 0 ms", "a HandedOver 107-107 moved 1 gap 0 ms"]);
}

#[test]
fn a_service_that_is_lost_during_a_rebalance_keeps_both_causes_apart() {
    // Observer 1 moves in a rebalance; its handover is told after this many starts.
    for handover in 1..=3 {
        let mut line = three_on_a();
        let told = |line: &mut Timeline, starts: usize| {
            if handover == starts {
                ended(line, 100, run(1, 1, 1), true);
            }
        };
        for (starts, number) in [(1, 2), (2, 1), (3, 3)] {
            started(&mut line, 101, run(number, 2, 2), Some((1, 1000, 0)));
            told(&mut line, starts);
        }
        gone(&mut line, 102, 1, "a", true);
        let mut found = incidents(&line, 200);
        found.sort();
        assert_eq!(
            found,
            ["a HandedOver 100-101 moved 1 gap 1000 ms", "a Lost 100-101 moved 2 gap 1000 ms"],
            "told after {handover} starts"
        );
    }
}

#[test]
fn a_service_that_lives_on_has_only_lost_its_connection() {
    let mut line = three_on_a();
    started(&mut line, 100, run(1, 2, 2), Some((1, 1000, 0)));
    line.conclude(at(159));
    assert_eq!(incidents(&line, 159), ["a Unknown 99-100 moved 1 gap 1000 ms"]);
    line.conclude(at(160));
    assert_eq!(incidents(&line, 160), ["a HandedOver 99-100 moved 1 gap 1000 ms"]);
    // It is lost later.
    gone(&mut line, 300, 1, "a", true);
    let expected =
        ["a HandedOver 99-100 moved 1 gap 1000 ms", "a Lost 300-300 moved 0 waiting 2 gap 100000 ms"];
    assert_eq!(incidents(&line, 400), expected);
}
