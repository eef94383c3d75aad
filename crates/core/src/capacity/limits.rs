//! Limits by key: how many observers that name a key may run at once, in all pools together.

use crate::id::{LimitKey, LimitPattern, ObserverId};
use crate::record::row::Row;
use crate::record::row_policy::RowPolicy;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The highest maximum of a limit.
pub const MAX_MAX: u32 = 1_000_000;

/// A limit: at most `max` of the observers that name its key run at once. A limit for a beginning of keys applies to each
/// of these keys by itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limit {
    pub key: LimitPattern,
    pub max: u32,
    /// Whether a lower maximum also stops runs: the newest ones return to the backlog.
    pub enforce: bool,
}

impl Limit {
    /// Whether it limits anything. A namespace without a quota of running observers has a limit that does not.
    #[must_use]
    pub fn is_listed(&self) -> bool {
        !(self.key.is_of_namespace() && self.max == MAX_MAX)
    }
}

/// The limit that applies to a key: the one of exactly this key, otherwise the one with the longest beginning.
#[must_use]
pub fn limit_of<'a>(key: &LimitKey, limits: impl IntoIterator<Item = &'a Limit>) -> Option<&'a Limit> {
    let covering = limits.into_iter().filter(|limit| limit.key.covers(key));
    covering.max_by_key(|limit| (limit.key.prefix().is_none(), limit.key.as_str().len()))
}

/// The places of one key while an admission is decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct KeyCount {
    /// `None`: no limit applies to the key. Nothing that names it is admitted.
    pub max: Option<u32>,
    /// Places in use.
    pub used: u64,
    /// The rank of the first observer of the pool that waits for a place.
    pub first_behind: Option<(i64, ObserverId)>,
}

impl KeyCount {
    /// Free places.
    #[must_use]
    pub fn free(&self) -> u64 {
        self.max.map_or(0, u64::from).saturating_sub(self.used)
    }
}

/// The places of the keys that the candidates of an admission name.
pub type KeyCounts = BTreeMap<LimitKey, KeyCount>;

/// The first key without a free place for this candidate. Those that wait for a place of a key come before candidates
/// with a later rank.
pub(crate) fn obstacle(row: &Row, keys: &KeyCounts, policy: &RowPolicy) -> Option<LimitKey> {
    let rank = row.rank(policy).map(|rank| (rank, row.id));
    let is_closed = |key: &LimitKey| {
        let count = keys.get(key).copied().unwrap_or_default();
        count.free() == 0 || count.first_behind.is_some_and(|first| Some(first) < rank)
    };
    row.definition.limits.iter().find(|key| is_closed(key)).cloned()
}

/// The candidate uses a place of each of its keys.
pub(crate) fn take(row: &Row, keys: &mut KeyCounts) {
    for key in &row.definition.limits {
        keys.entry(key.clone()).or_default().used += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit(key: &str, max: u32) -> Limit {
        Limit { key: LimitPattern::new(key).unwrap(), max, enforce: false }
    }

    #[test]
    fn the_most_exact_limit_applies() {
        let limits =
            [limit("account-*", 2), limit("account-4*", 3), limit("account-42", 5), limit("other", 7)];
        let applies = |key: &str| limit_of(&LimitKey::new(key).unwrap(), &limits).map(|limit| limit.max);
        assert_eq!(applies("account-1"), Some(2));
        assert_eq!(applies("account-41"), Some(3));
        assert_eq!(applies("account-42"), Some(5));
        assert_eq!((applies("other"), applies("others")), (Some(7), None));
    }

    #[test]
    fn a_limit_that_was_lowered_has_no_free_place() {
        let lowered = KeyCount { max: Some(2), used: 3, first_behind: None };
        assert_eq!((lowered.free(), KeyCount::default().free()), (0, 0));
        assert_eq!(KeyCount { max: Some(5), ..lowered }.free(), 2);
    }
}
