//! Tests of a service that is lost: its row, and the line about the incident.

use super::drawing::drawn;
use super::*;
use crate::live;
use crate::top::model::{Mode, Said};
use everwatch_api::Incident;
use serde_json::json;

/// Basalt was lost 20 s ago; so many of its observers do not run yet.
fn incident(cause: &str, since: i64, waiting: u64) -> Incident {
    serde_json::from_value(json!({
        "from": "basalt", "cause": cause, "since": ago(since), "until": (waiting == 0).then(|| ago(since - 1)), "moved": 6,
        "waiting": waiting, "to": {"amber": 4, "chalk": 2}, "to_others": 0, "gap_ms_median": 20, "gap_ms_p99": 900,
        "gap_ms_max": 1100, "gap_is_bound": true, "overlap_ms_max": 0,
    }))
    .unwrap()
}

/// Basalt was lost, and lives again under a new id.
fn after_the_loss() -> Seen {
    let mut it = seen(some(), None);
    it.services[1].id = "id-of-another-basalt".to_owned();
    it.services.insert(2, service("basalt", "lost", 0, 20));
    it
}

fn later(model: &mut Model, secs: i64) -> Vec<Effect> {
    model.on(Input::Tick(Timestamp(NOW.0 + secs * 1000)))
}

/// A model that has read the incidents once, at its start.
fn watching() -> Model {
    let mut model = Model::new("http://127.0.0.1:7700", NOW);
    model.on(Input::Rows(20));
    assert_eq!(loaded(&mut model, seen(some(), None)), [Effect::Incidents], "there may be one of before");
    assert_eq!(model.on(Input::Incidents(Some(vec![]))), []);
    model
}

#[test]
fn a_lost_service_stays_in_the_list_and_the_incident_is_told() {
    let mut model = watching();
    loaded(&mut model, after_the_loss());
    model.on(Input::Incidents(Some(vec![incident("lost", 20, 0)])));
    let over = format!("{}\n{}", drawn(&mut model, (80, 24)), drawn(&mut model, (120, 40)));
    model.on(Input::Incidents(Some(vec![incident("lost", 20, 3)])));
    insta::assert_snapshot!(format!("{over}\n{}", drawn(&mut model, (120, 14))));
}

#[test]
fn the_row_of_a_loss_tells_the_time_of_its_incident() {
    let mut model = watching();
    // Its last heartbeat came 24 s ago, another sign of life 20 s ago; managers knew of the loss 19 s ago.
    let mut seen = after_the_loss();
    (seen.services[2].last_heartbeat_at, seen.services[2].modified_at) = (ago(24), ago(19));
    loaded(&mut model, seen);
    let earlier = incident("lost", 60, 0);
    model.on(Input::Incidents(Some(vec![earlier.clone(), incident("lost", 20, 0)])));
    assert!(drawn(&mut model, (120, 40)).contains("lost 20s ago, back"));
    model.on(Input::Incidents(Some(vec![earlier])));
    assert!(drawn(&mut model, (120, 40)).contains("lost 19s ago, back"), "it held no observer");
}

#[test]
fn incidents_are_read_again_after_the_connection_was_lost() {
    let mut model = watching();
    model.on(Input::Incidents(Some(vec![incident("lost", 20, 0)])));
    later(&mut model, 30);
    model.on(Input::Loaded(model.query.clone(), Err(Trouble::Unreachable("refused".to_owned()))));
    assert_eq!(loaded(&mut model, seen(some(), None)), [Effect::Incidents], "it may be another manager");
    model.on(Input::Incidents(Some(vec![])));
    assert!(model.incidents.shown(model.now, false).is_none());
}

#[test]
fn incidents_are_read_for_some_seconds_after_a_change_and_not_otherwise() {
    let mut model = watching();
    let none = || Input::Incidents(Some(vec![]));
    // After the start.
    assert_eq!(later(&mut model, 1), [Effect::Incidents]);
    assert_eq!(later(&mut model, 4), [], "one request is in progress at a time");
    model.on(none());
    for (at, expected) in [(5, 1), (6, 1), (7, 0), (8, 0), (60, 0)] {
        assert_eq!(later(&mut model, at).len(), expected, "{at} s");
        // What services hold is read more often meanwhile.
        assert_eq!(model.look_every() < live::LOOK_EVERY, at <= 6, "{at} s");
        model.on(none());
    }
    model.on(Input::Changed);
    assert_eq!(loaded(&mut model, seen(some(), None)), [], "nothing has changed");
    model.on(Input::Changed);
    assert_eq!(loaded(&mut model, after_the_loss()), [Effect::Incidents], "a service was lost");
    model.on(none());
    later(&mut model, 80);
    let mut moved = after_the_loss();
    moved.observers.items[0].service = Some(Named { name: "chalk".to_owned() });
    model.on(Input::Changed);
    assert_eq!(loaded(&mut model, moved.clone()), [Effect::Incidents], "an observer runs elsewhere");
    model.on(none());
    later(&mut model, 100);
    moved.observers.items = vec![observer("another", "Processing", "")];
    model.on(Input::Changed);
    assert_eq!(loaded(&mut model, moved), [], "another page is no change");
}

#[test]
fn the_list_and_the_last_incident_change_together() {
    let mut model = watching();
    let told = |model: &mut Model| (model.services().len(), drawn(model, (120, 24)).contains("basalt lost"));
    model.on(Input::Changed);
    assert_eq!(loaded(&mut model, after_the_loss()), [Effect::Incidents]);
    assert_eq!(told(&mut model), (4, false), "the incidents are not read yet");
    model.on(Input::Changed);
    assert_eq!(loaded(&mut model, after_the_loss()), [], "one request is in progress at a time");
    assert_eq!(told(&mut model), (4, false));
    model.on(Input::Incidents(Some(vec![incident("lost", 20, 0)])));
    assert_eq!(told(&mut model), (5, true));
    model.on(Input::Changed);
    assert_eq!(
        loaded(&mut model, after_the_loss()),
        [Effect::Incidents],
        "the next load has its own incidents"
    );
    model.on(Input::Incidents(None));
    assert_eq!(told(&mut model), (5, true), "the manager does not answer: the list goes on");
}

#[test]
fn what_waits_for_incidents_does_not_replace_another_filter() {
    let mut model = watching();
    model.on(Input::Changed);
    assert_eq!(loaded(&mut model, after_the_loss()), [Effect::Incidents]);
    types(&mut model, "/feed-2");
    press(&mut model, KeyCode::Enter);
    let found = Seen { observers: seen(vec![some().remove(1)], None).observers, ..after_the_loss() };
    loaded(&mut model, found);
    let names = |model: &Model| {
        let items = &model.seen.as_ref().unwrap().observers.items;
        items.iter().map(|it| it.name.clone()).collect::<Vec<_>>()
    };
    assert_eq!(names(&model), ["feed-2"], "another filter is shown at once");
    model.on(Input::Incidents(Some(vec![])));
    assert_eq!(names(&model), ["feed-2"]);
}

#[test]
fn an_open_incident_is_read_again_and_a_failure_ends_that_until_the_next_change() {
    let mut model = watching();
    later(&mut model, 2);
    model.on(Input::Incidents(Some(vec![incident("unknown", 20, 2)])));
    assert_eq!(later(&mut model, 11), []);
    assert_eq!(later(&mut model, 12), [Effect::Incidents]);
    model.on(Input::Incidents(Some(vec![incident("lost", 20, 0)])));
    assert_eq!(later(&mut model, 30), []);
    model.on(Input::Changed);
    loaded(&mut model, after_the_loss());
    model.on(Input::Incidents(None));
    assert_eq!(later(&mut model, 33), [], "the role does not permit it, or no manager answers");
    assert!(model.incidents.shown(model.now, false).is_some(), "the last one stays");
}

#[test]
fn a_loss_is_not_hidden_by_later_moves_and_is_told_for_some_minutes() {
    let mut model = watching();
    let moves = Incident { from: "chalk".to_owned(), ..incident("handed_over", 5, 0) };
    model.on(Input::Incidents(Some(vec![incident("lost", 60, 0), incident("lost", 20, 0), moves.clone()])));
    let shown =
        |model: &Model| model.incidents.shown(model.now, false).map(|it| (it.cause.clone(), it.since));
    assert_eq!(shown(&model), Some(("lost".to_owned(), ago(20))));
    model.on(Input::Incidents(Some(vec![moves])));
    assert_eq!(shown(&model), Some(("handed_over".to_owned(), ago(5))));
    later(&mut model, 175);
    assert!(shown(&model).is_some());
    later(&mut model, 176);
    assert_eq!(shown(&model), None);
}

#[test]
fn warnings_and_answers_stand_before_the_incident() {
    let mut model = watching();
    model.on(Input::Incidents(Some(vec![incident("lost", 20, 0)])));
    model.say(Said::Well("observer feed-1 resumes (Created)".to_owned()));
    let answered = drawn(&mut model, (120, 24));
    assert!(answered.contains("resumes") && !answered.contains("basalt lost"), "{answered}");
    let mut it = seen(some(), None);
    it.safe_mode = SafeMode { on: true, reason: String::new() };
    it.pools[0].paused = true;
    model.said = None;
    model.on(Input::Changed);
    loaded(&mut model, it);
    model.on(Input::Incidents(Some(vec![incident("lost", 20, 0)])));
    let warned = drawn(&mut model, (120, 24));
    assert!(warned.contains("safe mode: ") && !warned.contains("basalt lost"), "{warned}");
    assert!(warned.lines().next().unwrap().contains("safe mode, pool default paused"), "{warned}");
}

#[test]
fn services_that_were_lost_take_no_part_in_the_capacity() {
    let mut model = watching();
    let mut it = after_the_loss();
    it.services.remove(1);
    it.stats.services.insert("active".to_owned(), 3);
    model.on(Input::Changed);
    loaded(&mut model, it);
    model.on(Input::Incidents(Some(vec![])));
    let drawn = drawn(&mut model, (120, 24));
    assert!(drawn.contains("1 service could be lost") && drawn.contains("Services 3, 1 lost"), "{drawn}");
}

#[test]
fn the_ids_of_all_services_on_the_screen_are_known() {
    let mut model = Model::new("http://127.0.0.1:7700", NOW);
    assert!(model.services().is_empty());
    model.on(Input::Rows(20));
    loaded(&mut model, after_the_loss());
    assert_eq!(model.services().len(), 5);
    assert_eq!(model.mode, Mode::Browse);
}

#[test]
fn a_lost_service_takes_no_orders_and_the_next_one_of_its_name_is_selected() {
    let mut model = watching();
    model.focus = Focus::Services;
    model.service = 1;
    loaded(&mut model, after_the_loss());
    model.on(Input::Incidents(Some(vec![])));
    let selected = |model: &Model| model.selected(Focus::Services).unwrap().id;
    assert_eq!(selected(&model), "id-of-another-basalt");
    model.service = 2;
    for letter in ['c', 'u', 'D'] {
        assert_eq!(press(&mut model, KeyCode::Char(letter)), []);
        assert_eq!(model.mode, Mode::Browse);
        assert!(
            matches!(&model.said, Some(Said::Badly(why)) if why.starts_with("basalt was lost at ")),
            "{:?}",
            model.said
        );
    }
    // A row that the user has selected stays selected.
    let lost = selected(&model);
    model.on(Input::Changed);
    loaded(&mut model, after_the_loss());
    model.on(Input::Incidents(Some(vec![])));
    assert_eq!(selected(&model), lost);
}

#[test]
fn control_keys_edit_a_filter_as_in_shells() {
    let mut model = watching();
    types(&mut model, "/app=x team=y");
    let mut control = |letter| {
        model.on(Input::Key(KeyEvent::new(KeyCode::Char(letter), KeyModifiers::CONTROL)));
        model.mode.clone()
    };
    assert_eq!(control('w'), Mode::Typing("app=x ".to_owned()));
    assert_eq!(control('u'), Mode::Typing(String::new()));
}

#[test]
fn the_selection_stays_with_the_name_of_a_service_that_is_lost_and_comes_back() {
    let mut model = watching();
    press(&mut model, KeyCode::Tab);
    press(&mut model, KeyCode::Down);
    let selected = |model: &Model| model.selected(Focus::Services).unwrap();
    let show = |model: &mut Model, seen: Seen| {
        model.on(Input::Changed);
        loaded(model, seen);
        model.on(Input::Incidents(Some(vec![])));
    };
    assert_eq!(selected(&model).name, "basalt");
    // Its row is the last one until its next process has registered, which has another id.
    let mut gone = seen(some(), None);
    gone.services.remove(1);
    gone.services.push(service("basalt", "lost", 0, 20));
    show(&mut model, gone);
    assert!(model.selected_service().is_some_and(Service::is_lost));
    assert_eq!(selected(&model).name, "basalt", "an order would reach another service");
    show(&mut model, after_the_loss());
    assert_eq!(selected(&model).id, "id-of-another-basalt");
    // A user who selects the row of the loss stays there.
    press(&mut model, KeyCode::Down);
    let lost = selected(&model);
    show(&mut model, after_the_loss());
    assert_eq!(selected(&model), lost);
}

#[test]
fn the_worst_finding_of_the_doctor_is_told_unless_there_is_news() {
    let mut model = watching();
    let finding = |code: &str, severity: &str, what: &str| -> everwatch_api::Finding {
        let it =
            json!({"code": code, "severity": severity, "subject": "", "what": what, "why": "", "cure": ""});
        serde_json::from_value(it).unwrap()
    };
    let found = vec![
        finding("too-little-capacity", "critical", "pool default needs 13 slots and has 10"),
        finding("crash-loop", "warning", "crashes fails again and again"),
    ];
    assert_eq!(model.on(Input::Problems(found)), []);
    let told = "2 problems (`everwatch doctor`): pool default needs 13 slots and has 10";
    assert!(drawn(&mut model, (100, 24)).contains(told));
    loaded(&mut model, after_the_loss());
    model.on(Input::Incidents(Some(vec![incident("lost", 20, 0)])));
    assert!(!drawn(&mut model, (100, 24)).contains(told), "the loss is news");
    later(&mut model, 40);
    assert!(drawn(&mut model, (100, 24)).contains(told), "all observers have run again for half a minute");
    // Rows know newer numbers.
    let loops = "observer a (7 restarts) and b (1 restart) end with errors again and again (soon)";
    model.on(Input::Problems(vec![finding("crash-loop", "warning", loops)]));
    let shown = drawn(&mut model, (100, 24));
    assert!(shown.contains("observer a and b end with errors again and again (soon)"), "{shown}");
    model.on(Input::Problems(vec![]));
    assert!(!drawn(&mut model, (100, 24)).contains("problem"));
}
