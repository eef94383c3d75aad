//! Observers that the services of their pool cannot run: when a manager takes their messages out of the queue, and when
//! it publishes them again.
//!
//! The obvious way leaves such a message in the queue until a service that can run it takes it. But the other services
//! take it again and again, and each holds it for a while so that it does not circle. While held, the message occupies
//! a slot that other observers need.

use crate::clock::Timestamp;
use crate::id::{Kind, Pool};

use crate::message::VERSION;
use crate::row::{Desired, Row, RowPolicy};
use crate::seen::Settlement;
use crate::service::{ServiceRow, ServiceState};
use std::time::Duration;

/// A message leaves the queue when it has been refused for this long. Most services that have lost their connection are
/// back within two seconds, so their observers keep their messages; other observers wait for a slot no longer than
/// this.
pub const WITHDRAW_AFTER: Duration = Duration::from_secs(5);

/// Observers of one kind in one pool whose services could not run them.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Refused {
    pub pool: Pool,
    pub kind: Kind,
    /// Their messages are out of the queue.
    pub withdrawn: bool,
    /// How many there are.
    pub count: u64,
}

/// What becomes of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Placement {
    /// Nothing: a service is about to take them, or their messages are out of the queue and no service can run them.
    Leave,
    /// Their messages leave the queue.
    Withdraw,
    /// So many of them are published again, the oldest first.
    Release(u32),
}

impl Refused {
    /// What becomes of them, with these living services.
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

/// Free slots of the pool's active services that run this kind, by their newest heartbeats.
fn room(kind: &Kind, pool: &Pool, services: &[ServiceRow]) -> u32 {
    let able = services.iter().filter(|it| {
        let runs = it.birth.kinds.iter().any(|info| info.name == *kind);
        // In an upgrade, older services may not be able to read what a manager publishes.
        let reads = it.birth.message_version >= VERSION;
        it.birth.pool == *pool && it.state() == ServiceState::Active && runs && reads
    });
    able.fold(0, |free, it| free.saturating_add(it.capacity().saturating_sub(it.held())))
}

impl Row {
    /// Whether its message is out of the queue, or on its way out, because no service of its pool could run it.
    #[must_use]
    pub fn is_withdrawn(&self) -> bool {
        let ended = self.seen.settled.as_ref().is_some_and(|settled| settled.how != Settlement::Stopped);
        self.withdrawn_at.is_some() && self.desired == Desired::Running && !ended
    }

    /// Takes its message out of the queue if it has been refused for [`WITHDRAW_AFTER`]: this generation ends, and the
    /// next one waits for [`Row::release`].
    pub fn withdraw(&mut self, now: Timestamp, policy: &RowPolicy) -> bool {
        let long = self.refused_since.is_some_and(|since| now.since(since) >= WITHDRAW_AFTER);
        let refused = self.seen.settled.is_none() && self.seen.refusal().is_some();
        if !long || !refused || self.desired != Desired::Running || self.awaits_end() {
            return false;
        }
        (self.withdrawn_at, self.ending, self.modified_at) = (Some(now), Some(self.generation), now);
        self.command(now, policy);
        true
    }

    /// A service can run it: its next generation is due.
    pub fn release(&mut self, now: Timestamp) -> bool {
        if !self.is_withdrawn() {
            return false;
        }
        (self.withdrawn_at, self.modified_at) = (None, now);
        true
    }
}

#[cfg(test)]
#[path = "placement_tests.rs"]
mod tests;
