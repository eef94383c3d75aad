//! Tests of the views in place of the lists, as transcripts: keys and answers, and the effects.

use super::*;
use crate::output::Tone;
use crate::top::body::Body;
use crate::top::feed::{Feed, FeedPart, FeedState, Row, Subject};
use crate::top::model::{Mode, Said};
use crate::top::timeline::Span;

fn log_of(name: &str) -> Subject {
    Subject::Log(target(Focus::Observers, name))
}

fn arrives(model: &mut Model, subject: &Subject, texts: &[&str]) {
    let rows = texts.iter().map(|text| Row::new(Tone::Plain, text)).collect();
    let parts = [FeedPart::State(FeedState::Open), FeedPart::Rows(rows)];
    for part in parts {
        assert_eq!(model.on(Input::Fed(subject.clone(), part)), []);
    }
}

fn feed(model: &Model) -> &Feed {
    match &model.body {
        Body::Feed(feed) => feed,
        other => panic!("no feed is open: {other:?}"),
    }
}

fn visible(model: &Model) -> Vec<String> {
    feed(model).visible().into_iter().map(|(_, text)| text).collect()
}

/// A model whose views have three lines.
fn small() -> Model {
    let mut model = showing(seen(some(), None));
    assert_eq!(model.on(Input::Room(40, 3)), []);
    model
}

#[test]
fn a_log_is_followed_read_back_and_left() {
    let mut model = small();
    let log = log_of("feed-1");
    assert_eq!(types(&mut model, "l"), [Effect::Follow(log.clone())]);
    arrives(&mut model, &log, &["a", "b", "c", "d"]);
    assert_eq!(visible(&model), ["b", "c", "d"]);
    press(&mut model, KeyCode::Up);
    assert_eq!(feed(&model).progress(), "paused, 1 line below");
    arrives(&mut model, &log, &["e"]);
    assert_eq!(visible(&model), ["a", "b", "c"]);
    assert_eq!(feed(&model).progress(), "paused, 2 lines below");
    assert_eq!(types(&mut model, "f"), []);
    arrives(&mut model, &log, &["f"]);
    assert_eq!(
        (visible(&model), feed(&model).progress()),
        (vec!["d", "e", "f"].into_iter().map(str::to_owned).collect(), "following".to_owned())
    );
    press(&mut model, KeyCode::Home);
    assert_eq!(visible(&model), ["a", "b", "c"]);
    press(&mut model, KeyCode::End);
    assert_eq!(visible(&model), ["d", "e", "f"]);
    // The lists are loaded meanwhile, and keys of the lists do nothing.
    assert_eq!(types(&mut model, "dpR/s"), []);
    assert_eq!(model.mode, Mode::Browse);
    assert_eq!(press(&mut model, KeyCode::Esc), [Effect::Unfollow]);
    arrives(&mut model, &log, &["late"]);
    assert!(matches!(model.body, Body::Lists));
    assert_eq!(model.selected(Focus::Observers), Some(target(Focus::Observers, "feed-1")));
}

#[test]
fn a_log_stays_with_its_observer_though_the_lists_move() {
    let mut model = small();
    let log = log_of("feed-1");
    types(&mut model, "l");
    loaded(&mut model, seen(vec![observer("another", "Processing", "")], None));
    arrives(&mut model, &log, &["a"]);
    assert_eq!(visible(&model), ["a"]);
    arrives(&mut model, &log_of("another"), &["of another"]);
    assert_eq!(visible(&model), ["a"], "rows of another subject are not shown");
}

#[test]
fn events_are_those_of_the_selected_row_or_of_all() {
    let mut model = small();
    let of = |what, name| Effect::Follow(Subject::Events(Some(target(what, name))));
    assert_eq!(types(&mut model, "e"), [of(Focus::Observers, "feed-1")]);
    assert_eq!(types(&mut model, "l"), [Effect::Follow(log_of("feed-1"))], "from the events to the log");
    assert_eq!(types(&mut model, "e"), [of(Focus::Observers, "feed-1")], "and back");
    assert_eq!(types(&mut model, "E"), [Effect::Follow(Subject::Events(None))]);
    assert_eq!(types(&mut model, "el"), [], "nothing is selected among all events");
    assert_eq!(types(&mut model, "q"), [Effect::Unfollow], "q goes back and does not quit");
    press(&mut model, KeyCode::Tab);
    assert_eq!(types(&mut model, "e"), [of(Focus::Services, "amber")]);
    press(&mut model, KeyCode::Esc);
    assert_eq!(types(&mut model, "l"), []);
    assert!(matches!(&model.said, Some(Said::Badly(why)) if why.contains("select one")), "{:?}", model.said);
    press(&mut model, KeyCode::Enter);
    assert_eq!(types(&mut model, "e"), [of(Focus::Services, "amber")], "from the details");
}

#[test]
fn nothing_is_opened_if_nothing_is_selected() {
    let mut model = showing(seen(vec![], None));
    assert_eq!(types(&mut model, "le"), []);
    assert!(matches!(model.body, Body::Lists));
}

#[test]
fn the_help_lies_over_a_view_that_goes_on() {
    let mut model = small();
    let log = log_of("feed-1");
    types(&mut model, "l?");
    assert_eq!(model.mode, Mode::Help);
    arrives(&mut model, &log, &["a"]);
    assert_eq!(press(&mut model, KeyCode::Esc), [], "this closes the help only");
    assert_eq!(visible(&model), ["a"]);
}

#[test]
fn a_failure_is_shown_in_the_view_and_ends_nothing() {
    let mut model = small();
    let log = log_of("feed-1");
    types(&mut model, "l");
    let parts = [
        FeedPart::State(FeedState::Failed),
        FeedPart::Rows(vec![Row::note(Tone::Bad, "the role viewer does not permit logs:read")]),
    ];
    for part in parts {
        assert_eq!(model.on(Input::Fed(log.clone(), part)), []);
    }
    assert_eq!(visible(&model), ["— the role viewer does not permit", "  logs:read —"]);
    assert_eq!(feed(&model).progress(), "failed");
    assert_eq!(press(&mut model, KeyCode::Esc), [Effect::Unfollow]);
}

fn lines(text: &str) -> Result<Vec<crate::output::TonedLine>, Trouble> {
    Ok(text.split(' ').map(|word| vec![(Tone::Plain, word.to_owned())]).collect())
}

fn shown(model: &Model) -> Vec<String> {
    match &model.body {
        Body::Timeline(it) => {
            let text = |line: crate::output::TonedLine| line.into_iter().map(|(_, text)| text).collect();
            it.visible().into_iter().map(text).collect()
        }
        other => panic!("no timeline is open: {other:?}"),
    }
}

#[test]
fn the_timeline_is_requested_for_a_span_and_again_when_it_is_old() {
    let mut model = small();
    assert_eq!(types(&mut model, "T"), [Effect::Timeline(Span::QuarterHour)]);
    assert_eq!(types(&mut model, "+"), [], "one request is in progress at a time");
    let effects = model.on(Input::Timeline(Span::QuarterHour, lines("old")));
    assert_eq!(effects, [Effect::Timeline(Span::Hour)]);
    assert_eq!(shown(&model), [""; 0], "the answer for another span is not shown");
    assert_eq!(model.on(Input::Timeline(Span::Hour, lines("a b c d"))), []);
    assert_eq!(shown(&model), ["a", "b", "c"]);
    press(&mut model, KeyCode::Down);
    press(&mut model, KeyCode::Down);
    assert_eq!(shown(&model), ["b", "c", "d"]);
    assert_eq!(model.on(Input::Tick(Timestamp(NOW.0 + 10_000))), []);
    assert_eq!(model.on(Input::Tick(Timestamp(NOW.0 + 15_000))), [Effect::Timeline(Span::Hour)]);
    model.on(Input::Timeline(Span::Hour, lines("e")));
    assert_eq!(shown(&model), ["e"]);
    assert_eq!(types(&mut model, "="), [Effect::Timeline(Span::Day)]);
    model.on(Input::Timeline(Span::Day, lines("day")));
    assert_eq!(types(&mut model, "T"), [], "it is open");
    assert_eq!(types(&mut model, "+"), []);
    let told = |model: &Model| match &model.said {
        Some(Said::Badly(why)) => why.clone(),
        other => panic!("{other:?}"),
    };
    assert!(told(&model).starts_with("24 hours are the longest"), "{}", told(&model));
    assert_eq!(types(&mut model, "-"), [Effect::Timeline(Span::Hour)]);
    assert_eq!(model.said, None);
    types(&mut model, "----");
    assert!(told(&model).starts_with("1 minute is the shortest"), "{}", told(&model));
    assert_eq!(press(&mut model, KeyCode::Esc), []);
    assert_eq!(model.on(Input::Tick(Timestamp(NOW.0 + 99_000))), [], "it is closed");
}

#[test]
fn a_timeline_that_fails_says_why_keeps_its_picture_and_tries_again() {
    let mut model = small();
    types(&mut model, "T");
    model.on(Input::Timeline(Span::QuarterHour, lines("a b")));
    model.on(Input::Tick(Timestamp(NOW.0 + 5_000)));
    let trouble = Trouble::Refused("the role viewer does not permit it: use another token".to_owned());
    assert_eq!(model.on(Input::Timeline(Span::QuarterHour, Err(trouble))), []);
    assert_eq!(shown(&model), ["the role viewer does not permit it: use", "  another token", "a"]);
    assert_eq!(model.on(Input::Tick(Timestamp(NOW.0 + 9_000))), [Effect::Timeline(Span::QuarterHour)]);
    // A picture is drawn for a width.
    model.on(Input::Timeline(Span::QuarterHour, lines("a b")));
    assert_eq!(model.on(Input::Room(40, 5)), []);
    assert_eq!(model.on(Input::Room(60, 5)), [Effect::Timeline(Span::QuarterHour)]);
}
