//! Every reason has one code, and every code is documented.

use super::*;
use crate::epoch::Epoch;
use crate::id::{Name, ObserverId, ServiceId};
use crate::observer::definition::ObserverDefinition;
use crate::record::health::MOVES_WITHIN;
use crate::record::row_policy::RowPolicy;
use crate::wire::report::{RunEvent, RunReport};
use serde_json::json;
use std::collections::BTreeSet;
use uuid::Uuid;

const NOW: Timestamp = Timestamp(1_000_000);

/// One example of each reason that a row can have.
fn reasons() -> Vec<Reason> {
    let held = |why: &str| Reason::Held { why: why.to_owned(), refuses: false };
    let (error, why) = (|| "e".to_owned(), || "w".to_owned());
    let mut all = vec![
        Reason::ToBePublished,
        Reason::WaitingForSlot { pool: "gpu".to_owned(), weight: 1, preempted: None },
        Reason::WaitingForLimit { key: "account-42".to_owned() },
        Reason::WaitingForRelease,
        Reason::Held { why: hold_reasons::START_RATE.to_owned(), refuses: true },
        held("something that a newer service says"),
        Reason::NotReady,
        Reason::Restarting { next_at: NOW },
        Reason::Unlisted,
        Reason::Moving,
        Reason::Refused { why: why() },
        Reason::NoServiceForKind { kind: "k".to_owned(), pool: "gpu".to_owned(), is_out: false },
        Reason::NoServiceForKind { kind: "k".to_owned(), pool: "gpu".to_owned(), is_out: true },
        Reason::Ending,
        Reason::StartingAnew { preempted: None },
        Reason::Pausing,
        Reason::StartsAt { at: NOW },
        Reason::FinishedAt { at: NOW },
        Reason::NotStarted { error: error() },
        Reason::GaveUp { error: error(), attempts: 1 },
        Reason::RefusedTooLong { error: error() },
        Reason::Quarantined { error: error() },
    ];
    all.extend(hold_reasons::ALL.map(held));
    all
}

#[test]
fn every_reason_has_one_code_and_every_code_a_reason() {
    assert_eq!(Reason::None.code(), None);
    let mut met: BTreeSet<ReasonCode> = BTreeSet::new();
    for reason in reasons() {
        assert!(!reason.to_string().is_empty(), "{reason:?}");
        met.insert(reason.code().unwrap_or_else(|| panic!("{reason:?} has no code")));
    }
    met.extend([Obstacle::NoService, Obstacle::NoneTakes, Obstacle::Full { slots: 1 }].map(Obstacle::code));
    // These depend on the moment, not on the row.
    met.extend([ReasonCode::RecentlyFailed, ReasonCode::ServiceLost]);
    assert_eq!(met.into_iter().collect::<Vec<_>>(), ReasonCode::ALL);
}

#[test]
fn every_code_and_every_health_is_documented() {
    let docs = include_str!("../../../../docs/statuses.md");
    for code in ReasonCode::ALL {
        assert_eq!(json!(code), json!(code.as_str()));
        assert!(docs.contains(&format!("| `{code}` |")), "docs/statuses.md does not explain `{code}`");
    }
    for health in Health::ALL {
        assert!(docs.contains(&format!("| `{health}` |")), "docs/statuses.md does not explain `{health}`");
    }
}

fn row() -> Row {
    let definition = ObserverDefinition::parse(json!({"kind": "ticker"}), &Name::new("a").unwrap()).unwrap();
    let mut row = Row::created(ObserverId(Uuid::from_u128(1)), definition, NOW, &RowPolicy::default());
    row.confirmed(1, NOW);
    row
}

fn hear(row: &mut Row, seq: u64, event: RunEvent) {
    let report = RunReport { id: row.id, epoch: Epoch::new(row.generation, 0), event };
    row.apply(ServiceId(Uuid::from_u128(9)), seq, NOW, &report, NOW);
}

fn told(row: &Row, held: bool) -> (Option<Health>, Option<ReasonCode>, String) {
    let Explanation { health, code, reason, .. } = explain(row, held, &[], NOW);
    (health, code, reason)
}

#[test]
fn a_pool_obstacle_replaces_the_wait_reason() {
    use ReasonCode::{NoServiceInPool, RecentlyFailed};
    let mut row = row();
    let none = "no service in pool default";
    assert_eq!(told(&row, false), (Some(Health::Waiting), Some(NoServiceInPool), none.to_owned()));
    hear(&mut row, 1, RunEvent::Started { attempt: 1, started_at: NOW });
    assert_eq!(told(&row, true), (Some(Health::Running), None, String::new()));
    let lost = format!("its service is gone; {none}");
    assert_eq!(told(&row, false), (Some(Health::Waiting), Some(NoServiceInPool), lost));
    hear(&mut row, 2, RunEvent::Errored { attempt: 1, error: "e".into(), next_at: NOW });
    assert_eq!(told(&row, true).1, Some(ReasonCode::BackingOff));
    hear(&mut row, 3, RunEvent::Started { attempt: 2, started_at: NOW });
    let (health, code, reason) = told(&row, true);
    assert_eq!((health, code), (Some(Health::Restarting), Some(RecentlyFailed)));
    assert!(reason.contains("after an error") && reason.contains("5m"), "{reason}");
    hear(&mut row, 4, RunEvent::HandedOver);
    let (health, code, reason) = told(&row, false);
    assert_eq!((health, code), (Some(Health::Moving), Some(NoServiceInPool)));
    assert_eq!(reason, format!("handed over; {none}"));
    let stranded = explain(&row, false, &[], NOW.plus(MOVES_WITHIN));
    assert_eq!((stranded.health, stranded.code), (Some(Health::Waiting), Some(NoServiceInPool)));
    assert_eq!(stranded.reason, reason, "only the health changes");
}

#[test]
fn a_failure_reason_names_the_cause() {
    let failed = |row: &Row| told(row, false).1;
    let mut gave_up = row();
    hear(&mut gave_up, 1, RunEvent::Failed { error: "e".into(), attempts: 1 });
    assert_eq!(failed(&gave_up), Some(ReasonCode::GaveUp));
    let mut refused = row();
    hear(&mut refused, 1, RunEvent::Refused { why: "kind".into() });
    assert_eq!(failed(&refused), Some(ReasonCode::Refused));
    refused.fail_refused(NOW);
    assert_eq!(failed(&refused), Some(ReasonCode::RefusedTooLong));
    let mut poison = row();
    hear(&mut poison, 1, RunEvent::Started { attempt: 1, started_at: NOW });
    let death =
        crate::failure::quarantine::Death { name: Name::new("s").unwrap(), at: NOW, run: Epoch::new(1, 0) };
    assert!(poison.quarantine(&[(ServiceId(Uuid::from_u128(9)), death)].into(), NOW));
    assert_eq!(failed(&poison), Some(ReasonCode::Quarantined));
}

#[test]
fn a_published_observer_is_about_to_start_if_a_service_has_a_free_slot() {
    let registration = json!({"name": "s", "pool": "default", "capacity": 2, "kinds": [], "version": "", "host": "",
        "labels": {}});
    let registration = serde_json::from_value(registration).unwrap();
    let service = ServiceRow::registered(ServiceId(Uuid::from_u128(1)), registration, NOW, NOW);
    let waits = explain(&row(), false, std::slice::from_ref(&service), NOW);
    assert_eq!(waits.code, Some(ReasonCode::WaitingForSlot));
    assert_eq!(waits.reason, "about to start: pool default has a free slot");
}
