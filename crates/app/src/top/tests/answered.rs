//! Tests that each key does something or says where it does.

use super::*;
use crate::top::model::{Mode, Said};

fn told(model: &Model) -> &str {
    match &model.said {
        Some(Said::Badly(why)) => why,
        other => panic!("{other:?}"),
    }
}

/// How to get to each place from the lists.
const PLACES: [(&str, &[KeyCode]); 7] = [
    ("observers", &[]),
    ("services", &[KeyCode::Tab]),
    ("details of an observer", &[KeyCode::Enter]),
    ("details of a service", &[KeyCode::Tab, KeyCode::Enter]),
    ("log", &[KeyCode::Char('l')]),
    ("events of all", &[KeyCode::Char('E')]),
    ("timeline", &[KeyCode::Char('T')]),
];

fn at(keys: &[KeyCode]) -> Model {
    let mut model = showing(seen(some(), None));
    for key in keys {
        press(&mut model, *key);
    }
    model
}

#[test]
fn no_key_is_silent() {
    let letters = (' '..='~').map(KeyCode::Char);
    let others = [
        KeyCode::Left,
        KeyCode::Right,
        KeyCode::Insert,
        KeyCode::Delete,
        KeyCode::Backspace,
        KeyCode::Enter,
        KeyCode::F(1),
    ];
    // Keys that scroll may have reached the end.
    let scrolls = |key: KeyCode| matches!(key, KeyCode::Char('g' | 'G' | 'j' | 'k' | ' '));
    for (place, keys) in PLACES {
        for key in letters.clone().chain(others).filter(|key| !scrolls(*key)) {
            // It is open already.
            if place == "timeline" && key == KeyCode::Char('T') {
                continue;
            }
            let mut model = at(keys);
            let before = format!("{model:?}");
            let effects = press(&mut model, key);
            assert!(!effects.is_empty() || format!("{model:?}") != before, "{key:?} is silent in {place}");
        }
    }
}

#[test]
fn a_key_of_another_place_names_that_place() {
    let cases: [(&[KeyCode], char, &str); 14] = [
        (&[], 'c', "cordon is for services: press Tab and select one"),
        (&[], 'D', "drain is for services: press Tab and select one"),
        (&[], 'o', "`o` (its observers) is for services: press Tab and select one"),
        (&[KeyCode::Tab], 'p', "pause is for observers: press Tab and select one"),
        (&[KeyCode::Tab], 'd', "delete is for observers: press Tab and select one"),
        (&[], 'f', "follow is for logs and events: press l, e or E to open them"),
        (&[], '+', "the choice of the time is for the timeline: press T to open it"),
        (&[], 'G', "the last line is for logs, events and the timeline: press PgDn for the next page"),
        (&[], 'x', "`x` does nothing here: press ? for all keys"),
        (&[KeyCode::Char('l')], 'd', "delete is for the lists: press Esc first"),
        (&[KeyCode::Char('T')], 's', "sort is for the lists: press Esc first"),
        (&[KeyCode::Char('T')], 'l', "this concerns one observer or service: press Esc and select one"),
        (&[KeyCode::Enter], 'r', "resume is for the lists: press Esc first"),
        (&[KeyCode::Enter], 'x', "`x` does nothing here: press Esc, and then ? for all keys"),
    ];
    for (keys, key, expected) in cases {
        let mut model = at(keys);
        assert_eq!(press(&mut model, KeyCode::Char(key)), [], "{key}");
        assert_eq!(told(&model), expected);
    }
}

#[test]
fn a_key_that_answers_no_question_says_which_ones_do() {
    let mut model = at(&[KeyCode::Char('d')]);
    assert!(matches!(model.mode, Mode::Asking(..)));
    assert_eq!(press(&mut model, KeyCode::Char('3')), []);
    assert_eq!(told(&model), "this key answers nothing: press y, n");
    let mut model = at(&[KeyCode::Char('m')]);
    let Mode::Asking(_, rooms) = &model.mode else { panic!("{:?}", model.mode) };
    let digits = if rooms.len() == 1 { "1".to_owned() } else { format!("1 to {}", rooms.len()) };
    assert_eq!(press(&mut model, KeyCode::Char('9')), []);
    assert_eq!(told(&model), format!("this key answers nothing: press y, n, {digits}"));
    assert!(matches!(model.mode, Mode::Asking(..)), "the question stays");
}

#[test]
fn details_stay_open_at_a_key_of_another_place_and_close_by_escape() {
    let mut model = at(&[KeyCode::Enter]);
    types(&mut model, "p");
    assert!(matches!(model.mode, Mode::Details { .. }));
    press(&mut model, KeyCode::Esc);
    assert_eq!((&model.mode, &model.said), (&Mode::Browse, &None));
    press(&mut model, KeyCode::Esc);
    assert_eq!(model.said, None, "there is nothing to go back from");
}

#[test]
fn a_key_that_needs_a_row_says_that_there_is_none() {
    let mut empty = seen(vec![], None);
    empty.services = vec![];
    let mut model = showing(empty);
    for key in ['p', 'd', 'r', 'l', 'e'] {
        assert_eq!(press(&mut model, KeyCode::Char(key)), [], "{key}");
        assert_eq!(told(&model), "no observer is selected: the list is empty");
    }
    press(&mut model, KeyCode::Enter);
    assert_eq!(told(&model), "no observer is selected: the list is empty");
    press(&mut model, KeyCode::Tab);
    for key in ['c', 'o'] {
        assert_eq!(press(&mut model, KeyCode::Char(key)), [], "{key}");
        assert_eq!(told(&model), "no service is selected: the list is empty");
    }
}
