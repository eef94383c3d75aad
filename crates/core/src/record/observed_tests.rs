//! The observed half is a function of the set of reports.

use super::*;
use proptest::prelude::*;
use uuid::Uuid;

/// One report per key, because services number them: equal keys mean that a report was sent twice.
fn reports() -> impl Strategy<Value = Vec<ReceivedReport>> {
    let event = prop_oneof![
        Just(RunEvent::Held { reason: "start rate".into(), refuses: false }),
        (1..4u32).prop_map(|attempt| RunEvent::Started { attempt, started_at: Timestamp(attempt.into()) }),
        (1..4u32).prop_map(|attempt| RunEvent::Starting { attempt, started_at: Timestamp(attempt.into()) }),
        Just(RunEvent::Errored { attempt: 1, error: "e".into(), next_at: Timestamp(9) }),
        Just(RunEvent::Progress { text: "half".into() }),
        Just(RunEvent::HandedOver),
        Just(RunEvent::HandedOverFor { cause: Cause::Drain }),
        Just(RunEvent::Refused { why: "kind".into() }),
        Just(RunEvent::Stopped),
        Just(RunEvent::Completed),
        Just(RunEvent::CompletedWith { result: "1".into() }),
        Just(RunEvent::Failed { error: "f".into(), attempts: 2 }),
    ];
    prop::collection::btree_map((0..3u32, 1..6u64), (event, 0..50i64), 1..12).prop_map(|reports| {
        let heard = |((acquisitions, seq), (event, at)): ((u32, u64), (RunEvent, i64))| ReceivedReport {
            service: ServiceId(Uuid::from_u128(u128::from(acquisitions))),
            key: Key { acquisitions, seq },
            at: Timestamp(at),
            event,
        };
        reports.into_iter().map(heard).collect()
    })
}

fn joined<'a>(reports: impl IntoIterator<Item = &'a ReceivedReport>) -> Observed {
    reports.into_iter().fold(Observed::default(), |mut seen, heard| {
        seen.join(heard);
        seen
    })
}

proptest! {
    #[test]
    fn the_observed_half_is_a_function_of_the_set_of_reports(
        (reports, shuffled) in reports().prop_flat_map(|reports| {
            // Each report arrives at least once, some twice, in any order.
            let twice = reports.iter().chain(reports.iter().step_by(2)).cloned().collect::<Vec<_>>();
            (Just(reports), Just(twice).prop_shuffle())
        })
    ) {
        prop_assert_eq!(joined(&reports), joined(&shuffled));
    }
}

fn heard(acquisitions: u32, seq: u64, event: RunEvent) -> ReceivedReport {
    let service = ServiceId(Uuid::from_u128(u128::from(acquisitions)));
    ReceivedReport { service, key: Key { acquisitions, seq }, at: Timestamp(0), event }
}

#[test]
fn late_reports_of_a_dead_owner_do_not_override_the_new_owner() {
    let started = RunEvent::Started { attempt: 1, started_at: Timestamp(0) };
    let seen = joined(&[heard(1, 4, started.clone()), heard(0, 900, started)]);
    assert_eq!(seen.holder(), Some(ServiceId(Uuid::from_u128(1))));
    assert_eq!(seen.acquisitions(), 1);
}

#[test]
fn the_settlement_of_the_first_run_wins() {
    let failed = RunEvent::Failed { error: "x".into(), attempts: 1 };
    let seen = joined(&[heard(2, 1, RunEvent::Stopped), heard(1, 7, failed)]);
    assert!(matches!(seen.settled.unwrap().how, Settlement::Failed { .. }));
    let seen = joined(&[heard(2, 1, RunEvent::Completed), heard(1, 7, RunEvent::Stopped)]);
    assert_eq!(seen.settled.unwrap().how, Settlement::Completed, "the next run ended by itself");
}
