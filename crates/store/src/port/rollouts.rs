//! Rollouts and their members.

use super::StoreError;
use async_trait::async_trait;
use everwatch_core::id::{Name, ObserverId, RolloutId, RolloutRef};
use everwatch_core::rollout::{Member, MemberState, Rollout, Step};

/// The result of the start of a rollout.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RolloutCreated {
    Done,
    /// A rollout has this id: the same request has started it.
    Exists,
    /// A rollout of this name is not over.
    NameTaken,
    /// This observer is a member of a rollout that is not over.
    Busy {
        observer: Name,
        rollout: Name,
    },
    /// [`everwatch_core::rollout::OPEN_MAX`] rollouts are not over.
    TooMany,
}

/// A part of the members of a rollout.
#[derive(Debug, Clone, Copy)]
pub struct MembersPart<'a> {
    pub rollout: RolloutId,
    /// Empty: every state.
    pub states: &'a [MemberState],
    /// Members after this place; `None`: from the first.
    pub after: Option<u32>,
    pub most: usize,
}

/// A saved step.
#[derive(Debug, Clone, PartialEq)]
pub struct StepSaved {
    /// The rollout as it is stored now.
    pub rollout: Rollout,
    /// Observers that another writer has changed in the meantime: neither their rows nor their members are changed.
    pub late: Vec<ObserverId>,
}

/// Rollouts: patches of many observers, a few at a time.
#[async_trait]
pub trait Rollouts: Send + Sync + 'static {
    /// Stores a new rollout with its members, if no other rollout that is not over has one of them.
    async fn create_rollout(
        &self,
        rollout: &Rollout,
        members: &[Member],
    ) -> Result<RolloutCreated, StoreError>;
    /// One rollout; a name means the newest of that name.
    async fn rollout(&self, which: &RolloutRef) -> Result<Option<Rollout>, StoreError>;
    /// The newest rollouts, the newest first. Those that cannot be read are left out.
    async fn rollouts(&self, most: usize) -> Result<Vec<Rollout>, StoreError>;
    /// The rollouts that are not over, the oldest first. Those that cannot be read are left out.
    async fn open_rollouts(&self) -> Result<Vec<Rollout>, StoreError>;
    /// Members in order of their places.
    async fn rollout_members(&self, part: &MembersPart<'_>) -> Result<Vec<Member>, StoreError>;
    /// Saves a step in one transaction: the rollout, its members, and the rows of their observers. A member whose row was
    /// changed in the meantime stays as it is. `None`, and nothing is saved, if the rollout has changed since the version of
    /// the step.
    async fn save_step(&self, step: &Step) -> Result<Option<StepSaved>, StoreError>;
    /// Deletes the rollouts that are over, beyond the newest `keep`; returns their number.
    async fn forget_rollouts(&self, keep: usize) -> Result<u64, StoreError>;
}
