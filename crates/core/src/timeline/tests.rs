use super::*;
use uuid::Uuid;

fn service(number: u128) -> ServiceId {
    ServiceId(Uuid::from_u128(number))
}

fn at(secs: i64) -> Timestamp {
    Timestamp(secs * 1000)
}

fn registered(line: &mut Timeline, secs: i64, number: u128, name: &str) {
    line.add(at(secs), Fact::Registered { service: service(number), name: name.to_owned() });
}

fn started(line: &mut Timeline, secs: i64, number: u128, moved: Option<(u128, u64, u64)>) {
    let moved = moved.map(|(from, gap, overlap)| Moved {
        from: service(from),
        gap: Duration::from_millis(gap),
        overlap: Duration::from_millis(overlap),
    });
    line.add(at(secs), Fact::Started { service: service(number), moved });
}

fn gone(line: &mut Timeline, secs: i64, number: u128, name: &str, lost: bool) {
    line.add(at(secs), Fact::Gone { service: service(number), name: name.to_owned(), lost });
}

/// Each lane as `name: since-until held`, with `min..max`, `gap` and `overlap` where they are.
fn shown(line: &Timeline, (since, until, columns): (i64, i64, usize), held: &[(u128, u64)]) -> Vec<String> {
    let held = held.iter().map(|(number, held)| (service(*number), *held)).collect();
    let window = Window { since: at(since), until: at(until), columns };
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
    let picture = line.picture(&window, &held);
    let lane = |lane: &Lane| {
        format!("{}: {}", lane.name, lane.segments.iter().map(segment).collect::<Vec<_>>().join(", "))
    };
    picture.lanes.iter().map(lane).collect()
}

/// Service `a` with two observers is lost at 100; they start on `b` at 101 and 103.
fn killed() -> Timeline {
    let mut line = Timeline::new(at(0));
    registered(&mut line, 10, 1, "a");
    registered(&mut line, 10, 2, "b");
    started(&mut line, 20, 1, None);
    started(&mut line, 20, 1, None);
    started(&mut line, 101, 2, Some((1, 1000, 0)));
    gone(&mut line, 102, 1, "a", true);
    started(&mut line, 103, 2, Some((1, 3000, 0)));
    line
}

#[test]
fn a_killed_service_leaves_a_gap_in_its_lane_until_its_observers_run_elsewhere() {
    let line = killed();
    assert_eq!(
        shown(&line, (90, 110, 20), &[(2, 2)]),
        ["a: 90-100 2, 100-101 0 gap 2, 101-103 0 gap 1", "b: 101-103 1, 103-110 2"]
    );
}

#[test]
fn an_incident_tells_how_many_moved_why_and_how_long_they_stood_still() {
    let line = killed();
    let window = Window { since: at(0), until: at(200), columns: 10 };
    let picture = line.picture(&window, &BTreeMap::new());
    let [incident] = picture.incidents.as_slice() else { panic!("{:?}", picture.incidents) };
    assert_eq!((incident.cause, incident.moved), (Cause::Lost, 2));
    assert_eq!((incident.since, incident.until), (at(100), at(103)));
    assert_eq!(incident.to, [(service(2), 2)].into());
    let secs = Duration::from_secs;
    assert_eq!([incident.gap(0.5), incident.gap(0.99), incident.gap_max], [secs(1), secs(3), secs(3)]);
    assert_eq!(incident.overlap_max, Duration::ZERO);
    let kinds: Vec<EventKind> = picture.marks.iter().map(|mark| mark.kind).collect();
    assert_eq!(kinds, [EventKind::ServiceRegistered, EventKind::ServiceRegistered, EventKind::ServiceLost]);
}

#[test]
fn a_later_move_of_the_same_service_is_another_incident() {
    let mut line = Timeline::new(at(0));
    for secs in [100, 101, 140] {
        started(&mut line, secs, 2, Some((1, 20, 0)));
    }
    let window = Window { since: at(0), until: at(200), columns: 10 };
    let moved = |window| {
        line.picture(&window, &BTreeMap::new()).incidents.iter().map(|it| it.moved).collect::<Vec<_>>()
    };
    assert_eq!(moved(window), [2, 1]);
    assert_eq!(moved(Window { since: at(120), ..window }), [1]);
}

#[test]
fn what_a_service_held_before_the_first_event_follows_from_what_it_holds_now() {
    let mut line = Timeline::new(at(50));
    line.name(service(1), "a");
    started(&mut line, 60, 1, None);
    line.add(at(70), Fact::Ended { service: service(1), moves: false });
    line.add(at(70), Fact::Ended { service: service(1), moves: false });
    assert_eq!(shown(&line, (50, 80, 3), &[(1, 4)]), ["a: 50-60 5, 60-70 6, 70-80 4"]);
    // One that was lost held what started elsewhere.
    gone(&mut line, 75, 1, "a", true);
    started(&mut line, 76, 2, Some((1, 1000, 0)));
    assert_eq!(shown(&line, (50, 70, 2), &[]), ["a: 50-60 2, 60-70 3"]);
}

#[test]
fn a_run_that_was_handed_over_ended_when_its_service_said_so() {
    let mut line = Timeline::new(at(0));
    registered(&mut line, 0, 1, "a");
    started(&mut line, 5, 1, None);
    started(&mut line, 5, 1, None);
    line.add(at(10), Fact::Ended { service: service(1), moves: true });
    started(&mut line, 12, 2, Some((1, 2000, 0)));
    assert_eq!(shown(&line, (0, 20, 20), &[(1, 1)]), ["a: 5-10 2, 10-12 1 gap 1, 12-20 1"]);
}

#[test]
fn overlaps_and_restarts_under_the_same_name_are_in_one_lane() {
    let mut line = Timeline::new(at(0));
    registered(&mut line, 0, 1, "a");
    started(&mut line, 5, 1, None);
    gone(&mut line, 10, 1, "a", false);
    registered(&mut line, 12, 2, "a");
    started(&mut line, 13, 2, Some((1, 0, 2000)));
    assert_eq!(shown(&line, (0, 20, 20), &[(2, 1)]), ["a: 5-11 1, 13-15 1 overlap 1, 15-20 1"]);
}

#[test]
fn wide_columns_show_the_least_and_the_most() {
    let mut line = Timeline::new(at(0));
    registered(&mut line, 0, 1, "a");
    for secs in [1, 2, 11, 12] {
        started(&mut line, secs, 1, None);
    }
    assert_eq!(shown(&line, (0, 30, 3), &[(1, 4)]), ["a: 0-10 0..2, 10-20 2..4, 20-30 4"]);
}

#[test]
fn it_forgets_what_is_older_than_a_day() {
    let mut line = killed();
    let now = at(24 * 60 * 60 + 102);
    line.forget(now);
    let window = Window { since: at(0), until: now, columns: 100 };
    let picture = line.picture(&window, &[(service(2), 2)].into());
    assert_eq!(picture.complete_since, Some(at(102)));
    assert_eq!(picture.marks.len(), 1);
    let shown = shown(&line, (110, 120, 1), &[(2, 2)]);
    assert_eq!(shown, ["b: 110-120 2"]);
    line.forget(now.plus(KEPT));
    let picture = line.picture(&window, &[(service(2), 2)].into());
    assert!(picture.marks.is_empty() && picture.incidents.is_empty());
    assert_eq!(picture.lanes.iter().map(|it| it.name.as_str()).collect::<Vec<_>>(), ["b"]);
}
