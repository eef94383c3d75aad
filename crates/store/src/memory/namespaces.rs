//! Namespaces, in memory.

use super::{MemoryStore, Tables};
use crate::namespaces::FoundNamespaces;
use crate::port::{NamespaceDeleted, NamespaceWritten, Namespaces, StoreError};
use async_trait::async_trait;
use everwatch_core::capacity::namespace::{NamespaceRow, NamespaceSettings};
use everwatch_core::clock;
use everwatch_core::id::{LimitKey, LimitPattern, Namespace};
use std::collections::BTreeMap;

pub(super) type Table = BTreeMap<Namespace, NamespaceRow>;

impl Tables {
    pub(super) fn found_namespaces(&self, names: &[Namespace]) -> FoundNamespaces {
        let rows: Vec<NamespaceRow> =
            names.iter().filter_map(|name| self.namespaces.get(name)).cloned().collect();
        let observers = self.namespace_counts(&FoundNamespaces::counted(&rows));
        FoundNamespaces { rows, observers, now: clock::now() }
    }

    fn namespace_counts(&self, names: &[Namespace]) -> BTreeMap<Namespace, u64> {
        let count = |name: &Namespace| {
            let held = self.observers.values().filter(|kept| kept.has_name);
            held.filter(|kept| kept.row.definition.namespace == *name).count() as u64
        };
        names.iter().map(|name| (name.clone(), count(name))).collect()
    }
}

#[async_trait]
impl Namespaces for MemoryStore {
    async fn namespaces(&self) -> Result<Vec<NamespaceRow>, StoreError> {
        Ok(self.tables().namespaces.values().cloned().collect())
    }
    async fn namespace(&self, name: &Namespace) -> Result<Option<NamespaceRow>, StoreError> {
        Ok(self.tables().namespaces.get(name).cloned())
    }
    async fn namespace_counts(&self, names: &[Namespace]) -> Result<BTreeMap<Namespace, u64>, StoreError> {
        Ok(self.tables().namespace_counts(names))
    }
    async fn put_namespace(
        &self,
        name: &Namespace,
        settings: &NamespaceSettings,
    ) -> Result<NamespaceWritten, StoreError> {
        let mut tables = self.tables();
        let before = tables.namespaces.get(name).cloned();
        let others = tables.namespaces.keys().filter(|name| !name.is_default()).count() as u64;
        let is_new = before.is_none();
        let Some(row) = NamespaceRow::set(before, (name, settings.clone()), others, clock::now()) else {
            return Ok(NamespaceWritten::TooMany);
        };
        if let Some(limit) = row.limit() {
            tables.limits.insert(limit.key.clone(), limit);
        }
        tables.changed_limits.extend(LimitKey::of_namespace(name));
        tables.namespaces.insert(name.clone(), row);
        Ok(if is_new { NamespaceWritten::Created } else { NamespaceWritten::Replaced })
    }
    async fn delete_namespace(&self, name: &Namespace) -> Result<NamespaceDeleted, StoreError> {
        let mut tables = self.tables();
        if !tables.namespaces.contains_key(name) {
            return Ok(NamespaceDeleted::Missing);
        }
        let count = tables.namespace_counts(std::slice::from_ref(name)).remove(name).unwrap_or(0);
        if NamespaceRow::is_in_use(name, count) {
            return Ok(NamespaceDeleted::InUse(count));
        }
        tables.namespaces.remove(name);
        if let Some(key) = LimitKey::of_namespace(name) {
            tables.limits.remove(&LimitPattern::from(key));
        }
        Ok(NamespaceDeleted::Done)
    }
}
