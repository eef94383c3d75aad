//! The store port of Everwatch and its implementations: SQLite for one manager, PostgreSQL for many, memory for
//! tests and simulations.

mod access_columns;
mod batch_columns;
mod checkpoints;
mod columns;
pub mod conformance;
mod error_mapping;
mod events;
mod limit_uses;
mod listing;
mod memory;
mod namespaces;
pub mod port;
mod postgres;
mod rates;
mod rollout_columns;
mod sqlite;
mod unreadable;

pub use events::{By, Named};
pub use memory::{Backup, MemoryStore};
pub use port::*;

use everwatch_core::record::row_policy::RowPolicy;
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;

/// Opens the database at `url`, creating or migrating its tables.
///
/// # Errors
/// `Unavailable` where trying again may help; `Refused` where an operator must act. No message holds a password.
pub async fn open(url: &str, policy: RowPolicy) -> Result<Arc<dyn Store>, StoreError> {
    open_following(url, None, policy).await
}

/// The same; if PostgreSQL's URL in `file` gets other credentials later, new connections use them within seconds.
///
/// # Errors
/// Those of [`open`].
pub async fn open_following(
    url: &str,
    file: Option<&Path>,
    policy: RowPolicy,
) -> Result<Arc<dyn Store>, StoreError> {
    Ok(match DatabaseKind::of(url)? {
        DatabaseKind::Postgres => Arc::new(postgres::PgStore::open(url, file, policy).await?),
        DatabaseKind::Sqlite => Arc::new(sqlite::SqliteStore::open(url, policy).await?),
    })
}

/// Reads a database URL without opening the database.
///
/// # Errors
/// If it names no database that Everwatch can use. The error holds no password.
pub fn check_url(url: &str) -> Result<(), StoreError> {
    match DatabaseKind::of(url)? {
        DatabaseKind::Postgres => sqlx::postgres::PgConnectOptions::from_str(url).map(drop),
        DatabaseKind::Sqlite => sqlx::sqlite::SqliteConnectOptions::from_str(url).map(drop),
    }
    .map_err(error_mapping::failure)
}

enum DatabaseKind {
    Postgres,
    Sqlite,
}

impl DatabaseKind {
    fn of(url: &str) -> Result<Self, StoreError> {
        if url.starts_with("postgres://") || url.starts_with("postgresql://") {
            return Ok(Self::Postgres);
        }
        if url.starts_with("sqlite:") {
            return Ok(Self::Sqlite);
        }
        Err(wrong_scheme(url))
    }
}

fn wrong_scheme(url: &str) -> StoreError {
    let scheme = url.split_once("://").map_or("no scheme", |(scheme, _)| scheme);
    StoreError::Refused(format!(
        "the database URL has {scheme}: write postgres://user:password@host/database or sqlite:///path/to/file.db"
    ))
}
