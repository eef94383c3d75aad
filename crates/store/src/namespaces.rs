//! Namespaces as both databases store them, and what of them the creates of a transaction may use.

use crate::columns::{number, read, written};
use crate::port::StoreError;
use everwatch_core::capacity::namespace::{NamespaceRoom, NamespaceRow};
use everwatch_core::clock::Timestamp;
use everwatch_core::id::Namespace;
use std::collections::BTreeMap;

/// Name, settings, creates.
pub(crate) type Columns = (String, String, String);

pub(crate) fn row_of((name, settings, creates): Columns) -> Result<NamespaceRow, StoreError> {
    Ok(NamespaceRow { name: name_of(&name)?, settings: read(&settings)?, creates: read(&creates)? })
}

pub(crate) fn columns_of(row: &NamespaceRow) -> Result<Columns, StoreError> {
    Ok((row.name.to_string(), written(&row.settings)?, written(&row.creates)?))
}

fn name_of(name: &str) -> Result<Namespace, StoreError> {
    Namespace::new(name).map_err(|error| StoreError::Corrupt(error.to_string()))
}

/// Numbers of observers by namespace.
pub(crate) fn counts_of(
    names: &[Namespace],
    found: Vec<(String, i64)>,
) -> Result<BTreeMap<Namespace, u64>, StoreError> {
    let mut counts: BTreeMap<Namespace, u64> = names.iter().map(|name| (name.clone(), 0)).collect();
    for (name, count) in found {
        counts.insert(name_of(&name)?, number(count));
    }
    Ok(counts)
}

/// The namespaces of a transaction that creates observers.
pub(crate) struct FoundNamespaces {
    pub(crate) rows: Vec<NamespaceRow>,
    /// Of those whose observers have a quota.
    pub(crate) observers: BTreeMap<Namespace, u64>,
    pub(crate) now: Timestamp,
}

impl FoundNamespaces {
    /// Those of these rows whose observers must be counted.
    pub(crate) fn counted(rows: &[NamespaceRow]) -> Vec<Namespace> {
        let counted = rows.iter().filter(|row| row.settings.quotas.observers.is_some());
        counted.map(|row| row.name.clone()).collect()
    }

    /// What the creates may use.
    pub(crate) fn rooms(&self) -> BTreeMap<Namespace, NamespaceRoom> {
        let observers = |row: &NamespaceRow| self.observers.get(&row.name).copied().unwrap_or(0);
        self.rows.iter().map(|row| (row.name.clone(), row.room(observers(row), self.now))).collect()
    }

    /// Those that change with these numbers of creates.
    pub(crate) fn after(&self, creates: &BTreeMap<Namespace, u64>) -> Vec<NamespaceRow> {
        let after = |row: &NamespaceRow| {
            let after = row.after(*creates.get(&row.name)?, self.now);
            (after != *row).then_some(after)
        };
        self.rows.iter().filter_map(after).collect()
    }
}
