//! Writes to PostgreSQL so that a replaced run cannot overwrite newer data: every write carries the epoch of its run,
//! and the statement writes nothing if a later run has already written.
//!
//! Needs RabbitMQ and a manager: `everwatch dev --broker amqp://guest:guest@127.0.0.1:5672/%2f`.
//!
//! ```sh
//! GUARDED_WRITER_DATABASE_URL=postgres://user:password@host/database cargo run --example guarded_writer
//! everwatch observer create load --kind guarded-writer --spec '{"every_ms": 1000}'
//! ```
//! A message that a service holds is not a lock: a process that was suspended for a minute resumes in the middle of its
//! code, while another service has run the observer for most of that minute. The service that resumes stops its runs at
//! once, but one more write may already be under way. No check by the writer can prevent that; the database can.

use everwatch::{Context, Error, Exit, Observer, OrPermanent as _, Service};
use schemars::JsonSchema;
use serde::Deserialize;
use sqlx::PgPool;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

/// The number of samples that one statement writes.
const BATCH: usize = 10;

/// The highest epoch of each observer, and what its runs have written. The lock makes services that start at the same
/// moment take turns.
const SET_UP: &str = "
    SELECT pg_advisory_xact_lock(hashtext('guarded_writer'));
    CREATE TABLE IF NOT EXISTS writers (observer text PRIMARY KEY, epoch bigint NOT NULL);
    CREATE TABLE IF NOT EXISTS samples (
        id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        observer text NOT NULL, epoch bigint NOT NULL, load double precision NOT NULL)";

/// `writer` has no row if the table has a higher epoch; then nothing is inserted. Its lock on the row makes concurrent
/// writes of two runs wait for each other.
const WRITE: &str = "WITH writer AS (
        INSERT INTO writers AS known (observer, epoch) VALUES ($1, $2)
        ON CONFLICT (observer) DO UPDATE SET epoch = excluded.epoch WHERE known.epoch <= excluded.epoch
        RETURNING observer, epoch)
    INSERT INTO samples (observer, epoch, load)
    SELECT writer.observer, writer.epoch, load FROM writer, unnest($3::double precision[]) AS load";

/// Writes samples of the load of the machine.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct GuardedWriter {
    /// Time between two samples, in milliseconds.
    #[schemars(range(min = 10, max = 3_600_000))]
    every_ms: u64,
}

impl Observer for GuardedWriter {
    const KIND: &'static str = "guarded-writer";

    async fn run(self, ctx: Context) -> Result<Exit, Error> {
        let pool = ctx.shared::<PgPool>().ok_or("the service shares no pool")?;
        let mut samples = Vec::with_capacity(BATCH);
        loop {
            samples.push(load().await?);
            let pause = tokio::time::sleep(Duration::from_millis(self.every_ms));
            let goes_on = ctx.until_cancelled(pause).await.is_some();
            if samples.len() == BATCH || !goes_on {
                write(&pool, &ctx, &samples).await?;
                samples.clear();
            }
            if !goes_on {
                return Ok(Exit::Stopped);
            }
        }
    }
}

async fn write(pool: &PgPool, ctx: &Context, samples: &[f64]) -> Result<(), Error> {
    let epoch = i64::try_from(ctx.epoch()).or_permanent()?;
    let written = sqlx::query(WRITE).bind(ctx.id()).bind(epoch).bind(samples).execute(pool).await?;
    if written.rows_affected() == 0 {
        tracing::warn!(observer = ctx.name(), epoch, "write refused: a later run has written");
        return Err(format!("epoch {epoch} has been replaced").into());
    }
    Ok(())
}

/// The load average of the last minute.
async fn load() -> Result<f64, Error> {
    let text = tokio::fs::read_to_string("/proc/loadavg").await?;
    let first = text.split(' ').next().ok_or("/proc/loadavg is empty")?;
    Ok(first.parse()?)
}

async fn connect() -> Result<PgPool, Error> {
    // In the environment rather than in the spec: everyone who may look at an observer sees its spec.
    let url = std::env::var("GUARDED_WRITER_DATABASE_URL")
        .map_err(|error| format!("GUARDED_WRITER_DATABASE_URL: {error}; set it to a postgres:// URL"))?;
    let pool = PgPool::connect(&url).await?;
    sqlx::raw_sql(SET_UP).execute(&pool).await?;
    Ok(pool)
}

fn main() -> ExitCode {
    Service::new()
        .observer::<GuardedWriter>()
        // One pool of connections for all observers of the service.
        .share_with(connect())
        .tear_down(|pool: Arc<PgPool>| async move { pool.close().await })
        .main()
}
