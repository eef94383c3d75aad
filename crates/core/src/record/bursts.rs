//! Bursts of events: a service with 10,000 observers dies, and 10,000 events say that one observer started elsewhere.
//! The first events of a burst are recorded like any other event. The others are details: they are kept with the history
//! of their observer, and one summary stands for them, so that a burst does not displace the history of a week.

use crate::clock::Timestamp;
use crate::record::events::Move;
use crate::wire::message::is_false;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

/// More similar events than this in one [`WINDOW`] are a burst.
pub const SINGLE_MAX: u64 = 100;
/// A summary stands for the events of at most this time.
pub const WINDOW: Duration = Duration::from_secs(10);
/// A burst is over once no similar event came for this long.
const QUIET: Duration = Duration::from_secs(1);
/// Similar events are counted for this many keys; events of other keys count as single.
const KEYS_MAX: usize = 10_000;
/// Gaps of one burst from which its median and its 99th percentile are computed: the first ones.
const GAPS_MAX: usize = 100_000;

/// How an event is recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventClass {
    /// In all lists.
    Single,
    /// In the history of its observer: a summary stands for it elsewhere.
    Detail,
}

/// What a summary says about its events.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Burst {
    /// The number of events that it stands for.
    pub count: u64,
    /// The time of the earliest and of the latest of them.
    pub since: Timestamp,
    pub until: Timestamp,
    /// If the events are moves: their timing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub moves: Option<MoveTimes>,
}

/// The timing of many moves, in ms.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct MoveTimes {
    pub gap_ms_median: u64,
    pub gap_ms_p99: u64,
    pub gap_ms_max: u64,
    /// Whether at least one of the gaps is an upper bound.
    #[serde(default, skip_serializing_if = "is_false")]
    pub gap_is_bound: bool,
    pub overlap_ms_max: u64,
}

/// Recognizes bursts among events of the same key, such as the starts of observers that ran on the same service before.
#[derive(Debug)]
pub struct Bursts<K> {
    open: BTreeMap<K, Window>,
}

#[derive(Debug)]
struct Window {
    began: Timestamp,
    last: Timestamp,
    /// Whether it continues a burst; then all events of this window are details.
    goes_on: bool,
    count: u64,
    details: Option<Details>,
}

#[derive(Debug)]
struct Details {
    count: u64,
    since: Timestamp,
    until: Timestamp,
    gaps_ms: Vec<u64>,
    gap_ms_max: u64,
    gap_is_bound: bool,
    overlap_ms_max: u64,
}

impl<K> Default for Bursts<K> {
    fn default() -> Self {
        Self { open: BTreeMap::new() }
    }
}

impl<K: Ord + Clone> Bursts<K> {
    /// Counts one event that happened `at` and is recorded `now`. Call [`Self::end`] first.
    pub fn admit(&mut self, key: &K, at: Timestamp, went: Option<Move>, now: Timestamp) -> EventClass {
        if !self.open.contains_key(key) {
            if self.open.len() >= KEYS_MAX {
                return EventClass::Single;
            }
            self.open.insert(key.clone(), Window::new(now, false));
        }
        let Some(window) = self.open.get_mut(key) else { return EventClass::Single };
        window.last = now;
        window.count += 1;
        if !window.goes_on && window.count <= SINGLE_MAX {
            return EventClass::Single;
        }
        window.details.get_or_insert_with(|| Details::new(at)).add(at, went);
        EventClass::Detail
    }

    /// When the next summary is due; `None` while there is no burst.
    #[must_use]
    pub fn due_at(&self) -> Option<Timestamp> {
        self.open.values().filter(|window| window.details.is_some()).map(Window::ends_at).min()
    }

    /// Closes the windows that are over, and returns their summaries.
    pub fn end(&mut self, now: Timestamp) -> Vec<(K, Burst)> {
        let ended: Vec<K> =
            self.open.iter().filter(|(_, it)| it.ends_at() <= now).map(|(key, _)| key.clone()).collect();
        self.close(ended, now)
    }

    /// Ends everything, at the end of the program.
    pub fn end_all(&mut self, now: Timestamp) -> Vec<(K, Burst)> {
        let all = self.open.keys().cloned().collect();
        self.close(all, now)
    }

    fn close(&mut self, keys: Vec<K>, now: Timestamp) -> Vec<(K, Burst)> {
        let mut summaries = Vec::new();
        for key in keys {
            let Some(window) = self.open.remove(&key) else { continue };
            if window.count > SINGLE_MAX && !window.is_quiet(now) {
                self.open.insert(key.clone(), Window::new(now, true));
            }
            summaries.extend(window.details.map(|details| (key, details.summary())));
        }
        summaries
    }
}

impl Window {
    fn new(now: Timestamp, goes_on: bool) -> Self {
        Self { began: now, last: now, goes_on, count: 0, details: None }
    }
    fn ends_at(&self) -> Timestamp {
        self.last.plus(QUIET).min(self.began.plus(WINDOW))
    }
    fn is_quiet(&self, now: Timestamp) -> bool {
        self.last.plus(QUIET) <= now
    }
}

impl Details {
    fn new(at: Timestamp) -> Self {
        let (gaps_ms, gap_ms_max, overlap_ms_max) = (Vec::new(), 0, 0);
        Self { count: 0, since: at, until: at, gaps_ms, gap_ms_max, gap_is_bound: false, overlap_ms_max }
    }

    fn add(&mut self, at: Timestamp, went: Option<Move>) {
        let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        self.count += 1;
        (self.since, self.until) = (self.since.min(at), self.until.max(at));
        if let Some(went) = went {
            self.gap_is_bound |= went.gap_is_bound;
            self.gap_ms_max = self.gap_ms_max.max(millis(went.gap));
            self.overlap_ms_max = self.overlap_ms_max.max(millis(went.overlap));
            if self.gaps_ms.len() < GAPS_MAX {
                self.gaps_ms.push(millis(went.gap));
            }
        }
    }

    fn summary(mut self) -> Burst {
        self.gaps_ms.sort_unstable();
        let part = |percent: usize| self.gaps_ms.get((self.gaps_ms.len() * percent).div_ceil(100).max(1) - 1);
        let moves = part(100).map(|longest| MoveTimes {
            gap_ms_median: part(50).copied().unwrap_or(*longest),
            gap_ms_p99: part(99).copied().unwrap_or(*longest),
            gap_ms_max: self.gap_ms_max,
            gap_is_bound: self.gap_is_bound,
            overlap_ms_max: self.overlap_ms_max,
        });
        Burst { count: self.count, since: self.since, until: self.until, moves }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: i64) -> Timestamp {
        Timestamp(ms)
    }
    fn went(gap_ms: u64) -> Option<Move> {
        let (gap, overlap) = (Duration::from_millis(gap_ms), Duration::from_millis(gap_ms / 100));
        Some(Move { gap, gap_is_bound: gap_ms == 7000, overlap })
    }
    /// Admits `count` events at one time, and returns the number of details among them.
    fn admit(bursts: &mut Bursts<&'static str>, key: &'static str, count: u64, now: Timestamp) -> usize {
        let classes = (0..count).map(|_| bursts.admit(&key, now, None, now));
        classes.filter(|class| *class == EventClass::Detail).count()
    }

    #[test]
    fn one_summary_stands_for_all_but_the_first_events_of_a_burst() {
        let mut bursts = Bursts::default();
        for number in 0..10_100 {
            let class = bursts.admit(&"b", ms(number / 50), went(number.unsigned_abs()), ms(number / 20));
            assert_eq!(class, if number < 100 { EventClass::Single } else { EventClass::Detail });
        }
        assert_eq!(bursts.due_at(), Some(ms(504 + 1000)), "a second after the last");
        assert_eq!(bursts.end(ms(1503)), []);
        let moves = MoveTimes {
            gap_ms_median: 5099,
            gap_ms_p99: 9999,
            gap_ms_max: 10_099,
            gap_is_bound: true,
            overlap_ms_max: 100,
        };
        let expected = Burst { count: 10_000, since: ms(2), until: ms(201), moves: Some(moves) };
        assert_eq!(bursts.end(ms(1504)), [("b", expected)]);
        assert_eq!((bursts.due_at(), bursts.end(ms(9999))), (None, Vec::new()));
        assert_eq!(admit(&mut bursts, "b", 100, ms(9999)), 0, "the next burst has single events again");
    }

    #[test]
    fn few_events_in_a_window_are_no_burst() {
        let mut bursts = Bursts::default();
        for second in 0..100 {
            assert_eq!(bursts.end(ms(second * 1000)), []);
            assert_eq!(admit(&mut bursts, "steady", 10, ms(second * 1000)), 0, "10 a second");
            assert_eq!(bursts.due_at(), None);
        }
        bursts.end(ms(200_000));
        assert!(bursts.open.is_empty(), "what is quiet is forgotten");
    }

    #[test]
    fn a_burst_that_goes_on_has_a_summary_for_each_window_and_no_more_single_events() {
        let mut bursts = Bursts::default();
        let (mut single, mut summarized) = (0, Vec::new());
        for tick in 0..600 {
            let now = ms(tick * 100);
            summarized.extend(bursts.end(now).into_iter().map(|(_, burst)| burst.count));
            single += 5 - admit(&mut bursts, "storm", 5, now);
        }
        assert_eq!((single, summarized.as_slice()), (100, &[400, 500, 500, 500, 500][..]));
        assert_eq!(bursts.end_all(ms(60_000))[0].1.count, 500);
        // It slows down: once a window has few events, the next one has single events again.
        let mut bursts = Bursts::default();
        admit(&mut bursts, "storm", 101, ms(0));
        for second in 1..=10 {
            admit(&mut bursts, "storm", 1, ms(second * 990));
        }
        assert_eq!(bursts.end(ms(10_000))[0].1.count, 11);
        assert_eq!(admit(&mut bursts, "storm", 3, ms(10_001)), 3);
        for second in 1..=10 {
            assert_eq!(admit(&mut bursts, "storm", 1, ms(10_001 + second * 990)), 1);
        }
        assert_eq!(bursts.end(ms(20_001))[0].1.count, 13);
        assert_eq!(admit(&mut bursts, "storm", 3, ms(20_002)), 0);
    }

    #[test]
    fn memory_has_a_limit() {
        let mut bursts = Bursts::default();
        for key in 0..=KEYS_MAX {
            bursts.admit(&key, ms(0), None, ms(0));
        }
        assert_eq!(bursts.open.len(), KEYS_MAX);
        for _ in 0..GAPS_MAX + 200 {
            bursts.admit(&1, ms(0), went(1), ms(0));
        }
        bursts.admit(&1, ms(0), went(7000), ms(0));
        assert_eq!(bursts.open[&1].details.as_ref().unwrap().gaps_ms.len(), GAPS_MAX);
        let summary = &bursts.end(ms(1000))[0].1;
        assert_eq!(summary.count, GAPS_MAX as u64 + 102);
        assert_eq!(summary.moves.map(|moves| (moves.gap_ms_p99, moves.gap_ms_max)), Some((1, 7000)));
    }
}
