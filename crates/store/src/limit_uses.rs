//! How observers count towards limits, as the databases store it, and which keys a save has freed. Shared by both
//! databases and the store in memory.

use crate::columns;
use crate::port::{Change, LimitUse, StoreError};
use everwatch_core::capacity::limits::{KeyCount, KeyCounts, Limit, limit_of};
use everwatch_core::capacity::supply::Load;
use everwatch_core::clock::Timestamp;
use everwatch_core::id::{LimitKey, LimitPattern, Name, ObserverId, Pool};
use everwatch_core::record::row::{Row, Use};
use everwatch_core::record::row_policy::RowPolicy;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use uuid::Uuid;

/// One use of a limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct UseColumns {
    pub(crate) key: String,
    pub(crate) observer: Uuid,
    pub(crate) how: &'static str,
    pub(crate) pool: String,
    pub(crate) rank: Option<i64>,
}

impl UseColumns {
    pub(crate) fn of(row: &Row, policy: &RowPolicy) -> Vec<Self> {
        // A message stays in the queue of the pool in which it was published.
        let pool = |how: Use| match &row.places {
            Some(places) if how.uses_place() => places.pool.to_string(),
            _ => row.definition.pool.to_string(),
        };
        let of = |(key, how): (LimitKey, Use)| Self {
            key: key.into(),
            observer: row.id.0,
            how: how.as_str(),
            pool: pool(how),
            rank: row.limit_rank(policy).filter(|_| how == Use::Behind),
        };
        row.limit_uses().into_iter().map(of).collect()
    }
}

/// What a transaction changes.
#[derive(Debug, Default)]
pub(crate) struct UseChanges {
    /// The observers whose former uses are deleted.
    pub(crate) observers: Vec<Uuid>,
    pub(crate) uses: Vec<UseColumns>,
    /// The keys that managers must look at, in order: two transactions that mark the same keys cannot deadlock.
    pub(crate) changed: BTreeSet<String>,
}

impl UseChanges {
    pub(crate) fn of_created<'a>(rows: impl Iterator<Item = &'a Row>, policy: &RowPolicy) -> Self {
        Self { uses: rows.flat_map(|row| UseColumns::of(row, policy)).collect(), ..Self::default() }
    }

    pub(crate) fn of_saved(changes: &[Change<'_>], saved: &HashSet<Uuid>, policy: &RowPolicy) -> Self {
        let mut all = Self::default();
        for Change { before, after } in changes.iter().filter(|it| saved.contains(&it.after.id.0)) {
            let (were, are) = (UseColumns::of(before, policy), UseColumns::of(after, policy));
            if were != are {
                all.observers.push(after.id.0);
                all.uses.extend(are);
                all.changed.extend(freed(before, after).into_iter().map(String::from));
            }
        }
        all
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.observers.is_empty() && self.uses.is_empty()
    }
}

/// The keys of which a place is free now, or of which a place was for this observer until now.
pub(crate) fn freed(before: &Row, after: &Row) -> Vec<LimitKey> {
    let are: BTreeMap<LimitKey, Use> = after.limit_uses().into_iter().collect();
    let is_freed = |key: &LimitKey, was: Use| match (was, are.get(key)) {
        (_, Some(is)) if is.uses_place() => false,
        (Use::Waiting, Some(Use::Waiting)) => false,
        (was, _) => was.uses_place() || was == Use::Waiting,
    };
    before.limit_uses().into_iter().filter(|(key, was)| is_freed(key, *was)).map(|(key, _)| key).collect()
}

/// The keys that these candidates name.
pub(crate) fn named(candidates: &[Row]) -> Vec<String> {
    let keys: BTreeSet<&LimitKey> = candidates.iter().flat_map(|row| &row.definition.limits).collect();
    keys.into_iter().map(LimitKey::to_string).collect()
}

/// The keys of all limits that may apply to these keys.
pub(crate) fn covering(keys: &[String]) -> Vec<String> {
    let mut all: BTreeSet<String> = keys.iter().cloned().collect();
    for key in keys {
        // Keys are ASCII.
        all.extend((1..=key.len()).map(|end| format!("{}*", &key[..end])));
    }
    all.into_iter().collect()
}

/// A limit as it is stored: its key, maximum, and whether it is enforced.
pub(crate) type StoredLimit = (String, i64, bool);

pub(crate) fn limit((key, max, enforce): StoredLimit) -> Result<Limit, StoreError> {
    let key = LimitPattern::new(&key).map_err(|error| StoreError::Corrupt(error.to_string()))?;
    Ok(Limit { key, max: u32::try_from(max).unwrap_or(u32::MAX), enforce })
}

/// The counts of keys: which limits may apply to them, how many places are in use, and who waits first.
pub(crate) fn counts(
    keys: &[String],
    limits: &[Limit],
    used: &[(String, i64)],
    first: &[(String, i64, Uuid)],
) -> Result<KeyCounts, StoreError> {
    let mut counts = KeyCounts::new();
    for key in keys {
        let key = LimitKey::new(key).map_err(|error| StoreError::Corrupt(error.to_string()))?;
        let used = used.iter().find(|(of, _)| of == key.as_str()).map_or(0, |(_, number)| *number);
        let first = first.iter().find(|(of, ..)| of == key.as_str());
        let count = KeyCount {
            max: limit_of(&key, limits).map(|limit| limit.max),
            used: crate::columns::number(used),
            first_behind: first.map(|(_, rank, id)| (*rank, ObserverId(*id))),
        };
        counts.insert(key, count);
    }
    Ok(counts)
}

/// Where the keys with this beginning end: the next text after all of them.
pub(crate) fn end_of(prefix: &str) -> String {
    let mut end = prefix.as_bytes().to_vec();
    if let Some(last) = end.last_mut() {
        *last += 1;
    }
    // Keys are ASCII.
    String::from_utf8(end).unwrap_or_default()
}

/// The text after this key.
pub(crate) fn after_key(key: &str) -> String {
    // The lowest character of a key is `-`, the next lower one is `,`.
    format!("{key},")
}

/// The keys that a limit may apply to: from the first text, and before the second.
pub(crate) fn range(key: &LimitPattern) -> (String, String) {
    match key.prefix() {
        Some(prefix) => (prefix.to_owned(), end_of(prefix)),
        None => (key.to_string(), after_key(key.as_str())),
    }
}

/// These rows before and after they come forward, each once.
pub(crate) fn forward(rows: Vec<Row>, now: Timestamp) -> Vec<(Row, Row)> {
    let mut ids = HashSet::new();
    let rows = rows.into_iter().filter(|row| ids.insert(row.id));
    rows.map(|before| {
        let mut after = before.clone();
        after.come_forward(now);
        (before, after)
    })
    .collect()
}

/// How many observers of this key an enforced limit must end.
pub(crate) fn excess(key: &LimitKey, count: &KeyCount, limits: &[Limit]) -> usize {
    let limit = limit_of(key, limits).filter(|limit| limit.enforce);
    let excess = limit.map_or(0, |limit| count.used.saturating_sub(limit.max.into()));
    usize::try_from(excess).unwrap_or(usize::MAX)
}

/// A use as a list shows it.
pub(crate) fn shown((id, name): (Uuid, String)) -> Result<LimitUse, StoreError> {
    let name = Name::new(&name).map_err(|error| StoreError::Corrupt(error.to_string()))?;
    Ok(LimitUse { id: ObserverId(id), name })
}

/// Numbers by pool.
pub(crate) fn by_pool(loads: Vec<(String, i64, i64)>) -> Result<BTreeMap<Pool, Load>, StoreError> {
    let read = |(pool, number, weight): (String, i64, i64)| {
        let pool = Pool::new(&pool).map_err(|error| StoreError::Corrupt(error.to_string()))?;
        Ok((pool, Load { number: columns::number(number), weight: columns::number(weight) }))
    };
    loads.into_iter().map(read).collect()
}
