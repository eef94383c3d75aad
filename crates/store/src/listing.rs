//! A list's filter and cursor as plain values for SQL parameters. Both databases share this code.

use crate::columns::{number, without_nul};
use crate::port::{Filter, ListCursor, Page, Reasons, Sort, StoreError};
use everwatch_core::id::Namespace;
use everwatch_core::record::health::Health;
use everwatch_core::record::pool_obstacle::Obstacle;
use everwatch_core::record::row::Row;
use everwatch_core::record::status::Status;
use uuid::Uuid;

/// The health of a stored row at the time of the read: the rule of
/// [`everwatch_core::record::health::Standing::at`] in SQL. The two databases differ only in the expression
/// for the current time.
macro_rules! effective_health {
    ($now:literal) => {
        concat!(
            "CASE WHEN s.health = 'moving' AND s.steady_at <= ",
            $now,
            " THEN 'waiting'
             WHEN s.health IS NULL OR s.health NOT IN ('running', 'restarting') THEN s.health
             WHEN s.service_id IS NULL OR s.service_id NOT IN (SELECT l.id FROM services l WHERE l.ended_at IS NULL)
                THEN 'waiting'
             WHEN s.steady_at <= ",
            $now,
            " THEN 'running' ELSE s.health END"
        )
    };
}
pub(crate) use effective_health;

/// The reason code of a stored row at the time of the read: the rule of
/// [`everwatch_core::record::reason::code_at`] in SQL. The two databases differ only in the expressions for
/// the current time and for the obstacle in the row's pool (empty if there is none).
macro_rules! effective_reason {
    ($now:literal, $obstacle:literal) => {
        concat!(
            "CASE WHEN s.health IN ('running', 'restarting') AND (s.service_id IS NULL
                OR s.service_id NOT IN (SELECT l.id FROM services l WHERE l.ended_at IS NULL))
                THEN COALESCE(NULLIF(",
            $obstacle,
            ", ''), 'service-lost')
             WHEN s.reason_code IN ('waiting-for-slot', 'handed-over')
                THEN COALESCE(NULLIF(",
            $obstacle,
            ", ''), s.reason_code)
             WHEN s.steady_at <= ",
            $now,
            " THEN NULL ELSE s.reason_code END"
        )
    };
}
pub(crate) use effective_reason;

/// A list as its parameters.
pub(crate) struct Parameters {
    pub(crate) status: Vec<&'static str>,
    pub(crate) kind: Option<String>,
    pub(crate) namespace: Option<String>,
    pub(crate) pool: Option<String>,
    pub(crate) service: Option<Uuid>,
    /// A JSON object.
    pub(crate) labels: String,
    /// A JSON array of [`Requirement`](everwatch_core::observer::labels::Requirement)s.
    pub(crate) selector: Option<String>,
    pub(crate) q: Option<String>,
    pub(crate) health: Option<Vec<&'static str>>,
    pub(crate) reasons: Option<Vec<&'static str>>,
    /// A JSON array of what may be shown: objects with `namespaces`, `pools` and `kinds`, each an array, or null for all.
    pub(crate) scope: Option<String>,
    /// A JSON object that maps each pool with services to the code of its obstacle (empty if it has none).
    pub(crate) obstacles: String,
    /// The page starts strictly after this value and id.
    pub(crate) value: String,
    pub(crate) id: Uuid,
}

impl Parameters {
    pub(crate) fn of(filter: &Filter, after: Option<&ListCursor>) -> Result<Self, StoreError> {
        let all_but_deleted = || Status::ALL.into_iter().filter(|status| *status != Status::Deleted);
        let status: Vec<Status> =
            if filter.status.is_empty() { all_but_deleted().collect() } else { filter.status.clone() };
        let labels: serde_json::Map<String, serde_json::Value> =
            filter.labels.iter().map(|(key, value)| (without_nul(key), without_nul(value).into())).collect();
        let namespace = filter.namespace.as_ref().or_else(|| only_namespace(filter));
        let scope = filter.scope.as_ref().map(crate::access_columns::written).transpose()?;
        let (value, id) = after.map_or_else(|| edge(filter), |after| (after.value.clone(), after.id.0));
        if filter.sort == Sort::CreatedAt && value.parse::<i64>().is_err() {
            return Err(StoreError::Refused("the page's start is not a time in milliseconds".into()));
        }
        Ok(Self {
            status: status.into_iter().map(Status::as_str).collect(),
            kind: filter.kind.as_ref().map(ToString::to_string),
            namespace: namespace.map(ToString::to_string),
            pool: filter.pool.as_ref().map(ToString::to_string),
            service: filter.service.map(|service| service.0),
            labels: serde_json::Value::Object(labels).to_string(),
            selector: (!filter.selector.is_empty()).then(|| serde_json::json!(filter.selector).to_string()),
            // Names are ASCII.
            q: filter.q.as_deref().map(|q| without_nul(q).to_ascii_lowercase()),
            health: (!filter.health.is_empty())
                .then(|| filter.health.iter().copied().map(Health::as_str).collect()),
            reasons: filter.reasons.as_ref().map(|it| it.codes.iter().map(|code| code.as_str()).collect()),
            obstacles: filter.reasons.as_ref().map_or_else(|| "{}".to_owned(), written),
            scope,
            value: without_nul(&value),
            id,
        })
    }

    /// Whether the numbers that each save keeps (`observer_counts`) tell how many rows match.
    pub(crate) fn is_counted(&self) -> bool {
        let has_labels = self.has_labels() || self.selector.is_some();
        let selects = [has_labels, self.q.is_some(), self.health.is_some(), self.reasons.is_some()];
        // The numbers of the nil service are those of observers that no service holds.
        let is_nil = self.service.is_some_and(|service| service.is_nil());
        !selects.contains(&true) && self.scope.is_none() && self.namespace.is_none() && !is_nil
    }

    pub(crate) fn has_labels(&self) -> bool {
        self.labels != "{}"
    }
}

/// The namespace to which the scope is restricted: with it as a condition, a list uses the index of namespaces.
fn only_namespace(filter: &Filter) -> Option<&Namespace> {
    let parts = filter.scope.as_ref()?;
    let [only] = parts.first()?.namespaces.as_deref()? else { return None };
    parts.iter().all(|part| part.namespaces.as_deref() == Some(std::slice::from_ref(only))).then_some(only)
}

fn written(reasons: &Reasons) -> String {
    let code = |obstacle: Option<Obstacle>| obstacle.map_or("", |it| it.code().as_str());
    let pools = reasons.obstacles.iter().map(|(pool, obstacle)| (pool.to_string(), code(obstacle).into()));
    serde_json::Value::Object(pools.collect()).to_string()
}

/// A cursor before the first row, so that the first page uses the same query and index as every other page.
fn edge(filter: &Filter) -> (String, Uuid) {
    match (filter.sort, filter.descending) {
        (Sort::Name, false) => (String::new(), Uuid::nil()),
        // `~` sorts after every name: names consist of letters, digits, `.`, `_` and `-`.
        (Sort::Name, true) => ("~".into(), Uuid::max()),
        (Sort::CreatedAt, false) => (i64::MIN.to_string(), Uuid::nil()),
        (Sort::CreatedAt, true) => (i64::MAX.to_string(), Uuid::max()),
    }
}

/// The page that was read with one row more than wanted.
pub(crate) fn page(mut rows: Vec<Row>, most: usize, total: i64) -> Page {
    let more = rows.len() > most;
    rows.truncate(most);
    Page { rows, total: number(total), more }
}
