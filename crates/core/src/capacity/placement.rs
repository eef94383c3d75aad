//! Observers that the services of their pool cannot run: when a manager withdraws their messages, and when it publishes
//! them again.
//!
//! The obvious way leaves such a message in the queue until a service that can run it takes it. But the other services
//! take it again and again, and each holds it for a while so that it does not circle. While held, the message occupies
//! a slot that other observers need.

use crate::capacity::kind_offer::offered_kinds;
use crate::clock::Timestamp;
use crate::id::{Kind, Pool};

use crate::record::observed::Settlement;
use crate::record::row::{Desired, Row};
use crate::record::row_policy::RowPolicy;
use crate::record::service::ServiceRow;
use crate::record::taking::taking;
use crate::wire::message::VERSION;
use std::time::Duration;

/// A manager withdraws a message that services have refused for this long. Most services that lost their connection are
/// back within two seconds, so their observers keep their messages; other observers wait for a slot no longer than
/// this.
pub const WITHDRAW_AFTER: Duration = Duration::from_secs(5);

/// Observers of one kind in one pool whose services could not run them.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Refused {
    pub pool: Pool,
    pub kind: Kind,
    /// Whether their messages are withdrawn.
    pub withdrawn: bool,
    /// Their number.
    pub count: u64,
}

/// The decision about them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Placement {
    /// Do nothing: a service is about to take them, or they are withdrawn and no service can run them.
    Leave,
    /// Withdraw their messages.
    Withdraw,
    /// Let this many of them wait for a slot again, the oldest first.
    Release(u32),
}

impl Refused {
    /// Whether a living service of the pool offers the kind: observers that were withheld from the backlog return to it,
    /// even if all slots are in use.
    #[must_use]
    pub fn is_offered(&self, services: &[ServiceRow]) -> bool {
        offered_kinds(services, &self.pool).contains(&self.kind)
    }

    /// Decides about them, given the living services.
    #[must_use]
    pub fn placement(&self, services: &[ServiceRow]) -> Placement {
        match (self.withdrawn, room(&self.kind, &self.pool, services)) {
            (true, 0) => Placement::Leave,
            (true, free) => Placement::Release(free.min(u32::try_from(self.count).unwrap_or(u32::MAX))),
            (false, 0) => Placement::Withdraw,
            (false, _) => Placement::Leave,
        }
    }
}

/// Free slots of the pool's active services that run this kind, by their latest heartbeats.
fn room(kind: &Kind, pool: &Pool, services: &[ServiceRow]) -> u32 {
    let able = taking(services).into_iter().filter(|it| {
        let runs = it.registration.kinds.iter().any(|info| info.name == *kind);
        // In an upgrade, older services may not be able to read what a manager publishes.
        let reads = it.registration.message_version >= VERSION;
        it.registration.pool == *pool && runs && reads
    });
    able.fold(0, |free, it| free.saturating_add(it.room()))
}

impl Row {
    /// Whether its message is withdrawn or being withdrawn because no service of its pool could run it.
    #[must_use]
    pub fn is_withdrawn(&self) -> bool {
        let ended = self.observed.settled.as_ref().is_some_and(|settled| settled.how != Settlement::Stopped);
        self.withdrawn_at.is_some() && self.desired == Desired::Running && (!ended || self.waiting.is_some())
    }

    /// Withdraws its message if it has been refused for [`WITHDRAW_AFTER`]: this generation ends, and the next one
    /// waits for [`Row::release`].
    pub fn withdraw(&mut self, now: Timestamp, policy: &RowPolicy) -> bool {
        let long = self.refused_since.is_some_and(|since| now.since(since) >= WITHDRAW_AFTER);
        let refused = self.observed.settled.is_none() && self.observed.refusal().is_some();
        if !long || !refused || self.desired != Desired::Running || self.awaits_end() {
            return false;
        }
        (self.withdrawn_at, self.ending, self.modified_at) = (Some(now), Some(self.generation), now);
        self.command(now, policy);
        true
    }

    /// A service offers its kind: an observer that was withheld from the backlog returns to its place.
    pub fn readmit(&mut self, now: Timestamp) -> bool {
        self.waiting.is_some() && self.release(now)
    }

    /// A service can run it: lets it wait for a slot.
    pub fn release(&mut self, now: Timestamp) -> bool {
        if !self.is_withdrawn() {
            return false;
        }
        if self.waiting.is_none() && self.observed.settled.is_none() && self.generation > 0 {
            // Its message is not withdrawn yet. Its next generation keeps the slot.
            (self.withdrawn_at, self.modified_at) = (None, now);
            return true;
        }
        let since = self.waiting.map(|it| it.since).or(self.withdrawn_at).unwrap_or(now);
        self.wait_for_slot(since, now);
        true
    }
}

#[cfg(test)]
#[path = "placement_tests.rs"]
mod tests;
