//! What is drawn, on a narrow and a wide terminal.

use super::*;
use crate::top::model::{Mode, Said};
use crate::top::view;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::layout::Size;

/// The screen as text, and whether any cell of it has a color.
pub(super) fn drawn(model: &mut Model, (width, height): (u16, u16)) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    model.query.rows = view::rows(Size { width, height }, model);
    terminal.draw(|frame| view::draw(frame, model, false)).unwrap();
    let cells = &terminal.backend().buffer().content;
    let plain = cells.iter().all(|cell| cell.fg == ratatui::style::Color::Reset);
    assert!(plain, "no colour where none is wanted");
    terminal.backend().to_string()
}

fn both(model: &mut Model) -> String {
    format!("{}\n{}", drawn(model, (80, 24)), drawn(model, (120, 40)))
}

#[test]
fn services_and_observers() {
    let mut model = showing(seen(some(), Some("c1")));
    insta::assert_snapshot!(both(&mut model));
}

#[test]
fn a_service_that_drains_is_selected() {
    let mut it = seen(some(), None);
    it.services[1] = Service {
        drain: Some(crate::top::seen::Drain {
            of: 9,
            moved: 6,
            waits: Some("no other service of pool default has a free slot".to_owned()),
        }),
        ..service("basalt", "draining", 3, 9)
    };
    it.safe_mode = SafeMode { on: true, reason: "network maintenance".to_owned() };
    let mut model = showing(it);
    press(&mut model, KeyCode::Tab);
    press(&mut model, KeyCode::Down);
    insta::assert_snapshot!(both(&mut model));
}

#[test]
fn before_the_first_answer_and_when_there_is_nothing() {
    let mut model = Model::new("http://127.0.0.1:7700", NOW);
    let first = drawn(&mut model, (80, 24));
    let mut empty = seen(vec![], None);
    (empty.services, empty.pools, empty.stats, empty.observers.total) = (vec![], vec![], Stats::default(), 0);
    model.on(Input::Changed);
    loaded(&mut model, empty);
    insta::assert_snapshot!(format!("{first}\n{}", drawn(&mut model, (80, 24))));
}

#[test]
fn the_connection_is_lost() {
    let mut model = showing(seen(some(), None));
    model.on(Input::Changed);
    let query = model.query.clone();
    model.on(Input::Loaded(
        query,
        Err(Trouble::Unreachable("no manager answers at http://127.0.0.1:7700".to_owned())),
    ));
    model.on(Input::Tick(Timestamp(NOW.0 + 12_000)));
    insta::assert_snapshot!(drawn(&mut model, (80, 24)));
}

#[test]
fn a_filter_is_being_typed() {
    let mut model = showing(seen(some(), None));
    types(&mut model, "/status=Fai");
    insta::assert_snapshot!(drawn(&mut model, (80, 24)));
}

#[test]
fn a_delete_is_asked_for() {
    let mut model = showing(seen(some(), None));
    types(&mut model, "d");
    insta::assert_snapshot!(drawn(&mut model, (80, 24)));
}

#[test]
fn details_and_help_lie_over_the_lists() {
    let mut model = showing(seen(some(), None));
    press(&mut model, KeyCode::Enter);
    let text = (1..40).map(|number| format!("line {number}")).collect::<Vec<_>>().join("\n");
    model.on(Input::Described(target(Focus::Observers, "feed-1"), Ok(text)));
    press(&mut model, KeyCode::Down);
    let details = drawn(&mut model, (80, 24));
    model.mode = Mode::Help;
    insta::assert_snapshot!(format!("{details}\n{}", drawn(&mut model, (120, 40))));
}

#[test]
fn no_size_is_too_small_to_be_drawn() {
    let mut model = showing(seen(some(), None));
    press(&mut model, KeyCode::Tab);
    for width in [1, 10, 39, 40, 60, 300] {
        for height in [1, 5, 11, 12, 13, 100] {
            drawn(&mut model, (width, height));
        }
    }
    assert!(drawn(&mut model, (39, 24)).contains("too small"));
}

#[test]
fn the_selected_service_is_in_sight_among_many() {
    let mut it = seen(some(), None);
    it.services = (0..100).map(|number| service(&format!("service-{number:03}"), "active", 1, 1)).collect();
    let mut model = showing(it);
    press(&mut model, KeyCode::Tab);
    press(&mut model, KeyCode::PageDown);
    let drawn = drawn(&mut model, (80, 24));
    assert!(drawn.contains("▸ service-099") && drawn.contains("of 100"), "{drawn}");
}

#[test]
fn a_question_says_what_happens() {
    for (key, expected) in [('p', "Pause feed-1?"), ('R', "Restart feed-1?"), ('m', "Move feed-1?")] {
        let mut model = showing(seen(some(), None));
        press(&mut model, KeyCode::Char(key));
        let drawn = drawn(&mut model, (80, 24));
        assert!(drawn.contains(expected) && drawn.contains("It stops"), "{drawn}");
    }
}

#[test]
fn a_long_message_takes_several_lines_and_longer_ones_end_in_dots() {
    let mut model = showing(seen(some(), None));
    let cure = "check that it runs, or set --server";
    model.say(Said::Badly(format!("{} {cure}", "no manager answers at this address;".repeat(3))));
    let whole = drawn(&mut model, (80, 24));
    assert!(whole.contains(cure), "{whole}");
    model.say(Said::Badly("one word after another ".repeat(40)));
    let cut = drawn(&mut model, (80, 24));
    let row = cut.lines().rev().nth(1).unwrap().trim_end_matches('"').trim_end();
    assert!(row.ends_with('…'), "{cut}");
}

#[test]
fn lines_that_are_too_wide_end_in_dots() {
    let mut model = Model::new(&format!("https://{}", "manager.".repeat(20)), NOW);
    model.on(Input::Rows(20));
    loaded(&mut model, seen(some(), None));
    let drawn = drawn(&mut model, (40, 24));
    let rows: Vec<_> = drawn.lines().map(|row| row.trim_matches('"').trim_end()).collect();
    assert!(rows[0].contains("…  live"), "{drawn}");
    for row in [rows[1], rows[2], rows[4]] {
        assert!(row.ends_with('…'), "{row}\n{drawn}");
    }
}

#[test]
fn an_order_of_the_first_observers_only_says_so() {
    let mut model = showing(seen(some(), None));
    types(&mut model, "s");
    loaded(&mut model, seen(some(), None));
    let part = drawn(&mut model, (120, 24));
    assert!(part.contains("Observers 1–3 of 50,000, by health among the first 1,000 by name "), "{part}");
    let mut few = seen(some(), None);
    few.observers.total = 1000;
    model.on(Input::Changed);
    loaded(&mut model, few);
    let whole = drawn(&mut model, (120, 24));
    assert!(whole.contains("Observers 1–3 of 1,000, by health ─"), "{whole}");
}

#[test]
fn an_empty_list_says_which_label_nobody_has() {
    let mut model = showing(seen(some(), None));
    types(&mut model, "/helth=restarting");
    press(&mut model, KeyCode::Enter);
    let mut empty = seen(vec![], None);
    empty.observers.total = 0;
    empty.unknown_label = Some(crate::top::filter::unknown_label("helth"));
    loaded(&mut model, empty);
    let drawn = drawn(&mut model, (80, 24));
    let told = "`helth` is neither a field nor a label of any observer; did you mean `health`?";
    assert!(drawn.contains("Observers: none, by name, /helth=restarting") && drawn.contains(told), "{drawn}");
}

#[test]
fn an_answer_is_visible_above_details() {
    let mut model = showing(seen(some(), None));
    press(&mut model, KeyCode::Enter);
    types(&mut model, "p");
    let drawn = drawn(&mut model, (80, 24));
    assert!(drawn.contains("pause is for the lists: press Esc first"), "{drawn}");
}
