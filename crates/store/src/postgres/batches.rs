//! Batches on PostgreSQL.

use super::observers::{Reading, create_within, observers};
use super::{PgStore, answered};
use crate::batch_columns::{StoredBatch, batch, batches, counts, names};
use crate::checkpoints::{ObserverResult, epoch_of};
use crate::columns::{limit, written};
use crate::error_mapping::failure;
use crate::port::{BatchCreated, BatchPart, Batches, Created, StoreError};
use crate::unreadable::StoredObserver;
use async_trait::async_trait;
use everwatch_core::batch::{Batch, BatchState, Counts, OPEN_MAX};
use everwatch_core::capacity::admission::PoolOffers;
use everwatch_core::id::{BatchId, BatchRef, LimitKey, Name, ObserverId};
use everwatch_core::record::row::Row;
use everwatch_core::record::row_policy::RowPolicy;
use everwatch_core::record::status::Status;
use sqlx::{PgConnection, PgPool};
use std::collections::BTreeMap;
use uuid::Uuid;

#[async_trait]
impl Batches for PgStore {
    async fn create_batch(&self, batch: &Batch) -> Result<BatchCreated, StoreError> {
        answered(create(&self.pool, batch)).await
    }
    async fn create_members(
        &self,
        batch: BatchId,
        rows: &[Row],
        offers: &PoolOffers,
    ) -> Result<Option<Vec<Created>>, StoreError> {
        answered(create_members(&self.pool, batch, (rows, offers), &self.policy)).await
    }
    async fn batch(&self, which: &BatchRef) -> Result<Option<Batch>, StoreError> {
        answered(find(&self.pool, which)).await
    }
    async fn batches(&self, most: usize) -> Result<Vec<Batch>, StoreError> {
        let newest = "SELECT id, version, touched_at, document FROM batches
            ORDER BY created_at DESC, id DESC LIMIT $1";
        let query = sqlx::query_as(newest).bind(limit(most));
        Ok(batches(query.fetch_all(&self.pool).await.map_err(failure)?))
    }
    async fn open_batches(&self) -> Result<Vec<Batch>, StoreError> {
        let open =
            "SELECT id, version, touched_at, document FROM batches WHERE is_open ORDER BY created_at, id";
        Ok(batches(sqlx::query_as(open).fetch_all(&self.pool).await.map_err(failure)?))
    }
    async fn save_batch(&self, batch: &Batch) -> Result<bool, StoreError> {
        answered(save(&self.pool, batch)).await
    }
    async fn batch_counts(&self, ids: &[BatchId]) -> Result<BTreeMap<BatchId, Counts>, StoreError> {
        let count = "SELECT batch_id, status, COUNT(*) FROM observer_states
            WHERE batch_id = ANY($1::uuid[]) GROUP BY batch_id, status";
        let query = sqlx::query_as(count).bind(ids.iter().map(|id| id.0).collect::<Vec<_>>());
        counts(ids, query.fetch_all(&self.pool).await.map_err(failure)?)
    }
    async fn batch_members(&self, part: &BatchPart<'_>) -> Result<Vec<Row>, StoreError> {
        answered(members(self.reading(), part)).await
    }
    async fn results(&self, ids: &[ObserverId]) -> Result<Vec<ObserverResult>, StoreError> {
        let read = "SELECT observer_id, epoch, value FROM results
            WHERE observer_id = ANY($1::uuid[])";
        let query = sqlx::query_as(read).bind(ids.iter().map(|id| id.0).collect::<Vec<_>>());
        let found: Vec<(Uuid, i64, String)> = query.fetch_all(&self.pool).await.map_err(failure)?;
        let result =
            |(id, epoch, value)| ObserverResult { id: ObserverId(id), epoch: epoch_of(epoch), value };
        Ok(found.into_iter().map(result).collect())
    }
    async fn taken_names(&self, wanted: &[String], batch: BatchId) -> Result<Vec<Name>, StoreError> {
        let taken = "SELECT o.name FROM observers o JOIN observer_states s ON s.id = o.id
            WHERE o.name_key = ANY($1::text[]) AND s.batch_id IS DISTINCT FROM $2 ORDER BY o.name";
        let query = sqlx::query_scalar(taken).bind(wanted).bind(batch.0);
        names(&query.fetch_all(&self.pool).await.map_err(failure)?)
    }
    async fn delete_batch(&self, batch: BatchId, version: i64) -> Result<bool, StoreError> {
        answered(delete(&self.pool, batch, version)).await
    }
}

async fn create(pool: &PgPool, batch: &Batch) -> Result<BatchCreated, StoreError> {
    let mut transaction = pool.begin().await.map_err(failure)?;
    // Two managers must not create two batches of one name.
    let lock = "SELECT pg_advisory_xact_lock(hashtextextended('everwatch batches', 0))";
    sqlx::query(lock).execute(&mut *transaction).await.map_err(failure)?;
    if let Some(refused) = refusal(&mut transaction, batch).await? {
        return Ok(refused);
    }
    let insert =
        "INSERT INTO batches (id, version, name, state, created_at, ended_at, is_open, touched_at, document)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)";
    sqlx::query(insert)
        .bind(batch.id.0)
        .bind(batch.version)
        .bind(batch.name_key())
        .bind(batch.state.as_str())
        .bind(batch.created_at.0)
        .bind(batch.ended_at.map(|at| at.0))
        .bind(batch.is_open())
        .bind(batch.touched_at.0)
        .bind(written(batch)?)
        .execute(&mut *transaction)
        .await
        .map_err(failure)?;
    if let (Some(key), Some(max)) = (batch.limit_key(), batch.max_running) {
        let insert = "INSERT INTO limits (key, max, enforce) VALUES ($1, $2, FALSE)";
        let insert = sqlx::query(insert).bind(key.as_str()).bind(i64::from(max));
        insert.execute(&mut *transaction).await.map_err(failure)?;
    }
    transaction.commit().await.map_err(failure)?;
    Ok(BatchCreated::Done)
}

async fn refusal(connection: &mut PgConnection, batch: &Batch) -> Result<Option<BatchCreated>, StoreError> {
    let facts = "SELECT EXISTS (SELECT 1 FROM batches WHERE id = $1),
        EXISTS (SELECT 1 FROM batches WHERE name = $2 AND ended_at IS NULL),
        (SELECT COUNT(*) FROM batches WHERE ended_at IS NULL)";
    let facts = sqlx::query_as(facts).bind(batch.id.0).bind(batch.name_key());
    let (exists, is_taken, open): (bool, bool, i64) = facts.fetch_one(connection).await.map_err(failure)?;
    Ok(if exists {
        Some(BatchCreated::Exists)
    } else if is_taken {
        Some(BatchCreated::NameTaken)
    } else {
        (open >= limit(OPEN_MAX)).then_some(BatchCreated::TooMany)
    })
}

async fn create_members(
    pool: &PgPool,
    batch: BatchId,
    (rows, offers): (&[Row], &PoolOffers),
    policy: &RowPolicy,
) -> Result<Option<Vec<Created>>, StoreError> {
    let mut transaction = pool.begin().await.map_err(failure)?;
    let touch = "UPDATE batches SET touched_at = (EXTRACT(EPOCH FROM clock_timestamp()) * 1000)::bigint
        WHERE id = $1 AND state = $2";
    let touch = sqlx::query(touch).bind(batch.0).bind(BatchState::Creating.as_str());
    if touch.execute(&mut *transaction).await.map_err(failure)?.rows_affected() == 0 {
        return Ok(None);
    }
    let created = create_within(&mut transaction, (rows, offers), policy).await?;
    transaction.commit().await.map_err(failure)?;
    Ok(Some(created))
}

async fn find(pool: &PgPool, which: &BatchRef) -> Result<Option<Batch>, StoreError> {
    let by_id = "SELECT id, version, touched_at, document FROM batches WHERE id = $1";
    let by_name = "SELECT id, version, touched_at, document FROM batches WHERE name = $1
        ORDER BY created_at DESC, id DESC LIMIT 1";
    let query = match which {
        BatchRef::Id(id) => sqlx::query_as(by_id).bind(id.0),
        BatchRef::Name(namespace, name) => sqlx::query_as(by_name).bind(namespace.qualify(name)),
    };
    let found: Option<StoredBatch> = query.fetch_optional(pool).await.map_err(failure)?;
    found.map(batch).transpose()
}

async fn save(pool: &PgPool, batch: &Batch) -> Result<bool, StoreError> {
    let update = "UPDATE batches SET version = version + 1, state = $3, ended_at = $4, is_open = $5,
        touched_at = GREATEST(touched_at, $6), document = $7 WHERE id = $1 AND version = $2";
    let update = sqlx::query(update)
        .bind(batch.id.0)
        .bind(batch.version)
        .bind(batch.state.as_str())
        .bind(batch.ended_at.map(|at| at.0))
        .bind(batch.is_open())
        .bind(batch.touched_at.0)
        .bind(written(batch)?);
    Ok(update.execute(pool).await.map_err(failure)?.rows_affected() > 0)
}

async fn members((pool, ledger): Reading<'_>, part: &BatchPart<'_>) -> Result<Vec<Row>, StoreError> {
    let read = observers!(
        "WHERE s.batch_id = $1 AND s.batch_place >= $2
            AND (s.status = ANY($3::text[]) OR cardinality($3::text[]) = 0)
            ORDER BY s.batch_place LIMIT $4 OFFSET $5"
    );
    let statuses: Vec<&str> = part.statuses.iter().copied().map(Status::as_str).collect();
    let mut pages = ledger.pages::<StoredObserver>(part.most);
    while let Some((limit, offset)) = pages.next() {
        let query = sqlx::query_as(read).bind(part.batch.0).bind(i64::from(part.from)).bind(&statuses);
        pages.add(query.bind(limit).bind(offset).fetch_all(pool).await.map_err(failure)?);
    }
    Ok(pages.rows())
}

async fn delete(pool: &PgPool, batch: BatchId, version: i64) -> Result<bool, StoreError> {
    let mut transaction = pool.begin().await.map_err(failure)?;
    let delete = "DELETE FROM batches WHERE id = $1 AND version = $2
        AND NOT EXISTS (SELECT 1 FROM observer_states WHERE batch_id = $1)";
    let delete = sqlx::query(delete).bind(batch.0).bind(version);
    if delete.execute(&mut *transaction).await.map_err(failure)?.rows_affected() == 0 {
        return Ok(false);
    }
    let delete = sqlx::query("DELETE FROM limits WHERE key = $1").bind(LimitKey::of_batch(batch).to_string());
    delete.execute(&mut *transaction).await.map_err(failure)?;
    transaction.commit().await.map_err(failure)?;
    Ok(true)
}
