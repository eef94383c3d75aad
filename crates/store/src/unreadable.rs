//! Stored rows that cannot be read: a read skips them and remembers them for operators. Shared by both databases.

use crate::columns::{limit, stored_digest};
use crate::port::{Found, StoreError, Table, Unreadable};
use everwatch_core::id::{ObserverId, ServiceId};
use everwatch_core::record::row::Row;
use everwatch_core::record::service::ServiceRow;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use tracing::error;
use uuid::Uuid;

/// How many unreadable rows a store remembers. Reads skip further ones without remembering them.
const REMEMBERED_MAX: usize = 1000;
/// Services that are kept as they were read; beyond it, all are forgotten.
const PARSED_MAX: usize = 20_000;
/// How many reads fill one page. Each read continues after the unreadable rows of the previous one.
const READS_MAX: usize = 20;
/// The row limit of every read after the first.
const READ_ON: usize = 500;

/// What is read of an observer.
#[derive(Debug, sqlx::FromRow)]
pub(crate) struct StoredObserver {
    id: Uuid,
    version: i64,
    digest: Option<i64>,
    definition: String,
    state: Vec<u8>,
}

/// What is read of a service.
#[derive(Debug, sqlx::FromRow)]
pub(crate) struct StoredService {
    id: Uuid,
    document: String,
}

/// A row as its table has it.
pub(crate) trait Stored {
    const TABLE: Table;
    type Id;
    type Row;
    fn key(&self) -> Uuid;
    fn id(id: Uuid) -> Self::Id;
    /// # Errors
    /// What is wrong, and with what.
    fn read(&self) -> Result<Self::Row, String>;
    /// The same, with what was read before.
    ///
    /// # Errors
    /// The same.
    fn read_again(&self, _: &Parsed) -> Result<Self::Row, String> {
        self.read()
    }
}

/// The services as they were last read, each with its document. Managers read all services every second, and to parse
/// a document costs several times as much as to compare it.
#[derive(Debug, Default)]
pub(crate) struct Parsed(Mutex<HashMap<Uuid, (String, ServiceRow)>>);

impl Parsed {
    fn read(&self, stored: &StoredService) -> Result<ServiceRow, String> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((document, row)) = known.get(&stored.id)
            && *document == stored.document
        {
            return Ok(row.clone());
        }
        let row = stored.read()?;
        if known.len() >= PARSED_MAX {
            known.clear();
        }
        known.insert(stored.id, (stored.document.clone(), row.clone()));
        Ok(row)
    }
}

impl Stored for StoredObserver {
    const TABLE: Table = Table::Observers;
    type Id = ObserverId;
    type Row = Row;
    fn key(&self) -> Uuid {
        self.id
    }
    fn id(id: Uuid) -> ObserverId {
        ObserverId(id)
    }
    fn read(&self) -> Result<Row, String> {
        let Self { id, version, digest, definition, state } = self;
        // Without the beginning of the definition: it may contain a secret.
        let definition =
            serde_json::from_str(definition).map_err(|error| format!("{error}, in its definition"))?;
        let mut row = Row::read(ObserverId(*id), *version, definition, state).map_err(|error| {
            format!("{error}, in the state that starts with {}", start(&state.escape_ascii().to_string()))
        })?;
        row.digest_is_stale = *digest != row.digest().map(stored_digest);
        Ok(row)
    }
}

impl Stored for StoredService {
    const TABLE: Table = Table::Services;
    type Id = ServiceId;
    type Row = ServiceRow;
    fn key(&self) -> Uuid {
        self.id
    }
    fn id(id: Uuid) -> ServiceId {
        ServiceId(id)
    }
    fn read(&self) -> Result<ServiceRow, String> {
        serde_json::from_str(&self.document)
            .map_err(|error| format!("{error}, in the document that starts with {}", start(&self.document)))
    }
    fn read_again(&self, parsed: &Parsed) -> Result<ServiceRow, String> {
        parsed.read(self)
    }
}

fn start(text: &str) -> String {
    text.chars().take(80).collect()
}

/// How a database writes an id in SQL.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Dialect {
    Sqlite,
    Postgres,
}

impl Dialect {
    fn literal(self, id: Uuid) -> String {
        match self {
            Self::Sqlite => format!("x'{}'", id.simple()),
            Self::Postgres => format!("'{id}'"),
        }
    }
}

/// The unreadable rows that one store has met.
#[derive(Debug)]
pub(crate) struct Ledger {
    dialect: Dialect,
    met: Mutex<BTreeMap<(Table, Uuid), String>>,
    parsed: Parsed,
}

impl Ledger {
    pub(crate) fn new(dialect: Dialect) -> Self {
        Self { dialect, met: Mutex::default(), parsed: Parsed::default() }
    }

    fn met(&self) -> MutexGuard<'_, BTreeMap<(Table, Uuid), String>> {
        self.met.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn unreadable(&self, table: Table, id: Uuid, why: String) -> Unreadable {
        Unreadable { table, id, literal: self.dialect.literal(id), why }
    }

    /// Reads what can be read.
    pub(crate) fn read<T: Stored>(&self, stored: &[T]) -> Found<T::Row, T::Id> {
        let mut found = Found { rows: Vec::with_capacity(stored.len()), unreadable: Vec::new() };
        for it in stored {
            match self.read_one(it) {
                Ok(row) => found.rows.push(row),
                Err(_) => found.unreadable.push(T::id(it.key())),
            }
        }
        found
    }

    /// Reads one row that a caller asked for by itself.
    ///
    /// # Errors
    /// Corrupt, with the row's id and the cure.
    pub(crate) fn read_one<T: Stored>(&self, stored: &T) -> Result<T::Row, StoreError> {
        let (id, why) = match stored.read_again(&self.parsed) {
            Ok(row) => return Ok(row),
            Err(why) => (stored.key(), why),
        };
        let unreadable = self.unreadable(T::TABLE, id, why);
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
    pub(crate) fn pages<T: Stored>(&self, most: usize) -> Pages<'_, T> {
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

    /// Forgets those of these ids whose rows can be read now, or are gone.
    pub(crate) fn look<T: Stored>(&self, ids: &[Uuid], stored: &[T]) {
        let still: HashSet<Uuid> = stored.iter().filter(|it| it.read().is_err()).map(Stored::key).collect();
        let mut met = self.met();
        for id in ids.iter().filter(|id| !still.contains(id)) {
            met.remove(&(T::TABLE, *id));
        }
    }

    pub(crate) fn all(&self) -> Vec<Unreadable> {
        let met = self.met();
        met.iter().map(|((table, id), why)| self.unreadable(*table, *id, why.clone())).collect()
    }
}

/// A read that continues after unreadable rows. Otherwise, unreadable rows at the start of an order would
/// hide all rows behind them on every read.
pub(crate) struct Pages<'a, T: Stored> {
    ledger: &'a Ledger,
    most: usize,
    rows: Vec<T::Row>,
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
    pub(crate) fn add(&mut self, mut stored: Vec<T>) {
        let count = limit(stored.len());
        self.asked = self.asked.filter(|limit| count >= *limit);
        self.looked_at += count;
        stored.retain(|it| self.ids.insert(it.key()));
        self.rows.extend(self.ledger.read(&stored).rows);
    }

    pub(crate) fn rows(mut self) -> Vec<T::Row> {
        self.rows.truncate(self.most);
        self.rows
    }
}
