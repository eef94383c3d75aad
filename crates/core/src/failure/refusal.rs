//! When an observer that no service of its pool can run is failed.

use crate::clock::Timestamp;
use crate::record::observed::Settlement;
use crate::record::row::Row;
use crate::record::row_policy::RowPolicy;

impl Row {
    /// When it fails, unless a service that can run it takes it before.
    #[must_use]
    pub fn fails_at(&self, policy: &RowPolicy) -> Option<Timestamp> {
        let since = self.refused_since.filter(|_| self.observed.settled.is_none() || self.is_withdrawn())?;
        Some(since.plus(policy.refused_max))
    }

    /// Fails it because no service could run it. A service's own report of its end takes precedence.
    pub fn fail_refused(&mut self, now: Timestamp) {
        let unoffered = || format!("none offers its kind {}", self.definition.kind);
        let why = self.observed.refusal().map_or_else(unoffered, str::to_owned);
        let error = format!("no service of pool {} could run it: {why}", self.definition.pool);
        self.settle_by_manager(Settlement::Failed { error, attempts: 0 }, now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::epoch::Epoch;
    use crate::id::{Name, ObserverId, ServiceId};
    use crate::observer::definition::ObserverDefinition;
    use crate::record::due::{DueStep, due_step};
    use crate::record::row_policy::RowPolicy;
    use crate::record::status::Status;
    use crate::wire::report::{RunEvent, RunReport};
    use serde_json::json;
    use uuid::Uuid;

    fn at(secs: i64) -> Timestamp {
        Timestamp(secs * 1000)
    }
    fn service(number: u128) -> ServiceId {
        ServiceId(Uuid::from_u128(number))
    }
    fn row() -> Row {
        let definition =
            ObserverDefinition::parse(json!({"kind": "ticker"}), &Name::new("a").unwrap()).unwrap();
        let mut row = Row::created(ObserverId(Uuid::from_u128(1)), definition, at(0), &RowPolicy::default());
        row.confirmed(1, at(1));
        row
    }
    fn hear(row: &mut Row, event: RunEvent, secs: i64) {
        let report = RunReport { id: row.id, epoch: Epoch::new(row.generation, 0), event };
        let seq = u64::try_from(secs).unwrap();
        row.apply(service(9), seq, at(secs), &report, at(secs));
    }
    fn started() -> RunEvent {
        RunEvent::Started { attempt: 1, started_at: at(1) }
    }

    #[test]
    fn an_observer_that_no_service_can_run_fails_and_can_be_retried() {
        let mut row = row();
        let refused = |why: &str| RunEvent::Refused { why: why.to_owned() };
        hear(&mut row, refused("kind x is unknown"), 10);
        hear(&mut row, refused("kind x is unknown"), 800);
        let policy = RowPolicy::default();
        assert_eq!(row.due_at(&policy), Some(at(10 + 900)));
        assert_eq!(due_step(&row, at(909), &policy), None);
        let Some(DueStep::Revoke(failed)) = due_step(&row, at(910), &policy) else { panic!() };
        assert_eq!(failed.verdict().status, Status::Failed);
        assert_eq!(failed.revocation().below, Epoch::after_generation(1));
        assert!(failed.verdict().reason.to_string().contains("kind x is unknown"));
        let mut row = failed;
        let again = RunReport { id: row.id, epoch: Epoch::new(1, 5), event: refused("kind x is unknown") };
        assert!(row.answer(&again).is_some(), "a service that still holds it learns that it is over");
        assert_eq!(row.retry(at(1000), &policy), Ok(true));
        assert_eq!(row.verdict().status, Status::Created);
        hear(&mut row, refused("kind x is unknown"), 1001);
        hear(&mut row, started(), 1002);
        assert_eq!(row.fails_at(&policy), None, "a service could run it");
    }

    #[test]
    fn a_start_between_two_refusals_resets_the_refusal_time() {
        let (mut row, policy) = (row(), RowPolicy::default());
        let refused = || RunEvent::Refused { why: "kind x is unknown".to_owned() };
        let held = |refuses| RunEvent::Held { reason: "r".to_owned(), refuses };
        hear(&mut row, refused(), 10);
        hear(&mut row, started(), 11);
        assert_eq!(row.fails_at(&policy), None);
        hear(&mut row, refused(), 2000);
        assert_eq!(due_step(&row, at(2001), &policy), None, "its service has restarted");
        assert_eq!(row.fails_at(&policy), Some(at(2900)));
        // A service that cannot run it holds it for a while between two refusals.
        hear(&mut row, held(true), 2001);
        assert_eq!(row.fails_at(&policy), Some(at(2900)));
        let Some(DueStep::Revoke(failed)) = due_step(&row, at(2900), &policy) else { panic!() };
        assert_eq!(failed.verdict().status, Status::Failed);
        // A service that can run it lets it wait for its turn.
        hear(&mut row, held(false), 2002);
        assert_eq!(row.fails_at(&policy), None);
    }

    #[test]
    fn the_refusal_time_is_measured_by_one_clock() {
        let (mut row, policy) = (row(), RowPolicy::default());
        let event = RunEvent::Refused { why: "kind x is unknown".to_owned() };
        let report = RunReport { id: row.id, epoch: Epoch::new(1, 0), event };
        // The clock of this service is an hour behind.
        row.apply(service(9), 1, at(-3590), &report, at(10));
        assert_eq!(row.fails_at(&policy), Some(at(910)));
    }
}
