//! Rollouts as transcripts: what happens to the members, and what the next step says.

use super::*;
use crate::clock::Timestamp;
use crate::epoch::Epoch;
use crate::id::{ObserverId, ServiceId};
use crate::observer::definition::ObserverDefinition;
use crate::record::due::due_step;
use crate::record::row::Row;
use crate::record::row_policy::RowPolicy;
use crate::wire::report::{RunEvent, RunReport};
use serde_json::json;
use std::collections::BTreeSet;
use uuid::Uuid;

/// A rollout, its members and their rows, as one database holds them.
struct Stage {
    now: Timestamp,
    seq: u64,
    rollout: Rollout,
    members: Vec<Member>,
    rows: Vec<Option<Row>>,
    former: Vec<ObserverDefinition>,
    dead: BTreeSet<ServiceId>,
    refuses_kinds: bool,
}

fn service(number: u128) -> ServiceId {
    ServiceId(Uuid::from_u128(number))
}

impl Stage {
    /// Observers `a`, `b`, … that run.
    fn new(observers: usize, max_parallel: u32) -> Self {
        let now = Timestamp(1_000_000);
        let rollout = Rollout {
            id: RolloutId(Uuid::from_u128(99)),
            version: 1,
            name: Name::new("faster").unwrap(),
            selector: json!({}),
            patch: json!({"spec": {"every": "9s"}}),
            max_parallel,
            healthy_for: Duration::from_secs(30),
            timeout: Duration::from_secs(600),
            on_failure: OnFailure::Pause,
            state: RolloutState::Running,
            reason: None,
            by: None,
            created_at: now,
            modified_at: now,
            resumed_at: None,
            ended_at: None,
            counts: BTreeMap::new(),
        };
        let mut it = Self {
            now,
            seq: 0,
            rollout,
            members: Vec::new(),
            rows: Vec::new(),
            former: Vec::new(),
            dead: BTreeSet::new(),
            refuses_kinds: false,
        };
        for (place, letter) in ('a'..).take(observers).enumerate() {
            let name = Name::new(&letter.to_string()).unwrap();
            let body = json!({"kind": "ticker", "spec": {"every": "1s"}});
            let definition = ObserverDefinition::parse(body, &name).unwrap();
            let id = ObserverId(Uuid::from_u128(place as u128 + 1));
            it.former.push(definition.clone());
            it.rows.push(Some(Row::created(id, definition, now, &RowPolicy::default())));
            it.members.push(Member::pending(u32::try_from(place).unwrap(), id, name, 1));
            it.row(place).confirmed(1, now);
            it.hear(place, 1, 0, started(1));
        }
        it
    }
    fn row(&mut self, place: usize) -> &mut Row {
        self.rows[place].as_mut().unwrap()
    }
    fn hear(&mut self, place: usize, by: u128, acquisitions: u32, event: RunEvent) -> &mut Self {
        self.seq += 1;
        let (seq, now) = (self.seq, self.now);
        let row = self.row(place);
        let report = RunReport { id: row.id, epoch: Epoch::new(row.generation, acquisitions), event };
        row.apply(service(by), seq, now, &report, now);
        self
    }
    /// Its run ends, and its next one starts, as the reconciler and its service do it.
    fn restarts(&mut self, place: usize) -> &mut Self {
        self.hear(place, 1, 0, RunEvent::Stopped);
        let (now, policy) = (self.now.plus(Duration::from_secs(1)), RowPolicy::default());
        let row = self.row(place);
        *row = due_step(row, now, &policy).unwrap().row().unwrap().clone();
        let generation = row.generation;
        row.confirmed(generation, now);
        self.hear(place, 1, 0, started(1))
    }
    fn later(&mut self, secs: u64) -> &mut Self {
        self.now = self.now.plus(Duration::from_secs(secs));
        self
    }
    fn edit(&mut self, place: usize) -> &mut Self {
        let now = self.now;
        let row = self.row(place);
        let edited = row.definition.patched(&json!({"priority": 5})).unwrap();
        assert_eq!(row.update(edited, now, &RowPolicy::default()), Ok(true));
        self
    }
    fn act(&mut self, action: RolloutAction) -> &mut Self {
        assert_eq!(self.rollout.act(action, Some("ada"), self.now), Ok(true));
        self
    }
    fn on_failure(&mut self, on_failure: OnFailure) -> &mut Self {
        self.rollout.on_failure = on_failure;
        self
    }

    /// Takes steps until there is nothing to do, and tells the states of the rollout and its members.
    fn steps(&mut self) -> String {
        while let Some(next) = self.step() {
            for MemberStep { before, after, row } in next.members {
                assert_eq!(self.members[before.place as usize], before);
                if let Some((_, row)) = row {
                    self.rows[before.place as usize] = Some(row);
                }
                self.members[before.place as usize] = after;
            }
            self.rollout = next.rollout;
        }
        let members = self.members.iter().map(|it| it.state.as_str()).collect::<Vec<_>>().join(" ");
        let reason = self.rollout.reason.as_ref().map_or_else(String::new, |reason| format!(" ({reason})"));
        format!("{}{reason}: {members}", self.rollout.state)
    }
    fn step(&self) -> Option<Step> {
        let seen = self.members.iter().enumerate().map(|(place, member)| Seen {
            member: member.clone(),
            row: self.rows[place].clone(),
            holder_lives: self.rows[place]
                .as_ref()
                .and_then(Row::holder)
                .is_some_and(|holder| !self.dead.contains(&holder)),
            former: Some(self.former[place].clone()),
        });
        let kinds = |_: &ObserverDefinition| {
            if self.refuses_kinds { Err("/spec/every is too often".to_owned()) } else { Ok(()) }
        };
        let pools = |definition: &ObserverDefinition| {
            if definition.pool.as_str() == "gpu" { Err("may not use pool gpu".to_owned()) } else { Ok(()) }
        };
        let policy = RowPolicy::default();
        step(
            &self.rollout,
            &seen.collect::<Vec<_>>(),
            &Checks { now: self.now, policy: &policy, kinds: &kinds, pools: &pools },
        )
    }
    fn reason(&self, place: usize) -> &str {
        self.members[place].reason.as_deref().unwrap_or_default()
    }
    fn every(&self, place: usize) -> &str {
        self.rows[place].as_ref().unwrap().definition.spec["every"].as_str().unwrap()
    }
}

fn started(attempt: u32) -> RunEvent {
    RunEvent::Started { attempt, started_at: Timestamp(0) }
}

fn errored() -> RunEvent {
    RunEvent::Errored { attempt: 1, error: "no route".into(), next_at: Timestamp(9) }
}

#[test]
fn members_are_changed_a_few_at_a_time_each_after_another_is_healthy() {
    let mut it = Stage::new(3, 2);
    assert_eq!(it.steps(), "Running: changed changed pending");
    assert_eq!((it.every(0), it.every(2)), ("9s", "1s"));
    let revision = it.row(0).revision();
    assert_eq!((revision.number, revision.by.as_deref()), (2, Some("rollout faster")));
    assert_eq!(it.later(60).steps(), "Running: changed changed pending", "they do not run again yet");
    it.restarts(1).steps();
    assert_eq!(it.later(29).steps(), "Running: changed changed pending");
    assert_eq!(it.later(1).steps(), "Running: changed done changed");
    it.restarts(0).restarts(2).steps();
    assert_eq!(it.later(30).steps(), "Completed: done done done");
    assert_eq!(it.rollout.ended_at, Some(it.now));
    assert!(it.later(600).step().is_none());
}

#[test]
fn a_move_restarts_the_time_and_is_no_failure() {
    let mut it = Stage::new(1, 1);
    it.steps();
    it.restarts(0).steps();
    it.later(20).hear(0, 1, 0, RunEvent::HandedOver).steps();
    assert_eq!(it.later(60).steps(), "Running: changed");
    it.hear(0, 2, 1, started(1)).steps();
    assert_eq!(it.later(29).steps(), "Running: changed");
    // Its service dies: until another one has it, no time counts.
    it.dead.insert(service(2));
    assert_eq!(it.later(100).steps(), "Running: changed");
    it.hear(0, 3, 2, started(1)).steps();
    assert_eq!(it.later(29).steps(), "Running: changed");
    assert_eq!(it.later(1).steps(), "Completed: done");
}

#[test]
fn the_first_failed_attempt_pauses_the_rollout() {
    let mut it = Stage::new(3, 1);
    it.steps();
    it.restarts(0).steps();
    it.later(10).hear(0, 1, 0, errored()).hear(0, 1, 0, started(2));
    let paused = "Paused (observer a: an attempt failed: no route): failed pending pending";
    assert_eq!(it.steps(), paused);
    assert_eq!(it.later(900).steps(), paused);
    // Resumed, it waits for the same member again; errors before the resume do not count.
    it.act(RolloutAction::Resume);
    assert_eq!(it.steps(), "Running: changed pending pending");
    assert_eq!(it.later(30).steps(), "Running: done changed pending");
}

#[test]
fn errors_of_the_former_definition_do_not_count() {
    let mut it = Stage::new(1, 1);
    it.hear(0, 1, 0, errored()).hear(0, 1, 0, started(2));
    it.steps();
    it.hear(0, 1, 0, errored());
    assert_eq!(it.steps(), "Running: changed");
    it.restarts(0).steps();
    assert_eq!(it.later(30).steps(), "Completed: done");
    // A change that restarts nothing is judged in the same generation.
    let mut it = Stage::new(1, 1);
    it.rollout.patch = json!({"labels": {"team": "x"}});
    it.hear(0, 1, 0, errored()).hear(0, 1, 0, started(2));
    assert_eq!(it.steps(), "Running: changed");
    assert_eq!(it.later(29).steps(), "Running: changed");
    it.hear(0, 1, 0, errored());
    assert_eq!(it.steps(), "Paused (observer a: an attempt failed: no route): failed");
}

#[test]
fn an_observer_that_gives_up_or_is_too_slow_stops_the_rollout() {
    let mut it = Stage::new(2, 1);
    it.steps();
    it.restarts(0).hear(0, 1, 0, RunEvent::Failed { error: "boom".into(), attempts: 3 });
    assert_eq!(it.steps(), "Paused (observer a: gave up after 3 attempts: boom): failed pending");
    let mut it = Stage::new(2, 1);
    it.on_failure(OnFailure::Revert).steps();
    assert_eq!(it.later(599).steps(), "Running: changed pending");
    let said = it.later(1).steps();
    assert_eq!(
        said,
        "Paused (observer a: not healthy within 10m: Processing told to stop, then restarts): failed pending"
    );
    it.act(RolloutAction::Resume);
    assert_eq!(it.steps(), "Running: changed pending", "it has its timeout again");
    assert_eq!(it.later(599).steps(), "Running: changed pending");
}

#[test]
fn a_pause_stops_the_clock_of_timeouts() {
    let mut it = Stage::new(2, 1);
    it.steps();
    it.later(500).act(RolloutAction::Pause);
    assert_eq!(it.later(500).steps(), "Paused (paused by ada): changed pending");
    it.act(RolloutAction::Resume);
    assert_eq!(it.later(599).steps(), "Running: changed pending");
    it.restarts(0).steps();
    it.act(RolloutAction::Pause);
    it.later(30).act(RolloutAction::Resume);
    assert_eq!(it.steps(), "Running: done changed");
}

#[test]
fn what_fails_during_a_pause_does_not_count_and_what_fails_after_it_does() {
    for (during, after, said) in [
        (true, false, "Running: changed"),
        (false, true, "Paused (observer a: an attempt failed: no route): failed"),
    ] {
        let mut it = Stage::new(1, 1);
        it.steps();
        it.restarts(0).act(RolloutAction::Pause).later(5);
        if during {
            it.hear(0, 1, 0, errored());
        }
        it.later(5).act(RolloutAction::Resume);
        // No manager has looked at the rollout since it was resumed.
        it.later(1);
        if after {
            it.hear(0, 1, 0, errored());
        }
        assert_eq!(it.steps(), said);
    }
}

#[test]
fn completed_code_is_healthy_and_completed_code_with_an_error_is_not() {
    let mut it = Stage::new(1, 1);
    it.steps();
    it.restarts(0).hear(0, 1, 0, RunEvent::Completed);
    assert_eq!(it.steps(), "Completed: done");
    let mut it = Stage::new(1, 1);
    it.steps();
    it.restarts(0).hear(0, 1, 0, errored()).hear(0, 1, 0, started(2)).hear(0, 1, 0, RunEvent::Completed);
    assert_eq!(it.steps(), "Paused (observer a: an attempt failed: no route): failed");
}

#[test]
fn members_that_do_not_run_are_changed_without_waiting() {
    let mut it = Stage::new(4, 1);
    for place in [0, 1] {
        let now = it.now;
        it.row(place).pause(now, &RowPolicy::default()).unwrap();
        it.hear(place, 1, 0, RunEvent::Stopped);
    }
    it.hear(2, 1, 0, RunEvent::Completed);
    assert_eq!(it.steps(), "Running: done done done changed");
    assert_eq!((it.every(0), it.every(2)), ("9s", "9s"));
    assert_eq!(it.reason(0), "it did not run when it was changed: Paused");
    // The rollout does not wait for a member that a user has paused.
    let now = it.now;
    it.row(3).pause(now, &RowPolicy::default()).unwrap();
    it.hear(3, 1, 0, RunEvent::Stopped);
    assert_eq!(it.steps(), "Completed: done done done done");
    assert_eq!(it.reason(3), "does not run: Paused");
}

#[test]
fn edited_and_deleted_members_are_skipped() {
    let mut it = Stage::new(5, 2);
    it.edit(0).row(1).delete(Timestamp(9), &RowPolicy::default());
    it.rows[2] = None;
    it.rollout.max_parallel = 1;
    assert_eq!(it.steps(), "Running: skipped skipped skipped changed pending");
    assert_eq!(it.reason(0), "it was edited: its definition has version 2 instead of 1");
    assert_eq!((it.reason(1), it.reason(2)), ("it was deleted", "it was deleted"));
    assert_eq!(it.edit(3).steps(), "Running: skipped skipped skipped skipped changed");
    let now = it.now;
    let same = it.row(4).definition.patched(&json!({"spec": {"every": "1s"}})).unwrap();
    it.row(4).update(same, now, &RowPolicy::default()).unwrap();
    assert_eq!(it.steps(), "Completed: skipped skipped skipped skipped skipped");
}

#[test]
fn a_patch_that_changes_nothing_skips_the_member() {
    let mut it = Stage::new(2, 1);
    it.rollout.patch = json!({"spec": {"every": "1s"}});
    assert_eq!(it.steps(), "Completed: skipped skipped");
    assert_eq!(it.reason(0), "the patch changes nothing");
}

#[test]
fn an_invalid_definition_fails_the_rollout() {
    let mut it = Stage::new(2, 2);
    it.rollout.patch = json!({"grace": "61m"});
    assert_eq!(it.steps(), "Paused (observer a: /grace is 1h 1m: write at most 1h): failed pending");
    it.rollout.patch = json!({"grace": "59m"});
    it.act(RolloutAction::Resume);
    assert_eq!(it.steps(), "Running: changed changed");
    let mut it = Stage::new(2, 1);
    it.rollout.patch = json!({"pool": "gpu"});
    assert_eq!(it.steps(), "Paused (observer a: may not use pool gpu): failed pending");
    let mut it = Stage::new(2, 2);
    it.refuses_kinds = true;
    it.on_failure(OnFailure::Revert);
    let refused = "Reverted (observer a: /spec/every is too often): failed pending";
    assert_eq!(it.steps(), refused);
}

#[test]
fn a_revert_restores_all_changed_members_a_few_at_a_time() {
    let mut it = Stage::new(4, 2);
    it.on_failure(OnFailure::Revert).steps();
    it.restarts(0).restarts(1).steps();
    it.later(30).steps();
    it.edit(1).restarts(2).hear(2, 1, 0, errored());
    let why = "observer c: an attempt failed: no route";
    // Unhealthy members are reverted first: they are in progress already.
    assert_eq!(it.steps(), format!("Reverting ({why}): done done reverting reverting"));
    assert_eq!((it.every(0), it.every(1), it.every(2), it.every(3)), ("9s", "9s", "1s", "1s"));
    // The next one follows once one of them runs, healthy or not, or after `healthy_for`.
    it.restarts(2);
    assert_eq!(it.steps(), format!("Reverting ({why}): reverting skipped reverted reverting"));
    assert_eq!(it.later(29).steps(), format!("Reverting ({why}): reverting skipped reverted reverting"));
    assert_eq!(it.later(1).steps(), format!("Reverted ({why}): reverted skipped reverted reverted"));
    assert_eq!(it.every(0), "1s");
    assert_eq!(it.row(0).revision().number, 3);
    assert_eq!(it.reason(2), "an attempt failed: no route");
}

#[test]
fn a_user_reverts_or_cancels_it_and_what_is_over_stays_over() {
    let mut it = Stage::new(2, 1);
    it.steps();
    it.act(RolloutAction::Revert);
    assert_eq!(it.steps(), "Reverting (reverted by ada): reverting pending");
    assert_eq!(it.rollout.act(RolloutAction::Resume, None, it.now), Err(NotNow(RolloutState::Reverting)));
    assert_eq!(it.rollout.act(RolloutAction::Revert, None, it.now), Ok(false));
    it.act(RolloutAction::Cancel);
    assert_eq!(it.steps(), "Cancelled (cancelled by ada): reverting pending");
    for action in [RolloutAction::Pause, RolloutAction::Resume, RolloutAction::Revert, RolloutAction::Cancel]
    {
        assert_eq!(it.rollout.act(action, None, it.now), Err(NotNow(RolloutState::Cancelled)));
    }
}

#[test]
fn each_change_of_the_state_is_an_event() {
    let mut it = Stage::new(2, 1);
    it.rollout.counts = BTreeMap::from([(MemberState::Pending, 2)]);
    let before = it.rollout.clone();
    assert_eq!(
        before.event(None),
        Some((EventKind::RolloutStarted, "rollout faster of 2 observers".to_owned()))
    );
    assert_eq!(before.event(Some(&before)), None);
    it.act(RolloutAction::Pause);
    let paused = (EventKind::RolloutPaused, "rollout faster: paused by ada".to_owned());
    assert_eq!(it.rollout.event(Some(&before)), Some(paused));
    it.act(RolloutAction::Resume);
    let next = it.step().unwrap();
    it.rollout.recount(next.members.iter());
    let counts = [(MemberState::Pending, 1), (MemberState::Changed, 1)];
    assert_eq!(it.rollout.counts, BTreeMap::from(counts));
    assert_eq!(it.rollout.total(), 2);
}
