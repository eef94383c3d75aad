//! The publishes of an observer: each raises the generation and belongs to the manager that has its lease.

use crate::clock::Timestamp;
use crate::record::row::{Desired, PublishLease, Row};
use crate::record::row_policy::{RowPolicy, doubled};

impl Row {
    /// Raises the generation, leases its publish and discards the observed state of the old one.
    pub fn republish(&mut self, now: Timestamp, policy: &RowPolicy) {
        self.take_places();
        let failures = self.publish_lease.map_or(0, |mark| mark.failures.saturating_add(1));
        if self.generation.max(self.reserve) > 0 {
            self.commanded_at = Some(now);
        }
        if self.waiting.is_some() {
            self.start_execution(now);
        }
        self.generation = self.generation.max(self.reserve).saturating_add(1);
        self.reserve = 0;
        let runs = std::mem::take(&mut self.observed).runs;
        self.errors.clear();
        self.former_runs = if self.crash_check.is_some() { runs } else { Vec::new() };
        (self.ending, self.promised, self.unlisted) = (None, None, None);
        (self.published_at, self.refused_since, self.withdrawn_at) = (None, None, None);
        if self.desired == Desired::Running {
            self.resend = None;
        }
        self.publish_lease = Some(PublishLease { until: now.plus(policy.lease), failures });
        (self.waiting, self.behind, self.readmitted, self.preempted) = (None, None, None, None);
        self.closes_at = self.window_end(now);
        self.ended_at = None;
        self.modified_at = now;
    }

    /// The broker has confirmed the publish of `generation`; returns whether the publish was still open.
    pub fn confirmed(&mut self, generation: u32, at: Timestamp) -> bool {
        if self.generation != generation || self.publish_lease.is_none() {
            return false;
        }
        self.publish_lease = None;
        self.published_at = Some(at);
        self.modified_at = self.modified_at.max(at);
        true
    }

    /// The publish of `generation` is still in progress: renews its lease.
    pub fn renew(&mut self, generation: u32, now: Timestamp, policy: &RowPolicy) -> bool {
        match &mut self.publish_lease {
            Some(mark) if self.generation == generation => {
                mark.until = now.plus(policy.lease);
                true
            }
            _ => false,
        }
    }

    /// The publish of `generation` ended without a confirm: the next one does not wait for the end of the lease, but
    /// for a pause that grows each time.
    pub fn publish_unconfirmed(&mut self, generation: u32, now: Timestamp, policy: &RowPolicy) -> bool {
        match &mut self.publish_lease {
            Some(mark) if self.generation == generation => {
                mark.until = now.plus(doubled(policy.republish_first, mark.failures, policy.republish_max));
                true
            }
            _ => false,
        }
    }
}
