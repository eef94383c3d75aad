//! Rates on SQLite.

use super::{SqliteStore, snapshot, writing};
use crate::columns::{limit, number};
use crate::error_mapping::failure;
use crate::port::{RatePage, Rates, StoreError};
use crate::rates::{Columns, columns_of, grant_all, keys_of, readable, row_of};
use async_trait::async_trait;
use everwatch_core::capacity::rate::{Bucket, Rate, RateRow};
use everwatch_core::clock;
use everwatch_core::id::RateKey;
use everwatch_core::wire::permits::{PermitAnswers, PermitRequest};
use sqlx::{Sqlite, Transaction};

const ONE: &str = "SELECT key, definition, bucket FROM rates WHERE key = ?1";
const WRITE: &str = "INSERT INTO rates (key, definition, bucket) VALUES (?1, ?2, ?3)
    ON CONFLICT (key) DO UPDATE SET definition = excluded.definition, bucket = excluded.bucket";

/// Writes these rows and commits.
async fn write(mut transaction: Transaction<'_, Sqlite>, rows: &[RateRow]) -> Result<(), StoreError> {
    for row in rows {
        let (key, definition, bucket) = columns_of(row)?;
        let write = sqlx::query(WRITE).bind(key).bind(definition).bind(bucket);
        write.execute(&mut *transaction).await.map_err(failure)?;
    }
    transaction.commit().await.map_err(failure)
}

#[async_trait]
impl Rates for SqliteStore {
    async fn set_rate(&self, key: &RateKey, rate: Rate) -> Result<RateRow, StoreError> {
        let mut transaction = writing(&self.writer).await?;
        let found: Option<Columns> = sqlx::query_as(ONE)
            .bind(key.as_str())
            .fetch_optional(&mut *transaction)
            .await
            .map_err(failure)?;
        let row = match found.map(row_of).transpose()? {
            Some(row) => row.changed(rate, clock::now()),
            None => RateRow::new(key.clone(), rate, clock::now()),
        };
        write(transaction, std::slice::from_ref(&row)).await?;
        Ok(row)
    }
    async fn rate(&self, key: &RateKey) -> Result<Option<RateRow>, StoreError> {
        let found: Option<Columns> =
            sqlx::query_as(ONE).bind(key.as_str()).fetch_optional(&self.readers).await.map_err(failure)?;
        found.map(row_of).transpose()
    }
    async fn rates(&self, after: Option<&RateKey>, most: usize) -> Result<RatePage, StoreError> {
        let page = "SELECT key, definition, bucket FROM rates WHERE key > ?1 ORDER BY key LIMIT ?2";
        let after = after.map_or("", RateKey::as_str);
        let mut snapshot = snapshot(&self.readers).await?;
        let page = sqlx::query_as(page).bind(after).bind(limit(most));
        let columns: Vec<Columns> = page.fetch_all(&mut *snapshot).await.map_err(failure)?;
        let total = sqlx::query_scalar("SELECT COUNT(*) FROM rates");
        let total = number(total.fetch_one(&mut *snapshot).await.map_err(failure)?);
        Ok(RatePage { rows: readable(columns), total })
    }
    async fn delete_rate(&self, key: &RateKey) -> Result<bool, StoreError> {
        let delete = sqlx::query("DELETE FROM rates WHERE key = ?1").bind(key.as_str());
        Ok(delete.execute(&self.writer).await.map_err(failure)?.rows_affected() > 0)
    }
    async fn grant_permits(&self, requests: &[PermitRequest]) -> Result<Vec<PermitAnswers>, StoreError> {
        let mut transaction = writing(&self.writer).await?;
        let mut columns: Vec<Columns> = Vec::new();
        for key in keys_of(requests) {
            let found = sqlx::query_as(ONE).bind(key).fetch_optional(&mut *transaction);
            columns.extend(found.await.map_err(failure)?);
        }
        let mut rows = readable(columns);
        let answers = grant_all(&mut rows, requests, clock::now());
        write(transaction, &rows).await?;
        Ok(answers)
    }
    async fn empty_rates(&self) -> Result<(), StoreError> {
        let bucket = Bucket::empty(clock::now());
        let mut transaction = writing(&self.writer).await?;
        let all = sqlx::query_as("SELECT key, definition, bucket FROM rates");
        let columns: Vec<Columns> = all.fetch_all(&mut *transaction).await.map_err(failure)?;
        let rows: Result<Vec<RateRow>, _> = columns.into_iter().map(row_of).collect();
        let rows: Vec<RateRow> =
            rows?.into_iter().map(|row| RateRow { bucket: bucket.clone(), ..row }).collect();
        write(transaction, &rows).await
    }
}
