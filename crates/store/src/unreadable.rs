//! Stored rows that cannot be read: a read skips them and remembers them for operators. Shared by both databases.

use crate::columns::limit;
use crate::port::{Found, StoreError, Table, Unreadable};
use everwatch_core::id::{ObserverId, ServiceId};
use everwatch_core::record::row::Row;
use everwatch_core::record::service::ServiceRow;
use serde::de::DeserializeOwned;
use std::collections::{BTreeMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use tracing::error;
use uuid::Uuid;

/// How many unreadable rows a store remembers. Reads skip further ones without remembering them.
const REMEMBERED_MAX: usize = 1000;
/// How many reads fill one page. Each read continues after the unreadable rows of the previous one.
const READS_MAX: usize = 20;
/// The row limit of every read after the first.
const READ_ON: usize = 500;

/// The columns that are read of a row: its id and its document.
pub(crate) type Document<I> = (I, String);

/// A row that is read from a document.
pub(crate) trait Stored: DeserializeOwned {
    const TABLE: Table;
    type Id;
    fn id(id: Uuid) -> Self::Id;
}

impl Stored for Row {
    const TABLE: Table = Table::Observers;
    type Id = ObserverId;
    fn id(id: Uuid) -> ObserverId {
        ObserverId(id)
    }
}
impl Stored for ServiceRow {
    const TABLE: Table = Table::Services;
    type Id = ServiceId;
    fn id(id: Uuid) -> ServiceId {
        ServiceId(id)
    }
}

/// The unreadable rows that one store has met.
#[derive(Debug, Default)]
pub(crate) struct Ledger(Mutex<BTreeMap<(Table, Uuid), String>>);

impl Ledger {
    fn met(&self) -> MutexGuard<'_, BTreeMap<(Table, Uuid), String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads what can be read.
    pub(crate) fn read<T: Stored>(&self, documents: &[Document<Uuid>]) -> Found<T, T::Id> {
        let mut found = Found { rows: Vec::with_capacity(documents.len()), unreadable: Vec::new() };
        for (id, document) in documents {
            match self.read_one(*id, document) {
                Ok(row) => found.rows.push(row),
                Err(_) => found.unreadable.push(T::id(*id)),
            }
        }
        found
    }

    /// Reads one row that a caller asked for by itself.
    ///
    /// # Errors
    /// Corrupt, with the row's id and the cure.
    pub(crate) fn read_one<T: Stored>(&self, id: Uuid, document: &str) -> Result<T, StoreError> {
        let error = match serde_json::from_str(document) {
            Ok(row) => return Ok(row),
            Err(error) => error,
        };
        let start: String = document.chars().take(80).collect();
        let why = format!("{error}, in the document that starts with {start}");
        let unreadable = Unreadable { table: T::TABLE, id, why };
        let mut met = self.met();
        if met.len() < REMEMBERED_MAX && !met.contains_key(&(T::TABLE, id)) {
            error!(
                table = %T::TABLE, %id, why = unreadable.why, cure = unreadable.cure(),
                "a stored row cannot be read and is passed over"
            );
            met.insert((T::TABLE, id), unreadable.why.clone());
        }
        Err(StoreError::Corrupt(format!(
            "{} of table {}: {}; {}",
            id,
            T::TABLE,
            unreadable.why,
            unreadable.cure()
        )))
    }

    /// Begins to read `most` readable rows.
    pub(crate) fn pages<T>(&self, most: usize) -> Pages<'_, T> {
        Pages {
            ledger: self,
            most,
            rows: Vec::new(),
            ids: HashSet::new(),
            looked_at: 0,
            asked: None,
            turn: 0,
        }
    }

    /// The ids of the remembered unreadable rows of this table.
    pub(crate) fn ids(&self, table: Table) -> Vec<Uuid> {
        self.met().keys().filter(|(of, _)| *of == table).map(|(_, id)| *id).collect()
    }

    /// Forgets those of these ids whose documents can be read now, or are gone.
    pub(crate) fn look<T: Stored>(&self, ids: &[Uuid], documents: &[Document<Uuid>]) {
        let is_unreadable = |document: &str| serde_json::from_str::<T>(document).is_err();
        let still: HashSet<Uuid> =
            documents.iter().filter(|(_, document)| is_unreadable(document)).map(|(id, _)| *id).collect();
        let mut met = self.met();
        for id in ids.iter().filter(|id| !still.contains(id)) {
            met.remove(&(T::TABLE, *id));
        }
    }

    pub(crate) fn all(&self) -> Vec<Unreadable> {
        let met = self.met();
        met.iter().map(|((table, id), why)| Unreadable { table: *table, id: *id, why: why.clone() }).collect()
    }
}

/// A read that continues after unreadable rows. Otherwise, unreadable rows at the start of an order would
/// hide all rows behind them on every read.
pub(crate) struct Pages<'a, T> {
    ledger: &'a Ledger,
    most: usize,
    rows: Vec<T>,
    ids: HashSet<Uuid>,
    looked_at: i64,
    /// The limit of the page that is being read.
    asked: Option<i64>,
    turn: usize,
}

impl<T: Stored> Pages<'_, T> {
    /// Limit and offset of the next page; `None` once enough rows are read or the table has no more.
    pub(crate) fn next(&mut self) -> Option<(i64, i64)> {
        let ended = self.turn > 0 && self.asked.is_none();
        if ended || self.turn == READS_MAX || self.rows.len() >= self.most.max(1) {
            return None;
        }
        let limit = limit(if self.turn == 0 { self.most } else { self.most.max(READ_ON) });
        (self.turn, self.asked) = (self.turn + 1, Some(limit));
        Some((limit, self.looked_at))
    }

    /// Adds a page. Rows may change between two pages: a row that appears twice is left out; the next read
    /// finds a row that was missed.
    pub(crate) fn add(&mut self, mut documents: Vec<Document<Uuid>>) {
        let count = limit(documents.len());
        self.asked = self.asked.filter(|limit| count >= *limit);
        self.looked_at += count;
        documents.retain(|(id, _)| self.ids.insert(*id));
        self.rows.extend(self.ledger.read(&documents).rows);
    }

    pub(crate) fn rows(mut self) -> Vec<T> {
        self.rows.truncate(self.most);
        self.rows
    }
}
