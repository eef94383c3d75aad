//! The events of each step of an observer, and the timing of its moves.

use super::*;
use crate::id::ObserverId;
use crate::observer::definition::ObserverDefinition;
use crate::record::due::due_step;
use crate::record::row_policy::RowPolicy;
use crate::wire::report::{RunEvent, RunReport};
use serde_json::json;
use uuid::Uuid;

fn at(secs: i64) -> Timestamp {
    Timestamp(secs * 1000)
}
fn row() -> Row {
    let definition = ObserverDefinition::parse(json!({"kind": "ticker"}), &Name::new("a").unwrap()).unwrap();
    Row::created(ObserverId(Uuid::from_u128(1)), definition, at(0), &RowPolicy::default())
}
/// Changes the row and returns the events as text.
fn tell(row: &mut Row, change: impl FnOnce(&mut Row)) -> Vec<String> {
    let before = row.clone();
    change(row);
    let line = |it: RowEvent| format!("{} {} {}", it.kind, it.epoch, it.text).trim().to_owned();
    happenings(Some(&before), row).into_iter().map(line).collect()
}
fn hear(row: &mut Row, (acquisitions, seq): (u32, u64), event: RunEvent) -> Vec<String> {
    let epoch = Epoch::new(row.generation, acquisitions);
    let report = RunReport { id: row.id, epoch, event };
    let service = ServiceId(Uuid::from_u128(u128::from(acquisitions)));
    let now = at(i64::try_from(seq).unwrap());
    tell(row, |row| {
        row.apply(service, seq, now, &report, now);
    })
}
fn started(attempt: u32, secs: i64) -> RunEvent {
    RunEvent::Started { attempt, started_at: at(secs) }
}

#[test]
fn each_step_of_an_observer_yields_its_event() {
    let mut row = row();
    assert_eq!(happenings(None, &row)[0].text, "kind ticker in pool default");
    assert_eq!(hear(&mut row, (0, 1), started(1, 1)), ["started 1.0 attempt 1"]);
    assert!(hear(&mut row, (0, 1), started(1, 1)).is_empty(), "a repeated report causes no event");
    let errored = RunEvent::Errored { attempt: 1, error: "e".into(), next_at: at(3) };
    assert_eq!(hear(&mut row, (0, 2), errored), ["errored 1.0 e"]);
    assert_eq!(hear(&mut row, (0, 3), started(2, 3)), ["restarted 1.0 attempt 2"]);
    assert_eq!(hear(&mut row, (0, 4), RunEvent::HandedOver), ["handed_over 1.0"]);
    assert!(hear(&mut row, (1, 1), RunEvent::Held { reason: "r".into(), refuses: false }).is_empty());
    assert_eq!(hear(&mut row, (1, 2), started(1, 5)), ["started 1.1 attempt 1"]);
    let policy = RowPolicy::default();
    assert_eq!(
        tell(&mut row, |row| assert_eq!(row.restart(at(6), &policy), Ok(true))),
        ["restart_requested 1.1"]
    );
    assert_eq!(hear(&mut row, (1, 3), RunEvent::Stopped), ["stopped 1.1"]);
    let again = tell(&mut row, |row| *row = due_step(row, at(7), &policy).unwrap().row().unwrap().clone());
    assert_eq!(again, ["republished 2.0 its former run has ended"]);
    assert_eq!(tell(&mut row, |row| assert!(row.delete(at(8), &policy))), ["delete_requested 2.0"]);
    assert_eq!(hear(&mut row, (0, 9), RunEvent::Stopped), ["stopped 2.0", "deleted 2.0"]);
}

#[test]
fn an_end_by_a_manager_names_the_newest_run_and_no_service() {
    let mut row = row();
    for (acquisitions, seq) in [(0, 1), (1, 2), (2, 3)] {
        hear(&mut row, (acquisitions, seq), started(1, 1));
    }
    let before = row.clone();
    let death = |run| crate::failure::quarantine::Death {
        name: Name::new("s").unwrap(),
        at: at(4),
        run: Epoch::new(1, run),
    };
    let deaths = (0..2).map(|run| (ServiceId(Uuid::from_u128(run.into())), death(run))).collect();
    assert!(row.quarantine(&deaths, at(5)));
    let [failed] = &happenings(Some(&before), &row)[..] else { panic!("one event") };
    assert_eq!((failed.kind, failed.epoch, failed.service), (EventKind::Failed, Epoch::new(1, 2), None));
    assert_eq!(failed.at, at(5));
}

#[test]
fn every_event_kind_round_trips() {
    for what in EventKind::ALL {
        assert_eq!(what.as_str().parse(), Ok(*what));
        assert_eq!(serde_json::to_value(what).unwrap(), what.as_str());
    }
    assert!("moved".parse::<EventKind>().unwrap_err().contains("started"));
    let near = "`strted` is not an event; did you mean started?";
    assert_eq!("strted".parse::<EventKind>(), Err(near.to_owned()));
}

#[test]
fn a_move_has_a_gap_or_an_overlap() {
    let mut row = row();
    hear(&mut row, (0, 1), started(1, 1));
    hear(&mut row, (1, 2), RunEvent::Held { reason: "r".into(), refuses: false });
    hear(&mut row, (1, 3), started(1, 20));
    let earlier = row.observed.before.clone().unwrap();
    assert_eq!((earlier.key.acquisitions, earlier.over), (0, false));
    let seconds = |it: Move| (it.gap.as_secs(), it.overlap.as_secs());
    assert_eq!(seconds(moved(&earlier, Some(at(12)), at(20))), (8, 0), "killed, last heard of at 12");
    assert!(moved(&earlier, Some(at(12)), at(20)).gap_is_bound, "it may have lived for longer");
    assert_eq!(seconds(moved(&earlier, Some(at(23)), at(20))), (0, 3), "its service lived on");
    assert_eq!(seconds(moved(&earlier, None, at(20))), (19, 0), "only its own report counts");
    hear(&mut row, (0, 15), RunEvent::HandedOver);
    let earlier = row.observed.before.clone().unwrap();
    assert_eq!(seconds(moved(&earlier, Some(at(99)), at(20))), (5, 0), "it reported when it ended");
    assert!(!moved(&earlier, Some(at(99)), at(20)).gap_is_bound);
}
