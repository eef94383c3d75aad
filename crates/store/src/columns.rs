//! Converts rows to the columns of their tables, and back. Both databases share this code.

use crate::events::{Event, EventPage};
use crate::port::{Change, Counts, DefinitionVersion, HealthCounts, HeldWeights, MatchingCounts, StoreError};
use everwatch_core::capacity::admission::PoolCount;
use everwatch_core::capacity::placement::Refused;
use everwatch_core::capacity::supply::{Load, Supply};
use everwatch_core::clock::Timestamp;
use everwatch_core::id::{InvalidName, Kind, ObserverId, Pool, ServiceId};
use everwatch_core::record::events::EventKind;
use everwatch_core::record::health::{Health, Standing, standing};
use everwatch_core::record::reason::{ReasonCode, stored_code};
use everwatch_core::record::row::{Revision, Row, Slot};
use everwatch_core::record::row_policy::RowPolicy;
use everwatch_core::record::service::{ServiceRow, ServiceState};
use everwatch_core::record::status::Status;
use everwatch_core::wire::report::RangeTotal;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use uuid::Uuid;

/// What is written of an observer when its user creates or changes it.
#[derive(Debug, Serialize)]
pub(crate) struct WantedColumns {
    pub(crate) id: Uuid,
    pub(crate) name: String,
    pub(crate) namespace: String,
    /// The name, qualified by the namespace, while it is taken.
    pub(crate) name_key: Option<String>,
    pub(crate) kind: String,
    pub(crate) pool: String,
    pub(crate) created_at: i64,
    pub(crate) labels: String,
    pub(crate) definition: String,
}

/// What is written of an observer with every report.
#[derive(Debug)]
pub(crate) struct StateColumns {
    pub(crate) id: Uuid,
    pub(crate) version: i64,
    pub(crate) counted: CountKey,
    pub(crate) due_at: Option<i64>,
    pub(crate) commanded_at: Option<i64>,
    /// When code that was restarted after an error starts to count as running.
    pub(crate) steady_at: Option<i64>,
    /// The reason code as far as it follows from the row alone.
    pub(crate) reason_code: Option<&'static str>,
    pub(crate) digest: Option<i64>,
    /// The place in the backlog.
    pub(crate) rank: Option<i64>,
    /// The batch, and the place in it.
    pub(crate) batch: Option<(Uuid, i64)>,
    pub(crate) weight: i32,
    /// The place in the order in which runs give their slots to observers of a higher priority.
    pub(crate) preemption_rank: Option<i64>,
    pub(crate) state: Vec<u8>,
}

/// What observers are counted by.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(crate) struct CountKey {
    pub(crate) pool: String,
    pub(crate) kind: String,
    pub(crate) status: &'static str,
    /// The health as far as it follows from the row alone. A read adds the state of the service and the
    /// current time.
    pub(crate) health: Option<&'static str>,
    pub(crate) slot: &'static str,
    pub(crate) service_id: Option<Uuid>,
}

/// What is written of a service.
pub(crate) struct ServiceColumns {
    pub(crate) id: Uuid,
    pub(crate) version: i64,
    pub(crate) name: String,
    pub(crate) pool: String,
    pub(crate) capacity: i64,
    pub(crate) weight_max: i64,
    pub(crate) state: &'static str,
    pub(crate) registered_at: i64,
    pub(crate) ended_at: Option<i64>,
    pub(crate) document: String,
}

impl WantedColumns {
    pub(crate) fn of(row: &Row) -> Result<Self, StoreError> {
        Ok(Self {
            id: row.id.0,
            name_key: holds_name(row).then(|| row.definition.name_key()),
            name: row.definition.name.to_string(),
            namespace: row.definition.namespace.to_string(),
            kind: row.definition.kind.to_string(),
            pool: row.definition.pool.to_string(),
            created_at: row.created_at.0,
            labels: written(&row.definition.labels)?,
            definition: written(&*row.definition)?,
        })
    }

    /// Those of the saved changes that change the definition.
    pub(crate) fn of_redefined(
        changes: &[Change<'_>],
        saved: &HashSet<Uuid>,
    ) -> Result<Vec<Self>, StoreError> {
        let is_other = |it: &&Change<'_>| {
            !Arc::ptr_eq(&it.before.definition, &it.after.definition)
                && it.before.definition != it.after.definition
        };
        let saved = changes.iter().filter(|it| saved.contains(&it.after.id.0));
        saved.filter(is_other).map(|it| Self::of(it.after)).collect()
    }
}

/// A former version of a definition.
#[derive(Debug)]
pub(crate) struct VersionColumns {
    pub(crate) id: Uuid,
    pub(crate) number: i64,
    pub(crate) at: i64,
    pub(crate) by: Option<String>,
    pub(crate) definition: String,
}

impl VersionColumns {
    /// What the saved changes replace.
    pub(crate) fn of_replaced(
        changes: &[Change<'_>],
        saved: &HashSet<Uuid>,
    ) -> Result<Vec<Self>, StoreError> {
        let saved = changes.iter().filter(|it| saved.contains(&it.after.id.0));
        let of = |it: &Change<'_>| {
            let Revision { number, at, by } = it.before.revision();
            let definition = written(&*it.before.definition)?;
            Ok(Self { id: it.before.id.0, number: number.into(), at: at.0, by, definition })
        };
        saved.filter(|it| it.after.is_revised_since(it.before)).map(of).collect()
    }
}

/// The columns of a stored version: its number, time, user and definition.
pub(crate) type StoredVersion = (i64, i64, Option<String>, String);

/// The versions that can be read: one that an older manager cannot read hides no other.
pub(crate) fn versions(id: ObserverId, found: Vec<StoredVersion>) -> Vec<DefinitionVersion> {
    let read = |(number, at, by, definition): StoredVersion| {
        let definition = serde_json::from_str(&definition).map_err(
            |error| tracing::warn!(observer = %id, version = number, %error, "cannot read a version"),
        );
        let revision = Revision { number: u32::try_from(number).ok()?, at: Timestamp(at), by };
        Some(DefinitionVersion { revision, definition: definition.ok()? })
    };
    found.into_iter().filter_map(read).collect()
}

/// Those of the saved changes that end the claim of the observer on its name.
pub(crate) fn released(changes: &[Change<'_>], saved: &HashSet<Uuid>) -> Vec<Uuid> {
    let released = changes.iter().filter(|it| holds_name(it.before) && !holds_name(it.after));
    released.map(|it| it.after.id.0).filter(|id| saved.contains(id)).collect()
}

fn holds_name(row: &Row) -> bool {
    row.verdict().status != Status::Deleted
}

impl StateColumns {
    /// The row as it will stand under `version`.
    pub(crate) fn of(row: &Row, version: i64, policy: &RowPolicy) -> Result<Self, StoreError> {
        let said = standing(row);
        Ok(Self {
            id: row.id.0,
            version,
            counted: CountKey::of(row),
            due_at: row.due_at(policy).map(|due| due.0),
            commanded_at: row.commanded_at.map(|at| at.0),
            steady_at: said.and_then(|said| said.steady_at).map(|at| at.0),
            reason_code: stored_code(row).map(ReasonCode::as_str),
            digest: row.digest().map(stored_digest),
            rank: row.rank(policy),
            batch: row.batch.map(|it| (it.batch.0, it.place.into())),
            weight: row.definition.weight.into(),
            preemption_rank: row.preemption_rank(),
            state: row.written().map_err(|error| StoreError::Corrupt(error.to_string()))?,
        })
    }
}

impl CountKey {
    pub(crate) fn of(row: &Row) -> Self {
        Self {
            pool: row.definition.pool.to_string(),
            kind: row.definition.kind.to_string(),
            status: row.verdict().status.as_str(),
            health: standing(row).map(|said| said.health.as_str()),
            slot: row.slot().as_str(),
            service_id: row.holder().map(|service| service.0),
        }
    }
}

/// By how much the numbers of observers change, in the order of their keys: two transactions that change the same
/// numbers lock them in the same order and cannot deadlock.
#[derive(Debug, Default)]
pub(crate) struct CountChanges(BTreeMap<CountKey, CountChange>);

/// By how much a number of observers and the sum of their weights change.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) struct CountChange {
    pub(crate) number: i64,
    pub(crate) weight: i64,
}

impl CountChanges {
    pub(crate) fn of_created<'a>(rows: impl Iterator<Item = &'a Row>) -> Self {
        let mut changes = Self::default();
        rows.for_each(|row| changes.add(row, 1));
        changes
    }

    pub(crate) fn of_saved(changes: &[Change<'_>], saved: &HashSet<Uuid>) -> Self {
        let mut counts = Self::default();
        for it in changes.iter().filter(|it| saved.contains(&it.after.id.0)) {
            counts.add(it.before, -1);
            counts.add(it.after, 1);
        }
        counts
    }

    fn add(&mut self, row: &Row, by: i64) {
        let change = self.0.entry(CountKey::of(row)).or_default();
        change.number += by;
        change.weight += by * i64::from(row.definition.weight);
    }

    /// The numbers that change, and by how much.
    pub(crate) fn into_changes(self) -> Vec<(CountKey, CountChange)> {
        self.0.into_iter().filter(|(_, by)| *by != CountChange::default()).collect()
    }
}

/// The first change of each row. If a batch contains an id twice, the second change comes too late, like a save of
/// another manager.
pub(crate) fn firsts<'a>(changes: &[Change<'a>]) -> Vec<Change<'a>> {
    let mut ids = HashSet::new();
    changes.iter().filter(|it| ids.insert(it.after.id)).copied().collect()
}

/// The ids of the changes that were not saved.
pub(crate) fn unsaved(changes: &[Change<'_>], mut saved: HashSet<Uuid>) -> Vec<ObserverId> {
    changes.iter().map(|it| it.after.id).filter(|id| !saved.remove(&id.0)).collect()
}

/// The state by which pools are counted. It differs from the state that users see in single pools, where only one service
/// takes observers, and where a cordoned service keeps no slots: it hands everything over.
fn counted_state(row: &ServiceRow) -> &'static str {
    match row.state() {
        ServiceState::Active if row.registration.pool_single => "single",
        ServiceState::Cordoned if row.registration.pool_single => ServiceState::Draining.as_str(),
        state => state.as_str(),
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
            state: counted_state(&row),
            weight_max: row.registration.weight_max.into(),
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

/// Rows of pool, status, number, sum of weights.
pub(crate) fn counts_of(rows: Vec<(String, String, i64, i64)>) -> Result<Counts, StoreError> {
    let read = |(pool, status, count, weight): (String, String, i64, i64)| {
        let pool = Pool::new(&pool).map_err(|error| StoreError::Corrupt(error.to_string()))?;
        let status: Status = status.parse().map_err(StoreError::Corrupt)?;
        Ok(((pool, status), Load { number: number(count), weight: number(weight) }))
    };
    rows.into_iter().map(read).collect()
}

/// Rows of status, health, number.
pub(crate) fn counts_matching_of(
    rows: Vec<(String, Option<String>, i64)>,
) -> Result<MatchingCounts, StoreError> {
    let read = |(status, health, count): (String, Option<String>, i64)| {
        let status: Status = status.parse().map_err(StoreError::Corrupt)?;
        let health = health.map(|it| it.parse()).transpose().map_err(StoreError::Corrupt)?;
        Ok(((status, health), number(count)))
    };
    rows.into_iter().map(read).collect()
}

/// Rows of holder, sum of weights.
pub(crate) fn held_weights_of(rows: Vec<(Uuid, i64)>) -> HeldWeights {
    rows.into_iter().map(|(holder, weight)| (ServiceId(holder), number(weight))).collect()
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

/// The counts by health at the time of the call, by the rule of [`Standing::at`]: from the number of observers by
/// pool, health and holder (nil: none), and the numbers of those among them whose `steady_at` has passed.
pub(crate) fn health_counts_of(
    groups: Vec<(String, String, Uuid, i64)>,
    steady: Vec<(String, String, Uuid, i64)>,
    living: &HashSet<Uuid>,
) -> Result<HealthCounts, StoreError> {
    let mut counts = HealthCounts::new();
    let (now, past) = (Timestamp(1), Timestamp(0));
    let steady: BTreeMap<_, i64> =
        steady.into_iter().map(|(pool, health, holder, count)| ((pool, health, holder), count)).collect();
    for (pool, health, holder, count) in groups {
        let steady = steady.get(&(pool.clone(), health.clone(), holder)).copied().unwrap_or(0).min(count);
        let pool = Pool::new(&pool).map_err(|error| StoreError::Corrupt(error.to_string()))?;
        let health: Health = health.parse().map_err(StoreError::Corrupt)?;
        let lives = living.contains(&holder);
        let mut add = |steady_at, count| {
            if count > 0 {
                let health = Standing { health, steady_at }.at(lives, now);
                *counts.entry((pool.clone(), health)).or_default() += number(count);
            }
        };
        add(Some(past), steady);
        add(None, count - steady);
    }
    Ok(counts)
}

/// A row of a count of pools: pool, kind, slot, and three sums. Without a kind, the sums are the members of [`Supply`];
/// otherwise, the number of observers and their weight.
pub(crate) type PoolCountRow = (String, String, String, i64, i64, i64);

/// The counts of pools.
pub(crate) fn pool_counts_of(
    rows: Vec<PoolCountRow>,
    pools: &[String],
    policy: &RowPolicy,
) -> Result<HashMap<String, PoolCount>, StoreError> {
    let empty = || PoolCount { ahead: policy.admit_ahead.into(), ..PoolCount::default() };
    let mut counts: HashMap<String, PoolCount> = pools.iter().map(|pool| (pool.clone(), empty())).collect();
    for (pool, kind, slot, first, second, third) in rows {
        let count = counts.entry(pool).or_insert_with(empty);
        if kind.is_empty() {
            let (slots, certain_slots, certain_messages) = (number(first), number(second), number(third));
            count.supply = Supply { slots, certain_slots, certain_messages };
            continue;
        }
        let load = Load { number: number(first), weight: number(second) };
        let kind = Kind::new(&kind).map_err(|error| StoreError::Corrupt(error.to_string()))?;
        let of_kind = count.kinds.entry(kind).or_default();
        if slot == Slot::Waiting.as_str() {
            of_kind.waiting = load;
        } else {
            of_kind.admitted = load;
        }
    }
    Ok(counts)
}

/// The counts of pools by their names.
pub(crate) fn by_pool(counts: HashMap<String, PoolCount>) -> Result<BTreeMap<Pool, PoolCount>, StoreError> {
    let named = |(name, count): (String, PoolCount)| {
        Ok((Pool::new(&name).map_err(|error| StoreError::Corrupt(error.to_string()))?, count))
    };
    counts.into_iter().map(named).collect()
}

/// A digest of 40 bits as a database stores it.
pub(crate) fn stored_digest(digest: u64) -> i64 {
    i64::try_from(digest).unwrap_or(i64::MAX)
}

/// Numbers of held observers and sums of their digests.
pub(crate) fn range_totals(totals: Vec<(i64, i64)>) -> Vec<RangeTotal> {
    totals
        .into_iter()
        .map(|(entries, sum)| RangeTotal { entries: number(entries), sum: number(sum) })
        .collect()
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
/// Rows of number, time, whether a summary stands for it, document. An event that cannot be read, such as one of a newer
/// version, hides no other.
pub(crate) fn event_page(rows: Vec<(i64, i64, bool, String)>, total: u64) -> EventPage {
    let event = |(id, at, detail, document): (i64, i64, bool, String)| {
        let event = read(&document).unwrap_or_else(|error| Event {
            id,
            at: Timestamp(at),
            kind: EventKind::Unreadable,
            observer: None,
            service: None,
            epoch: None,
            text: format!("this manager cannot read the event: {error}"),
            from: None,
            gap_ms: None,
            gap_is_bound: false,
            overlap_ms: None,
            by: None,
            burst: None,
            detail,
        });
        Event { id, detail, ..event }
    };
    EventPage { events: rows.into_iter().map(event).collect(), total }
}
