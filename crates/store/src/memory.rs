//! A store in the memory of this process, for tests and simulations. It keeps the promises of the store port.
//! Its content is lost when the process ends.

mod access;
mod backlog;
mod batches;
mod changes;
mod events;
mod limits;
mod namespaces;
mod notes;
mod parked;
mod rates;
mod rollouts;
mod versions;

use crate::checkpoints::Loaded;
use crate::columns::{StateColumns, WantedColumns, refused_as};
use crate::port::{
    Change, Checkpoints, Counts, Created, DefinitionVersion, Event, Filter, Found, HealthCounts, HeldWeights,
    ListCursor, MatchingCounts, ObserverResult, Observers, Page, Parked, Services, Sort, Store, StoreError,
    Unreadable, Worklists,
};
use async_trait::async_trait;
use everwatch_core::capacity::admission::PoolOffers;
use everwatch_core::capacity::limits::Limit;
use everwatch_core::capacity::placement::Refused;
use everwatch_core::capacity::supply::Load;
use everwatch_core::clock::{self, Timestamp};
use everwatch_core::doctor::Schema;
use everwatch_core::failure::adoption::REMEMBERED;
use everwatch_core::id::{
    LimitKey, LimitPattern, Name, ObserverId, ObserverRef, Pool, ServiceId, ServiceRef,
};
use everwatch_core::observer::definition::ObserverDefinition;
use everwatch_core::record::checkpoint::StoredCheckpoint;
use everwatch_core::record::health::{Health, standing};
use everwatch_core::record::reason::code_at;
use everwatch_core::record::row::{Row, Slot};
use everwatch_core::record::row_policy::RowPolicy;
use everwatch_core::record::service::ServiceRow;
use everwatch_core::record::status::Status;
use everwatch_core::wire::checkpoint::{Checkpoint, CheckpointRestored, CheckpointStored, CheckpointWanted};
use everwatch_core::wire::report::{InventoryRange, RangeTotal};
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// One lock around all tables, so each operation is a transaction.
pub struct MemoryStore {
    policy: RowPolicy,
    tables: Mutex<Tables>,
}

/// What a [`MemoryStore`] held at one moment.
#[derive(Clone)]
pub struct Backup(Tables);

/// Everything that is stored.
#[derive(Clone, Default)]
struct Tables {
    observers: BTreeMap<ObserverId, Kept>,
    services: BTreeMap<ServiceId, ServiceRow>,
    notes: BTreeMap<String, (String, Timestamp)>,
    events: Vec<Event>,
    parked: Vec<Parked>,
    checkpoints: BTreeMap<ObserverId, StoredCheckpoint>,
    results: BTreeMap<ObserverId, ObserverResult>,
    versions: BTreeMap<ObserverId, Vec<DefinitionVersion>>,
    limits: BTreeMap<LimitPattern, Limit>,
    /// The keys that managers must look at.
    changed_limits: BTreeSet<LimitKey>,
    rates: rates::Table,
    namespaces: namespaces::Table,
    rollouts: rollouts::Stored,
    batches: batches::Stored,
    access: access::Stored,
    last_event: i64,
    last_parked: i64,
}

/// A row with its indexed columns.
#[derive(Clone)]
struct Kept {
    row: Row,
    status: Status,
    due_at: Option<i64>,
    commanded_at: Option<i64>,
    /// The place in the backlog.
    rank: Option<i64>,
    /// Whether its message is refused, or withdrawn (`true`).
    refused: Option<bool>,
    /// Whether the row still holds its name. A row that has given up its name never gets it back.
    has_name: bool,
}

impl Kept {
    fn of(row: &Row, version: i64, policy: &RowPolicy, had_name: bool) -> Result<Self, StoreError> {
        let StateColumns { due_at, commanded_at, rank, reason_code, state, .. } =
            StateColumns::of(row, version, policy)?;
        let WantedColumns { name_key, definition, .. } = WantedColumns::of(row)?;
        let refused = [false, true].into_iter().find(|it| reason_code == Some(refused_as(*it)));
        // Parses both halves of the row, as a database read would.
        let row = Row::read(row.id, version, crate::columns::read(&definition)?, &state)
            .map_err(StoreError::Corrupt)?;
        let (status, has_name) = (row.verdict().status, had_name && name_key.is_some());
        Ok(Self { row, status, due_at, commanded_at, rank, refused, has_name })
    }
    fn age(&self) -> (Timestamp, ObserverId) {
        (self.row.created_at, self.row.id)
    }
}

impl MemoryStore {
    /// An empty store.
    #[must_use]
    pub fn new(policy: RowPolicy) -> Self {
        Self { policy, tables: Mutex::default() }
    }
    /// A copy of everything that is stored now, as a backup has it.
    #[must_use]
    pub fn backup(&self) -> Backup {
        Backup(self.tables().clone())
    }
    /// Puts a backup in place of everything that is stored.
    pub fn restore(&self, backup: &Backup) {
        self.tables().clone_from(&backup.0);
    }
    fn tables(&self) -> MutexGuard<'_, Tables> {
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }
    fn rows<K: Ord>(&self, most: usize, key: impl Fn(&Kept) -> Option<K>) -> Vec<Row> {
        let tables = self.tables();
        let mut found: Vec<(K, &Kept)> =
            tables.observers.values().filter_map(|kept| Some((key(kept)?, kept))).collect();
        found.sort_by(|a, b| a.0.cmp(&b.0));
        found.into_iter().take(most).map(|(_, kept)| kept.row.clone()).collect()
    }
}

impl Tables {
    fn health(&self, row: &Row, now: Timestamp) -> Option<Health> {
        let holder = row.holder().and_then(|holder| self.services.get(&holder));
        Some(standing(row)?.at(holder.is_some_and(|holder| holder.end.is_none()), now))
    }
    fn matching<'a>(&'a self, filter: &'a Filter, now: Timestamp) -> impl Iterator<Item = &'a Kept> {
        let q = filter.q.as_ref().map(|q| q.to_ascii_lowercase());
        let of_health = move |row: &Row| {
            filter.health.is_empty()
                || self.health(row, now).is_some_and(|health| filter.health.contains(&health))
        };
        let of_reason = move |row: &Row| {
            filter.reasons.as_ref().is_none_or(|reasons| {
                let holder = row.holder().and_then(|holder| self.services.get(&holder));
                let held = holder.is_some_and(|holder| holder.end.is_none());
                let code = code_at(row, held, reasons.obstacles.get(&row.definition.pool), now);
                code.is_some_and(|code| reasons.codes.contains(&code))
            })
        };
        let matches = move |kept: &&Kept| {
            let (row, definition) = (&kept.row, &kept.row.definition);
            let by_status = if filter.status.is_empty() {
                kept.status != Status::Deleted
            } else {
                filter.status.contains(&kept.status)
            };
            by_status
                && of_health(row)
                && of_reason(row)
                && filter.kind.as_ref().is_none_or(|kind| definition.kind == *kind)
                && filter.pool.as_ref().is_none_or(|pool| definition.pool == *pool)
                && filter.has_in_scope(definition)
                && filter.service.is_none_or(|service| row.holder() == Some(service))
                && filter.selector.selects(&definition.labels)
                && filter.labels.iter().all(|(key, value)| definition.labels.get(key) == Some(value))
                && q.as_ref()
                    .is_none_or(|q| definition.name.as_str().to_ascii_lowercase().contains(q.as_str()))
        };
        self.observers.values().filter(matches)
    }
    fn holders(&self) -> HashMap<String, Status> {
        let held = self.observers.values().filter(|kept| kept.has_name);
        held.map(|kept| (kept.row.definition.name_key(), kept.status)).collect()
    }
}

#[async_trait]
impl Observers for MemoryStore {
    async fn create(&self, rows: &[Row], offers: &PoolOffers) -> Result<Vec<Created>, StoreError> {
        self.tables().create(rows, offers, &self.policy)
    }
    async fn load(&self, ids: &[ObserverId]) -> Result<Found<Row, ObserverId>, StoreError> {
        let (tables, mut met) = (self.tables(), HashSet::new());
        let ids = ids.iter().filter(|id| met.insert(**id));
        let rows = ids.filter_map(|id| tables.observers.get(id)).map(|kept| kept.row.clone()).collect();
        Ok(Found { rows, unreadable: Vec::new() })
    }
    async fn find(&self, which: &ObserverRef) -> Result<Option<Row>, StoreError> {
        let tables = self.tables();
        let found = match which {
            ObserverRef::Id(id) => tables.observers.get(id),
            ObserverRef::Name(namespace, name) => {
                let is_it = |it: &ObserverDefinition| it.name == *name && it.namespace == *namespace;
                let named = tables.observers.values().filter(|kept| is_it(&kept.row.definition));
                named.max_by_key(|kept| (kept.has_name, kept.age()))
            }
        };
        Ok(found.map(|kept| kept.row.clone()))
    }
    async fn save(&self, changes: &[Change<'_>]) -> Result<Vec<ObserverId>, StoreError> {
        self.tables().save(changes, &self.policy)
    }
    async fn versions(&self, id: ObserverId) -> Result<Vec<DefinitionVersion>, StoreError> {
        Ok(self.tables().versions.get(&id).cloned().unwrap_or_default())
    }
    async fn list(
        &self,
        filter: &Filter,
        after: Option<&ListCursor>,
        limit: usize,
    ) -> Result<Page, StoreError> {
        let key = |row: &Row| match filter.sort {
            Sort::Name => (row.definition.name.to_string(), 0, row.id),
            Sort::CreatedAt => (String::new(), row.created_at.0, row.id),
        };
        let after = match (after, filter.sort) {
            (None, _) => None,
            (Some(after), Sort::Name) => Some((after.value.clone(), 0, after.id)),
            (Some(after), Sort::CreatedAt) => {
                let wrong = |_| StoreError::Refused("the page's start is not a time in milliseconds".into());
                Some((String::new(), after.value.parse().map_err(wrong)?, after.id))
            }
        };
        let (tables, now) = (self.tables(), clock::now());
        let way = |order: Ordering| if filter.descending { order.reverse() } else { order };
        let mut rows: Vec<&Row> = tables.matching(filter, now).map(|kept| &kept.row).collect();
        let total = rows.len() as u64;
        rows.sort_by(|a, b| way(key(a).cmp(&key(b))));
        rows.retain(|row| after.as_ref().is_none_or(|after| way(key(row).cmp(after)) == Ordering::Greater));
        let more = rows.len() > limit;
        Ok(Page { rows: rows.into_iter().take(limit).cloned().collect(), total, more })
    }
    async fn counts_matching(&self, filter: &Filter) -> Result<MatchingCounts, StoreError> {
        let (tables, now) = (self.tables(), clock::now());
        let mut counts = MatchingCounts::new();
        for kept in tables.matching(filter, now) {
            *counts.entry((kept.status, tables.health(&kept.row, now))).or_default() += 1;
        }
        Ok(counts)
    }
    async fn counts(&self) -> Result<Counts, StoreError> {
        let mut counts = Counts::new();
        for kept in self.tables().observers.values() {
            let count = counts.entry((kept.row.definition.pool.clone(), kept.status)).or_default();
            *count = count.and(Load::of(&kept.row));
        }
        Ok(counts)
    }
    async fn health_counts(&self) -> Result<HealthCounts, StoreError> {
        let (tables, now) = (self.tables(), clock::now());
        let mut counts = HealthCounts::new();
        for kept in tables.observers.values() {
            if let Some(health) = tables.health(&kept.row, now) {
                *counts.entry((kept.row.definition.pool.clone(), health)).or_insert(0) += 1;
            }
        }
        Ok(counts)
    }
    async fn held_weights(&self) -> Result<HeldWeights, StoreError> {
        let mut weights = HeldWeights::new();
        for kept in self.tables().observers.values() {
            if let Some(holder) = kept.row.holder() {
                *weights.entry(holder).or_default() += Load::of(&kept.row).weight;
            }
        }
        Ok(weights)
    }
    async fn forget(&self, rows: &[(ObserverId, i64)]) -> Result<(), StoreError> {
        let (mut tables, until) = (self.tables(), clock::now().plus(REMEMBERED));
        for (id, version) in rows {
            if tables.observers.get(id).is_some_and(|kept| kept.row.version == *version) {
                tables.observers.remove(id);
                tables.checkpoints.remove(id);
                tables.results.remove(id);
                tables.versions.remove(id);
                tables.notes.insert(format!("forgotten/{id}"), (String::new(), until));
            }
        }
        Ok(())
    }
    async fn forgotten(&self, ids: &[ObserverId]) -> Result<Vec<ObserverId>, StoreError> {
        let tables = self.tables();
        Ok(ids.iter().copied().filter(|id| tables.note(&format!("forgotten/{id}")).is_some()).collect())
    }
    async fn unreadable(&self) -> Result<Vec<Unreadable>, StoreError> {
        // The memory store holds rows, not documents, so no row can be unreadable.
        Ok(Vec::new())
    }
}

#[async_trait]
impl Worklists for MemoryStore {
    async fn due(&self, now: Timestamp, most: usize) -> Result<Vec<Row>, StoreError> {
        Ok(self.rows(most, |kept| kept.due_at.filter(|due| *due <= now.0).map(|due| (due, kept.row.id))))
    }
    async fn commanded_since(&self, since: Timestamp, most: usize) -> Result<Vec<Row>, StoreError> {
        Ok(self.rows(most, |kept| kept.commanded_at.filter(|at| *at >= since.0).map(|at| (-at, kept.row.id))))
    }
    async fn ending(&self, most: usize) -> Result<Vec<Row>, StoreError> {
        let ends = |row: &Row| row.awaits_end() || row.awaits_release();
        Ok(self.rows(most, |kept| ends(&kept.row).then_some((kept.commanded_at, kept.row.id))))
    }
    async fn refused(&self) -> Result<Vec<Refused>, StoreError> {
        let mut counts = BTreeMap::new();
        for kept in self.tables().observers.values() {
            if let Some(withdrawn) = kept.refused {
                let definition = &kept.row.definition;
                *counts.entry((definition.pool.clone(), definition.kind.clone(), withdrawn)).or_insert(0) +=
                    1;
            }
        }
        let group = |((pool, kind, withdrawn), count)| Refused { pool, kind, withdrawn, count };
        Ok(counts.into_iter().map(group).collect())
    }
    async fn refused_rows(&self, of: &Refused, most: usize) -> Result<Vec<Row>, StoreError> {
        let is_one = |kept: &Kept| {
            let definition = &kept.row.definition;
            kept.refused == Some(of.withdrawn) && definition.pool == of.pool && definition.kind == of.kind
        };
        Ok(self.rows(most, |kept| is_one(kept).then(|| kept.age())))
    }
    async fn unheld(&self, pool: &Pool, living: &[ServiceId], most: usize) -> Result<Vec<Row>, StoreError> {
        let is_held = |kept: &Kept| kept.row.holder().is_some_and(|holder| living.contains(&holder));
        let is_one = |kept: &Kept| {
            kept.row.definition.pool == *pool && kept.row.slot() == Slot::Admitted && !is_held(kept)
        };
        Ok(self.rows(most, |kept| is_one(kept).then(|| kept.age())))
    }
    async fn held_totals(
        &self,
        service: ServiceId,
        ranges: &[InventoryRange],
    ) -> Result<Vec<RangeTotal>, StoreError> {
        let tables = self.tables();
        let total = |range: &InventoryRange| {
            let held = tables.observers.values().map(|kept| &kept.row);
            let held = held.filter(|row| row.holder() == Some(service) && range.contains(row.id));
            held.fold(RangeTotal::default(), |total, row| RangeTotal {
                entries: total.entries + 1,
                sum: total.sum + row.digest().unwrap_or(0),
            })
        };
        Ok(ranges.iter().map(total).collect())
    }
    async fn held_by(
        &self,
        service: ServiceId,
        range: InventoryRange,
    ) -> Result<Vec<ObserverId>, StoreError> {
        let tables = self.tables();
        let held = tables.observers.values().filter(|kept| kept.row.holder() == Some(service));
        Ok(held.map(|kept| kept.row.id).filter(|id| range.contains(*id)).collect())
    }
}

#[async_trait]
impl Services for MemoryStore {
    async fn services(&self, ended_since: Timestamp) -> Result<Found<ServiceRow, ServiceId>, StoreError> {
        let tables = self.tables();
        let known =
            tables.services.values().filter(|it| it.end.as_ref().is_none_or(|end| end.at >= ended_since));
        let mut rows: Vec<ServiceRow> = known.cloned().collect();
        rows.sort_by(|a, b| {
            (&a.registration.name, a.registered_at, a.id).cmp(&(&b.registration.name, b.registered_at, b.id))
        });
        Ok(Found { rows, unreadable: Vec::new() })
    }
    async fn load_services(&self, ids: &[ServiceId]) -> Result<Found<ServiceRow, ServiceId>, StoreError> {
        let tables = self.tables();
        let rows = ids.iter().filter_map(|id| tables.services.get(id)).cloned().collect();
        Ok(Found { rows, unreadable: Vec::new() })
    }
    async fn namesakes(&self, names: &[Name], ended_since: Timestamp) -> Result<Vec<ServiceRow>, StoreError> {
        let tables = self.tables();
        let shown = |it: &&ServiceRow| {
            names.contains(&it.registration.name) && it.end.is_none_or(|end| end.at >= ended_since)
        };
        Ok(tables.services.values().filter(shown).cloned().collect())
    }
    async fn ends(&self, ids: &[ServiceId]) -> Result<BTreeMap<ServiceId, Timestamp>, StoreError> {
        let tables = self.tables();
        let known = ids.iter().filter_map(|id| tables.services.get(id));
        Ok(known.filter_map(|it| Some((it.id, it.end?.at))).collect())
    }
    async fn service(&self, which: &ServiceRef) -> Result<Option<ServiceRow>, StoreError> {
        let tables = self.tables();
        let is_it = |it: &&ServiceRow| match which {
            ServiceRef::Id(id) => it.id == *id,
            ServiceRef::Name(name) => it.registration.name == *name,
        };
        Ok(tables.services.values().filter(is_it).max_by_key(|it| (it.registered_at, it.id)).cloned())
    }
    async fn save_services(&self, rows: &[ServiceRow]) -> Result<Vec<ServiceId>, StoreError> {
        let (mut tables, mut late) = (self.tables(), Vec::new());
        for row in rows {
            let version = match tables.services.get(&row.id) {
                Some(stored) if stored.version == row.version => row.version + 1,
                None if row.version == 1 => 1,
                _ => {
                    late.push(row.id);
                    continue;
                }
            };
            tables.services.insert(row.id, ServiceRow { version, ..row.clone() });
        }
        Ok(late)
    }
    async fn forget_services(&self, before: Timestamp) -> Result<u64, StoreError> {
        let mut tables = self.tables();
        let held = tables.services.len();
        tables.services.retain(|_, it| it.end.as_ref().is_none_or(|end| end.at >= before));
        Ok((held - tables.services.len()) as u64)
    }
}

impl Tables {
    /// The checkpoints of those of these observers that have a row.
    fn loaded(&self, ids: impl Iterator<Item = ObserverId>) -> Loaded {
        let known = ids.filter(|id| self.observers.contains_key(id));
        Loaded::new(known.map(|id| (id, self.checkpoints.get(&id).cloned().unwrap_or_default())).collect())
    }
}

#[async_trait]
impl Checkpoints for MemoryStore {
    async fn save_checkpoints(
        &self,
        checkpoints: &[Checkpoint],
    ) -> Result<Vec<CheckpointStored>, StoreError> {
        let mut tables = self.tables();
        let mut loaded = tables.loaded(checkpoints.iter().map(|it| it.id));
        let answers = loaded.save(checkpoints);
        tables.checkpoints.extend(loaded.into_inner());
        Ok(answers)
    }
    async fn request_checkpoints(
        &self,
        wanted: &[CheckpointWanted],
    ) -> Result<Vec<CheckpointRestored>, StoreError> {
        let mut tables = self.tables();
        let mut loaded = tables.loaded(wanted.iter().map(|it| it.id));
        let answers = loaded.request(wanted);
        tables.checkpoints.extend(loaded.into_inner());
        Ok(answers)
    }
    async fn save_results(&self, results: &[ObserverResult]) -> Result<(), StoreError> {
        let mut tables = self.tables();
        for result in results {
            let is_newer = tables.results.get(&result.id).is_none_or(|known| known.epoch < result.epoch);
            if is_newer && tables.observers.contains_key(&result.id) {
                tables.results.insert(result.id, result.clone());
            }
        }
        Ok(())
    }
    async fn result(&self, id: ObserverId) -> Result<Option<ObserverResult>, StoreError> {
        Ok(self.tables().results.get(&id).cloned())
    }
}

#[async_trait]
impl Store for MemoryStore {
    async fn close(&self) {}
    async fn schema(&self) -> Result<Schema, StoreError> {
        // This program creates the schema itself, so it is always current.
        Ok(Schema { found: i64::MAX, known: i64::MAX })
    }
    async fn now(&self) -> Result<Timestamp, StoreError> {
        Ok(clock::now())
    }
}
