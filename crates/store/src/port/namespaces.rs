//! Namespaces: their quotas and pools.

use super::StoreError;
use async_trait::async_trait;
use everwatch_core::capacity::namespace::{NamespaceRow, NamespaceSettings};
use everwatch_core::id::Namespace;
use std::collections::BTreeMap;

/// The result of a write of a namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NamespaceWritten {
    Created,
    Replaced,
    /// There are [`everwatch_core::capacity::namespace::NAMESPACES_MAX`] namespaces.
    TooMany,
}

/// The result of a delete of a namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NamespaceDeleted {
    Done,
    Missing,
    /// The number of its observers that are not deleted.
    InUse(u64),
}

/// Namespaces. A create counts them in its own transaction, so that several managers together exceed no quota.
#[async_trait]
pub trait Namespaces: Send + Sync + 'static {
    /// All namespaces that users have set, in the order of their names.
    async fn namespaces(&self) -> Result<Vec<NamespaceRow>, StoreError>;
    /// One namespace, if a user has set it.
    async fn namespace(&self, name: &Namespace) -> Result<Option<NamespaceRow>, StoreError>;
    /// The observers of each of these namespaces that are not deleted.
    async fn namespace_counts(&self, names: &[Namespace]) -> Result<BTreeMap<Namespace, u64>, StoreError>;
    /// Creates or replaces a namespace, and the limit of its observers.
    async fn put_namespace(
        &self,
        name: &Namespace,
        settings: &NamespaceSettings,
    ) -> Result<NamespaceWritten, StoreError>;
    /// Deletes a namespace without observers, and its limit.
    async fn delete_namespace(&self, name: &Namespace) -> Result<NamespaceDeleted, StoreError>;
}
