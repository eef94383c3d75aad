//! Who of a batch of new observers gets a name and a slot. A function of values, shared by both databases.

use crate::port::Created;
use everwatch_core::observer::OnFull;
use everwatch_core::row::Row;
use everwatch_core::status::Status;
use std::collections::HashMap;

/// What the database says before the batch.
pub(crate) struct Situation {
    /// The status of the holder of each name that is held.
    pub(crate) holders: HashMap<String, Status>,
    /// Free slots by pool; a pool that has no services is not in it.
    pub(crate) free: HashMap<String, i64>,
}

/// Decides in order: the first of a name has it, and each one let in uses a slot.
pub(crate) fn admit(rows: &[Row], mut situation: Situation) -> Vec<Created> {
    rows.iter().map(|row| one(row, &mut situation)).collect()
}

fn one(row: &Row, situation: &mut Situation) -> Created {
    let name = row.wanted.name.as_str();
    if let Some(holder) = situation.holders.get(name) {
        return refused_by(Some(*holder));
    }
    if row.verdict().status.uses_slot() {
        let free = situation.free.entry(row.wanted.pool.to_string()).or_insert(0);
        if *free <= 0 && row.wanted.on_full == OnFull::Reject {
            return Created::NoCapacity;
        }
        *free -= 1;
    }
    situation.holders.insert(name.to_owned(), row.verdict().status);
    Created::Done
}

/// What the holder of a name means for a newcomer.
pub(crate) fn refused_by(holder: Option<Status>) -> Created {
    match holder {
        Some(Status::OnDeleting) => Created::NameEnding,
        _ => Created::NameTaken,
    }
}

/// The pools whose slots must be counted: those of observers that need a slot at once.
pub(crate) fn counted_pools(rows: &[Row]) -> Vec<String> {
    let needs_slot = |row: &&Row| row.wanted.on_full == OnFull::Reject && row.verdict().status.uses_slot();
    let picky = rows.iter().filter(needs_slot);
    let mut pools: Vec<String> = picky.map(|row| row.wanted.pool.to_string()).collect();
    pools.sort_unstable();
    pools.dedup();
    pools
}

/// The names of a batch.
pub(crate) fn names(rows: &[Row]) -> Vec<&str> {
    rows.iter().map(|row| row.wanted.name.as_str()).collect()
}
