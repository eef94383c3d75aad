//! Incidents: moves that belong together, because the same service gave up its observers at about the same time.

use super::Moved;
use crate::clock::Timestamp;
use crate::id::ServiceId;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// A move that comes later than this after the last one of its service belongs to another incident.
const QUIET: Duration = Duration::from_secs(30);
/// The most incidents that are held.
const INCIDENTS_MAX: usize = 1000;
/// The gaps of one incident from which its median and its 99th percentile are computed: the first ones.
const GAPS_MAX: usize = 100_000;

/// Why observers moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// Their service was lost: it was killed, or silent for too long.
    Lost,
    /// Their service stopped and handed them over.
    Stopped,
    /// Their service lives: a drain, a rebalance, a move, or a broken connection.
    HandedOver,
}

/// Moves that belong together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Incident {
    pub from: ServiceId,
    pub cause: Cause,
    /// When the first of its observers stood still, or started if none did.
    pub since: Timestamp,
    /// When the last one started.
    pub until: Timestamp,
    pub moved: u64,
    /// Where they went, and how many.
    pub to: BTreeMap<ServiceId, u64>,
    gaps: Vec<Duration>,
    pub gap_max: Duration,
    pub overlap_max: Duration,
}

impl Incident {
    /// The gap that this part of its observers did not exceed, such as 0.5 for the median.
    #[must_use]
    pub fn gap(&self, part: f64) -> Duration {
        let mut gaps = self.gaps.clone();
        gaps.sort_unstable();
        #[expect(
            clippy::cast_precision_loss,
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "at most GAPS_MAX"
        )]
        let place = ((gaps.len() as f64 * part).ceil() as usize).max(1) - 1;
        gaps.get(place).copied().unwrap_or_default()
    }
}

/// The incidents, in the order of their first moves.
#[derive(Debug, Default)]
pub(super) struct Incidents(VecDeque<Incident>);

impl Incidents {
    pub(super) fn all(&self) -> impl Iterator<Item = &Incident> {
        self.0.iter()
    }

    pub(super) fn add(&mut self, at: Timestamp, to: ServiceId, moved: Moved, cause: Option<Cause>) {
        let Moved { from, gap, overlap } = moved;
        let open = self.0.iter_mut().rev().find(|it| it.from == from && it.until.plus(QUIET) >= at);
        let it = match open {
            Some(it) => it,
            None => {
                if self.0.len() >= INCIDENTS_MAX {
                    self.0.pop_front();
                }
                self.0.push_back(Incident {
                    from,
                    cause: cause.unwrap_or(Cause::HandedOver),
                    since: at.minus(gap),
                    until: at,
                    moved: 0,
                    to: BTreeMap::new(),
                    gaps: Vec::new(),
                    gap_max: Duration::ZERO,
                    overlap_max: Duration::ZERO,
                });
                let Some(it) = self.0.back_mut() else { return };
                it
            }
        };
        it.moved += 1;
        *it.to.entry(to).or_default() += 1;
        (it.since, it.until) = (it.since.min(at.minus(gap)), it.until.max(at));
        (it.gap_max, it.overlap_max) = (it.gap_max.max(gap), it.overlap_max.max(overlap));
        if it.gaps.len() < GAPS_MAX {
            it.gaps.push(gap);
        }
    }

    /// The end of a service explains the moves from it that have just happened: observers start elsewhere before a manager
    /// concludes that their service is lost.
    pub(super) fn explain(&mut self, service: ServiceId, at: Timestamp, cause: Cause) {
        let recent = |it: &&mut Incident| it.from == service && it.until.plus(QUIET) >= at;
        if let Some(it) = self.0.iter_mut().rev().find(recent) {
            it.cause = cause;
        }
    }

    pub(super) fn forget(&mut self, before: Timestamp) {
        self.0.retain(|it| it.until >= before);
    }
}
