//! Converts rollouts and their members to the columns of their tables, and back. Both databases share this code.

use crate::columns::{read, written};
use crate::port::{Change, RolloutCreated, StoreError};
use everwatch_core::id::{Name, ObserverId, RolloutId};
use everwatch_core::rollout::{Member, MemberStep, Rollout, Step};
use std::collections::HashSet;
use uuid::Uuid;

/// What is written of a member.
#[derive(Debug)]
pub(crate) struct MemberColumns {
    pub(crate) place: i64,
    pub(crate) observer: Uuid,
    pub(crate) state: &'static str,
    pub(crate) document: String,
}

impl MemberColumns {
    pub(crate) fn of(member: &Member) -> Result<Self, StoreError> {
        Ok(Self {
            place: member.place.into(),
            observer: member.observer.0,
            state: member.state.as_str(),
            document: written(member)?,
        })
    }

    pub(crate) fn all<'a>(members: impl Iterator<Item = &'a Member>) -> Result<Vec<Self>, StoreError> {
        members.map(Self::of).collect()
    }
}

/// The columns of a stored rollout: id, version, document.
pub(crate) type StoredRollout = (Uuid, i64, String);

pub(crate) fn rollout((id, version, document): StoredRollout) -> Result<Rollout, StoreError> {
    Ok(Rollout { id: RolloutId(id), version, ..read(&document)? })
}

/// The rollouts that can be read: one that a newer manager has written hides no other.
pub(crate) fn rollouts(found: Vec<StoredRollout>) -> Vec<Rollout> {
    let read = |it: StoredRollout| {
        let id = it.0;
        rollout(it).inspect_err(|error| tracing::warn!(rollout = %id, %error, "cannot read a rollout")).ok()
    };
    found.into_iter().filter_map(read).collect()
}

pub(crate) fn members(documents: &[String]) -> Result<Vec<Member>, StoreError> {
    documents.iter().map(|document| read(document)).collect()
}

/// The answer to a start, if one of its members is a member of another rollout.
pub(crate) fn busy(members: &[Member], observer: Uuid, rollout: &str) -> Result<RolloutCreated, StoreError> {
    let rollout = Name::new(rollout).map_err(|error| StoreError::Corrupt(error.to_string()))?;
    let known = members.iter().find(|it| it.observer.0 == observer);
    let observer = known.map(|it| it.name.clone()).ok_or_else(|| {
        StoreError::Corrupt(format!("the members of rollout {rollout} are not those that were asked for"))
    })?;
    Ok(RolloutCreated::Busy { observer, rollout })
}

/// The changes of rows of a step.
pub(crate) fn changes(step: &Step) -> Vec<Change<'_>> {
    let rows = step.members.iter().filter_map(|it| it.row.as_ref());
    rows.map(|(before, after)| Change { before, after }).collect()
}

/// The rollout after a step, and the members that change, if these rows were not saved.
pub(crate) fn applied<'a>(step: &'a Step, late: &[ObserverId]) -> (Rollout, Vec<&'a MemberStep>) {
    let late: HashSet<&ObserverId> = late.iter().collect();
    let members: Vec<&MemberStep> =
        step.members.iter().filter(|it| it.row.is_none() || !late.contains(&it.after.observer)).collect();
    let mut rollout = Rollout { version: step.rollout.version + 1, ..step.rollout.clone() };
    rollout.recount(members.iter().copied());
    (rollout, members)
}
