//! Rollouts on SQLite.

use super::observers::save_within;
use super::statements::{array, keys};
use super::{SqliteStore, writing};
use crate::columns::{limit, written};
use crate::error_mapping::failure;
use crate::port::{MembersPart, RolloutCreated, Rollouts, StepSaved, StoreError};
use crate::rollout_columns::{
    MemberColumns, StoredRollout, applied, busy, changes, members, rollout, rollouts,
};
use async_trait::async_trait;
use everwatch_core::id::RolloutRef;
use everwatch_core::record::row_policy::RowPolicy;
use everwatch_core::rollout::{Member, MemberState, OPEN_MAX, Rollout, Step};
use sqlx::{SqliteConnection, SqlitePool};
use uuid::Uuid;

#[async_trait]
impl Rollouts for SqliteStore {
    async fn create_rollout(
        &self,
        rollout: &Rollout,
        members: &[Member],
    ) -> Result<RolloutCreated, StoreError> {
        create(&self.writer, rollout, members).await
    }
    async fn rollout(&self, which: &RolloutRef) -> Result<Option<Rollout>, StoreError> {
        find(&self.readers, which).await
    }
    async fn rollouts(&self, most: usize) -> Result<Vec<Rollout>, StoreError> {
        let newest = "SELECT id, version, document FROM rollouts ORDER BY created_at DESC, id DESC LIMIT ?1";
        list(&self.readers, newest, most).await
    }
    async fn open_rollouts(&self) -> Result<Vec<Rollout>, StoreError> {
        let open = "SELECT id, version, document FROM rollouts WHERE ended_at IS NULL
            ORDER BY created_at, id LIMIT ?1";
        list(&self.readers, open, OPEN_MAX).await
    }
    async fn rollout_members(&self, part: &MembersPart<'_>) -> Result<Vec<Member>, StoreError> {
        read_members(&self.readers, part).await
    }
    async fn save_step(&self, step: &Step) -> Result<Option<StepSaved>, StoreError> {
        save(&self.writer, step, &self.policy).await
    }
    async fn forget_rollouts(&self, keep: usize) -> Result<u64, StoreError> {
        forget(&self.writer, keep).await
    }
}

async fn create(
    writer: &SqlitePool,
    rollout: &Rollout,
    members: &[Member],
) -> Result<RolloutCreated, StoreError> {
    let mut transaction = writing(writer).await?;
    if let Some(refused) = refusal(&mut transaction, rollout, members).await? {
        return Ok(refused);
    }
    let insert = "INSERT INTO rollouts (id, version, name, created_at, ended_at, document)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
    sqlx::query(insert)
        .bind(rollout.id.0)
        .bind(rollout.version)
        .bind(rollout.name.as_str())
        .bind(rollout.created_at.0)
        .bind(rollout.ended_at.map(|at| at.0))
        .bind(written(rollout)?)
        .execute(&mut *transaction)
        .await
        .map_err(failure)?;
    write_members(&mut transaction, rollout, members.iter()).await?;
    transaction.commit().await.map_err(failure)?;
    Ok(RolloutCreated::Done)
}

async fn refusal(
    connection: &mut SqliteConnection,
    rollout: &Rollout,
    members: &[Member],
) -> Result<Option<RolloutCreated>, StoreError> {
    let facts = "SELECT EXISTS (SELECT 1 FROM rollouts WHERE id = ?1),
        EXISTS (SELECT 1 FROM rollouts WHERE name = ?2 AND ended_at IS NULL),
        (SELECT COUNT(*) FROM rollouts WHERE ended_at IS NULL)";
    let facts = sqlx::query_as(facts).bind(rollout.id.0).bind(rollout.name.as_str());
    let (exists, is_taken, open): (bool, bool, i64) =
        facts.fetch_one(&mut *connection).await.map_err(failure)?;
    if exists {
        return Ok(Some(RolloutCreated::Exists));
    }
    if is_taken {
        return Ok(Some(RolloutCreated::NameTaken));
    }
    if open >= limit(OPEN_MAX) {
        return Ok(Some(RolloutCreated::TooMany));
    }
    let other = "SELECT m.observer_id, r.name FROM rollout_members m JOIN rollouts r ON r.id = m.rollout_id
        WHERE r.ended_at IS NULL AND m.observer_id IN (SELECT unhex(value) FROM json_each(?1)) LIMIT 1";
    let ids = keys(members.iter().map(|it| it.observer.0));
    let other: Option<(Uuid, String)> =
        sqlx::query_as(other).bind(ids).fetch_optional(connection).await.map_err(failure)?;
    other.map(|(observer, rollout)| busy(members, observer, &rollout)).transpose()
}

/// Inserts new members, and replaces the states of known ones.
async fn write_members(
    connection: &mut SqliteConnection,
    rollout: &Rollout,
    members: impl Iterator<Item = &Member>,
) -> Result<(), StoreError> {
    let write = "INSERT INTO rollout_members (rollout_id, place, observer_id, state, document)
        SELECT ?1, value ->> 0, unhex(value ->> 1), value ->> 2, value ->> 3 FROM json_each(?2) WHERE true
        ON CONFLICT DO UPDATE SET state = excluded.state, document = excluded.document";
    let row = |it: MemberColumns| (it.place, it.observer.simple().to_string(), it.state, it.document);
    let rows: Vec<_> = MemberColumns::all(members)?.into_iter().map(row).collect();
    let query = sqlx::query(write).bind(rollout.id.0).bind(written(&rows)?);
    query.execute(connection).await.map(drop).map_err(failure)
}

async fn find(pool: &SqlitePool, which: &RolloutRef) -> Result<Option<Rollout>, StoreError> {
    let by_id = "SELECT id, version, document FROM rollouts WHERE id = ?1";
    let by_name = "SELECT id, version, document FROM rollouts WHERE name = ?1
        ORDER BY created_at DESC, id DESC LIMIT 1";
    let query = match which {
        RolloutRef::Id(id) => sqlx::query_as(by_id).bind(id.0),
        RolloutRef::Name(name) => sqlx::query_as(by_name).bind(name.as_str()),
    };
    let found: Option<StoredRollout> = query.fetch_optional(pool).await.map_err(failure)?;
    found.map(rollout).transpose()
}

async fn list(pool: &SqlitePool, statement: &'static str, most: usize) -> Result<Vec<Rollout>, StoreError> {
    Ok(rollouts(sqlx::query_as(statement).bind(limit(most)).fetch_all(pool).await.map_err(failure)?))
}

async fn read_members(pool: &SqlitePool, part: &MembersPart<'_>) -> Result<Vec<Member>, StoreError> {
    let read = "SELECT document FROM rollout_members WHERE rollout_id = ?1 AND place > ?2
        AND (state IN (SELECT value FROM json_each(?3)) OR json_array_length(?3) = 0)
        ORDER BY place LIMIT ?4";
    let states: Vec<&str> = part.states.iter().copied().map(MemberState::as_str).collect();
    let query = sqlx::query_scalar(read).bind(part.rollout.0).bind(part.after.map_or(-1, i64::from));
    let found: Vec<String> =
        query.bind(array(&states)).bind(limit(part.most)).fetch_all(pool).await.map_err(failure)?;
    members(&found)
}

async fn save(writer: &SqlitePool, step: &Step, policy: &RowPolicy) -> Result<Option<StepSaved>, StoreError> {
    let mut transaction = writing(writer).await?;
    let is_current = "SELECT 1 FROM rollouts WHERE id = ?1 AND version = ?2";
    let is_current = sqlx::query(is_current).bind(step.rollout.id.0).bind(step.rollout.version);
    if is_current.fetch_optional(&mut *transaction).await.map_err(failure)?.is_none() {
        return Ok(None);
    }
    let late = save_within(&mut transaction, &changes(step), policy).await?;
    let (rollout, members) = applied(step, &late);
    write_members(&mut transaction, &rollout, members.iter().map(|it| &it.after)).await?;
    let update = "UPDATE rollouts SET version = ?2, ended_at = ?3, document = ?4 WHERE id = ?1";
    let update = sqlx::query(update).bind(rollout.id.0).bind(rollout.version);
    let update = update.bind(rollout.ended_at.map(|at| at.0)).bind(written(&rollout)?);
    update.execute(&mut *transaction).await.map_err(failure)?;
    transaction.commit().await.map_err(failure)?;
    Ok(Some(StepSaved { rollout, late }))
}

async fn forget(writer: &SqlitePool, keep: usize) -> Result<u64, StoreError> {
    let forget = "DELETE FROM rollouts WHERE id IN (SELECT id FROM rollouts WHERE ended_at IS NOT NULL
        ORDER BY ended_at DESC, id DESC LIMIT -1 OFFSET ?1)";
    let gone = sqlx::query(forget).bind(limit(keep)).execute(writer).await.map_err(failure)?;
    Ok(gone.rows_affected())
}
