//! Rates on PostgreSQL. Each change locks its rows first and asks for the time after that: a time from before the wait
//! for a lock would be earlier than that of the grant before.

use super::{PgStore, answered, snapshot};
use crate::columns::{limit, number};
use crate::error_mapping::failure;
use crate::port::{RatePage, Rates, StoreError};
use crate::rates::{Columns, columns_of, grant_all, keys_of, readable, row_of};
use async_trait::async_trait;
use everwatch_core::capacity::rate::{Bucket, Rate, RateRow};
use everwatch_core::clock::Timestamp;
use everwatch_core::id::RateKey;
use everwatch_core::wire::permits::{PermitAnswers, PermitRequest};
use sqlx::{PgConnection, PgPool};

const NOW: &str = "SELECT (EXTRACT(EPOCH FROM clock_timestamp()) * 1000)::bigint";
const LOCK: &str =
    "SELECT key, definition, bucket FROM rates WHERE key = ANY($1::text[]) ORDER BY key FOR UPDATE";
const WRITE: &str = "INSERT INTO rates (key, definition, bucket)
    SELECT * FROM UNNEST($1::text[], $2::text[], $3::text[])
    ON CONFLICT (key) DO UPDATE SET definition = EXCLUDED.definition, bucket = EXCLUDED.bucket";

async fn lock(connection: &mut PgConnection, keys: Vec<String>) -> Result<Vec<Columns>, StoreError> {
    sqlx::query_as(LOCK).bind(keys).fetch_all(connection).await.map_err(failure)
}

pub(super) async fn now(connection: &mut PgConnection) -> Result<Timestamp, StoreError> {
    sqlx::query_scalar(NOW).fetch_one(connection).await.map(Timestamp).map_err(failure)
}

async fn write(connection: &mut PgConnection, rows: &[RateRow]) -> Result<(), StoreError> {
    let columns = rows.iter().map(columns_of).collect::<Result<Vec<_>, _>>()?;
    let (mut keys, mut definitions, mut buckets) = (Vec::new(), Vec::new(), Vec::new());
    for (key, definition, bucket) in columns {
        keys.push(key);
        definitions.push(definition);
        buckets.push(bucket);
    }
    let write = sqlx::query(WRITE).bind(keys).bind(definitions).bind(buckets);
    write.execute(connection).await.map(drop).map_err(failure)
}

async fn set(pool: &PgPool, key: &RateKey, rate: Rate) -> Result<RateRow, StoreError> {
    let mut transaction = pool.begin().await.map_err(failure)?;
    // A row that does not exist cannot be locked. Of two managers that create the same rate, the later one changes the row
    // of the earlier one, whose bucket may have granted permits meanwhile.
    let time = now(&mut transaction).await?;
    let (name, definition, bucket) = columns_of(&RateRow::new(key.clone(), rate, time))?;
    let insert =
        "INSERT INTO rates (key, definition, bucket) VALUES ($1, $2, $3) ON CONFLICT (key) DO NOTHING";
    let insert = sqlx::query(insert).bind(name).bind(definition).bind(bucket);
    insert.execute(&mut *transaction).await.map_err(failure)?;
    let found = lock(&mut transaction, vec![key.to_string()]).await?.pop();
    let time = now(&mut transaction).await?;
    let row = match found.map(row_of).transpose()? {
        Some(row) => row.changed(rate, time),
        None => RateRow::new(key.clone(), rate, time),
    };
    write(&mut transaction, std::slice::from_ref(&row)).await?;
    transaction.commit().await.map_err(failure)?;
    Ok(row)
}

async fn one(pool: &PgPool, key: &RateKey) -> Result<Option<RateRow>, StoreError> {
    let one = sqlx::query_as("SELECT key, definition, bucket FROM rates WHERE key = $1").bind(key.as_str());
    let found: Option<Columns> = one.fetch_optional(pool).await.map_err(failure)?;
    found.map(row_of).transpose()
}

async fn page(pool: &PgPool, after: Option<&RateKey>, most: usize) -> Result<RatePage, StoreError> {
    let page = "SELECT key, definition, bucket FROM rates WHERE key > $1 ORDER BY key LIMIT $2";
    let after = after.map_or("", RateKey::as_str);
    let mut snapshot = snapshot(pool).await?;
    let page = sqlx::query_as(page).bind(after).bind(limit(most));
    let columns: Vec<Columns> = page.fetch_all(&mut *snapshot).await.map_err(failure)?;
    let total = sqlx::query_scalar("SELECT COUNT(*) FROM rates");
    let total = number(total.fetch_one(&mut *snapshot).await.map_err(failure)?);
    Ok(RatePage { rows: readable(columns), total })
}

async fn delete(pool: &PgPool, key: &RateKey) -> Result<bool, StoreError> {
    let delete = sqlx::query("DELETE FROM rates WHERE key = $1").bind(key.as_str());
    Ok(delete.execute(pool).await.map_err(failure)?.rows_affected() > 0)
}

async fn grant(pool: &PgPool, requests: &[PermitRequest]) -> Result<Vec<PermitAnswers>, StoreError> {
    let mut transaction = pool.begin().await.map_err(failure)?;
    let mut rows = readable(lock(&mut transaction, keys_of(requests)).await?);
    let answers = grant_all(&mut rows, requests, now(&mut transaction).await?);
    write(&mut transaction, &rows).await?;
    transaction.commit().await.map_err(failure)?;
    Ok(answers)
}

async fn empty(pool: &PgPool) -> Result<(), StoreError> {
    let mut transaction = pool.begin().await.map_err(failure)?;
    let all = sqlx::query_as("SELECT key, definition, bucket FROM rates ORDER BY key FOR UPDATE");
    let columns: Vec<Columns> = all.fetch_all(&mut *transaction).await.map_err(failure)?;
    let bucket = Bucket::empty(now(&mut transaction).await?);
    let rows: Result<Vec<RateRow>, _> = columns.into_iter().map(row_of).collect();
    let rows: Vec<RateRow> = rows?.into_iter().map(|row| RateRow { bucket: bucket.clone(), ..row }).collect();
    write(&mut transaction, &rows).await?;
    transaction.commit().await.map_err(failure)
}

#[async_trait]
impl Rates for PgStore {
    async fn set_rate(&self, key: &RateKey, rate: Rate) -> Result<RateRow, StoreError> {
        answered(set(&self.pool, key, rate)).await
    }
    async fn rate(&self, key: &RateKey) -> Result<Option<RateRow>, StoreError> {
        answered(one(&self.pool, key)).await
    }
    async fn rates(&self, after: Option<&RateKey>, most: usize) -> Result<RatePage, StoreError> {
        answered(page(&self.pool, after, most)).await
    }
    async fn delete_rate(&self, key: &RateKey) -> Result<bool, StoreError> {
        answered(delete(&self.pool, key)).await
    }
    async fn grant_permits(&self, requests: &[PermitRequest]) -> Result<Vec<PermitAnswers>, StoreError> {
        answered(grant(&self.pool, requests)).await
    }
    async fn empty_rates(&self) -> Result<(), StoreError> {
        answered(empty(&self.pool)).await
    }
}
