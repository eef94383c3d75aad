//! Converts a row to its document and indexed columns, and back. Both databases share this code.

use crate::events::{Event, EventPage};
use crate::port::{Counts, HealthCounts, StoreError};
use everwatch_core::capacity::placement::Refused;
use everwatch_core::clock::Timestamp;
use everwatch_core::id::{InvalidName, Kind, Pool};
use everwatch_core::record::health::{Health, Standing, standing};
use everwatch_core::record::reason::{ReasonCode, stored_code};
use everwatch_core::record::row::{Row, RowPolicy};
use everwatch_core::record::service::ServiceRow;
use everwatch_core::record::status::Status;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::HashSet;
use uuid::Uuid;

/// What is written of an observer.
#[derive(Serialize)]
pub(crate) struct Columns {
    pub(crate) id: Uuid,
    pub(crate) version: i64,
    pub(crate) name: String,
    pub(crate) name_key: Option<String>,
    pub(crate) kind: String,
    pub(crate) pool: String,
    pub(crate) status: &'static str,
    pub(crate) service_id: Option<Uuid>,
    pub(crate) generation: i64,
    pub(crate) created_at: i64,
    pub(crate) due_at: Option<i64>,
    pub(crate) commanded_at: Option<i64>,
    pub(crate) labels: String,
    pub(crate) document: String,
    /// The health as far as it follows from the row alone. A read adds the state of the service and the
    /// current time.
    pub(crate) health: Option<&'static str>,
    /// When code that was restarted after an error starts to count as running.
    pub(crate) steady_at: Option<i64>,
    /// The reason code as far as it follows from the row alone.
    pub(crate) reason_code: Option<&'static str>,
}

/// What is written of a service.
pub(crate) struct ServiceColumns {
    pub(crate) id: Uuid,
    pub(crate) version: i64,
    pub(crate) name: String,
    pub(crate) pool: String,
    pub(crate) capacity: i64,
    pub(crate) state: &'static str,
    pub(crate) registered_at: i64,
    pub(crate) ended_at: Option<i64>,
    pub(crate) document: String,
}

impl Columns {
    /// The row as it will stand under `version`.
    pub(crate) fn of(row: &Row, version: i64, policy: &RowPolicy) -> Result<Self, StoreError> {
        let row = Row { version, ..row.clone() };
        let (verdict, said) = (row.verdict(), standing(&row));
        let status = verdict.status;
        let name = row.definition.name.to_string();
        Ok(Self {
            id: row.id.0,
            version,
            name_key: (status != Status::Deleted).then(|| name.clone()),
            name,
            kind: row.definition.kind.to_string(),
            pool: row.definition.pool.to_string(),
            status: status.as_str(),
            service_id: row.holder().map(|service| service.0),
            generation: row.generation.into(),
            created_at: row.created_at.0,
            due_at: row.due_at(policy).map(|due| due.0),
            commanded_at: row.commanded_at.map(|at| at.0),
            labels: written(&row.definition.labels)?,
            document: written(&row)?,
            health: said.map(|said| said.health.as_str()),
            steady_at: said.and_then(|said| said.steady_at).map(|at| at.0),
            reason_code: stored_code(&row).map(ReasonCode::as_str),
        })
    }
}

impl ServiceColumns {
    /// The row as it will stand under `version`.
    pub(crate) fn of(row: &ServiceRow, version: i64) -> Result<Self, StoreError> {
        let row = ServiceRow { version, ..row.clone() };
        Ok(Self {
            id: row.id.0,
            version,
            name: row.registration.name.to_string(),
            pool: row.registration.pool.to_string(),
            capacity: row.capacity().into(),
            state: row.state().as_str(),
            registered_at: row.registered_at.0,
            ended_at: row.end.map(|end| end.at.0),
            document: written(&row)?,
        })
    }
}

pub(crate) fn written<T: Serialize>(value: &T) -> Result<String, StoreError> {
    serde_json::to_string(value).map_err(|error| StoreError::Corrupt(error.to_string()))
}

/// A document, read back.
pub(crate) fn read<T: DeserializeOwned>(document: &str) -> Result<T, StoreError> {
    serde_json::from_str(document).map_err(|error| {
        let start: String = document.chars().take(80).collect();
        StoreError::Corrupt(format!("{error}, in the document that starts with {start}"))
    })
}

/// Rows of pool, status, number.
pub(crate) fn counts_of(rows: Vec<(String, String, i64)>) -> Result<Counts, StoreError> {
    let read = |(pool, status, count): (String, String, i64)| {
        let pool = Pool::new(&pool).map_err(|error| StoreError::Corrupt(error.to_string()))?;
        let status: Status = status.parse().map_err(StoreError::Corrupt)?;
        Ok(((pool, status), number(count)))
    };
    rows.into_iter().map(read).collect()
}

/// The reason code of observers whose messages services refuse, or (`withdrawn`) whose messages are out of
/// the queue.
pub(crate) fn refused_as(withdrawn: bool) -> &'static str {
    if withdrawn { ReasonCode::NoServiceForKind } else { ReasonCode::Refused }.as_str()
}

/// Groups of pool, kind, reason code, number.
pub(crate) fn refused_of(groups: Vec<(String, String, String, i64)>) -> Result<Vec<Refused>, StoreError> {
    let corrupt = |error: InvalidName| StoreError::Corrupt(error.to_string());
    let read = |(pool, kind, code, count): (String, String, String, i64)| {
        let (pool, kind) = (Pool::new(&pool).map_err(corrupt)?, Kind::new(&kind).map_err(corrupt)?);
        Ok(Refused { pool, kind, withdrawn: code == refused_as(true), count: number(count) })
    };
    groups.into_iter().map(read).collect()
}

/// The observers of one pool with the same stored health and the same holder: their number, and the number of
/// those whose `steady_at` has passed.
pub(crate) struct HealthGroup {
    pub(crate) pool: String,
    pub(crate) health: String,
    pub(crate) holder: Option<Uuid>,
    pub(crate) count: i64,
    pub(crate) steady: i64,
}

/// The counts by health at the time of the call, by the rule of [`Standing::at`].
pub(crate) fn health_counts_of(
    groups: Vec<HealthGroup>,
    living: &HashSet<Uuid>,
) -> Result<HealthCounts, StoreError> {
    let mut counts = HealthCounts::new();
    let (now, past) = (Timestamp(1), Timestamp(0));
    for group in groups {
        let pool = Pool::new(&group.pool).map_err(|error| StoreError::Corrupt(error.to_string()))?;
        let health: Health = group.health.parse().map_err(StoreError::Corrupt)?;
        let lives = group.holder.is_some_and(|holder| living.contains(&holder));
        let mut add = |steady_at, count| {
            if count > 0 {
                let health = Standing { health, steady_at }.at(lives, now);
                *counts.entry((pool.clone(), health)).or_default() += number(count);
            }
        };
        add(Some(past), group.steady);
        add(None, group.count - group.steady);
    }
    Ok(counts)
}

/// What a database counted.
pub(crate) fn number(count: i64) -> u64 {
    u64::try_from(count).unwrap_or(0)
}

/// A limit as a database takes it.
pub(crate) fn limit(most: usize) -> i64 {
    i64::try_from(most).unwrap_or(i64::MAX)
}

/// Replaces NUL, which PostgreSQL does not accept in text, with U+FFFD.
pub(crate) fn without_nul(text: &str) -> String {
    text.replace('\0', "\u{fffd}")
}

/// A page of stored events.
pub(crate) fn event_page(rows: Vec<(i64, String)>, total: u64) -> Result<EventPage, StoreError> {
    let event = |(id, document): (i64, String)| read(&document).map(|event| Event { id, ..event });
    Ok(EventPage { events: rows.into_iter().map(event).collect::<Result<_, _>>()?, total })
}
