//! How fast the members of a batch end, and when the last one will.

use crate::batch::Batch;
use crate::clock::Timestamp;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The rate of a batch is that of this last time.
pub const RATE_OVER: Duration = Duration::from_secs(300);
/// How often a sample is taken.
const SAMPLE_EVERY: Duration = Duration::from_secs(30);
/// If no member has ended for this time, and for [`QUIET_INTERVALS`] times the mean time between two ends, the members that are left
/// differ from those that have ended: some may never end.
const QUIET_MIN: Duration = Duration::from_secs(60);
/// Of independent ends, 5 in 100 pauses are longer than this many mean times: e^-3.
const QUIET_INTERVALS: f64 = 3.0;
/// A shorter time says nothing about the rate.
const RATE_OVER_MIN: Duration = Duration::from_secs(1);

/// How many members had ended at a time, by the database's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sample {
    pub at: Timestamp,
    pub settled: u32,
}

impl Batch {
    /// Takes a sample if the last one is old enough; returns whether it did.
    pub(super) fn sample(&mut self, settled: u32, now: Timestamp) -> bool {
        if self.samples.last().is_some_and(|last| now.since(last.at) < SAMPLE_EVERY) {
            return false;
        }
        self.samples.push(Sample { at: now, settled });
        let kept = self.first_sample(now);
        self.samples.drain(..kept);
        true
    }

    /// The place of the sample from which the rate is measured: the first one within [`RATE_OVER`].
    fn first_sample(&self, now: Timestamp) -> usize {
        let within = self.samples.iter().position(|it| now.since(it.at) <= RATE_OVER);
        within.unwrap_or(self.samples.len().saturating_sub(1))
    }

    /// Members that end per minute, over the last five minutes or since the first sample. `None`: not known yet, or the
    /// batch is over.
    #[must_use]
    pub fn rate(&self, settled: u32, now: Timestamp) -> Option<f64> {
        if self.ended_at.is_some() {
            return None;
        }
        let first = self.samples.get(self.first_sample(now))?;
        let over = now.since(first.at);
        let ended = f64::from(settled.saturating_sub(first.settled));
        (over >= RATE_OVER_MIN).then(|| ended / over.as_secs_f64() * 60.0)
    }

    /// For how long no member has ended, as far as the samples tell.
    fn quiet(&self, settled: u32, now: Timestamp) -> Duration {
        let same = self.samples.iter().rev().take_while(|it| it.settled == settled);
        same.last().map_or(Duration::ZERO, |it| now.since(it.at))
    }

    /// How long until all members have ended, at that rate. `None` if it is not known, or if none has ended for much longer than at
    /// that rate.
    #[must_use]
    pub fn time_left(&self, settled: u32, now: Timestamp) -> Option<Duration> {
        let rate = self.rate(settled, now).filter(|rate| *rate > 0.0)?;
        let first = self.samples.get(self.first_sample(now))?;
        // The time between two ends, without the pause: it would make itself look usual.
        let (quiet, ended) = (self.quiet(settled, now), settled.saturating_sub(first.settled).max(1));
        let interval = now.since(first.at).saturating_sub(quiet) / ended;
        if quiet > interval.mul_f64(QUIET_INTERVALS).max(QUIET_MIN) {
            return None;
        }
        let left = f64::from(self.total.saturating_sub(settled));
        Some(Duration::from_secs((left / rate * 60.0).ceil() as u64))
    }
}
