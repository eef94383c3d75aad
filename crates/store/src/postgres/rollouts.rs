//! Rollouts on PostgreSQL.

use super::observers::save_within;
use super::{PgStore, answered};
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
use sqlx::{PgConnection, PgPool};
use uuid::Uuid;

#[async_trait]
impl Rollouts for PgStore {
    async fn create_rollout(
        &self,
        rollout: &Rollout,
        members: &[Member],
    ) -> Result<RolloutCreated, StoreError> {
        answered(create(&self.pool, rollout, members)).await
    }
    async fn rollout(&self, which: &RolloutRef) -> Result<Option<Rollout>, StoreError> {
        answered(find(&self.pool, which)).await
    }
    async fn rollouts(&self, most: usize) -> Result<Vec<Rollout>, StoreError> {
        let newest = "SELECT id, version, document FROM rollouts ORDER BY created_at DESC, id DESC LIMIT $1";
        answered(list(&self.pool, newest, most)).await
    }
    async fn open_rollouts(&self) -> Result<Vec<Rollout>, StoreError> {
        let open = "SELECT id, version, document FROM rollouts WHERE ended_at IS NULL
            ORDER BY created_at, id LIMIT $1";
        answered(list(&self.pool, open, OPEN_MAX)).await
    }
    async fn rollout_members(&self, part: &MembersPart<'_>) -> Result<Vec<Member>, StoreError> {
        answered(read_members(&self.pool, part)).await
    }
    async fn save_step(&self, step: &Step) -> Result<Option<StepSaved>, StoreError> {
        answered(save(&self.pool, step, &self.policy)).await
    }
    async fn forget_rollouts(&self, keep: usize) -> Result<u64, StoreError> {
        answered(forget(&self.pool, keep)).await
    }
}

async fn create(pool: &PgPool, rollout: &Rollout, members: &[Member]) -> Result<RolloutCreated, StoreError> {
    let mut transaction = pool.begin().await.map_err(failure)?;
    // Two managers must not take one observer into two rollouts.
    let lock = "SELECT pg_advisory_xact_lock(hashtextextended('everwatch rollouts', 0))";
    sqlx::query(lock).execute(&mut *transaction).await.map_err(failure)?;
    if let Some(refused) = refusal(&mut transaction, rollout, members).await? {
        return Ok(refused);
    }
    let insert = "INSERT INTO rollouts (id, version, name, created_at, ended_at, document)
        VALUES ($1, $2, $3, $4, $5, $6)";
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
    let insert = "INSERT INTO rollout_members (rollout_id, place, observer_id, state, document)
        SELECT $1, * FROM UNNEST($2::bigint[], $3::uuid[], $4::text[], $5::text[])";
    write_members(&mut transaction, insert, rollout, members.iter()).await?;
    transaction.commit().await.map_err(failure)?;
    Ok(RolloutCreated::Done)
}

async fn refusal(
    connection: &mut PgConnection,
    rollout: &Rollout,
    members: &[Member],
) -> Result<Option<RolloutCreated>, StoreError> {
    let facts = "SELECT EXISTS (SELECT 1 FROM rollouts WHERE id = $1),
        EXISTS (SELECT 1 FROM rollouts WHERE name = $2 AND ended_at IS NULL),
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
        WHERE r.ended_at IS NULL AND m.observer_id = ANY($1::uuid[]) LIMIT 1";
    let ids: Vec<Uuid> = members.iter().map(|it| it.observer.0).collect();
    let other: Option<(Uuid, String)> =
        sqlx::query_as(other).bind(ids).fetch_optional(connection).await.map_err(failure)?;
    other.map(|(observer, rollout)| busy(members, observer, &rollout)).transpose()
}

async fn write_members(
    connection: &mut PgConnection,
    statement: &'static str,
    rollout: &Rollout,
    members: impl Iterator<Item = &Member>,
) -> Result<(), StoreError> {
    let rows = MemberColumns::all(members)?;
    sqlx::query(statement)
        .bind(rollout.id.0)
        .bind(rows.iter().map(|row| row.place).collect::<Vec<_>>())
        .bind(rows.iter().map(|row| row.observer).collect::<Vec<_>>())
        .bind(rows.iter().map(|row| row.state).collect::<Vec<_>>())
        .bind(rows.iter().map(|row| row.document.as_str()).collect::<Vec<_>>())
        .execute(connection)
        .await
        .map(drop)
        .map_err(failure)
}

async fn find(pool: &PgPool, which: &RolloutRef) -> Result<Option<Rollout>, StoreError> {
    let by_id = "SELECT id, version, document FROM rollouts WHERE id = $1";
    let by_name = "SELECT id, version, document FROM rollouts WHERE name = $1
        ORDER BY created_at DESC, id DESC LIMIT 1";
    let query = match which {
        RolloutRef::Id(id) => sqlx::query_as(by_id).bind(id.0),
        RolloutRef::Name(name) => sqlx::query_as(by_name).bind(name.as_str()),
    };
    let found: Option<StoredRollout> = query.fetch_optional(pool).await.map_err(failure)?;
    found.map(rollout).transpose()
}

async fn list(pool: &PgPool, statement: &'static str, most: usize) -> Result<Vec<Rollout>, StoreError> {
    Ok(rollouts(sqlx::query_as(statement).bind(limit(most)).fetch_all(pool).await.map_err(failure)?))
}

async fn read_members(pool: &PgPool, part: &MembersPart<'_>) -> Result<Vec<Member>, StoreError> {
    let read = "SELECT document FROM rollout_members
        WHERE rollout_id = $1 AND place > $2 AND (state = ANY($3::text[]) OR cardinality($3::text[]) = 0)
        ORDER BY place LIMIT $4";
    let states: Vec<&str> = part.states.iter().copied().map(MemberState::as_str).collect();
    let query = sqlx::query_scalar(read).bind(part.rollout.0).bind(part.after.map_or(-1, i64::from));
    let found: Vec<String> =
        query.bind(states).bind(limit(part.most)).fetch_all(pool).await.map_err(failure)?;
    members(&found)
}

async fn save(pool: &PgPool, step: &Step, policy: &RowPolicy) -> Result<Option<StepSaved>, StoreError> {
    let mut transaction = pool.begin().await.map_err(failure)?;
    let lock = "SELECT version FROM rollouts WHERE id = $1 AND version = $2 FOR UPDATE";
    let lock = sqlx::query(lock).bind(step.rollout.id.0).bind(step.rollout.version);
    if lock.fetch_optional(&mut *transaction).await.map_err(failure)?.is_none() {
        return Ok(None);
    }
    let late = save_within(&mut transaction, &changes(step), policy).await?;
    let (rollout, members) = applied(step, &late);
    let update = "UPDATE rollout_members m SET state = n.state, document = n.document
        FROM UNNEST($2::bigint[], $3::uuid[], $4::text[], $5::text[]) AS n (place, observer_id, state, document)
        WHERE m.rollout_id = $1 AND m.place = n.place";
    write_members(&mut transaction, update, &rollout, members.iter().map(|it| &it.after)).await?;
    let update = "UPDATE rollouts SET version = $2, ended_at = $3, document = $4 WHERE id = $1";
    let update = sqlx::query(update).bind(rollout.id.0).bind(rollout.version);
    let update = update.bind(rollout.ended_at.map(|at| at.0)).bind(written(&rollout)?);
    update.execute(&mut *transaction).await.map_err(failure)?;
    transaction.commit().await.map_err(failure)?;
    Ok(Some(StepSaved { rollout, late }))
}

async fn forget(pool: &PgPool, keep: usize) -> Result<u64, StoreError> {
    let forget = "DELETE FROM rollouts WHERE id IN (SELECT id FROM rollouts WHERE ended_at IS NOT NULL
        ORDER BY ended_at DESC, id DESC OFFSET $1)";
    let gone = sqlx::query(forget).bind(limit(keep)).execute(pool).await.map_err(failure)?;
    Ok(gone.rows_affected())
}
