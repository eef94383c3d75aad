use super::*;
use crate::epoch::Epoch;
use crate::id::{Name, ObserverId, ServiceId};
use crate::record::due::{DueStep, due_step};
use crate::wire::report::{RunEvent, RunReport};
use serde_json::{Value, json};

/// One observer, the actions on it, and its status after each step.
struct Script {
    row: Row,
    now: i64,
}

impl Script {
    fn new() -> Self {
        let row =
            Row::created(ObserverId(Uuid::from_u128(1)), definition(&json!({})), Timestamp(0), &policy());
        Self { row, now: 0 }
    }
    fn at(&mut self) -> Timestamp {
        self.now += 1000;
        Timestamp(self.now)
    }
    fn hear(&mut self, event: RunEvent) -> &mut Self {
        let at = self.at();
        let report = RunReport { id: self.row.id, epoch: self.row.epoch(), event };
        let seq = u64::try_from(self.now).unwrap();
        self.row.apply(ServiceId(Uuid::from_u128(9)), seq, at, &report, at);
        self
    }
    /// A report of the first run, from a service that has since lost the message.
    fn hear_older(&mut self, event: RunEvent) -> &mut Self {
        let at = self.at();
        let report = RunReport { id: self.row.id, epoch: Epoch::new(self.row.generation, 0), event };
        let seq = u64::try_from(self.now).unwrap();
        self.row.apply(ServiceId(Uuid::from_u128(8)), seq, at, &report, at);
        self
    }
    /// The broker redelivers the message, and another service starts the second run.
    fn move_on(&mut self) -> &mut Self {
        let at = self.at();
        let epoch = Epoch::new(self.row.generation, 1);
        let event = RunEvent::Started { attempt: 1, started_at: Timestamp(1) };
        let report = RunReport { id: self.row.id, epoch, event };
        let seq = u64::try_from(self.now).unwrap();
        self.row.apply(ServiceId(Uuid::from_u128(9)), seq, at, &report, at);
        self
    }
    fn run(&mut self) -> &mut Self {
        self.hear(RunEvent::Started { attempt: 1, started_at: Timestamp(1) })
    }
    fn act(&mut self, act: fn(&mut Row, Timestamp, &RowPolicy) -> Asked) -> Asked {
        let at = self.at();
        act(&mut self.row, at, &policy())
    }
    /// The reconciler's pass that follows.
    fn pass(&mut self) -> &mut Self {
        let at = self.at();
        match due_step(&self.row, at, &policy()) {
            Some(DueStep::Revoke(row) | DueStep::Save(row) | DueStep::Publish(row)) => self.row = row,
            Some(DueStep::Forget) => panic!("forgotten"),
            None => {}
        }
        if self.row.is_waiting() {
            // A slot is free.
            self.row.admit(at, &policy());
        }
        self
    }
    fn is(&self, expected: &str) {
        let verdict = self.row.verdict();
        let revocation = if self.row.revocation().below > self.row.epoch() { ", ends" } else { "" };
        let shown = format!("{} {} {}", self.row.generation, verdict.status, verdict.reason);
        assert_eq!(format!("{}{revocation}", shown.trim()), expected);
    }
}

fn policy() -> RowPolicy {
    RowPolicy::default()
}
fn definition(extra: &Value) -> ObserverDefinition {
    let mut body = json!({"kind": "ticker"});
    body.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
    ObserverDefinition::parse(body, &Name::new("a").unwrap()).unwrap()
}

#[test]
fn a_pause_lasts_until_it_is_resumed() {
    let mut it = Script::new();
    it.run().is("1 Processing");
    assert_eq!(it.act(Row::pause), Ok(true));
    it.is("1 Processing pausing, ends");
    assert_eq!(it.act(Row::pause), Ok(false));
    it.hear(RunEvent::Stopped).pass().is("1 Paused, ends");
    assert_eq!(it.act(Row::restart), Err(Refusal::Paused));
    assert_eq!(it.act(Row::resume), Ok(true));
    it.is("1 Created waiting for a slot in pool default, ends");
    it.pass().is("2 Created to be published");
    assert!(it.row.publish_lease.is_some());
    assert_eq!(it.act(Row::resume), Ok(false));
}

#[test]
fn a_resume_before_the_end_restarts_after_it() {
    let mut it = Script::new();
    it.run();
    it.act(Row::pause).unwrap();
    assert_eq!(it.act(Row::resume), Ok(true));
    it.is("1 Processing told to stop, then restarts, ends");
    it.hear(RunEvent::Stopped).pass().is("2 Created to be published");
    it.run().is("2 Processing");
}

#[test]
fn a_repeated_request_with_the_same_key_acts_once() {
    let restart = |it: &mut Script, key: Option<u128>| {
        let at = it.at();
        it.row.act_once(key.map(Uuid::from_u128), |row| row.restart(at, &policy()))
    };
    let mut it = Script::new();
    it.run();
    assert_eq!(restart(&mut it, Some(1)), Ok(true));
    it.hear(RunEvent::Stopped).pass().run().is("2 Processing");
    assert_eq!(restart(&mut it, Some(1)), Ok(true));
    it.is("2 Processing");
    for key in [Some(2), None] {
        let before = it.row.generation;
        assert_eq!(restart(&mut it, key), Ok(true));
        it.hear(RunEvent::Stopped).pass().run();
        assert_eq!(it.row.generation, before + 1, "{key:?}");
    }
    // A refused request may be repeated; the oldest keys are forgotten.
    it.act(Row::pause).unwrap();
    assert_eq!(restart(&mut it, Some(3)), Err(Refusal::Paused));
    it.act(Row::resume).unwrap();
    for key in 3..20 {
        restart(&mut it, Some(key)).unwrap();
    }
    assert_eq!(it.row.acted.len(), ACTED_MAX);
}

/// Otherwise the next generation would start beside the run that continues.
#[test]
fn a_restart_waits_for_the_end_of_the_newest_run() {
    for end in [RunEvent::Completed, RunEvent::Stopped] {
        let mut it = Script::new();
        it.run().move_on();
        assert_eq!(it.act(Row::restart), Ok(true));
        it.hear_older(end).pass().is("1 Processing told to stop, then restarts, ends");
        it.hear(RunEvent::Stopped).pass().is("2 Created to be published");
    }
    let mut it = Script::new();
    it.run().move_on();
    it.hear_older(RunEvent::Completed).pass().is("1 Completed, ends");
}

#[test]
fn an_observer_created_paused_is_published_on_resume() {
    let mut it = Script::new();
    it.row = it.row.clone().created_paused();
    it.pass().is("0 Paused, ends");
    assert_eq!(it.row.due_at(&policy()), None);
    it.act(Row::resume).unwrap();
    it.pass().is("1 Created to be published");
    let mut other = Script::new();
    other.row = other.row.clone().created_paused();
    assert!(other.row.delete(Timestamp(5), &policy()));
    other.is("0 Deleted, ends");
}

#[test]
fn a_restart_command_is_repeated_until_answered() {
    let mut it = Script::new();
    it.run();
    assert_eq!(it.act(Row::restart), Ok(true));
    it.is("1 Processing told to stop, then restarts, ends");
    let revocation = it.row.revocation();
    assert_eq!(revocation.below, Epoch::after_generation(1));
    let due = it.row.due_at(&policy()).unwrap();
    let step = due_step(&it.row, due, &policy()).unwrap();
    assert_eq!(step.row().unwrap().revocation(), revocation);
    it.hear(RunEvent::Stopped).pass().is("2 Created to be published");
    assert_eq!(it.row.resend, None);
    assert!(it.row.commanded_at.is_some(), "the message of generation 1 may still come back");
}

#[test]
fn a_restart_happens_even_if_the_code_ends_by_itself_first() {
    let mut it = Script::new();
    it.run();
    it.act(Row::restart).unwrap();
    it.hear(RunEvent::Completed).is("1 Created to be published, ends");
    it.pass().is("2 Created to be published");
    // A resume promises less: an observer that has ended by itself stays as it is.
    it.run();
    it.act(Row::pause).unwrap();
    it.act(Row::resume).unwrap();
    it.hear(RunEvent::Completed).pass().is("2 Completed, ends");
}

#[test]
fn an_observer_that_ended_by_itself_stays_ended_until_restarted() {
    let mut it = Script::new();
    it.run().hear(RunEvent::Completed);
    assert_eq!(it.act(Row::pause), Ok(false));
    assert_eq!(it.act(Row::retry), Err(Refusal::NotFailed));
    it.is("1 Completed, ends");
    assert_eq!(it.act(Row::restart), Ok(true));
    it.pass().is("2 Created to be published");
    // It fails while it is stopping, and the failure counts as its end.
    it.run();
    it.act(Row::pause).unwrap();
    it.hear(RunEvent::Failed { error: "e".into(), attempts: 1 }).pass();
    it.is("2 Failed gave up after 1 attempt: e, ends");
    assert_eq!(it.act(Row::retry), Ok(true));
    it.pass().is("3 Created to be published");
}

fn update(it: &mut Script, extra: impl Into<Value>) -> Asked {
    let at = it.at();
    it.row.update(definition(&extra.into()), at, &policy())
}

#[test]
fn only_changes_of_the_run_restart_it() {
    let mut it = Script::new();
    it.run();
    assert_eq!(update(&mut it, json!({})), Ok(false));
    assert_eq!(update(&mut it, json!({"labels": {"a": "b"}, "on_full": "queue"})), Ok(true));
    it.is("1 Processing");
    assert_eq!(update(&mut it, json!({"spec": {"every": "2s"}})), Ok(true));
    it.is("1 Processing told to stop, then restarts, ends");
    it.hear(RunEvent::Stopped).pass().run();
    it.act(Row::pause).unwrap();
    it.hear(RunEvent::Stopped);
    assert_eq!(update(&mut it, json!({"pool": "other"})), Ok(true));
    it.pass().is("2 Paused, ends");
}

#[test]
fn revocations_go_to_every_pool_of_the_observer_and_to_all_after_many() {
    let mut it = Script::new();
    let pools =
        |it: &Script| it.row.possible_pools().map(|pools| pools.iter().map(Pool::to_string).collect());
    assert_eq!(pools(&it), Some(vec!["default".to_owned()]));
    for _ in 0..2 {
        update(&mut it, json!({"pool": "other"})).unwrap();
        assert_eq!(pools(&it), Some(vec!["default".to_owned(), "other".to_owned()]));
        update(&mut it, json!({})).unwrap();
    }
    for number in 0..FORMER_POOLS_MAX + 1 {
        update(&mut it, json!({"pool": format!("p{number}")})).unwrap();
    }
    assert_eq!(it.row.possible_pools(), None);
    assert_eq!(it.row.former_pools.len(), FORMER_POOLS_MAX);
}

#[test]
fn a_changed_definition_starts_no_observer_that_the_same_request_pauses() {
    let mut it = Script::new();
    it.run().hear(RunEvent::Completed);
    let at = it.at();
    let changed = definition(&json!({"spec": {"every": "2s"}}));
    assert_eq!(it.row.change_to(changed, Some(true), at, &policy()), Ok(true));
    it.pass().is("1 Paused, ends");
}

#[test]
fn actions_on_a_deleted_observer_are_refused() {
    let mut it = Script::new();
    it.run().row.delete(Timestamp(9000), &policy());
    for act in [Row::pause, Row::resume, Row::restart, Row::retry] {
        assert_eq!(it.act(act), Err(Refusal::Deleted));
    }
    assert_eq!(
        it.row.update(definition(&json!({"spec": 1})), Timestamp(9), &policy()),
        Err(Refusal::Deleted)
    );
}
