//! The versions of an observer's definition.

use crate::clock::Timestamp;
use crate::record::row::Row;
use serde::{Deserialize, Serialize};

/// The former versions of a definition that are kept.
pub const REVISIONS_MAX: u32 = 100;

/// Which version of its definition an observer has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Revision {
    /// 1 is the definition that it was created with.
    pub number: u32,
    pub at: Timestamp,
    /// The `everwatch-actor` header of the request that created or changed it, or the address of its client.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
}

impl Row {
    /// The version of its current definition.
    #[must_use]
    pub fn revision(&self) -> Revision {
        let first = || Revision { number: 1, at: self.created_at, by: None };
        self.revised.clone().unwrap_or_else(first)
    }

    /// Records the user who creates it.
    #[must_use]
    pub fn created_by(mut self, by: Option<String>) -> Self {
        self.revised = by.is_some().then(|| Revision { by, ..self.revision() });
        self
    }

    /// Its definition changes.
    pub(crate) fn revise(&mut self, now: Timestamp) {
        let number = self.revision().number.saturating_add(1);
        self.revised = Some(Revision { number, at: now, by: None });
    }

    /// Whether its definition is a later version than that of `before`.
    #[must_use]
    pub fn is_revised_since(&self, before: &Self) -> bool {
        self.revised != before.revised
    }

    /// Records the user who changed its definition since `before`.
    pub fn revised_by(&mut self, before: &Self, by: Option<String>) {
        if self.is_revised_since(before)
            && let Some(revision) = &mut self.revised
        {
            revision.by = by;
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::clock::Timestamp;
    use crate::id::{Name, ObserverId};
    use crate::observer::definition::ObserverDefinition;
    use crate::record::row::Row;
    use crate::record::row_policy::RowPolicy;
    use serde_json::json;
    use uuid::Uuid;

    #[test]
    fn each_version_has_the_user_who_made_it() {
        let definition =
            ObserverDefinition::parse(json!({"kind": "ticker"}), &Name::new("a").unwrap()).unwrap();
        let id = ObserverId(Uuid::nil());
        let created = Row::created(id, definition, Timestamp(7), &RowPolicy::default());
        let of = |row: &Row| {
            let it = row.revision();
            (it.number, it.at, it.by)
        };
        assert_eq!(of(&created.clone().created_by(None)), (1, Timestamp(7), None));
        let before = created.created_by(Some("ada".to_owned()));
        assert_eq!(of(&before), (1, Timestamp(7), Some("ada".to_owned())));
        let mut after = before.clone();
        after.revised_by(&before, Some("grace".to_owned()));
        assert_eq!(of(&after), of(&before), "its definition is the same");
        after.revise(Timestamp(9));
        after.revised_by(&before, Some("grace".to_owned()));
        assert_eq!(of(&after), (2, Timestamp(9), Some("grace".to_owned())));
    }
}
