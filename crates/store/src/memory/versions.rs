//! The former versions of definitions, in memory.

use super::Tables;
use crate::port::DefinitionVersion;
use everwatch_core::observer::definition::ObserverDefinition;
use everwatch_core::record::row::{REVISIONS_MAX, Row};

impl Tables {
    /// Keeps the version of the definition that this change replaces, if it does.
    pub(super) fn keep_replaced(&mut self, before: &Row, after: &Row) {
        if !after.is_revised_since(before) {
            return;
        }
        let definition = ObserverDefinition::clone(&before.definition);
        let versions = self.versions.entry(after.id).or_default();
        versions.insert(0, DefinitionVersion { revision: before.revision(), definition });
        versions.truncate(REVISIONS_MAX as usize);
    }
}
