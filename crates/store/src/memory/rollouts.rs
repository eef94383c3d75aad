//! Rollouts in memory.

use super::MemoryStore;
use crate::port::{MembersPart, RolloutCreated, Rollouts, StepSaved, StoreError};
use crate::rollout_columns::{applied, changes};
use async_trait::async_trait;
use everwatch_core::id::{RolloutId, RolloutRef};
use everwatch_core::rollout::{Member, OPEN_MAX, Rollout, Step};
use std::collections::{BTreeMap, HashSet};

/// The stored rollouts, each with its members by place.
pub(super) type Stored = BTreeMap<RolloutId, (Rollout, BTreeMap<u32, Member>)>;

fn newest_first(stored: &Stored) -> Vec<&Rollout> {
    let mut all: Vec<&Rollout> = stored.values().map(|(rollout, _)| rollout).collect();
    all.sort_by_key(|it| std::cmp::Reverse((it.created_at, it.id)));
    all
}

#[async_trait]
impl Rollouts for MemoryStore {
    async fn create_rollout(
        &self,
        rollout: &Rollout,
        members: &[Member],
    ) -> Result<RolloutCreated, StoreError> {
        let stored = &mut self.tables().rollouts;
        if stored.contains_key(&rollout.id) {
            return Ok(RolloutCreated::Exists);
        }
        let open: Vec<_> = stored.values().filter(|(it, _)| it.ended_at.is_none()).collect();
        if open.iter().any(|(it, _)| it.name == rollout.name) {
            return Ok(RolloutCreated::NameTaken);
        }
        if open.len() >= OPEN_MAX {
            return Ok(RolloutCreated::TooMany);
        }
        let wanted: HashSet<_> = members.iter().map(|it| it.observer).collect();
        for (other, theirs) in open {
            if let Some(member) = theirs.values().find(|it| wanted.contains(&it.observer)) {
                let (observer, rollout) = (member.name.clone(), other.name.clone());
                return Ok(RolloutCreated::Busy { observer, rollout });
            }
        }
        let members = members.iter().map(|it| (it.place, it.clone())).collect();
        stored.insert(rollout.id, (rollout.clone(), members));
        Ok(RolloutCreated::Done)
    }
    async fn rollout(&self, which: &RolloutRef) -> Result<Option<Rollout>, StoreError> {
        let stored = &self.tables().rollouts;
        Ok(match which {
            RolloutRef::Id(id) => stored.get(id).map(|(rollout, _)| rollout.clone()),
            RolloutRef::Name(name) => newest_first(stored).into_iter().find(|it| it.name == *name).cloned(),
        })
    }
    async fn rollouts(&self, most: usize) -> Result<Vec<Rollout>, StoreError> {
        Ok(newest_first(&self.tables().rollouts).into_iter().take(most).cloned().collect())
    }
    async fn open_rollouts(&self) -> Result<Vec<Rollout>, StoreError> {
        let tables = self.tables();
        let open = newest_first(&tables.rollouts).into_iter().rev().filter(|it| it.ended_at.is_none());
        Ok(open.cloned().collect())
    }
    async fn rollout_members(&self, part: &MembersPart<'_>) -> Result<Vec<Member>, StoreError> {
        let tables = self.tables();
        let Some((_, members)) = tables.rollouts.get(&part.rollout) else { return Ok(Vec::new()) };
        let is_in = |it: &&Member| {
            part.after.is_none_or(|after| it.place > after)
                && (part.states.is_empty() || part.states.contains(&it.state))
        };
        Ok(members.values().filter(is_in).take(part.most).cloned().collect())
    }
    async fn save_step(&self, step: &Step) -> Result<Option<StepSaved>, StoreError> {
        let mut tables = self.tables();
        let version = tables.rollouts.get(&step.rollout.id).map(|(rollout, _)| rollout.version);
        if version != Some(step.rollout.version) {
            return Ok(None);
        }
        let late = tables.save(&changes(step), &self.policy)?;
        let (rollout, members) = applied(step, &late);
        if let Some((stored, all)) = tables.rollouts.get_mut(&rollout.id) {
            all.extend(members.into_iter().map(|it| (it.after.place, it.after.clone())));
            stored.clone_from(&rollout);
        }
        Ok(Some(StepSaved { rollout, late }))
    }
    async fn forget_rollouts(&self, keep: usize) -> Result<u64, StoreError> {
        let stored = &mut self.tables().rollouts;
        let mut ended: Vec<_> = stored.values().filter_map(|(it, _)| Some((it.ended_at?, it.id))).collect();
        ended.sort_unstable_by(|a, b| b.cmp(a));
        let forgotten = ended.split_off(keep.min(ended.len()));
        forgotten.iter().for_each(|(_, id)| drop(stored.remove(id)));
        Ok(forgotten.len() as u64)
    }
}
