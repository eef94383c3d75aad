//! Checkpoints and results on PostgreSQL.

use crate::checkpoints::{Columns, Loaded, ObserverResult, column, epoch_of};
use crate::columns::without_nul;
use crate::error_mapping::failure;
use crate::port::StoreError;
use everwatch_core::id::ObserverId;
use everwatch_core::wire::checkpoint::{Checkpoint, CheckpointRestored, CheckpointStored, CheckpointWanted};
use sqlx::{PgPool, Postgres, Transaction};
use uuid::Uuid;

const WRITE: &str = "INSERT INTO checkpoints (observer_id, requested_by, epoch, number, value)
    VALUES ($1, $2, $3, $4, $5)
    ON CONFLICT (observer_id) DO UPDATE SET requested_by = EXCLUDED.requested_by, epoch = EXCLUDED.epoch,
        number = EXCLUDED.number, value = EXCLUDED.value";

pub(super) async fn save(
    pool: &PgPool,
    checkpoints: &[Checkpoint],
) -> Result<Vec<CheckpointStored>, StoreError> {
    let mut transaction = pool.begin().await.map_err(failure)?;
    let mut loaded = load(&mut transaction, checkpoints.iter().map(|it| it.id)).await?;
    let answers = loaded.save(checkpoints);
    write(transaction, &loaded).await?;
    Ok(answers)
}

pub(super) async fn request(
    pool: &PgPool,
    wanted: &[CheckpointWanted],
) -> Result<Vec<CheckpointRestored>, StoreError> {
    let mut transaction = pool.begin().await.map_err(failure)?;
    let mut loaded = load(&mut transaction, wanted.iter().map(|it| it.id)).await?;
    let answers = loaded.request(wanted);
    write(transaction, &loaded).await?;
    Ok(answers)
}

async fn load(
    transaction: &mut Transaction<'_, Postgres>,
    ids: impl Iterator<Item = ObserverId>,
) -> Result<Loaded, StoreError> {
    // The rows of the observers are locked, in one order: a checkpoint may have no row yet, and two managers must not
    // decide about the same one at the same time.
    let load = "SELECT o.id, c.requested_by, c.epoch, c.number, c.value
        FROM observers o LEFT JOIN checkpoints c ON c.observer_id = o.id
        WHERE o.id = ANY($1::uuid[])";
    let lock = "SELECT id FROM observers WHERE id = ANY($1::uuid[]) ORDER BY id FOR NO KEY UPDATE";
    let ids: Vec<Uuid> = ids.map(|id| id.0).collect();
    // Two statements: a statement that waits for a lock would still read the checkpoint from before the wait.
    sqlx::query(lock).bind(&ids).execute(&mut **transaction).await.map_err(failure)?;
    let rows: Vec<Columns> =
        sqlx::query_as(load).bind(&ids).fetch_all(&mut **transaction).await.map_err(failure)?;
    Ok(Loaded::read(rows))
}

async fn write(mut transaction: Transaction<'_, Postgres>, loaded: &Loaded) -> Result<(), StoreError> {
    for (id, requested_by, epoch, number, value) in loaded.changed() {
        let value = value.as_deref().map(without_nul);
        let write = sqlx::query(WRITE).bind(id).bind(requested_by).bind(epoch).bind(number).bind(value);
        write.execute(&mut *transaction).await.map_err(failure)?;
    }
    transaction.commit().await.map_err(failure)
}

pub(super) async fn save_results(pool: &PgPool, results: &[ObserverResult]) -> Result<(), StoreError> {
    let write =
        "INSERT INTO results (observer_id, epoch, value) SELECT id, $2, $3 FROM observers WHERE id = $1
        ON CONFLICT (observer_id) DO UPDATE SET epoch = EXCLUDED.epoch, value = EXCLUDED.value
            WHERE results.epoch < EXCLUDED.epoch";
    let mut sorted: Vec<&ObserverResult> = results.iter().collect();
    sorted.sort_by_key(|result| result.id);
    let mut transaction = pool.begin().await.map_err(failure)?;
    for ObserverResult { id, epoch, value } in sorted {
        let write = sqlx::query(write).bind(id.0).bind(column(*epoch)).bind(without_nul(value));
        write.execute(&mut *transaction).await.map_err(failure)?;
    }
    transaction.commit().await.map_err(failure)
}

pub(super) async fn result(pool: &PgPool, id: ObserverId) -> Result<Option<ObserverResult>, StoreError> {
    let read = sqlx::query_as("SELECT epoch, value FROM results WHERE observer_id = $1").bind(id.0);
    let found: Option<(i64, String)> = read.fetch_optional(pool).await.map_err(failure)?;
    Ok(found.map(|(epoch, value)| ObserverResult { id, epoch: epoch_of(epoch), value }))
}
