use super::*;
use crate::epoch::Epoch;
use crate::failure::adoption::adopted;
use crate::id::{Name, ObserverId};
use crate::observer::definition::ObserverDefinition;
use crate::record::due::{DueStep, due_step};
use crate::record::events::happenings;
use crate::record::row_policy::RowPolicy;
use crate::record::status::Status;
use crate::wire::work::Work;
use serde_json::{Value, json};
use uuid::Uuid;

/// One observer that names limit a, and how it counts after each step.
struct Script {
    row: Row,
    now: i64,
}

const AFTER: Duration = Duration::from_secs(90);

fn policy() -> RowPolicy {
    RowPolicy::default()
}
fn definition(extra: &Value) -> ObserverDefinition {
    let mut body = json!({"kind": "ticker", "limits": ["a"]});
    body.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
    ObserverDefinition::parse(body, &Name::new("x").unwrap()).unwrap()
}
fn service(number: u128) -> ServiceId {
    ServiceId(Uuid::from_u128(number))
}
fn started() -> RunEvent {
    RunEvent::Started { attempt: 1, started_at: Timestamp(1) }
}

impl Script {
    fn new() -> Self {
        let row =
            Row::created(ObserverId(Uuid::from_u128(1)), definition(&json!({})), Timestamp(0), &policy());
        Self { row: row.created_waiting(), now: 0 }
    }
    fn at(&mut self) -> Timestamp {
        self.now += 1000;
        Timestamp(self.now)
    }
    /// Managers have admitted it.
    fn admitted() -> Self {
        let mut it = Self::new();
        it.admit();
        it
    }
    fn admit(&mut self) -> &mut Self {
        let at = self.at();
        assert!(self.row.is_waiting());
        self.row.admit(at, &policy());
        self
    }
    /// A report of the run with this number of acquisitions, on the service of that number.
    fn hear(&mut self, run: u32, event: RunEvent) -> &mut Self {
        let (at, seq) = (self.at(), u64::try_from(self.now).unwrap());
        let report = RunReport { id: self.row.id, epoch: Epoch::new(self.row.generation, run), event };
        self.row.apply(service(run.into()), seq, at, &report, at);
        self
    }
    fn pass(&mut self) -> &mut Self {
        let at = self.at();
        if let Some(DueStep::Revoke(row) | DueStep::Save(row) | DueStep::Publish(row)) =
            due_step(&self.row, at, &policy())
        {
            self.row = row;
        }
        self
    }
    fn is(&mut self, expected: &str) -> &mut Self {
        let uses = self.row.limit_uses();
        let uses =
            uses.iter().map(|(key, it)| format!("{key} {}", it.as_str())).collect::<Vec<_>>().join(", ");
        let verdict = self.row.verdict();
        assert_eq!(
            format!("{} {}: {uses}", self.row.generation, verdict.status),
            expected,
            "{}",
            verdict.reason
        );
        self
    }
}

#[test]
fn a_place_is_used_until_the_message_is_gone() {
    let mut it = Script::new();
    it.is("0 Created: a waiting").admit().is("1 Created: a used");
    it.hear(0, started()).hear(0, RunEvent::Completed).is("1 Completed: a unreleased");
    assert_eq!(it.row.forget_at(&policy()), None, "the row is what counts");
    it.hear(0, RunEvent::Released).is("1 Completed: a named");
    assert!(it.row.forget_at(&policy()).is_some());
    let at = it.at();
    it.row.delete(at, &policy());
    it.is("1 Deleted: ");
}

#[test]
fn reports_may_come_in_any_order() {
    let mut it = Script::admitted();
    it.hear(0, RunEvent::Released).is("1 Created: a used");
    it.hear(0, RunEvent::Completed).is("1 Completed: a named");
}

#[test]
fn a_release_by_an_earlier_run_is_not_the_end_of_a_later_one() {
    let mut it = Script::admitted();
    it.hear(0, started()).hear(1, started()).hear(0, RunEvent::Completed);
    it.hear(0, RunEvent::Released).is("1 Completed: a unreleased");
    it.hear(1, RunEvent::Stopped).hear(1, RunEvent::Released).is("1 Completed: a named");
}

#[test]
fn a_restart_keeps_the_place_and_waits_for_the_release() {
    let mut it = Script::admitted();
    it.hear(0, started());
    let at = it.at();
    it.row.restart(at, &policy()).unwrap();
    it.hear(0, RunEvent::Stopped).pass().is("1 Created: a unreleased");
    assert_eq!(it.row.due_at(&policy()), None);
    it.hear(0, RunEvent::Released).is("1 Created: a used");
    it.pass().is("2 Created: a used");
}

#[test]
fn a_paused_observer_returns_to_the_backlog_once_its_message_is_gone() {
    let mut it = Script::admitted();
    it.hear(0, started());
    let at = it.at();
    it.row.pause(at, &policy()).unwrap();
    it.hear(0, RunEvent::Stopped).is("1 Paused: a unreleased");
    it.row.resume(at, &policy()).unwrap();
    it.is("1 Created: a unreleased");
    assert!(!it.row.is_waiting() && it.row.awaits_release());
    it.hear(0, RunEvent::Released).is("1 Created: a waiting").admit().is("2 Created: a used");
}

#[test]
fn a_change_of_the_limits_releases_first() {
    let mut it = Script::admitted();
    it.hear(0, started());
    let at = it.at();
    it.row.update(definition(&json!({"limits": ["b"]})), at, &policy()).unwrap();
    it.is("1 Processing: a used, b named");
    it.hear(0, RunEvent::Stopped).pass().is("1 Created: a unreleased, b named");
    it.hear(0, RunEvent::Released).is("1 Created: b waiting").admit().is("2 Created: b used");
    // The same before its publish is confirmed: the next generation only ends.
    let mut it = Script::admitted();
    let at = it.at();
    it.row.update(definition(&json!({"limits": ["b"]})), at, &policy()).unwrap();
    it.now += 60_000;
    it.pass().is("2 Created: a used, b named");
    assert!(it.row.revocation().below > it.row.epoch());
}

#[test]
fn a_change_while_it_is_paused_waits_for_the_new_places() {
    let mut it = Script::admitted();
    it.hear(0, started());
    let at = it.at();
    it.row.pause(at, &policy()).unwrap();
    it.row.update(definition(&json!({"limits": ["b"]})), at, &policy()).unwrap();
    it.row.resume(at, &policy()).unwrap();
    it.hear(0, RunEvent::Stopped).hear(0, RunEvent::Released).pass().is("1 Created: b waiting");
    // The same after the release, and before the next pass.
    let mut it = Script::admitted();
    it.hear(0, started());
    let at = it.at();
    it.row.update(definition(&json!({"limits": ["b"]})), at, &policy()).unwrap();
    it.hear(0, RunEvent::Stopped).hear(0, RunEvent::Released);
    it.row.restart(at, &policy()).unwrap();
    it.is("1 Created: b waiting");
}

#[test]
fn what_ends_during_a_pause_gives_up_its_places() {
    let mut it = Script::admitted();
    it.hear(0, started());
    let at = it.at();
    it.row.restart(at, &policy()).unwrap();
    it.row.pause(at, &policy()).unwrap();
    it.hear(0, RunEvent::Completed).hear(0, RunEvent::Released).is("1 Completed: a named");
    it.row.resume(at, &policy()).unwrap();
    it.pass().is("1 Created: a waiting");
}

#[test]
fn a_restart_of_an_observer_that_waits_keeps_its_place_in_line() {
    let mut it = Script::new();
    it.row.wait_behind(LimitKey::new("a").unwrap(), Timestamp(5));
    let rank = it.row.limit_rank(&policy());
    assert_eq!(it.row.restart(Timestamp(6), &policy()), Ok(false));
    it.row.update(definition(&json!({"spec": {"every": "2s"}})), Timestamp(7), &policy()).unwrap();
    it.is("0 Created: a behind");
    assert_eq!(it.row.limit_rank(&policy()), rank);
}

#[test]
fn a_lost_queue_brings_no_observer_back_that_was_to_give_up_its_place() {
    let mut it = Script::admitted();
    it.hear(0, started());
    let at = it.at();
    assert!(it.row.give_up_slot(at, &policy()));
    it.row.republish_unsure(at, &policy());
    it.is("2 Created: a used");
    it.hear(0, RunEvent::Stopped).hear(0, RunEvent::Released).pass().is("2 Created: a waiting");
}

#[test]
fn after_a_lost_queue_and_a_change_of_the_limits_a_manager_releases() {
    let mut it = Script::admitted();
    it.hear(0, started());
    let at = it.at();
    it.row.update(definition(&json!({"limits": []})), at, &policy()).unwrap();
    it.row.republish_unsure(at, &policy());
    // Its definition names no limits now: the service does not report that the message is gone.
    it.hear(0, RunEvent::Stopped).is("2 Created: a unreleased");
    let now = Timestamp(it.now).plus(AFTER + it.row.definition.grace);
    assert!(it.row.is_surely_gone(&[service(0)], Some(now), now, AFTER));
    it.row.release_places(now);
    it.pass().is("2 Created: ");
    // It uses no place of a new limit before it is admitted.
    let mut it = Script::new();
    it.row.update(definition(&json!({"limits": []})), at, &policy()).unwrap();
    it.admit().hear(0, started());
    let at = it.at();
    it.row.update(definition(&json!({})), at, &policy()).unwrap();
    it.row.republish_unsure(at, &policy());
    it.is("2 Created: a named");
    it.hear(0, RunEvent::Stopped).pass().is("2 Created: a waiting");
}

#[test]
fn only_an_enforced_limit_is_named_as_the_cause() {
    let mut it = Script::admitted();
    it.hear(0, started());
    let at = it.at();
    let told = |before: &Row, after: &Row| {
        let events = happenings(Some(before), after).into_iter();
        events.map(|event| format!("{:?} {}", event.kind, event.text)).collect::<Vec<_>>()
    };
    let before = it.row.clone();
    assert!(it.row.give_up_slot(at, &policy()));
    assert_eq!(told(&before, &it.row), ["RestartRequested a limit is enforced: it returns to the backlog"]);
    it.row = before;
    it.row.pause(at, &policy()).unwrap();
    it.row.update(definition(&json!({"pool": "other"})), at, &policy()).unwrap();
    let before = it.row.clone();
    it.row.resume(at, &policy()).unwrap();
    assert_eq!(told(&before, &it.row), ["ResumeRequested ", "RestartRequested "]);
}

#[test]
fn an_observer_waits_behind_a_limit_and_comes_forward() {
    let mut it = Script::new();
    let rank = it.row.rank(&policy());
    let key = LimitKey::new("a").unwrap();
    it.row.wait_behind(key, Timestamp(5));
    it.is("0 Created: a behind");
    assert_eq!(it.row.verdict().reason.to_string(), "waiting for a place of limit a");
    assert_eq!(
        (it.row.is_waiting(), it.row.rank(&policy()), it.row.limit_rank(&policy())),
        (false, None, rank)
    );
    it.row.come_forward(Timestamp(6));
    it.is("0 Created: a waiting");
    assert_eq!(it.row.rank(&policy()), rank);
    // A change of the limits asks the new ones.
    it.row.wait_behind(LimitKey::new("a").unwrap(), Timestamp(7));
    it.row.update(definition(&json!({"limits": ["b"]})), Timestamp(8), &policy()).unwrap();
    it.is("0 Created: b waiting");
    assert_eq!(it.row.rank(&policy()), rank);
    it.row.pause(Timestamp(9), &policy()).unwrap();
    it.is("0 Paused: b named");
}

#[test]
fn after_an_unconfirmed_publish_only_a_manager_releases() {
    let mut it = Script::admitted();
    it.now += 60_000;
    it.pass().is("2 Created: a used");
    it.hear(0, started()).hear(0, RunEvent::Completed).hear(0, RunEvent::Released);
    it.is("2 Completed: a unreleased");
    let now = Timestamp(it.now).plus(AFTER + it.row.definition.grace);
    let gone = |row: &Row, listed: Timestamp| row.is_surely_gone(&[service(0)], Some(listed), now, AFTER);
    assert!(!gone(&it.row, it.row.modified_at), "a service may hold the other message");
    assert!(gone(&it.row, now));
    it.row.release_places(now);
    it.is("2 Completed: a named");
}

#[test]
fn the_message_of_a_dead_service_is_gone_when_nothing_has_come_back() {
    let mut it = Script::admitted();
    it.hear(3, started()).hear(3, RunEvent::Completed);
    let (ended_at, late) = (it.row.modified_at, it.row.modified_at.plus(AFTER));
    let gone = |row: &Row, living: &[ServiceId], now| row.is_surely_gone(living, Some(now), now, AFTER);
    assert!(!gone(&it.row, &[service(3)], late), "it reports the release itself");
    assert!(!gone(&it.row, &[], late.minus(Duration::from_secs(1))) && gone(&it.row, &[], late));
    assert!(ended_at < late);
    // Another service got the message.
    it.hear(4, started()).is("1 Completed: a unreleased");
    let late = it.row.modified_at.plus(AFTER);
    assert!(!gone(&it.row, &[service(4)], late));
}

#[test]
fn a_lost_message_returns_its_observer_to_the_backlog() {
    let mut it = Script::admitted();
    it.hear(0, started());
    let at = it.at();
    it.row.replace_lost(at, &policy());
    it.is("1 Created: a waiting").admit().is("2 Created: a used");
    let mut ended = Script::admitted();
    ended.row.delete(Timestamp(5), &policy());
    ended.row.end_orphan(Timestamp(6));
    ended.is("1 Deleted: ");
    assert_eq!(ended.row.verdict().status, Status::Deleted);
}

#[test]
fn an_adopted_observer_uses_its_places() {
    let work = Work::of(ObserverId(Uuid::from_u128(1)), 4, &definition(&json!({}))).unwrap();
    let run = RunReport { id: work.id, epoch: Epoch::new(4, 0), event: started() };
    let body = serde_json::to_string(&work).unwrap();
    let row = adopted(&run, &body, &definition(&json!({})).pool, Timestamp(5), &policy()).unwrap();
    let mut it = Script { row, now: 9 };
    it.is("4 Created: a used");
    // A restored row that waits, and whose run continues.
    let mut it = Script::new();
    let report = RunReport { id: it.row.id, epoch: Epoch::new(3, 0), event: started() };
    it.row.apply(service(1), 1, Timestamp(9), &report, Timestamp(9));
    it.is("3 Processing: a used");
}
