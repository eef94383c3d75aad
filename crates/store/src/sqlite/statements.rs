//! Statements that write many rows, and reads of many rows. The connection of SQLite is a thread of its own: each
//! statement, and each row that it returns, wakes the waiting task, which costs more than to write or read a row.

use crate::error_mapping::failure;
use crate::port::StoreError;
use futures::stream::BoxStream;
use futures::{StreamExt as _, TryStreamExt as _};
use sqlx::query::Query;
use sqlx::sqlite::SqliteArguments;
use sqlx::{Connection as _, Row as _, Sqlite, SqliteConnection};
use std::collections::HashSet;
use std::time::Duration;
use uuid::Uuid;

/// One statement writes this many rows, or any number up to [`FEW`]. A batch is split into few statements, of which SQLite
/// prepares each text once.
const FULL: usize = 256;
const FEW: usize = 64;
/// The prepared statements that each connection keeps: for each statement of many rows, one of each size.
pub(super) const PREPARED_MAX: usize = 500;
/// Reads and writes of at least this many rows avoid that.
const MANY: usize = 50;
/// For this long. It is the shortest time for which a task can sleep, and less than such a read takes.
const GATHER: Duration = Duration::from_millis(1);

pub(super) type Statement<'q> = Query<'q, Sqlite, SqliteArguments>;

/// The texts of one statement: `before`, a list of some rows of `columns` parameters, `after`.
pub(super) struct Statements {
    texts: Texts,
    /// The same, returning the ids of the rows that were written.
    returning: Texts,
}

struct Texts {
    full: String,
    /// For 1 row, for 2 rows, …
    few: Vec<String>,
}

impl Texts {
    fn new(text: impl Fn(usize) -> String) -> Self {
        Self { full: text(FULL), few: (1..=FEW).map(text).collect() }
    }

    /// The rows in parts, each with the text that writes it.
    fn parts<'a, T>(&'static self, mut rows: &'a [T]) -> Vec<(&'static str, &'a [T])> {
        let mut parts = Vec::new();
        while !rows.is_empty() {
            let size = if rows.len() >= FULL { FULL } else { rows.len().min(FEW) };
            let (part, rest) = rows.split_at(size);
            parts.push((if size == FULL { &self.full } else { &self.few[size - 1] }.as_str(), part));
            rows = rest;
        }
        parts
    }
}

impl Statements {
    pub(super) fn new(before: &str, columns: usize, after: &str) -> Self {
        let row = format!("({})", vec!["?"; columns].join(","));
        let text = |size| format!("{before} VALUES {} {after}", vec![row.as_str(); size].join(","));
        Self { texts: Texts::new(text), returning: Texts::new(|size| format!("{} RETURNING id", text(size))) }
    }

    /// The rows in parts, each with the text that writes it.
    pub(super) fn parts<'a, T>(&'static self, rows: &'a [T]) -> Vec<(&'static str, &'a [T])> {
        self.texts.parts(rows)
    }

    /// Writes rows with an id each, and returns the ids of those that were written. `bind` binds the columns of one row.
    ///
    /// The obvious way lets each statement return the ids. Instead, a statement of many rows only counts them, and is
    /// repeated with ids if it has not written all.
    pub(super) async fn write<'a, T>(
        &'static self,
        connection: &mut SqliteConnection,
        rows: &'a [T],
        id: impl Fn(&T) -> Uuid,
        bind: impl Fn(Statement<'a>, &'a T) -> Statement<'a>,
    ) -> Result<HashSet<Uuid>, StoreError> {
        let statement = |text, part: &'a [T]| part.iter().fold(sqlx::query(text), &bind);
        // For a few rows, the statements around the attempt cost more than the rows that come back.
        if rows.len() >= MANY {
            let mut attempt = connection.begin().await.map_err(failure)?;
            let mut all = true;
            for (text, part) in self.texts.parts(rows) {
                let done = statement(text, part).execute(&mut *attempt).await.map_err(failure)?;
                all &= done.rows_affected() == part.len() as u64;
            }
            if all {
                attempt.commit().await.map_err(failure)?;
                return Ok(rows.iter().map(id).collect());
            }
            attempt.rollback().await.map_err(failure)?;
        }
        let mut written = HashSet::new();
        for (text, part) in self.returning.parts(rows) {
            for row in statement(text, part).fetch_all(&mut *connection).await.map_err(failure)? {
                written.insert(row.try_get(0).map_err(failure)?);
            }
        }
        Ok(written)
    }
}

/// All rows of a read that may return `most` rows.
///
/// The obvious way takes each row when it comes, so each row wakes this task. Instead, the rows gather in the buffer of
/// the connection for a moment, and are then taken together.
pub(super) async fn gathered<T>(
    mut rows: BoxStream<'_, Result<T, sqlx::Error>>,
    most: usize,
) -> Result<Vec<T>, StoreError> {
    let mut all = Vec::with_capacity(most);
    if most >= MANY
        && let Some(first) = rows.next().await
    {
        all.push(first.map_err(failure)?);
        tokio::time::sleep(GATHER).await;
    }
    while let Some(row) = rows.try_next().await.map_err(failure)? {
        all.push(row);
    }
    Ok(all)
}

pub(super) fn array<T: serde::Serialize>(values: &[T]) -> String {
    serde_json::json!(values).to_string()
}

/// The ids as a JSON array of hexadecimal digits, which `unhex` reads.
pub(super) fn keys(ids: impl Iterator<Item = Uuid>) -> String {
    serde_json::json!(ids.map(|id| id.simple().to_string()).collect::<Vec<_>>()).to_string()
}
