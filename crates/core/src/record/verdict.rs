//! How the status of an observer follows from its desired, published and observed state.

use crate::record::observed::{Observed, RunPhase, Settled, Settlement};
use crate::record::row::{Desired, Row};
use crate::record::status::{Reason, Status, Verdict};

impl Row {
    /// Status and reason: a function of the desired, published and observed state, never stored on its own.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        let to = |status, reason| Verdict { status, reason };
        if let Some(at) = self.opens_at() {
            return to(Status::Scheduled, Reason::StartsAt { at });
        }
        let settled = self.settlement();
        match (self.desired, settled) {
            (Desired::Deleted, Some(_)) => to(Status::Deleted, Reason::None),
            (Desired::Deleted, None) if self.generation == 0 => to(Status::Deleted, Reason::None),
            (Desired::Deleted, None) => to(Status::OnDeleting, Reason::Ending),
            (Desired::Paused, _) if self.waiting.is_some() => to(Status::Paused, Reason::None),
            (Desired::Running, _) if self.waiting.is_some() => to(Status::Created, why_waiting(self)),
            (Desired::Running, Some(_)) if self.wants_republish() => {
                to(Status::Created, Reason::ToBePublished)
            }
            (Desired::Paused, Some(_)) if self.will_execute_again() => to(Status::Paused, Reason::None),
            (Desired::Running | Desired::Paused, Some(Settlement::Completed)) => {
                to(Status::Completed, Reason::None)
            }
            (Desired::Running | Desired::Paused, Some(Settlement::Finished { at })) => {
                to(Status::Completed, Reason::FinishedAt { at: *at })
            }
            (Desired::Running | Desired::Paused, Some(Settlement::NotStarted { error })) => {
                to(Status::Failed, Reason::NotStarted { error: error.clone() })
            }
            (Desired::Running | Desired::Paused, Some(Settlement::Failed { error, attempts })) => {
                to(Status::Failed, why_failed(self, error.clone(), *attempts))
            }
            (Desired::Paused, Some(Settlement::Stopped)) => to(Status::Paused, Reason::None),
            (Desired::Paused, None) if self.generation == 0 => to(Status::Paused, Reason::None),
            (Desired::Paused, None) => to(word(&self.observed), Reason::Pausing),
            (Desired::Running, Some(Settlement::Stopped) | None) if self.is_withdrawn() => {
                to(Status::Created, no_service_for_kind(self, self.observed.settled.is_some()))
            }
            (Desired::Running, Some(Settlement::Stopped)) => to(Status::Created, Reason::ToBePublished),
            (Desired::Running, None) if self.awaits_end() => {
                to(word(&self.observed), Reason::StartingAnew { preempted: self.preempted.clone() })
            }
            (Desired::Running, None) => to(word(&self.observed), why(self)),
        }
    }

    /// Whether it can reach this status without another request by a user.
    #[must_use]
    pub fn may_become(&self, status: Status) -> bool {
        let now = self.verdict().status;
        if now == status {
            return true;
        }
        let repeats = self.definition.schedule.is_some();
        match (self.desired, status) {
            (Desired::Deleted, _) => status == Status::Deleted,
            (_, Status::Deleted | Status::OnDeleting) => false,
            _ if now.is_final() => false,
            (Desired::Paused, _) if now == Status::Paused => {
                status == Status::Completed && self.definition.finish_at.is_some()
            }
            (Desired::Paused, Status::Processing | Status::Created) => self.awaits_end(),
            (Desired::Running, Status::Paused) => false,
            (_, Status::Scheduled) => self.definition.windows.is_some() || repeats,
            (Desired::Running, Status::Created) => self.awaits_end() || now == Status::Scheduled || repeats,
            (_, Status::Completed) if repeats => self.definition.finish_at.is_some(),
            _ => true,
        }
    }
}

fn word(seen: &Observed) -> Status {
    if seen.begun { Status::Processing } else { Status::Created }
}

/// A manager that fails an observer settles it without a service.
fn why_failed(row: &Row, error: String, attempts: u32) -> Reason {
    let by_manager = row.observed.settled.as_ref().is_some_and(Settled::is_by_manager);
    match (by_manager, attempts) {
        (true, 0) => Reason::RefusedTooLong { error },
        (true, _) => Reason::Quarantined { error },
        (false, _) => Reason::GaveUp { error, attempts },
    }
}

fn why_waiting(row: &Row) -> Reason {
    if row.withdrawn_at.is_some() {
        no_service_for_kind(row, true)
    } else if row.awaits_release() {
        Reason::WaitingForRelease
    } else if let Some(key) = &row.behind {
        Reason::WaitingForLimit { key: key.to_string() }
    } else {
        waiting_for_slot(row)
    }
}

fn no_service_for_kind(row: &Row, is_out: bool) -> Reason {
    let (kind, pool) = (row.definition.kind.to_string(), row.definition.pool.to_string());
    Reason::NoServiceForKind { kind, pool, is_out }
}

fn why(row: &Row) -> Reason {
    if row.unlisted.is_some() {
        return Reason::Unlisted;
    }
    match row.observed.latest.as_ref().map(|latest| &latest.phase) {
        None if row.publish_lease.is_some() => Reason::ToBePublished,
        None => waiting_for_slot(row),
        Some(RunPhase::Held { reason, refuses }) => Reason::Held { why: reason.clone(), refuses: *refuses },
        Some(RunPhase::Starting) => Reason::NotReady,
        Some(RunPhase::Running) => Reason::None,
        Some(RunPhase::Restarting { next_at }) => Reason::Restarting { next_at: *next_at },
        Some(RunPhase::HandedOver | RunPhase::HandedOverFor { .. }) => Reason::Moving,
        Some(RunPhase::Refused { why }) => Reason::Refused { why: why.clone() },
    }
}

fn waiting_for_slot(row: &Row) -> Reason {
    Reason::WaitingForSlot {
        pool: row.definition.pool.to_string(),
        weight: row.definition.weight,
        preempted: row.preempted.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Timestamp;
    use crate::id::{Name, ObserverId, ServiceId};
    use crate::observer::definition::ObserverDefinition;
    use crate::record::row_policy::RowPolicy;
    use crate::wire::report::{RunEvent, RunReport};
    use serde_json::json;
    use uuid::Uuid;

    const NOW: Timestamp = Timestamp(0);

    fn row() -> Row {
        let definition =
            ObserverDefinition::parse(json!({"kind": "ticker"}), &Name::new("a").unwrap()).unwrap();
        let mut row = Row::created(ObserverId(Uuid::from_u128(1)), definition, NOW, &RowPolicy::default());
        row.confirmed(1, NOW);
        row
    }
    fn hear(row: &mut Row, seq: u64, event: RunEvent) {
        let report = RunReport { id: row.id, epoch: row.epoch(), event };
        row.apply(ServiceId(Uuid::from_u128(9)), seq, NOW, &report, NOW);
    }
    fn reachable(row: &Row) -> Vec<Status> {
        Status::ALL.into_iter().filter(|status| row.may_become(*status)).collect()
    }

    #[test]
    fn a_wait_for_an_unreachable_status_is_refused() {
        use Status::{Completed, Created, Deleted, Failed, OnDeleting, Paused, Processing};
        let mut row = row();
        assert_eq!(reachable(&row), [Created, Processing, Completed, Failed]);
        hear(&mut row, 1, RunEvent::Started { attempt: 1, started_at: NOW });
        assert_eq!(reachable(&row), [Processing, Completed, Failed]);
        let mut failed = row.clone();
        hear(&mut failed, 2, RunEvent::Failed { error: "e".into(), attempts: 1 });
        assert_eq!(reachable(&failed), [Failed]);
        let mut paused = row.clone();
        paused.pause(NOW, &RowPolicy::default()).unwrap();
        assert_eq!(reachable(&paused), [Created, Processing, Paused, Completed, Failed]);
        hear(&mut paused, 2, RunEvent::Stopped);
        assert_eq!(reachable(&paused), [Paused]);
        row.delete(NOW, &RowPolicy::default());
        assert_eq!(reachable(&row), [OnDeleting, Deleted]);
    }
}
