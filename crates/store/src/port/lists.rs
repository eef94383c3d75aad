//! Lists of observers for users: filters, order and pages.

use everwatch_core::access::Scope;
use everwatch_core::id::{Kind, Namespace, ObserverId, Pool, ServiceId};
use everwatch_core::observer::definition::ObserverDefinition;
use everwatch_core::observer::labels::Selector;
use everwatch_core::record::health::Health;
use everwatch_core::record::pool_obstacle::Obstacles;
use everwatch_core::record::reason::ReasonCode;
use everwatch_core::record::row::Row;
use everwatch_core::record::status::Status;
use std::collections::BTreeMap;

/// Which observers a list shows. Without `status`, all but Deleted.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Filter {
    pub status: Vec<Status>,
    /// Health at the time of the list, by the database's clock. Empty: any health, or none.
    pub health: Vec<Health>,
    /// Reason at the time of the list, by the database's clock. `None`: any reason, or none.
    pub reasons: Option<Reasons>,
    pub kind: Option<Kind>,
    pub namespace: Option<Namespace>,
    pub pool: Option<Pool>,
    pub service: Option<ServiceId>,
    /// All must match.
    pub labels: BTreeMap<String, String>,
    /// What the labels must fulfil besides.
    pub selector: Selector,
    /// Part of the name, case-insensitive.
    pub q: Option<String>,
    /// The observers that the user may know; none other is shown or counted.
    pub scope: Scope,
    pub sort: Sort,
    /// Ascending unless set.
    pub descending: bool,
}

impl Filter {
    /// Whether it shows observers of this namespace, pool and kind, as far as they decide.
    pub(crate) fn has_in_scope(&self, definition: &ObserverDefinition) -> bool {
        let ObserverDefinition { namespace, pool, kind, .. } = definition;
        let parts = self.scope.as_ref();
        self.namespace.as_ref().is_none_or(|wanted| wanted == namespace)
            && parts.is_none_or(|parts| parts.iter().any(|part| part.has(namespace, pool, kind)))
    }
}

/// Observers with one of these reason codes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reasons {
    pub codes: Vec<ReasonCode>,
    /// Why each pool accepts no more observers. The reason code of a waiting observer depends on it.
    pub obstacles: Obstacles,
}

/// The order of a list; ties are ordered by id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Sort {
    #[default]
    Name,
    CreatedAt,
}

/// Where the next page starts: the sort value and id of the last row shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListCursor {
    /// The name, or the creation time in milliseconds as decimal text.
    pub value: String,
    pub id: ObserverId,
}

/// A page of a list.
#[derive(Debug, Clone)]
pub struct Page {
    pub rows: Vec<Row>,
    /// Rows that match, over all pages.
    pub total: u64,
    pub more: bool,
}
