//! Every state of an observer's row with every event: the snapshot records the resulting status, reason and revocation,
//! so that a change of any pair shows.

use everwatch_core::clock::Timestamp;
use everwatch_core::epoch::Epoch;
use everwatch_core::id::{Name, ObserverId, ServiceId};
use everwatch_core::observer::definition::ObserverDefinition;
use everwatch_core::record::due::due_step;
use everwatch_core::record::row::Row;
use everwatch_core::record::row_policy::RowPolicy;
use everwatch_core::wire::report::{RunEvent, RunReport};
use serde_json::json;
use std::fmt::Write as _;
use uuid::Uuid;

fn at(secs: i64) -> Timestamp {
    Timestamp(secs * 1000)
}

fn hear(row: &mut Row, (acquisitions, seq): (u32, u64), event: RunEvent) {
    let epoch = Epoch::new(row.generation, acquisitions);
    let report = RunReport { id: row.id, epoch, event };
    row.apply(ServiceId(Uuid::from_u128(9)), seq, at(1), &report, at(1));
}
fn started() -> RunEvent {
    RunEvent::Started { attempt: 1, started_at: at(1) }
}
fn failed() -> RunEvent {
    RunEvent::Failed { error: "e".to_owned(), attempts: 2 }
}
fn errored() -> RunEvent {
    RunEvent::Errored { attempt: 1, error: "e".to_owned(), next_at: at(9) }
}
fn taken() -> RunEvent {
    RunEvent::Held { reason: "redelivered".to_owned(), refuses: false }
}
fn refused() -> RunEvent {
    RunEvent::Refused { why: "kind".to_owned() }
}

type Change = fn(&mut Row);

const RUN: (u32, u64) = (1, 5);
const LATER: (u32, u64) = (2, 1);
const EARLIER: (u32, u64) = (0, 9);

const STATES: [(&str, &[Change]); 13] = [
    ("created, to be published", &[]),
    (
        "created, published",
        &[|row| {
            row.confirmed(1, at(1));
        }],
    ),
    ("taken", &[|row| hear(row, RUN, taken())]),
    ("refused", &[|row| hear(row, RUN, refused())]),
    ("running", &[|row| hear(row, RUN, started())]),
    ("restarting", &[|row| hear(row, RUN, started()), |row| hear(row, (1, 6), errored())]),
    ("handed over", &[|row| hear(row, RUN, started()), |row| hear(row, (1, 6), RunEvent::HandedOver)]),
    (
        "told to stop before its publish",
        &[|row| {
            row.delete(at(1), &RowPolicy::default());
        }],
    ),
    (
        "told to stop",
        &[
            |row| hear(row, RUN, started()),
            |row| {
                row.delete(at(1), &RowPolicy::default());
            },
        ],
    ),
    (
        "deleted",
        &[
            |row| hear(row, RUN, started()),
            |row| {
                row.delete(at(1), &RowPolicy::default());
            },
            |row| hear(row, (1, 6), RunEvent::Stopped),
        ],
    ),
    ("stopped though wanted", &[|row| hear(row, RUN, RunEvent::Stopped)]),
    ("completed", &[|row| hear(row, RUN, RunEvent::Completed)]),
    ("failed", &[|row| hear(row, RUN, failed())]),
];

const EVENTS: [(&str, Change); 19] = [
    ("confirm of the publish", |row| {
        row.confirmed(row.generation, at(2));
    }),
    ("taken, later run", |row| hear(row, LATER, taken())),
    ("taken, earlier run", |row| hear(row, EARLIER, taken())),
    ("started, later run", |row| hear(row, LATER, started())),
    ("started, earlier run", |row| hear(row, EARLIER, started())),
    ("errored, later run", |row| hear(row, LATER, errored())),
    ("progress", |row| hear(row, (1, 7), RunEvent::Progress { text: "p".to_owned() })),
    ("handed over", |row| hear(row, (1, 7), RunEvent::HandedOver)),
    ("refused, later run", |row| hear(row, LATER, refused())),
    ("stopped, later run", |row| hear(row, LATER, RunEvent::Stopped)),
    ("stopped, earlier run", |row| hear(row, EARLIER, RunEvent::Stopped)),
    ("completed, later run", |row| hear(row, LATER, RunEvent::Completed)),
    ("completed, earlier run", |row| hear(row, EARLIER, RunEvent::Completed)),
    ("failed, later run", |row| hear(row, LATER, failed())),
    ("report of an older generation", |row| {
        let report = RunReport { id: row.id, epoch: Epoch::new(0, 3), event: started() };
        row.apply(ServiceId(Uuid::from_u128(8)), 1, at(2), &report, at(2));
    }),
    ("report of a newer generation", |row| {
        let report = RunReport { id: row.id, epoch: Epoch::new(row.generation + 1, 0), event: started() };
        row.apply(ServiceId(Uuid::from_u128(8)), 1, at(2), &report, at(2));
    }),
    ("delete", |row| {
        row.delete(at(2), &RowPolicy::default());
    }),
    ("retry", |row| {
        let _refused_or_not = row.retry(at(2), &RowPolicy::default());
    }),
    ("a pass after a minute", |row| {
        if let Some(next) = due_step(row, at(61), &RowPolicy::default()).and_then(|step| step.row().cloned())
        {
            *row = next;
        }
    }),
];

#[test]
fn every_state_with_every_event() {
    let mut table = String::new();
    for (state, path) in STATES {
        writeln!(table, "{state}").unwrap();
        for (event, change) in EVENTS {
            let definition =
                ObserverDefinition::parse(json!({"kind": "ticker"}), &Name::new("o").unwrap()).unwrap();
            let mut row =
                Row::created(ObserverId(Uuid::from_u128(1)), definition, at(0), &RowPolicy::default());
            path.iter().for_each(|step| step(&mut row));
            let before = row.clone();
            change(&mut row);
            let verdict = row.verdict();
            assert!(
                row.revocation().below >= before.revocation().below,
                "{state} + {event}: the revocation fell"
            );
            let reason = verdict.reason.to_string();
            let reason = if reason.is_empty() { "-".to_owned() } else { reason };
            let revocation = row.revocation().below;
            writeln!(table, "  + {event:29} -> {} | {reason} | revocation {revocation}", verdict.status)
                .unwrap();
        }
    }
    insta::assert_snapshot!(table);
}
