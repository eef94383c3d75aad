//! The store port: rows as documents with indexed columns, changed only by compare-and-set on their
//! version. Every decision about a row's content is made in `core`; the store decides nothing.

pub use crate::events::{Event, EventFilter, EventPage, Events, Stretch};
use async_trait::async_trait;
use everwatch_core::clock::Timestamp;
use everwatch_core::doctor::Schema;
use everwatch_core::health::Health;
use everwatch_core::id::{Kind, Name, ObserverId, ObserverRef, Pool, ServiceId};
use everwatch_core::message::ListRange;
use everwatch_core::placement::Refused;
use everwatch_core::row::Row;
use everwatch_core::service::ServiceRow;
use everwatch_core::status::Status;
use std::collections::BTreeMap;
use std::time::Duration;
use uuid::Uuid;

/// Why the store could not do it.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Worth trying again: the database cannot be reached, or is busy.
    #[error("the database cannot be reached: {0}")]
    Unavailable(String),
    /// Others changed the row each time in between.
    #[error("{0}")]
    Contended(String),
    /// A person has to act: bad URL, no rights, unwritable path, unknown schema version.
    #[error("{0}")]
    Refused(String),
    /// A stored document cannot be read.
    #[error("a stored row cannot be read: {0}")]
    Corrupt(String),
}

/// The rows of one read. One that cannot be read hides no other; nothing may be concluded about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found<T, I> {
    pub rows: Vec<T>,
    /// Those that are there and cannot be read.
    pub unreadable: Vec<I>,
}

impl<T, I: std::fmt::Display> Found<T, I> {
    /// The one row that was asked for.
    ///
    /// # Errors
    /// Corrupt if it is there and cannot be read.
    pub fn one(mut self) -> Result<Option<T>, StoreError> {
        match self.unreadable.first() {
            Some(id) => Err(StoreError::Corrupt(format!("{id}; `everwatch doctor` tells why, and the cure"))),
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

/// A stored row that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unreadable {
    pub table: Table,
    pub id: Uuid,
    pub why: String,
}

impl Unreadable {
    /// What a person can do about it.
    #[must_use]
    pub fn cure(&self) -> String {
        format!(
            "update this manager if a newer one has written the row; otherwise take its document from a backup, or \
             remove it: DELETE FROM {} WHERE id = '{}'",
            self.table, self.id
        )
    }
}

/// What became of one create.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Created {
    Done,
    /// A live observer has the name.
    NameTaken,
    /// It has the name and is being deleted.
    NameEnding,
    /// The pool has no free slot, and the observer does not want to wait.
    NoCapacity,
}

/// Which observers a list shows. Without `status`, all but Deleted.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Filter {
    pub status: Vec<Status>,
    /// At the moment of the list, by the database's clock; empty: whether or not they have one.
    pub health: Vec<Health>,
    pub kind: Option<Kind>,
    pub pool: Option<Pool>,
    pub service: Option<ServiceId>,
    /// All must match.
    pub labels: BTreeMap<String, String>,
    /// Part of the name, case-insensitive.
    pub q: Option<String>,
    pub sort: Sort,
    /// Ascending unless set.
    pub descending: bool,
}

/// What a list is ordered by; ties by id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Sort {
    #[default]
    Name,
    CreatedAt,
}

/// Where the next page starts: the sort value and id of the last row shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct After {
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

/// A message that nobody could read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parked {
    /// 0 until it is stored.
    pub id: i64,
    pub queue: String,
    pub reason: String,
    pub body: Vec<u8>,
    pub at: Timestamp,
}

/// The bytes of a parked message that a list shows.
pub const PARKED_HEAD: usize = 4096;

/// A parked message as a list shows it: the first [`PARKED_HEAD`] bytes of a body that may be large.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParkedHead {
    pub id: i64,
    pub queue: String,
    pub reason: String,
    pub head: Vec<u8>,
    /// Of the whole body, in bytes.
    pub size: u64,
    pub at: Timestamp,
}

impl Parked {
    /// As a list shows it.
    #[must_use]
    pub fn head(&self) -> ParkedHead {
        ParkedHead {
            id: self.id,
            queue: self.queue.clone(),
            reason: self.reason.clone(),
            head: self.body[..self.body.len().min(PARKED_HEAD)].to_vec(),
            size: self.body.len() as u64,
            at: self.at,
        }
    }
}

/// How many observers there are by pool and status.
pub type Counts = BTreeMap<(Pool, Status), u64>;

/// How many observers there are by pool and health; those that are not to run have none.
pub type HealthCounts = BTreeMap<(Pool, Health), u64>;

/// Small facts that managers share: leases, keys, the identity of the database. Each has an end.
#[async_trait]
pub trait Notes: Send + Sync + 'static {
    /// Writes the note for `keep` if there is none, it is over, or it has this value already; answers the
    /// value that stands.
    async fn claim(&self, name: &str, value: &str, keep: Duration) -> Result<String, StoreError>;
    /// The note, unless it is over.
    async fn note(&self, name: &str) -> Result<Option<String>, StoreError>;
    /// All notes whose name begins so, by name, those that are over left out.
    async fn notes_under(&self, prefix: &str) -> Result<Vec<(String, String)>, StoreError>;
    /// Writes it whatever stands there.
    async fn set_note(&self, name: &str, value: &str, keep: Duration) -> Result<(), StoreError>;
    /// Writes `after` where `before` stands, with the end that it has; answers whether it stood there.
    async fn swap_note(&self, name: &str, before: &str, after: &str) -> Result<bool, StoreError>;
    /// Removes those that are over; answers how many.
    async fn forget_notes(&self) -> Result<u64, StoreError>;
}

/// The database. All times are the database's own clock. Whatever answers a list of rows leaves out those that cannot
/// be read, and reads on behind them.
#[async_trait]
pub trait Store: Notes + Events {
    /// Ends all connections: what was committed is in the database's own file then, not beside it. Nothing
    /// else works any more.
    async fn close(&self);
    /// How new its tables are.
    async fn schema(&self) -> Result<Schema, StoreError>;
    /// The database's clock.
    async fn now(&self) -> Result<Timestamp, StoreError>;
    /// Inserts new rows in one transaction, each checked by name and, unless it queues, by capacity:
    /// the pool's Created + Processing + OnDeleting against the capacities of its active services.
    /// Answers in order; a refused one does not stop the others. Two of one name in a batch: the first wins.
    async fn create(&self, rows: &[Row]) -> Result<Vec<Created>, StoreError>;
    /// By identity; ids that are not there are left out.
    async fn load(&self, ids: &[ObserverId]) -> Result<Found<Row, ObserverId>, StoreError>;
    /// One observer: a name means its live holder, else the newest deleted one. Corrupt if that cannot be read.
    async fn find(&self, which: &ObserverRef) -> Result<Option<Row>, StoreError>;
    /// Saves changed rows whose stored version still is `row.version`, as version + 1, in one
    /// transaction; answers the ids that had changed meanwhile (those are left as they are).
    async fn save(&self, rows: &[Row]) -> Result<Vec<ObserverId>, StoreError>;
    /// Rows whose `due_at` has passed, oldest first.
    async fn due(&self, now: Timestamp, most: usize) -> Result<Vec<Row>, StoreError>;
    /// Rows whose floor went out or rose since `since`, the newest first: what a newborn service must know.
    async fn commanded_since(&self, since: Timestamp, most: usize) -> Result<Vec<Row>, StoreError>;
    /// Rows that were told to end and have not, those first that were told longest ago.
    async fn ending(&self, most: usize) -> Result<Vec<Row>, StoreError>;
    /// The observers that services refused or whose messages are withdrawn, counted by pool and kind.
    async fn refused(&self) -> Result<Vec<Refused>, StoreError>;
    /// Those of one such group, oldest creation first.
    async fn refused_rows(&self, of: &Refused, most: usize) -> Result<Vec<Row>, StoreError>;
    /// Live observers of the pool whose messages may be in its queue and whose holder is none of `living`, oldest
    /// creation first.
    async fn unheld(&self, pool: &Pool, living: &[ServiceId], most: usize) -> Result<Vec<Row>, StoreError>;
    /// What the service holds by its own word, of the ids after the one and up to the other.
    async fn held_by(&self, service: ServiceId, range: ListRange) -> Result<Vec<ObserverId>, StoreError>;
    /// A page of observers after `after`.
    async fn list(&self, filter: &Filter, after: Option<&After>, limit: usize) -> Result<Page, StoreError>;
    /// Counts by pool and status, Deleted included.
    async fn counts(&self) -> Result<Counts, StoreError>;
    /// Counts by pool and health at this moment.
    async fn health_counts(&self) -> Result<HealthCounts, StoreError>;
    /// Forgets rows for good, where the version still is the given one; their ids are remembered for
    /// [`everwatch_core::adoption::REMEMBERED`].
    async fn forget(&self, rows: &[(ObserverId, i64)]) -> Result<(), StoreError>;
    /// Those of these ids whose rows were forgotten.
    async fn forgotten(&self, ids: &[ObserverId]) -> Result<Vec<ObserverId>, StoreError>;
    /// The unreadable rows that were met here and still cannot be read; at most 1,000.
    async fn unreadable(&self) -> Result<Vec<Unreadable>, StoreError>;

    /// All services that live, and those that ended since `ended_since`.
    async fn services(&self, ended_since: Timestamp) -> Result<Found<ServiceRow, ServiceId>, StoreError>;
    /// When those of these services ended that are known here and have ended.
    async fn ends(&self, ids: &[ServiceId]) -> Result<BTreeMap<ServiceId, Timestamp>, StoreError>;
    /// By identity or name (the newest of that name). Corrupt if it cannot be read.
    async fn service(
        &self,
        id: Option<ServiceId>,
        name: Option<&Name>,
    ) -> Result<Option<ServiceRow>, StoreError>;
    /// Inserts (version 1 and unknown id) or saves by compare-and-set; answers the ids that lost the race.
    async fn save_services(&self, rows: &[ServiceRow]) -> Result<Vec<ServiceId>, StoreError>;
    /// Forgets services that ended before `before`.
    async fn forget_services(&self, before: Timestamp) -> Result<u64, StoreError>;

    /// Keeps unreadable messages.
    async fn park(&self, parked: &[Parked]) -> Result<(), StoreError>;
    /// One of them.
    async fn parked_one(&self, id: i64) -> Result<Option<Parked>, StoreError>;
    /// Forgets one; answers whether it was there.
    async fn unpark(&self, id: i64) -> Result<bool, StoreError>;
    /// Forgets those older than `before` and those that exceed the newest `keep`; answers how many.
    async fn forget_parked(&self, before: Timestamp, keep: usize) -> Result<u64, StoreError>;
    /// Newest first, ids below `before` (all if `None`).
    async fn parked(&self, before: Option<i64>, limit: usize) -> Result<(Vec<ParkedHead>, u64), StoreError>;
}
