//! The store port: rows that change only by compare-and-set on their version. `core` makes every decision, including
//! which creates are admitted; a store supplies the facts in one transaction.

mod access;
mod batches;
mod limits;
mod lists;
mod namespaces;
mod parked;
mod rollouts;

pub use self::access::{Access, AccessChanges, Audit, RoleDeleted, RoleWritten, TokenAdded};
pub use self::batches::{BatchCreated, BatchPart, Batches};
pub use self::rollouts::{MembersPart, RolloutCreated, Rollouts, StepSaved};
pub use crate::checkpoints::ObserverResult;
pub use crate::events::{Event, EventFilter, EventPage, EventRange};
use async_trait::async_trait;
pub use everwatch_core::capacity::create_admission::Created;
pub use limits::{LIMITS_MAX, LimitCounts, LimitDeleted, LimitUse, Limits, LimitsLookedAt};
pub use lists::{Filter, ListCursor, Page, Reasons, Sort};
pub use namespaces::{NamespaceDeleted, NamespaceWritten, Namespaces};
pub use parked::{PARKED_HEAD, Parked, ParkedHead, ParkedMessages};

use everwatch_core::capacity::admission::{Choice, Offers, PoolCount, PoolOffers, Selection};
use everwatch_core::capacity::limits::KeyCounts;
use everwatch_core::capacity::placement::Refused;
use everwatch_core::capacity::preemption::{Look, Preempted};
use everwatch_core::capacity::rate::{Rate, RateRow};
use everwatch_core::capacity::supply::Load;
use everwatch_core::clock::Timestamp;
use everwatch_core::doctor::Schema;
use everwatch_core::id::{Name, ObserverId, ObserverRef, Pool, RateKey, ServiceId, ServiceRef};
use everwatch_core::observer::definition::ObserverDefinition;
use everwatch_core::record::health::Health;
use everwatch_core::record::row::{Revision, Row};
use everwatch_core::record::row_policy::RowPolicy;
use everwatch_core::record::service::ServiceRow;
use everwatch_core::record::status::Status;
use everwatch_core::wire::checkpoint::{Checkpoint, CheckpointRestored, CheckpointStored, CheckpointWanted};
use everwatch_core::wire::permits::{PermitAnswers, PermitRequest};
use everwatch_core::wire::report::{InventoryRange, RangeTotal};
use std::collections::BTreeMap;
use std::time::Duration;
use uuid::Uuid;

/// Why an operation of the store failed.
#[derive(Debug, Clone, thiserror::Error)]
pub enum StoreError {
    /// The database cannot be reached or is busy: a retry may help.
    #[error("the database cannot be reached: {0}")]
    Unavailable(String),
    /// Other writers changed the row before every retry.
    #[error("{0}")]
    Contended(String),
    /// An operator must act: bad URL, missing rights, unwritable path, unknown schema version.
    #[error("{0}")]
    Refused(String),
    /// A stored document cannot be read.
    #[error("cannot read a stored row: {0}")]
    Corrupt(String),
}

/// The rows of one read. A row that cannot be read hides no other row, and nothing may be concluded about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found<T, I> {
    pub rows: Vec<T>,
    /// The ids of rows that exist and cannot be read.
    pub unreadable: Vec<I>,
}

impl<T, I: std::fmt::Display> Found<T, I> {
    /// The requested row.
    ///
    /// # Errors
    /// Corrupt if it exists and cannot be read.
    pub fn one(mut self) -> Result<Option<T>, StoreError> {
        match self.unreadable.first() {
            Some(id) => {
                Err(StoreError::Corrupt(format!("{id}; `everwatch doctor` shows why and how to repair it")))
            }
            None => Ok(self.rows.pop()),
        }
    }
}

/// A table of documents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Table {
    Observers,
    Services,
}

impl std::fmt::Display for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Observers => "observers",
            Self::Services => "services",
        })
    }
}

/// A change of one row.
#[derive(Debug, Clone, Copy)]
pub struct Change<'a> {
    /// The row as it was loaded.
    pub before: &'a Row,
    /// The same row as it is to be, with the version of `before`.
    pub after: &'a Row,
}

/// A former version of the definition of an observer.
#[derive(Debug, Clone, PartialEq)]
pub struct DefinitionVersion {
    pub revision: Revision,
    pub definition: ObserverDefinition,
}

/// A stored row that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unreadable {
    pub table: Table,
    pub id: Uuid,
    /// The id as a literal in the SQL of the database.
    pub literal: String,
    pub why: String,
}

impl Unreadable {
    /// What an operator can do about it.
    #[must_use]
    pub fn cure(&self) -> String {
        format!(
            "update this manager if a newer one has written the row; otherwise take its document from a backup, or \
             remove it: DELETE FROM {} WHERE id = {}",
            self.table, self.literal
        )
    }
}

/// The number of observers by pool and status.
pub type Counts = BTreeMap<(Pool, Status), Load>;

/// The number of observers by pool and health; observers that are not meant to run have none.
pub type HealthCounts = BTreeMap<(Pool, Health), u64>;

/// The number of observers that match a filter, by status and health; observers that are not meant to run have no health.
pub type MatchingCounts = BTreeMap<(Status, Option<Health>), u64>;

/// The sum of the weights of the observers that a service holds. Services that hold nothing are left out.
pub type HeldWeights = BTreeMap<ServiceId, u64>;

/// Small facts that managers share: leases, keys, the identity of the database. Each of these notes expires.
#[async_trait]
pub trait KeyValue: Send + Sync + 'static {
    /// Writes the note for `keep` if it does not exist, has expired, or has this value already. Returns the value that
    /// is stored afterwards.
    async fn claim(&self, name: &str, value: &str, keep: Duration) -> Result<String, StoreError>;
    /// The note, unless it has expired.
    async fn note(&self, name: &str) -> Result<Option<String>, StoreError>;
    /// All notes whose names begin with `prefix`, ordered by name, without expired ones.
    async fn notes_under(&self, prefix: &str) -> Result<Vec<(String, String)>, StoreError>;
    /// Writes the note unconditionally.
    async fn set_note(&self, name: &str, value: &str, keep: Duration) -> Result<(), StoreError>;
    /// Replaces the value `before` with `after` and keeps the expiry. Returns whether the value was `before`.
    async fn swap_note(&self, name: &str, before: &str, after: &str) -> Result<bool, StoreError>;
    /// Deletes expired notes and returns their number.
    async fn forget_notes(&self) -> Result<u64, StoreError>;
}

/// The history of observers and services.
#[async_trait]
pub trait Events: Send + Sync + 'static {
    /// Stores events in this order.
    async fn record(&self, events: &[Event]) -> Result<(), StoreError>;
    /// A page of events.
    async fn events(
        &self,
        filter: &EventFilter,
        stretch: EventRange,
        most: usize,
    ) -> Result<EventPage, StoreError>;
    /// The numbers of the oldest and the newest event; 0 if there is none.
    async fn event_ends(&self) -> Result<(i64, i64), StoreError>;
    /// Deletes events older than `before` and those beyond the newest `keep`, of which the details of bursts are
    /// counted apart; returns their number. Many events may need several calls.
    async fn forget_events(&self, before: Timestamp, keep: usize) -> Result<u64, StoreError>;
}

/// The rows of observers. A method that answers a list of rows leaves out those that cannot be read, and reads on
/// behind them.
#[async_trait]
pub trait Observers: Send + Sync + 'static {
    /// Inserts new rows in one transaction, as far as `create_admission` admits them: by name, and, unless they queue,
    /// by the free slots of their pools, of which each kind can have those of the services that offer it. A row that must wait for a slot is stored as `Row::created_waiting`. Returns one
    /// result for each row, in order. A refused row does not stop the others.
    async fn create(&self, rows: &[Row], offers: &PoolOffers) -> Result<Vec<Created>, StoreError>;
    /// Rows by id; unknown ids are left out.
    async fn load(&self, ids: &[ObserverId]) -> Result<Found<Row, ObserverId>, StoreError>;
    /// One observer: a name means the live observer of that name, otherwise the newest deleted one. Corrupt if its row
    /// cannot be read.
    async fn find(&self, which: &ObserverRef) -> Result<Option<Row>, StoreError>;
    /// Saves changes of rows whose stored version is still that of `before`, as version + 1, in one transaction. Returns
    /// the ids of rows that have changed in the meantime; those are left as they are.
    async fn save(&self, changes: &[Change<'_>]) -> Result<Vec<ObserverId>, StoreError>;
    /// The former versions of the definition, the newest first; the last [`everwatch_core::record::row::REVISIONS_MAX`] are kept. A save that changes
    /// a definition stores the version that it replaces.
    async fn versions(&self, id: ObserverId) -> Result<Vec<DefinitionVersion>, StoreError>;
    /// A page of observers after `after`.
    async fn list(
        &self,
        filter: &Filter,
        after: Option<&ListCursor>,
        limit: usize,
    ) -> Result<Page, StoreError>;
    /// Counts the observers that match a filter, by status and health, at this moment.
    async fn counts_matching(&self, filter: &Filter) -> Result<MatchingCounts, StoreError>;
    /// The observers by pool and status, including Deleted.
    async fn counts(&self) -> Result<Counts, StoreError>;
    /// Counts by pool and health, at this moment.
    async fn health_counts(&self) -> Result<HealthCounts, StoreError>;
    /// The slots that the observers of each holder take, by the reports of their runs.
    async fn held_weights(&self) -> Result<HeldWeights, StoreError>;
    /// Deletes rows whose version is still the given one. Their ids are remembered for
    /// [`everwatch_core::failure::adoption::REMEMBERED`].
    async fn forget(&self, rows: &[(ObserverId, i64)]) -> Result<(), StoreError>;
    /// Those of these ids whose rows were deleted by [`Observers::forget`].
    async fn forgotten(&self, ids: &[ObserverId]) -> Result<Vec<ObserverId>, StoreError>;
    /// The rows that this process found unreadable and that still are; at most 1,000.
    async fn unreadable(&self) -> Result<Vec<Unreadable>, StoreError>;
}

/// The rows of observers that managers must act on.
#[async_trait]
pub trait Worklists: Send + Sync + 'static {
    /// Rows whose `due_at` has passed, oldest first.
    async fn due(&self, now: Timestamp, most: usize) -> Result<Vec<Row>, StoreError>;
    /// Rows whose revocation was sent or raised since `since`, the newest first: a new service must know them.
    async fn commanded_since(&self, since: Timestamp, most: usize) -> Result<Vec<Row>, StoreError>;
    /// Rows that were told to end and have not ended, and rows that have ended and whose messages may still be there; the
    /// longest ago first.
    async fn ending(&self, most: usize) -> Result<Vec<Row>, StoreError>;
    /// The observers that services refused or whose messages are withdrawn, counted by pool and kind.
    async fn refused(&self) -> Result<Vec<Refused>, StoreError>;
    /// The rows of one such group, the oldest first.
    async fn refused_rows(&self, of: &Refused, most: usize) -> Result<Vec<Row>, StoreError>;
    /// Live observers of the pool whose messages may be in its queue and whose holder is none of `living`, the oldest
    /// first.
    async fn unheld(&self, pool: &Pool, living: &[ServiceId], most: usize) -> Result<Vec<Row>, StoreError>;
    /// The number of observers in each of these ranges that the service holds according to its reports, and the sum of
    /// their digests.
    async fn held_totals(
        &self,
        service: ServiceId,
        ranges: &[InventoryRange],
    ) -> Result<Vec<RangeTotal>, StoreError>;
    /// The observers in this range that the service holds according to its reports.
    async fn held_by(&self, service: ServiceId, range: InventoryRange)
    -> Result<Vec<ObserverId>, StoreError>;
}

/// The admission of one pool's waiting observers.
#[derive(Debug, Clone, Copy)]
pub struct Admission<'a> {
    pub pool: &'a Pool,
    /// What the pool's active services offer.
    pub offers: &'a Offers,
    pub now: Timestamp,
    /// Whether rows that must wait for inventories are passed over.
    pub holds_restored: bool,
    pub most: u64,
}

/// A row before and after the decision of an admission.
#[derive(Debug, Clone, PartialEq)]
pub struct Decided {
    pub before: Row,
    /// Admitted, or behind a limit.
    pub after: Row,
}

impl Admission<'_> {
    /// Those of these candidates that may be admitted.
    pub(crate) fn candidates(&self, mut candidates: Vec<Row>) -> Vec<Row> {
        let is_held = |row: &Row| row.waits_for_lists() || !row.definition.limits.is_empty();
        candidates.retain(|row| !(self.holds_restored && is_held(row)));
        candidates
    }

    /// The decisions about these candidates.
    pub(crate) fn decide(
        &self,
        counted: &PoolCount,
        (candidates, keys): (Vec<Row>, KeyCounts),
        policy: &RowPolicy,
    ) -> Vec<Decided> {
        let decided = counted.choose(candidates, keys, (self.offers, self.now), policy).into_iter().map(
            |(before, choice)| {
                let mut after = before.clone();
                match choice {
                    Choice::Admit => after.admit(self.now, policy),
                    Choice::WaitBehind(key) => after.wait_behind(key, self.now),
                }
                Decided { before, after }
            },
        );
        decided.collect()
    }
}

/// The pools in which observers wait.
#[derive(Debug, Clone, Default)]
pub struct WaitingPools {
    pub pools: BTreeMap<Pool, PoolCount>,
    /// Whether managers must look at limits ([`Limits::look_at_limits`]).
    pub limits_changed: bool,
}

/// The place of a waiting observer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// The observers of its pool that come before it.
    pub ahead: u64,
    /// All that wait in its pool.
    pub waiting: u64,
}

/// Observers that wait for a slot.
#[async_trait]
pub trait Backlog: Send + Sync + 'static {
    /// What an admission pass has to do.
    async fn waiting_pools(&self) -> Result<WaitingPools, StoreError>;
    /// Admits waiting observers in one transaction, or lets them wait behind a limit, as `core::capacity::admission`
    /// decides: counts, choice and save. No two admissions or creates of a pool count at the same time, and no two
    /// admissions count a limit. Rows that another writer changes meanwhile are left as they are.
    async fn admit(&self, admission: &Admission<'_>) -> Result<Vec<Decided>, StoreError>;
    /// Chooses runs of a pool that give their slots to observers of a higher priority, in one transaction, as
    /// `core::capacity::preemption` decides: counts, choice and save. No admission, create or other choice of the pool counts
    /// at the same time. Rows that another writer changes meanwhile are left as they are.
    async fn preempt(&self, look: &Look<'_>) -> Result<Vec<Preempted>, StoreError>;
    /// The selected waiting observers of a pool, in the order in which they are admitted.
    async fn waiting(&self, pool: &Pool, selection: &Selection) -> Result<Vec<Row>, StoreError>;
    /// The place of this waiting row; `None` if it does not wait. Counts no more than [`PLACE_MAX`] observers ahead.
    async fn place(&self, row: &Row) -> Result<Option<Place>, StoreError>;
}

/// The observers ahead that a place counts at most.
pub const PLACE_MAX: u32 = 10_000;

/// The rows of services.
#[async_trait]
pub trait Services: Send + Sync + 'static {
    /// All living services, and those that ended since `ended_since`.
    async fn services(&self, ended_since: Timestamp) -> Result<Found<ServiceRow, ServiceId>, StoreError>;
    /// Services by id, ended ones included; unknown ids are left out.
    async fn load_services(&self, ids: &[ServiceId]) -> Result<Found<ServiceRow, ServiceId>, StoreError>;
    /// Services with one of these names that live, or ended since `ended_since`. Unreadable ones are left out.
    async fn namesakes(&self, names: &[Name], ended_since: Timestamp) -> Result<Vec<ServiceRow>, StoreError>;
    /// The end of each of these services that is known and has ended.
    async fn ends(&self, ids: &[ServiceId]) -> Result<BTreeMap<ServiceId, Timestamp>, StoreError>;
    /// One service: a name means its newest incarnation. Corrupt if its row cannot be read.
    async fn service(&self, which: &ServiceRef) -> Result<Option<ServiceRow>, StoreError>;
    /// Inserts (version 1 and unknown id) or saves by compare-and-set; returns the ids of rows that have changed in the
    /// meantime.
    async fn save_services(&self, rows: &[ServiceRow]) -> Result<Vec<ServiceId>, StoreError>;
    /// Deletes services that ended before `before`.
    async fn forget_services(&self, before: Timestamp) -> Result<u64, StoreError>;
}

/// What the code of observers saves. It is deleted with the row of its observer.
#[async_trait]
pub trait Checkpoints: Send + Sync + 'static {
    /// Stores checkpoints in one transaction, as `core::record::checkpoint` decides. Returns those that are stored, or
    /// that were stored or replaced by the same run before; the others come from runs that were replaced, or belong to
    /// observers without a row.
    async fn save_checkpoints(&self, checkpoints: &[Checkpoint])
    -> Result<Vec<CheckpointStored>, StoreError>;
    /// The checkpoints from which these runs continue. From then on, no checkpoint of an earlier run is stored. Runs that
    /// were replaced, and observers without a row, are left out.
    async fn request_checkpoints(
        &self,
        wanted: &[CheckpointWanted],
    ) -> Result<Vec<CheckpointRestored>, StoreError>;
    /// Stores results of observers that have a row; a result of a later run replaces one of an earlier run.
    async fn save_results(&self, results: &[ObserverResult]) -> Result<(), StoreError>;
    /// The result of one observer.
    async fn result(&self, id: ObserverId) -> Result<Option<ObserverResult>, StoreError>;
}

/// A page of rates, ordered by key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RatePage {
    pub rows: Vec<RateRow>,
    /// Over all pages.
    pub total: u64,
}

/// Rates and their buckets, which `core::capacity::rate` fills and empties by the clock of the database.
#[async_trait]
pub trait Rates: Send + Sync + 'static {
    /// Creates the rate with a full bucket, or changes it.
    async fn set_rate(&self, key: &RateKey, rate: Rate) -> Result<RateRow, StoreError>;
    /// One rate.
    async fn rate(&self, key: &RateKey) -> Result<Option<RateRow>, StoreError>;
    /// At most `most` rates whose keys follow `after`.
    async fn rates(&self, after: Option<&RateKey>, most: usize) -> Result<RatePage, StoreError>;
    /// Deletes the rate; returns whether it existed.
    async fn delete_rate(&self, key: &RateKey) -> Result<bool, StoreError>;
    /// Grants permits in one transaction that no other grant of these rates overlaps. One answer for each request, in
    /// order.
    async fn grant_permits(&self, requests: &[PermitRequest]) -> Result<Vec<PermitAnswers>, StoreError>;
    /// Empties all buckets and their lines.
    async fn empty_rates(&self) -> Result<(), StoreError>;
}

/// The database. All times are by the clock of the database.
#[async_trait]
pub trait Store:
    KeyValue
    + Events
    + Observers
    + Backlog
    + Limits
    + Rates
    + Namespaces
    + Rollouts
    + Batches
    + Worklists
    + Services
    + Checkpoints
    + ParkedMessages
    + Access
    + Audit
{
    /// Closes all connections. Everything that was committed is then in the database file itself, not in its log. No
    /// other method works afterwards.
    async fn close(&self);
    /// The schema version of the tables.
    async fn schema(&self) -> Result<Schema, StoreError>;
    /// The database's clock.
    async fn now(&self) -> Result<Timestamp, StoreError>;
}
