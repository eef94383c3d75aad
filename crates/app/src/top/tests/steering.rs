//! Tests how inputs change the model.

use super::drawing::drawn;
use super::*;
use crate::top::model::{Link, Mode, Said, Verb, Wish};

fn wish(what: Focus, name: &str, verb: Verb) -> Effect {
    Effect::Do(Wish { target: target(what, name), verb, to: None })
}

#[test]
fn every_verb_is_about_the_selected_row() {
    let mut model = showing(seen(some(), None));
    press(&mut model, KeyCode::Down);
    for (key, verb) in [('r', Verb::Resume), ('t', Verb::Retry)] {
        assert_eq!(types(&mut model, &key.to_string()), [wish(Focus::Observers, "feed-2", verb)]);
    }
    assert_eq!(types(&mut model, "cuD"), [], "these are for services");
    press(&mut model, KeyCode::Tab);
    press(&mut model, KeyCode::Char('j'));
    for (key, verb) in [('c', Verb::Cordon), ('u', Verb::Uncordon)] {
        assert_eq!(types(&mut model, &key.to_string()), [wish(Focus::Services, "basalt", verb)]);
    }
    assert_eq!(types(&mut model, "prRmt"), [], "these are for observers");
}

#[test]
fn what_ends_runs_is_asked_for_and_only_an_answer_is_an_answer() {
    let mut model = showing(seen(some(), None));
    for (key, verb) in [('p', Verb::Pause), ('R', Verb::Restart), ('m', Verb::Move)] {
        assert_eq!(types(&mut model, &key.to_string()), [], "{verb:?}");
        assert_eq!(types(&mut model, "n"), [], "{verb:?}");
        let key = format!("{key}y");
        assert_eq!(types(&mut model, &key), [wish(Focus::Observers, "feed-1", verb)]);
    }
    assert_eq!(types(&mut model, "d"), []);
    assert!(matches!(model.mode, Mode::Asking(..)));
    assert_eq!(press(&mut model, KeyCode::Enter), []);
    assert_eq!(types(&mut model, "n"), []);
    assert_eq!(model.mode, Mode::Browse);
    assert_eq!(types(&mut model, "dy"), [wish(Focus::Observers, "feed-1", Verb::Delete)]);
    press(&mut model, KeyCode::Tab);
    assert_eq!(types(&mut model, "Dy"), [wish(Focus::Services, "amber", Verb::Drain)]);
}

#[test]
fn a_move_goes_to_the_service_that_the_user_chooses() {
    let mut all = seen(some(), None);
    all.services.iter_mut().for_each(|it| it.held = if it.name == "chalk" { 10 } else { 3 });
    let mut model = showing(all);
    types(&mut model, "m");
    let asked = super::drawing::drawn(&mut model, (80, 24));
    assert!(asked.contains("1  basalt: 7 free") && !asked.contains("chalk:"), "{asked}");
    assert!(!asked.contains("amber:"), "it runs there: {asked}");
    assert_eq!(types(&mut model, "2"), [], "there is one");
    let to = Some("basalt".to_owned());
    let moved = Wish { target: target(Focus::Observers, "feed-1"), verb: Verb::Move, to };
    assert_eq!(types(&mut model, "1"), [Effect::Do(moved)]);

    let mut full = seen(some(), None);
    full.services.iter_mut().for_each(|it| it.held = it.capacity);
    let mut model = showing(full);
    types(&mut model, "m");
    let asked = super::drawing::drawn(&mut model, (80, 24));
    assert!(asked.contains("No other service of its pool has a free slot"), "{asked}");
}

#[test]
fn a_drain_is_asked_about_with_the_free_slots_of_the_others() {
    let asked = |held: [u32; 3]| {
        let mut all = seen(some(), None);
        all.services.iter_mut().zip(held).for_each(|(it, held)| it.held = held);
        let mut model = showing(all);
        press(&mut model, KeyCode::Tab);
        types(&mut model, "D");
        super::drawing::drawn(&mut model, (80, 24)).replace("│\n", " ")
    };
    assert!(
        asked([10, 3, 0]).contains("It hands over 10 slots; other services have 17 free."),
        "{}",
        asked([10, 3, 0])
    );
    assert!(asked([0, 3, 0]).contains("It holds nothing"), "{}", asked([0, 3, 0]));
    let full = asked([10, 9, 9]);
    assert!(
        full.contains("It holds 10 slots, and other services of pool default")
            && full.contains("2 free: the rest stays"),
        "{full}"
    );
}

#[test]
fn what_is_asked_about_is_done_though_the_list_has_moved_meanwhile() {
    let mut model = showing(seen(some(), None));
    types(&mut model, "d");
    loaded(&mut model, seen(vec![observer("another", "Processing", "")], None));
    assert_eq!(types(&mut model, "y"), [wish(Focus::Observers, "feed-1", Verb::Delete)]);
}

#[test]
fn the_selection_stays_with_what_was_selected() {
    let mut model = showing(seen(some(), None));
    press(&mut model, KeyCode::Down);
    let mut later = some();
    later.insert(0, observer("an-earlier-one", "Created", ""));
    model.on(Input::Changed);
    loaded(&mut model, seen(later, None));
    assert_eq!(model.selected(Focus::Observers), Some(target(Focus::Observers, "feed-2")));
    model.on(Input::Changed);
    loaded(&mut model, seen(vec![], None));
    assert_eq!(model.selected(Focus::Observers), None);
    assert_eq!(types(&mut model, "pd"), [], "nothing is selected");
}

#[test]
fn pages_are_turned_by_their_cursors_and_back() {
    let mut model = showing(seen(some(), Some("c1")));
    press(&mut model, KeyCode::Down);
    press(&mut model, KeyCode::Down);
    let second = Query { rows: 20, pages: vec![("c1".to_owned(), 3)], ..Query::default() };
    assert_eq!(press(&mut model, KeyCode::Down), [Effect::Load(second.clone())]);
    assert_eq!(press(&mut model, KeyCode::Down), [], "the page is on its way");
    assert_eq!(press(&mut model, KeyCode::PageDown), []);
    loaded(&mut model, seen(vec![observer("feed-4", "Processing", "")], None));
    assert_eq!(
        (model.before(), model.selected(Focus::Observers)),
        (3, Some(target(Focus::Observers, "feed-4")))
    );
    assert_eq!(press(&mut model, KeyCode::PageDown), [], "it is the last");
    let first = Query { rows: 20, ..Query::default() };
    assert_eq!(press(&mut model, KeyCode::Up), [Effect::Load(first.clone())]);
    loaded(&mut model, seen(some(), Some("c1")));
    assert_eq!(
        model.selected(Focus::Observers),
        Some(target(Focus::Observers, "feed-3")),
        "the last of the page"
    );
    // If a page has become empty, the model goes back to the previous page.
    press(&mut model, KeyCode::PageDown);
    assert_eq!(loaded(&mut model, seen(vec![], None)), [Effect::Load(first)]);
}

#[test]
fn one_load_is_under_way_at_a_time_and_old_answers_are_not_shown() {
    let mut model = showing(seen(some(), None));
    let old = model.query.clone();
    assert_eq!(model.on(Input::Changed), [Effect::Load(old.clone())]);
    assert_eq!(model.on(Input::Changed), []);
    assert_eq!(types(&mut model, "s"), []);
    let sorted = Query { sort: Sort::Health, ..old.clone() };
    let late = seen(vec![observer("late", "Created", "")], None);
    assert_eq!(model.on(Input::Loaded(old, Ok(Box::new(late)))), [Effect::Load(sorted)]);
    assert_eq!(
        model.seen.as_ref().map(|seen| seen.observers.items.len()),
        Some(3),
        "the old answer is not shown"
    );
    assert_eq!(loaded(&mut model, seen(some(), None)), []);
}

#[test]
fn a_filter_is_typed_taken_back_and_taken_away() {
    let mut model = showing(seen(some(), None));
    types(&mut model, "/feex");
    press(&mut model, KeyCode::Backspace);
    types(&mut model, "d q");
    let filtered = Query { rows: 20, filter: "feed q".to_owned(), ..Query::default() };
    assert_eq!(press(&mut model, KeyCode::Enter), [Effect::Load(filtered)]);
    loaded(&mut model, seen(some(), None));
    types(&mut model, "/never");
    assert_eq!(press(&mut model, KeyCode::Esc), []);
    assert_eq!(model.query.filter, "feed q", "that was only typed");
    assert_eq!(press(&mut model, KeyCode::Esc), [Effect::Load(Query { rows: 20, ..Query::default() })]);
    loaded(&mut model, seen(some(), None));
    press(&mut model, KeyCode::Tab);
    let of_service = Query { rows: 20, filter: "service=amber".to_owned(), ..Query::default() };
    assert_eq!(types(&mut model, "o"), [Effect::Load(of_service)]);
}

#[test]
fn one_key_chooses_the_order_and_begins_again_after_the_last() {
    let mut model = showing(seen(some(), None));
    let mut orders = Vec::new();
    for _ in 0..6 {
        types(&mut model, "s");
        loaded(&mut model, seen(some(), None));
        orders.push(model.query.sort.words().1);
    }
    assert_eq!(
        orders,
        ["by health", "by restarts", "newest first", "oldest first", "by name, backwards", "by name"]
    );
}

#[test]
fn a_filter_that_is_refused_is_told_and_what_was_seen_stays() {
    let mut model = showing(seen(some(), None));
    types(&mut model, "/status=Tired");
    press(&mut model, KeyCode::Enter);
    let query = model.query.clone();
    model.on(Input::Loaded(query, Err(Trouble::Refused("`Tired` is not a status".to_owned()))));
    assert_eq!(model.said, Some(Said::Badly("filter status=Tired: `Tired` is not a status".to_owned())));
    assert_eq!((model.seen.is_some(), &model.link), (true, &Link::Up));
}

#[test]
fn a_filter_that_is_refused_leaves_the_one_before_in_force() {
    let mut model = showing(seen(some(), None));
    types(&mut model, "/feed");
    press(&mut model, KeyCode::Enter);
    loaded(&mut model, seen(some(), None));
    types(&mut model, "/ status=Tired");
    press(&mut model, KeyCode::Enter);
    let refused = model.query.clone();
    let why = || Err(Trouble::Refused("`Tired` is not a status".to_owned()));
    model.on(Input::Loaded(refused.clone(), why()));
    let former = Query { rows: 20, filter: "feed".to_owned(), ..Query::default() };
    assert_eq!((&model.query, model.is_turning()), (&former, false));
    assert_eq!(model.on(Input::Changed), [Effect::Load(former)]);
    // A filter that the user has chosen meanwhile stays.
    types(&mut model, "/x");
    press(&mut model, KeyCode::Enter);
    model.on(Input::Loaded(refused, why()));
    assert_eq!(model.query.filter, "feedx");
}

#[test]
fn a_lost_connection_is_told_from_its_beginning_and_ends_with_an_answer() {
    let mut model = showing(seen(some(), None));
    let lost = || Err(Trouble::Unreachable("nobody there".to_owned()));
    for later in [5, 9] {
        model.on(Input::Changed);
        let query = model.query.clone();
        assert_eq!(model.on(Input::Loaded(query, lost())), [], "the next look is the retry");
        assert_eq!(model.link, Link::Lost { since: NOW, why: "nobody there".to_owned() });
        model.on(Input::Tick(Timestamp(NOW.0 + later * 1000)));
    }
    assert!(model.seen.is_some(), "what was seen last stays");
    model.on(Input::Changed);
    loaded(&mut model, seen(some(), None));
    assert_eq!(model.link, Link::Up);
}

#[test]
fn details_are_asked_for_again_with_every_look_and_left_by_escape() {
    let mut model = showing(seen(some(), None));
    let about = target(Focus::Observers, "feed-1");
    assert_eq!(press(&mut model, KeyCode::Enter), [Effect::Describe(about.clone())]);
    model.on(Input::Described(about.clone(), Ok("one\ntwo\nthree".to_owned())));
    for _ in 0..9 {
        press(&mut model, KeyCode::Down);
    }
    assert!(matches!(model.mode, Mode::Details { from: 2, .. }), "{:?}", model.mode);
    model.on(Input::Changed);
    assert_eq!(loaded(&mut model, seen(some(), None)), [Effect::Describe(about.clone())]);
    model.on(Input::Described(about.clone(), Err(Trouble::Unreachable("x".to_owned()))));
    assert!(
        matches!(&model.mode, Mode::Details { text, .. } if text.starts_with("one")),
        "the last word stays"
    );
    press(&mut model, KeyCode::Esc);
    model.on(Input::Changed);
    assert_eq!(loaded(&mut model, seen(some(), None)), []);
    assert_eq!(model.mode, Mode::Browse);
}

#[test]
fn an_observer_that_has_ended_is_not_paused() {
    let mut model = showing(seen(some(), None));
    assert_eq!(types(&mut model, "jjp"), []);
    let told = "feed-3 has ended, so there is nothing to pause";
    assert_eq!((&model.mode, &model.said), (&Mode::Browse, &Some(Said::Badly(told.to_owned()))));
}

#[test]
fn what_was_done_is_told_for_a_while_and_not_too_much_is_under_way() {
    let mut model = showing(seen(some(), None));
    let asked = Wish { target: target(Focus::Observers, "feed-1"), verb: Verb::Resume, to: None };
    assert_eq!(types(&mut model, "rrrrrrrrrr").len(), 8);
    assert!(matches!(&model.said, Some(Said::Badly(why)) if why.contains("under way")));
    let told = "observer feed-1 resumes (Created)";
    model.on(Input::Done(asked.clone(), Ok(told.to_owned())));
    assert_eq!(model.said, Some(Said::Well(told.to_owned())));
    assert_eq!(types(&mut model, "r").len(), 1);
    model.on(Input::Tick(Timestamp(NOW.0 + 5_000)));
    assert_eq!(model.said, None);
    model.on(Input::Done(asked, Err(Trouble::Refused("it is running".to_owned()))));
    model.on(Input::Tick(Timestamp(NOW.0 + 19_000)));
    assert_eq!(
        model.said,
        Some(Said::Badly("resume feed-1: it is running".to_owned())),
        "errors stay longer"
    );
    model.on(Input::Tick(Timestamp(NOW.0 + 20_000)));
    assert_eq!(model.said, None);
}

#[test]
fn a_message_vanishes_with_the_next_key() {
    let mut model = showing(seen(some(), None));
    press(&mut model, KeyCode::Tab);
    types(&mut model, "u");
    assert_eq!(model.said, Some(Said::Well("uncordon amber …".to_owned())));
    press(&mut model, KeyCode::Down);
    assert_eq!(model.said, None);
}

#[test]
fn control_c_quits_wherever_it_is_pressed() {
    for before in ["", "/fil", "d", "?"] {
        let mut model = showing(seen(some(), None));
        types(&mut model, before);
        let key = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
        assert_eq!(model.on(Input::Key(key)), [Effect::Quit], "{before}");
    }
}

#[test]
fn slots_that_are_no_capacity_are_not_counted_as_free() {
    let mut it = seen(some(), None);
    (it.stats.held, it.stats.capacity, it.pools[0].free) = (9, 20, Some(11));
    assert!(drawn(&mut showing(it.clone()), (100, 24)).contains("9 of 20 held"));
    // A service is silent: it holds five.
    it.pools[0].free = Some(16);
    assert!(drawn(&mut showing(it), (100, 24)).contains("9 held, 16 free"));
}

#[test]
fn what_could_be_lost_is_about_the_worst_pool_that_is_used() {
    let mut it = seen(some(), None);
    assert_eq!(it.spare(), Some(1));
    it.pools.push(Pool { name: "idle".to_owned(), needed: 0, failure_tolerance: Some(0), ..Pool::default() });
    assert_eq!(it.spare(), Some(1), "a pool that nobody uses loses nothing");
    it.pools.push(Pool {
        name: "other".to_owned(),
        needed: 1,
        failure_tolerance: Some(0),
        ..Pool::default()
    });
    assert_eq!(it.spare(), Some(0));
}
