//! Unreadable messages on PostgreSQL.

use crate::columns::{limit, number, without_nul};
use crate::error_mapping::failure;
use crate::port::{Parked, ParkedHead, StoreError};
use everwatch_core::clock::Timestamp;
use sqlx::PgPool;

/// The most bytes of bodies that one statement sends, unless a single body is larger. The server accepts at
/// most 1 GB, and each statement must finish within its time limit.
const PART_MAX: usize = 16 * 1024 * 1024;

/// Splits the messages, in order, into parts that each fit into one statement.
pub(super) fn parts(mut parked: &[Parked]) -> Vec<&[Parked]> {
    let mut parts = Vec::new();
    while !parked.is_empty() {
        let mut size = 0;
        let fits = parked.iter().take_while(|one| {
            size += one.body.len() + one.reason.len();
            size <= PART_MAX
        });
        let (part, rest) = parked.split_at(fits.count().max(1));
        parts.push(part);
        parked = rest;
    }
    parts
}

pub(super) async fn park(pool: &PgPool, parked: &[Parked]) -> Result<(), StoreError> {
    let insert = "INSERT INTO parked (queue, reason, body, at)
        SELECT * FROM UNNEST($1::text[], $2::text[], $3::bytea[], $4::bigint[])";
    sqlx::query(insert)
        .bind(parked.iter().map(|one| without_nul(&one.queue)).collect::<Vec<_>>())
        .bind(parked.iter().map(|one| without_nul(&one.reason)).collect::<Vec<_>>())
        .bind(parked.iter().map(|one| one.body.as_slice()).collect::<Vec<_>>())
        .bind(parked.iter().map(|one| one.at.0).collect::<Vec<_>>())
        .execute(pool)
        .await
        .map_err(failure)?;
    Ok(())
}

pub(super) async fn page(
    pool: &PgPool,
    before: Option<i64>,
    most: usize,
) -> Result<(Vec<ParkedHead>, u64), StoreError> {
    let mut snapshot = super::snapshot(pool).await?;
    let newest = "SELECT id, queue, reason, substring(body from 1 for 4096), octet_length(body)::bigint, at
        FROM parked WHERE id < $1 ORDER BY id DESC LIMIT $2";
    let rows: Vec<(i64, String, String, Vec<u8>, i64, i64)> = sqlx::query_as(newest)
        .bind(before.unwrap_or(i64::MAX))
        .bind(limit(most))
        .fetch_all(&mut *snapshot)
        .await
        .map_err(failure)?;
    let total =
        sqlx::query_scalar("SELECT COUNT(*) FROM parked").fetch_one(&mut *snapshot).await.map_err(failure)?;
    let shown = |(id, queue, reason, head, size, at)| {
        let (size, at) = (number(size), Timestamp(at));
        ParkedHead { id, queue, reason, head, size, at }
    };
    Ok((rows.into_iter().map(shown).collect(), number(total)))
}

type Stored = (i64, String, String, Vec<u8>, i64);

fn parked((id, queue, reason, body, at): Stored) -> Parked {
    Parked { id, queue, reason, body, at: Timestamp(at) }
}

pub(super) async fn one(pool: &PgPool, id: i64) -> Result<Option<Parked>, StoreError> {
    let one = sqlx::query_as("SELECT id, queue, reason, body, at FROM parked WHERE id = $1").bind(id);
    let found: Option<Stored> = one.fetch_optional(pool).await.map_err(failure)?;
    Ok(found.map(parked))
}

pub(super) async fn unpark(pool: &PgPool, id: i64) -> Result<bool, StoreError> {
    let gone =
        sqlx::query("DELETE FROM parked WHERE id = $1").bind(id).execute(pool).await.map_err(failure)?;
    Ok(gone.rows_affected() > 0)
}

pub(super) async fn forget(pool: &PgPool, before: Timestamp, keep: usize) -> Result<u64, StoreError> {
    let forget = "DELETE FROM parked WHERE at < $1 OR id <= (SELECT MAX(id) FROM parked) - $2";
    let done = sqlx::query(forget).bind(before.0).bind(limit(keep)).execute(pool).await.map_err(failure)?;
    Ok(done.rows_affected())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_statement_is_larger_than_the_server_takes() {
        let one = |size: usize| Parked {
            id: 0,
            queue: "q".to_owned(),
            reason: String::new(),
            body: vec![0; size],
            at: Timestamp(0),
        };
        let sizes = |parked: &[Parked]| parts(parked).iter().map(|part| part.len()).collect::<Vec<_>>();
        assert_eq!(sizes(&[]), [0; 0]);
        assert_eq!(sizes(&[one(PART_MAX + 1), one(1), one(1)]), [1, 2]);
        let half = PART_MAX / 2;
        assert_eq!(sizes(&[one(half), one(half), one(half), one(half + 1), one(0)]), [2, 1, 2]);
    }
}
