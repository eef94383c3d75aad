//! Checks of rollouts.

use super::*;
use crate::port::{MembersPart, RolloutCreated};
use everwatch_core::id::{RolloutId, RolloutRef};
use everwatch_core::rollout::{
    Member, MemberState, MemberStep, OPEN_MAX, OnFailure, Rollout, RolloutState, Step,
};
use std::collections::BTreeMap;
use std::time::Duration;

fn rollout(number: u128, text: &str, members: u32) -> Rollout {
    let at = Timestamp(NOW.0 + i64::try_from(number).unwrap());
    Rollout {
        id: RolloutId(Uuid::from_u128(number)),
        version: 1,
        name: name(text),
        selector: json!({"labels": {"team": "x"}}),
        patch: json!({"priority": 5}),
        max_parallel: 2,
        healthy_for: Duration::from_secs(30),
        timeout: Duration::from_secs(600),
        on_failure: OnFailure::Revert,
        state: RolloutState::Running,
        reason: None,
        by: Some("ada".to_owned()),
        created_at: at,
        modified_at: at,
        resumed_at: None,
        ended_at: None,
        counts: BTreeMap::from([(MemberState::Pending, members)]),
    }
}

fn member(number: u32) -> Member {
    let text = format!("o{number}");
    Member::pending(number, id(number.into()), name(&text), 1)
}

async fn started_rollout(store: &dyn Store, number: u128, text: &str, members: &[Member]) -> Rollout {
    let rollout = rollout(number, text, u32::try_from(members.len()).unwrap());
    assert_eq!(store.create_rollout(&rollout, members).await.unwrap(), RolloutCreated::Done);
    rollout
}

async fn found(store: &dyn Store, number: u128) -> Rollout {
    store.rollout(&RolloutRef::Id(RolloutId(Uuid::from_u128(number)))).await.unwrap().unwrap()
}

async fn states(store: &dyn Store, rollout: &Rollout) -> Vec<&'static str> {
    let part = MembersPart { rollout: rollout.id, states: &[], after: None, most: 100 };
    store.rollout_members(&part).await.unwrap().iter().map(|it| it.state.as_str()).collect()
}

fn turned(rollout: &Rollout, state: RolloutState, at: i64) -> Step {
    let ended_at = state.is_over().then_some(Timestamp(NOW.0 + at));
    Step { rollout: Rollout { state, ended_at, ..rollout.clone() }, members: Vec::new() }
}

/// A member whose observer gets another priority.
async fn prioritized(store: &dyn Store, number: u32) -> MemberStep {
    let row = loaded(store, number.into()).await;
    let mut after = row.clone();
    let definition = row.definition.patched(&json!({"priority": 5})).unwrap();
    after.update(definition, NOW, &RowPolicy::default()).unwrap();
    let before = member(number);
    let changed = Member { state: MemberState::Changed, changed_to: Some(2), ..before.clone() };
    MemberStep { before, after: changed, row: Some((row, after)) }
}

pub async fn a_rollout_is_found_with_its_members(store: &dyn Store) {
    let members: Vec<Member> = (1..=5).map(member).collect();
    let first = started_rollout(store, 1, "first", &members).await;
    assert_eq!(found(store, 1).await, first);
    assert_eq!(store.rollout(&RolloutRef::Name(name("second"))).await.unwrap(), None);
    let part = MembersPart { rollout: first.id, states: &[], after: Some(2), most: 2 };
    assert_eq!(store.rollout_members(&part).await.unwrap(), members[2..4]);
    let part = MembersPart { states: &[MemberState::Done, MemberState::Failed], after: None, ..part };
    assert_eq!(store.rollout_members(&part).await.unwrap(), []);
    let part = MembersPart { states: &[MemberState::Done, MemberState::Pending], ..part };
    assert_eq!(store.rollout_members(&part).await.unwrap(), members[..2]);
    // The same request, sent twice, starts one rollout.
    assert_eq!(store.create_rollout(&first, &members).await.unwrap(), RolloutCreated::Exists);
    let second = started_rollout(store, 2, "second", &[member(6)]).await;
    assert_eq!(store.rollouts(9).await.unwrap(), [second.clone(), first.clone()]);
    assert_eq!(store.rollouts(1).await.unwrap()[0], second);
    assert_eq!(store.open_rollouts().await.unwrap(), [first, second]);
}

pub async fn an_observer_is_in_one_open_rollout_at_a_time(store: &dyn Store) {
    let first = started_rollout(store, 1, "first", &[member(1), member(2)]).await;
    let create = async |number: u128, text: &str, members: &[Member]| {
        store.create_rollout(&rollout(number, text, 1), members).await.unwrap()
    };
    let busy = RolloutCreated::Busy { observer: name("o2"), rollout: name("first") };
    assert_eq!(create(2, "second", &[member(3), member(2)]).await, busy);
    assert_eq!(create(2, "first", &[member(3)]).await, RolloutCreated::NameTaken);
    assert_eq!(create(2, "second", &[member(3)]).await, RolloutCreated::Done);
    // A paused rollout keeps its members; one that is over does not.
    let paused = store.save_step(&turned(&first, RolloutState::Paused, 1)).await.unwrap().unwrap();
    assert_eq!(create(3, "third", &[member(2)]).await, busy);
    store.save_step(&turned(&paused.rollout, RolloutState::Cancelled, 2)).await.unwrap().unwrap();
    assert_eq!(create(3, "first", &[member(2)]).await, RolloutCreated::Done);
    let newest = store.rollout(&RolloutRef::Name(name("first"))).await.unwrap().unwrap();
    assert_eq!(newest.id, RolloutId(Uuid::from_u128(3)));
}

pub async fn of_two_starts_side_by_side_one_takes_the_observer(store: &dyn Store) {
    let (one, two) = (rollout(1, "first", 2), rollout(2, "second", 2));
    let (forward, backward) = ([member(1), member(2)], [member(2), member(1)]);
    let (one, two) =
        tokio::join!(store.create_rollout(&one, &forward), store.create_rollout(&two, &backward));
    let done = [one.unwrap(), two.unwrap()].into_iter().filter(|it| *it == RolloutCreated::Done).count();
    assert_eq!((done, store.open_rollouts().await.unwrap().len()), (1, 1));
}

pub async fn open_rollouts_have_a_limit(store: &dyn Store) {
    for number in 1..=OPEN_MAX as u128 {
        started_rollout(store, number, &format!("r{number}"), &[]).await;
    }
    let more = rollout(1000, "more", 0);
    assert_eq!(store.create_rollout(&more, &[]).await.unwrap(), RolloutCreated::TooMany);
}

pub async fn a_step_changes_rows_and_members_together_or_nothing(store: &dyn Store) {
    all_created(store, &[published(1, "o1"), published(2, "o2")]).await;
    let rollout = started_rollout(store, 1, "first", &[member(1), member(2)]).await;
    let members = vec![prioritized(store, 1).await, prioritized(store, 2).await];
    // A report arrives between the read and the save.
    change(store, 2, |row| hear(row, 9, 1, started())).await;
    let step = Step { rollout: rollout.clone(), members };
    let saved = store.save_step(&step).await.unwrap().unwrap();
    assert_eq!((saved.late, saved.rollout.version), (vec![id(2)], 2));
    assert_eq!(found(store, 1).await, saved.rollout);
    assert_eq!(saved.rollout.counts, BTreeMap::from([(MemberState::Pending, 1), (MemberState::Changed, 1)]));
    assert_eq!(states(store, &rollout).await, ["changed", "pending"]);
    assert_eq!(loaded(store, 1).await.definition.priority, 5);
    assert_eq!(loaded(store, 2).await.definition.priority, 0);
    assert_eq!(store.versions(id(1)).await.unwrap().len(), 1);
    // Another manager's step of the same version changes nothing, whatever its rows say.
    let late = Step { rollout, members: vec![prioritized(store, 2).await] };
    assert_eq!(store.save_step(&late).await.unwrap(), None);
    assert_eq!(states(store, &saved.rollout).await, ["changed", "pending"]);
    assert_eq!(loaded(store, 2).await.definition.priority, 0);
    let next = Step { rollout: saved.rollout.clone(), ..late };
    assert_eq!(store.save_step(&next).await.unwrap().unwrap().late, []);
    assert_eq!(loaded(store, 2).await.definition.priority, 5);
    // Members outlive their observers.
    let row = loaded(store, 1).await;
    store.forget(&[(id(1), row.version)]).await.unwrap();
    assert_eq!(states(store, &saved.rollout).await, ["changed", "changed"]);
}

pub async fn of_two_steps_side_by_side_one_is_saved(store: &dyn Store) {
    all_created(store, &[published(1, "o1"), published(2, "o2")]).await;
    let rollout = started_rollout(store, 1, "first", &[member(1), member(2)]).await;
    let one = Step { rollout: rollout.clone(), members: vec![prioritized(store, 1).await] };
    let two = Step { rollout: rollout.clone(), members: vec![prioritized(store, 2).await] };
    let (one, two) = tokio::join!(store.save_step(&one), store.save_step(&two));
    let saved = [one.unwrap(), two.unwrap()].into_iter().flatten().count();
    let priorities = loaded(store, 1).await.definition.priority + loaded(store, 2).await.definition.priority;
    assert_eq!((saved, priorities, found(store, 1).await.version), (1, 5, 2));
}

pub async fn the_oldest_ended_rollouts_are_forgotten(store: &dyn Store) {
    for number in 1..=4_u32 {
        let text = format!("r{number}");
        let rollout = started_rollout(store, number.into(), &text, &[member(number)]).await;
        if number != 2 {
            let ended = turned(&rollout, RolloutState::Completed, number.into());
            store.save_step(&ended).await.unwrap().unwrap();
        }
    }
    assert_eq!(store.forget_rollouts(2).await.unwrap(), 1);
    let left: Vec<String> = store.rollouts(9).await.unwrap().iter().map(|it| it.name.to_string()).collect();
    assert_eq!(left, ["r4", "r3", "r2"]);
    assert_eq!(states(store, &rollout(1, "r1", 1)).await, [""; 0]);
    assert_eq!(store.forget_rollouts(2).await.unwrap(), 0);
}
