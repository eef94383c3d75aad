//! When a manager fetches the keys of its identity provider.

use std::time::Duration;

/// The shortest pause between two fetches. Tokens with invented key ids cause at most one fetch in it.
const RENEW_MIN: Duration = Duration::from_secs(10);
/// How often the keys are fetched while all are known. A key that the provider withdraws is refused after this time.
const RENEW_EVERY: Duration = Duration::from_secs(600);

/// The last fetch. Times are those since the start of the manager.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LastFetch {
    /// `None`: there was none yet.
    pub ended_at: Option<Duration>,
    pub has_failed: bool,
}

impl LastFetch {
    /// The earliest time of the next fetch, which a token with an unknown key causes.
    #[must_use]
    pub fn earliest_next(self) -> Duration {
        self.ended_at.map_or(Duration::ZERO, |at| at + RENEW_MIN)
    }

    /// The time of the next fetch if no token causes one before.
    #[must_use]
    pub fn next(self) -> Duration {
        let pause = if self.has_failed { RENEW_MIN } else { RENEW_EVERY };
        self.ended_at.map_or(Duration::ZERO, |at| at + pause)
    }

    /// Whether a request with an unknown key waits for another fetch. Right after a fetch, another one would return the
    /// same keys.
    #[must_use]
    pub fn may_fetch_again(self, now: Duration) -> bool {
        now >= self.earliest_next()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn secs(secs: u64) -> Duration {
        Duration::from_secs(secs)
    }

    #[test]
    fn the_first_fetch_is_due_at_once() {
        let none = LastFetch::default();
        assert_eq!((none.earliest_next(), none.next()), (Duration::ZERO, Duration::ZERO));
        assert!(none.may_fetch_again(Duration::ZERO));
    }

    #[test]
    fn an_unknown_key_causes_one_fetch_in_ten_seconds() {
        let fetched = LastFetch { ended_at: Some(secs(100)), has_failed: false };
        assert_eq!((fetched.earliest_next(), fetched.next()), (secs(110), secs(700)));
        assert!(!fetched.may_fetch_again(secs(109)) && fetched.may_fetch_again(secs(110)));
    }

    #[test]
    fn a_fetch_that_failed_is_repeated_after_ten_seconds() {
        let failed = LastFetch { ended_at: Some(secs(100)), has_failed: true };
        assert_eq!((failed.earliest_next(), failed.next()), (secs(110), secs(110)));
    }
}
