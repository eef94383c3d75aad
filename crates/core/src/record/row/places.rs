//! The places of limits that an observer uses: from its admission until no queue and no service has its message.
//!
//! The obvious way gives the places back when the observer ends. But a service reports the end before it acknowledges the
//! message. If it dies between the two, the broker redelivers the message, and the code runs again until a manager's
//! revocation arrives. Meanwhile another observer would have the place.

use crate::clock::Timestamp;
use crate::id::{LimitKey, Pool, ServiceId};
use crate::record::observed::RunPhase;
use crate::record::row::{Desired, Row};
use crate::record::status::Status;
use crate::wire::report::{RunEvent, RunReport};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::time::Duration;

/// The places of an admitted observer whose definition names limits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Places {
    /// The limits of the definition with which it was admitted.
    pub keys: BTreeSet<LimitKey>,
    /// The pool in whose queue its message was published.
    pub pool: Pool,
    /// The queue may also have the message of an earlier generation, because a publish was not confirmed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub in_doubt: bool,
    /// The highest acquisitions of a run of this generation whose message is gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub released: Option<u32>,
}

/// How an observer counts towards a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Use {
    /// Its definition names the limit; it uses no place and waits for none.
    Named,
    /// It waits for a slot, not for a place.
    Waiting,
    /// It waits for a place of this limit.
    Behind,
    /// It uses a place.
    Used,
    /// It uses a place although it has ended: its message may still be there.
    Unreleased,
}

impl Use {
    /// The value as text.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Named => "named",
            Self::Waiting => "waiting",
            Self::Behind => "behind",
            Self::Used => "used",
            Self::Unreleased => "unreleased",
        }
    }

    /// Whether it counts towards the maximum.
    #[must_use]
    pub fn uses_place(self) -> bool {
        matches!(self, Self::Used | Self::Unreleased)
    }
}

impl Row {
    /// Each limit that its definition names or whose place it uses. One that is deleted will never need a place again.
    #[must_use]
    pub fn limit_uses(&self) -> Vec<(LimitKey, Use)> {
        let is_deleted = self.desired == Desired::Deleted && self.verdict().status == Status::Deleted;
        let named = Some(&self.definition.limits).filter(|_| !is_deleted).into_iter().flatten();
        let used = self.used_limits();
        if self.definition.limits.is_empty() && used.is_none() {
            return Vec::new();
        }
        let in_use = if self.awaits_release() { Use::Unreleased } else { Use::Used };
        let otherwise = |key: &LimitKey| match &self.behind {
            Some(behind) if behind == key && self.is_behind_limit() => Use::Behind,
            _ if self.is_waiting() => Use::Waiting,
            _ => Use::Named,
        };
        let keys: BTreeSet<&LimitKey> = named.chain(used.into_iter().flatten()).collect();
        let of =
            |key: &LimitKey| if used.is_some_and(|it| it.contains(key)) { in_use } else { otherwise(key) };
        keys.into_iter().map(|key| (key.clone(), of(key))).collect()
    }

    /// The limits whose places it uses.
    #[must_use]
    pub fn used_limits(&self) -> Option<&BTreeSet<LimitKey>> {
        let places = self.places.as_ref()?;
        (!self.is_message_gone() || self.keeps_slot()).then_some(&places.keys)
    }

    /// Whether it has ended, and its message may still be there: no other observer may have its places.
    #[must_use]
    pub fn awaits_release(&self) -> bool {
        self.places.is_some() && self.observed.settled.is_some() && !self.is_message_gone()
    }

    /// Whether it waits for a place of a limit.
    #[must_use]
    pub fn is_behind_limit(&self) -> bool {
        self.waits_in_backlog() && self.behind.is_some()
    }

    fn is_message_gone(&self) -> bool {
        let released = self.places.as_ref().filter(|places| !places.in_doubt).and_then(|it| it.released);
        self.observed.settled.is_some() && released >= Some(self.observed.acquisitions())
    }

    /// Whether its next generation is published without another admission.
    pub(super) fn keeps_slot(&self) -> bool {
        self.wants_republish() && self.readmitted != Some(self.generation)
    }

    /// Uses the places of its definition's limits, or keeps those that it uses.
    pub(crate) fn take_places(&mut self) {
        let kept = self.places.as_ref().filter(|_| self.used_limits().is_some());
        let keys = kept.map_or(&self.definition.limits, |places| &places.keys).clone();
        let in_doubt = kept.is_some_and(|places| places.in_doubt || self.publish_lease.is_some());
        let pool = self.definition.pool.clone();
        self.places = (!keys.is_empty()).then_some(Places { keys, pool, in_doubt, released: None });
    }

    /// Its service reports that the message of a run is gone.
    pub(super) fn hear_release(&mut self, report: &RunReport) {
        let acquisitions = report.epoch.acquisitions();
        if report.event == RunEvent::Released
            && let Some(places) = &mut self.places
        {
            places.released = places.released.max(Some(acquisitions));
        }
    }

    /// A manager knows that no queue and no service has the message of this generation.
    pub(crate) fn note_message_gone(&mut self) {
        if let Some(places) = &mut self.places {
            places.released = Some(u32::MAX);
        }
    }

    /// Waits for a place of this limit.
    pub fn wait_behind(&mut self, key: LimitKey, now: Timestamp) {
        (self.behind, self.modified_at) = (Some(key), now);
    }

    /// A place may be free: waits for a slot like any other observer.
    pub fn come_forward(&mut self, now: Timestamp) {
        (self.behind, self.modified_at) = (None, now);
    }

    /// Whether its message must be gone although no service has reported that. The caller has seen the queue of its pool
    /// empty and with consumers for `orphan_after`; `listed_at` is the oldest of the newest inventories of all living
    /// services.
    #[must_use]
    pub fn is_surely_gone(
        &self,
        living: &[ServiceId],
        listed_at: Option<Timestamp>,
        now: Timestamp,
        orphan_after: Duration,
    ) -> bool {
        let Some(settled) = self.observed.settled.as_ref().filter(|_| self.awaits_release()) else {
            return false;
        };
        let in_doubt = self.places.as_ref().is_some_and(|it| it.in_doubt);
        // One that gave the message back has nothing to report.
        let holds = |phase: &RunPhase| {
            !matches!(phase, RunPhase::HandedOver | RunPhase::HandedOverFor { .. } | RunPhase::Refused { .. })
        };
        let latest = self.observed.latest.as_ref().filter(|latest| holds(&latest.phase));
        let latest = latest.map(|latest| (latest.key.acquisitions, latest.service));
        let newest = latest.max(Some((settled.key.acquisitions, settled.service)));
        // A living service reports it, but it knows nothing of the message in doubt.
        let will_report = newest.is_some_and(|(_, service)| living.contains(&service)) && !in_doubt;
        let listed = listed_at.is_none_or(|at| at > self.modified_at);
        // A service that has the message in doubt was told to stop its code.
        let grace = if in_doubt { self.definition.grace } else { Duration::ZERO };
        !will_report && listed && now.since(self.modified_at) >= orphan_after.saturating_add(grace)
    }

    /// Releases its places, because its message is surely gone.
    pub fn release_places(&mut self, now: Timestamp) {
        self.note_message_gone();
        if let Some(places) = &mut self.places {
            places.in_doubt = false;
        }
        self.modified_at = now;
    }
}

#[cfg(test)]
#[path = "places_tests.rs"]
mod tests;
