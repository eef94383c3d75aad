//! Checkpoints and results on SQLite.

use super::statements::keys;
use crate::checkpoints::{Columns, Loaded, ObserverResult, column, epoch_of};
use crate::error_mapping::failure;
use crate::port::StoreError;
use everwatch_core::id::ObserverId;
use everwatch_core::wire::checkpoint::{Checkpoint, CheckpointRestored, CheckpointStored, CheckpointWanted};
use sqlx::{Sqlite, SqlitePool, Transaction};

const WRITE: &str = "INSERT INTO checkpoints (observer_id, requested_by, epoch, number, value)
    VALUES (?1, ?2, ?3, ?4, ?5)
    ON CONFLICT (observer_id) DO UPDATE SET requested_by = excluded.requested_by, epoch = excluded.epoch,
        number = excluded.number, value = excluded.value";

pub(super) async fn save(
    writer: &SqlitePool,
    checkpoints: &[Checkpoint],
) -> Result<Vec<CheckpointStored>, StoreError> {
    let mut transaction = super::writing(writer).await?;
    let mut loaded = load(&mut transaction, checkpoints.iter().map(|it| it.id)).await?;
    let answers = loaded.save(checkpoints);
    write(transaction, &loaded).await?;
    Ok(answers)
}

pub(super) async fn request(
    writer: &SqlitePool,
    wanted: &[CheckpointWanted],
) -> Result<Vec<CheckpointRestored>, StoreError> {
    let mut transaction = super::writing(writer).await?;
    let mut loaded = load(&mut transaction, wanted.iter().map(|it| it.id)).await?;
    let answers = loaded.request(wanted);
    write(transaction, &loaded).await?;
    Ok(answers)
}

async fn load(
    transaction: &mut Transaction<'_, Sqlite>,
    ids: impl Iterator<Item = ObserverId>,
) -> Result<Loaded, StoreError> {
    let load = "SELECT o.id, c.requested_by, c.epoch, c.number, c.value
        FROM observers o LEFT JOIN checkpoints c ON c.observer_id = o.id
        WHERE o.id IN (SELECT unhex(value) FROM json_each(?1))";
    let ids = keys(ids.map(|id| id.0));
    let rows: Vec<Columns> =
        sqlx::query_as(load).bind(ids).fetch_all(&mut **transaction).await.map_err(failure)?;
    Ok(Loaded::read(rows))
}

async fn write(mut transaction: Transaction<'_, Sqlite>, loaded: &Loaded) -> Result<(), StoreError> {
    for (id, requested_by, epoch, number, value) in loaded.changed() {
        let write = sqlx::query(WRITE).bind(id).bind(requested_by).bind(epoch).bind(number).bind(value);
        write.execute(&mut *transaction).await.map_err(failure)?;
    }
    transaction.commit().await.map_err(failure)
}

pub(super) async fn save_results(writer: &SqlitePool, results: &[ObserverResult]) -> Result<(), StoreError> {
    let write =
        "INSERT INTO results (observer_id, epoch, value) SELECT id, ?2, ?3 FROM observers WHERE id = ?1
        ON CONFLICT (observer_id) DO UPDATE SET epoch = excluded.epoch, value = excluded.value
            WHERE results.epoch < excluded.epoch";
    let mut transaction = super::writing(writer).await?;
    for ObserverResult { id, epoch, value } in results {
        let write = sqlx::query(write).bind(id.0).bind(column(*epoch)).bind(value);
        write.execute(&mut *transaction).await.map_err(failure)?;
    }
    transaction.commit().await.map_err(failure)
}

pub(super) async fn result(pool: &SqlitePool, id: ObserverId) -> Result<Option<ObserverResult>, StoreError> {
    let read = sqlx::query_as("SELECT epoch, value FROM results WHERE observer_id = ?1").bind(id.0);
    let found: Option<(i64, String)> = read.fetch_optional(pool).await.map_err(failure)?;
    Ok(found.map(|(epoch, value)| ObserverResult { id, epoch: epoch_of(epoch), value }))
}
