//! How the views in place of the lists are drawn, on a narrow and a wide terminal.

use super::drawing::drawn;
use super::*;
use crate::output::{EVENTS, Tone};
use crate::top::feed::{FeedColumn, FeedPart, FeedState, Row, Subject};
use crate::top::load::pictured;
use crate::top::timeline::Span;
use crate::top::view;
use everwatch_api::{Incident, Timeline, TimelineLane, TimelineMark, TimelineSegment};
use everwatch_core::record::events::EventKind;
use ratatui::layout::Size;

/// The screen at this size, after the model has been told the size.
fn at(model: &mut Model, size: (u16, u16)) -> String {
    let (width, height) = view::room(Size { width: size.0, height: size.1 });
    model.on(Input::Room(width, height));
    drawn(model, size)
}

fn both(model: &mut Model) -> String {
    format!("{}\n{}", at(model, (80, 24)), at(model, (120, 40)))
}

fn arrives(model: &mut Model, subject: &Subject, state: FeedState, rows: Vec<Row>) {
    for part in [FeedPart::State(state), FeedPart::Rows(rows)] {
        model.on(Input::Fed(subject.clone(), part));
    }
}

fn log_rows(count: usize) -> Vec<Row> {
    let row = |number: usize| match number % 7 {
        3 => Row::new(
            Tone::Wait,
            &format!(
                "12:00:{number:02}.042 stderr connection refused by the far side; the next attempt follows in {number} s at the earliest"
            ),
        ),
        _ => Row::new(Tone::Plain, &format!("12:00:{number:02}.000 stdout tick {number}")),
    };
    let day = Row::note(Tone::Plain, "2027-01-15");
    std::iter::once(day).chain((1..=count).map(row)).collect()
}

#[test]
fn a_log_fills_the_screen() {
    let mut model = showing(seen(some(), None));
    let log = Subject::Log(target(Focus::Observers, "feed-1"));
    types(&mut model, "l");
    let empty = at(&mut model, (80, 24));
    arrives(&mut model, &log, FeedState::Open, log_rows(45));
    let following = both(&mut model);
    types(&mut model, "w");
    press(&mut model, KeyCode::PageUp);
    let paused = at(&mut model, (80, 24));
    insta::assert_snapshot!(format!("{empty}\n{following}\n{paused}"));
}

#[test]
fn the_help_fits_a_narrow_terminal() {
    let mut model = showing(seen(some(), None));
    types(&mut model, "?");
    insta::assert_snapshot!(at(&mut model, (80, 24)));
}

#[test]
fn a_log_that_cannot_be_followed_says_why() {
    let mut model = showing(seen(some(), None));
    let log = Subject::Log(target(Focus::Observers, "feed-1"));
    types(&mut model, "l");
    let why = "no manager answers at http://127.0.0.1:7700 (connection refused): check that it runs, or set --server or \
        EVERWATCH_SERVER; trying again";
    arrives(&mut model, &log, FeedState::Open, log_rows(2));
    arrives(&mut model, &log, FeedState::Reconnecting, vec![Row::note(Tone::Bad, why)]);
    insta::assert_snapshot!(at(&mut model, (80, 24)));
}

#[test]
fn events_fill_the_screen() {
    let mut model = showing(seen(some(), None));
    types(&mut model, "E");
    let events = Subject::Events(None);
    let columns = EVENTS.heads().map(|(head, least)| FeedColumn { head, least });
    model.on(Input::Fed(events.clone(), FeedPart::Head(columns.collect())));
    let row = |tone, cells: [&str; 5]| Row::of_cells(tone, &cells.map(str::to_owned));
    let lost = "its process ended with signal 9 and its observers move";
    let rows = (10..50).map(|number| match (format!("12:00:{number}"), number % 9) {
        (at, 4) => row(Tone::Bad, [&at, "service_lost", "-", "amber", lost]),
        (at, 5) => row(
            Tone::Plain,
            [&at, "started", "a-name-of-forty-letters-that-fills-columns", "basalt", "gap 1.2 s"],
        ),
        (at, _) => row(Tone::Plain, [&at, "started", &format!("feed-{number}"), "basalt", "gap 1.2 s"]),
    });
    arrives(&mut model, &events, FeedState::Open, rows.collect());
    let cut = both(&mut model);
    types(&mut model, "w");
    insta::assert_snapshot!(format!("{cut}\n{}", at(&mut model, (80, 24))));
}

/// Two services; the first dies in the middle, and the second takes over its observers.
fn timeline() -> Timeline {
    let part = |since, until, held, gap| TimelineSegment {
        since: ago(since),
        until: ago(until),
        held_min: held,
        held_max: held,
        gap,
        overlap: 0,
    };
    let lane = |service: &str, held: Option<u64>, segments| TimelineLane {
        service: service.to_owned(),
        lives: held.is_some(),
        held: held.unwrap_or(0),
        segments,
    };
    Timeline {
        since: ago(900),
        until: ago(0),
        complete_since: Some(ago(800)),
        columns: 50,
        others: None,
        marks_left_out: 0,
        lanes: vec![
            lane("amber", None, vec![part(800, 420, 8, 0), part(420, 400, 8, 8)]),
            lane("basalt", Some(12), vec![part(800, 400, 4, 0), part(400, 0, 12, 0)]),
        ],
        marks: vec![TimelineMark {
            at: ago(400),
            since: Some(ago(420)),
            kind: EventKind::ServiceLost,
            service: Some("amber".to_owned()),
            text: String::new(),
        }],
        incidents: vec![incident(700, 1), incident(420, 8)],
    }
}

fn incident(since: i64, moved: u64) -> Incident {
    Incident {
        from: "amber".to_owned(),
        cause: "lost".to_owned(),
        reasons: Vec::new(),
        since: ago(since),
        until: Some(ago(since - 20)),
        moved,
        waiting: 0,
        waiting_observers: Vec::new(),
        to: BTreeMap::from([("basalt".to_owned(), moved)]),
        to_others: 0,
        gap_ms_median: 15_200,
        gap_ms_p99: 19_900,
        gap_ms_max: 20_000,
        gap_is_bound: true,
        overlap_ms_max: 0,
    }
}

#[test]
fn the_timeline_fills_the_screen() {
    let mut model = showing(seen(some(), None));
    let mut screens = Vec::new();
    for size in [(80, 24), (120, 40)] {
        at(&mut model, size);
        types(&mut model, "T");
        screens.push(at(&mut model, size));
        let (width, _) = view::room(Size { width: size.0, height: size.1 });
        let lines = pictured(&timeline(), (crate::output::Picture::columns(Some(width)), width)).unwrap();
        model.on(Input::Timeline(Span::QuarterHour, Ok(lines)));
        screens.push(at(&mut model, size));
        press(&mut model, KeyCode::Esc);
    }
    insta::assert_snapshot!(screens.join("\n"));
}

#[test]
fn a_timeline_without_services_or_incidents_says_so() {
    let text = |it: &Timeline| {
        let lines = pictured(it, (50, 60)).unwrap();
        lines.into_iter().flatten().map(|(_, text)| text).collect::<Vec<_>>().join("\n")
    };
    let quiet = Timeline { incidents: Vec::new(), ..timeline() };
    assert!(text(&quiet).ends_with("\nno incidents"), "{}", text(&quiet));
    assert_eq!(text(&Timeline { lanes: Vec::new(), ..timeline() }), "no service ran in this time");
}
