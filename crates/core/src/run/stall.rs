//! Code that holds a thread: which observers stall, which stall is news, and when only a new process helps.

use crate::id::ObserverId;
use std::collections::BTreeMap;
use std::time::Duration;

/// Code that holds a thread for this long in one poll stalls.
pub const STALLED_AFTER: Duration = Duration::from_secs(1);
/// An observer that stalls again within this time is not news.
const NEWS_EVERY: Duration = Duration::from_secs(60);
/// The most observers that one pass names.
const NEWS_MAX: usize = 10;
/// If two passes are further apart, the whole process stood still.
const STANDSTILL: Duration = Duration::from_secs(3);

/// Code that holds a thread now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeldThread {
    pub id: ObserverId,
    /// When its present poll began.
    pub since: Duration,
    /// Whether the code of other kinds runs on that thread, too.
    pub is_shared: bool,
}

/// An observer whose code stalls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stall {
    pub id: ObserverId,
    /// For how long its code has held a thread.
    pub lasted: Duration,
    /// Whether that thread is missing to other kinds.
    pub is_shared: bool,
}

/// The result of one pass.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StallPass {
    /// All stalls, the longest first.
    pub stalls: Vec<Stall>,
    /// The number of stalls that began since the previous pass.
    pub began: u64,
    /// Those of them that are worth a line in the log.
    pub news: Vec<Stall>,
    /// The stalls of the previous pass that are over.
    pub ended: Vec<ObserverId>,
    /// The stalls because of which the process must be replaced, as nothing else ends such code; the longest first.
    pub beyond_limit: Vec<Stall>,
}

impl StallPass {
    /// Whether the list of stalled observers differs from that of the previous pass.
    #[must_use]
    pub fn is_change(&self) -> bool {
        self.began > 0 || !self.ended.is_empty()
    }
}

/// Watches the code of one service, about once a second.
#[derive(Debug, Default)]
pub struct StallWatch {
    /// A stall of this length replaces the process.
    limit: Option<Duration>,
    looked_at: Option<Duration>,
    /// Polls that began earlier count from this time on.
    counts_from: Duration,
    /// The stalled observers, and when the poll began in which each of them stalls.
    stalled: BTreeMap<ObserverId, Duration>,
    /// When each observer was last named. Each entry took a thread for [`STALLED_AFTER`], so there are few.
    named: BTreeMap<ObserverId, Duration>,
}

impl StallWatch {
    /// Without a limit, no stall replaces the process.
    #[must_use]
    pub fn new(limit: Option<Duration>) -> Self {
        Self { limit, ..Self::default() }
    }

    /// Judges the code that holds a thread at `now`, a time of the same clock as [`HeldThread::since`].
    pub fn pass(&mut self, held: &[HeldThread], now: Duration) -> StallPass {
        // The obvious way trusts the clock. After a machine was suspended, the poll that was interrupted would appear
        // to have lasted for hours, and a healthy process would be replaced. So the time in which nothing looked
        // does not count.
        if self.looked_at.is_some_and(|before| now.saturating_sub(before) > STANDSTILL) {
            self.counts_from = now;
        }
        self.looked_at = Some(now);
        let mut longest: BTreeMap<ObserverId, Stall> = BTreeMap::new();
        for HeldThread { id, since, is_shared } in held {
            let lasted = now.saturating_sub((*since).max(self.counts_from));
            if lasted >= STALLED_AFTER {
                let stall = Stall { id: *id, lasted, is_shared: *is_shared };
                let known = longest.entry(*id).or_insert(stall);
                known.lasted = lasted.max(known.lasted);
            }
        }
        let mut stalls: Vec<Stall> = longest.into_values().collect();
        stalls.sort_by_key(|stall| (std::cmp::Reverse(stall.lasted), stall.id));
        let stalled: BTreeMap<ObserverId, Duration> =
            stalls.iter().map(|stall| (stall.id, now.saturating_sub(stall.lasted))).collect();
        let new = |stall: &&Stall| self.stalled.get(&stall.id) != stalled.get(&stall.id);
        let began: Vec<Stall> = stalls.iter().filter(new).copied().collect();
        let ended = self.stalled.keys().filter(|id| !stalled.contains_key(id)).copied().collect();
        let count = began.len() as u64;
        let news = self.news(began, now);
        self.stalled = stalled;
        // Code that blocks only the threads of its own kind harms no other kind; to replace the process would.
        let over_limit =
            |stall: &&Stall| stall.is_shared && self.limit.is_some_and(|limit| stall.lasted >= limit);
        let beyond_limit = stalls.iter().filter(over_limit).copied().collect();
        StallPass { stalls, began: count, news, ended, beyond_limit }
    }

    fn news(&mut self, began: Vec<Stall>, now: Duration) -> Vec<Stall> {
        self.named.retain(|_, at| now.saturating_sub(*at) < NEWS_EVERY);
        let unnamed = began.into_iter().filter(|stall| !self.named.contains_key(&stall.id));
        let news: Vec<Stall> = unnamed.take(NEWS_MAX).collect();
        self.named.extend(news.iter().map(|stall| (stall.id, now)));
        news
    }
}

/// Whether a service that is being replaced holds nothing but observers whose code has reached the limit: they would
/// not react to anything, so that waiting for them only delays the others. `held`: the number of held observers.
#[must_use]
pub fn only_stalled_remain(held: usize, stalls: &[Stall], limit: Duration) -> bool {
    held > 0 && stalls.iter().filter(|stall| stall.lasted >= limit).count() >= held
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    const fn secs(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }
    fn id(number: u128) -> ObserverId {
        ObserverId(Uuid::from_u128(number))
    }
    fn held(number: u128, since: u64) -> HeldThread {
        HeldThread { id: id(number), since: secs(since), is_shared: true }
    }
    fn stall(number: u128, lasted: u64) -> Stall {
        Stall { id: id(number), lasted: secs(lasted), is_shared: true }
    }
    fn ids(stalls: &[Stall]) -> Vec<ObserverId> {
        stalls.iter().map(|stall| stall.id).collect()
    }
    /// The pass at `to`, after one pass in each second since `from`.
    fn passes(watch: &mut StallWatch, held: &[HeldThread], (from, to): (u64, u64)) -> StallPass {
        (from..=to).map(|at| watch.pass(held, secs(at))).last().unwrap()
    }

    #[test]
    fn a_stall_begins_once_and_ends_once() {
        let mut watch = StallWatch::new(None);
        let short = watch.pass(&[held(1, 10)], secs(10));
        assert_eq!(short, StallPass::default(), "a short poll is no stall");
        let began = watch.pass(&[held(1, 10)], secs(11));
        assert_eq!((ids(&began.news), began.began, began.is_change()), (vec![id(1)], 1, true));
        let same = watch.pass(&[held(1, 10)], secs(12));
        assert_eq!(same.stalls, [stall(1, 2)]);
        assert_eq!((same.news.len(), same.is_change()), (0, false));
        let over = watch.pass(&[], secs(13));
        assert_eq!((over.ended, over.stalls.len()), (vec![id(1)], 0));
        assert!(!watch.pass(&[], secs(14)).is_change());
    }

    #[test]
    fn an_observer_that_stalls_again_is_counted_but_named_once_a_minute() {
        let mut watch = StallWatch::new(None);
        assert_eq!(watch.pass(&[held(1, 0)], secs(2)).news.len(), 1);
        let again = watch.pass(&[held(1, 3)], secs(4));
        assert_eq!((again.began, again.news.len()), (1, 0));
        passes(&mut watch, &[], (5, 61));
        assert_eq!(watch.pass(&[held(1, 61)], secs(62)).news.len(), 1);
    }

    #[test]
    fn a_flood_of_stalls_names_ten() {
        let held: Vec<HeldThread> = (0..30).map(|number| held(number, 0)).collect();
        let pass = StallWatch::new(None).pass(&held, secs(2));
        assert_eq!((pass.stalls.len(), pass.began, pass.news.len()), (30, 30, 10));
    }

    #[test]
    fn the_longest_stall_of_an_observer_counts_and_the_longest_of_all_comes_first() {
        let pass = StallWatch::new(None).pass(&[held(1, 6), held(2, 5), held(2, 3), held(3, 9)], secs(9));
        let expected = [stall(2, 6), stall(1, 3)];
        assert_eq!(pass.stalls, expected);
    }

    #[test]
    fn a_stall_of_the_limit_replaces_the_process() {
        let mut watch = StallWatch::new(Some(secs(60)));
        let before = passes(&mut watch, &[held(1, 5), held(2, 6)], (5, 64));
        assert_eq!(before.beyond_limit, []);
        let at = watch.pass(&[held(1, 5), held(2, 6)], secs(65));
        assert_eq!(at.beyond_limit, [stall(1, 60)]);
        let unlimited = passes(&mut StallWatch::new(None), &[held(1, 5)], (5, 500));
        assert_eq!(unlimited.beyond_limit, []);
    }

    #[test]
    fn code_on_threads_of_its_own_kind_stalls_without_replacing_the_process() {
        let own = HeldThread { is_shared: false, ..held(1, 0) };
        let alone = passes(&mut StallWatch::new(Some(secs(60))), &[own], (0, 100));
        assert_eq!((alone.stalls.len(), alone.beyond_limit), (1, Vec::new()));
        let beside = passes(&mut StallWatch::new(Some(secs(60))), &[own, held(2, 1)], (0, 100));
        assert_eq!(beside.beyond_limit, [stall(2, 99)]);
    }

    #[test]
    fn the_time_in_which_the_whole_process_stood_still_does_not_count() {
        let mut watch = StallWatch::new(Some(secs(60)));
        watch.pass(&[held(1, 10)], secs(10));
        let thawed = watch.pass(&[held(1, 10)], secs(3600));
        assert_eq!(thawed, StallPass::default());
        let later = watch.pass(&[held(1, 10)], secs(3602));
        assert_eq!(later.stalls, [stall(1, 2)]);
    }

    #[test]
    fn a_replaced_service_waits_for_every_observer_that_may_still_react() {
        let stalls = [stall(1, 61), stall(2, 3)];
        assert!(!only_stalled_remain(0, &[], secs(60)), "nothing remains: it ends in order");
        assert!(!only_stalled_remain(3, &stalls, secs(60)));
        assert!(!only_stalled_remain(2, &stalls, secs(60)), "the second one may still react");
        assert!(only_stalled_remain(1, &stalls[..1], secs(60)));
    }
}
