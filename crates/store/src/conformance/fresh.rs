//! An empty PostgreSQL database for each test: a schema of its own.

use sqlx::{AssertSqlSafe, Connection as _};
use uuid::Uuid;

/// Makes a schema on the server that `EVERWATCH_TEST_POSTGRES_URL` names; the URL of a store in it.
pub async fn fresh_postgres() -> String {
    let base = std::env::var("EVERWATCH_TEST_POSTGRES_URL")
        .expect("EVERWATCH_TEST_POSTGRES_URL is not set: ./tests/run starts a PostgreSQL and sets it");
    let schema = format!("store_{}", Uuid::new_v4().simple());
    let mut connection = sqlx::PgConnection::connect(&base).await.unwrap();
    sqlx::query(AssertSqlSafe(format!("CREATE SCHEMA {schema}"))).execute(&mut connection).await.unwrap();
    let glue = if base.contains('?') { '&' } else { '?' };
    format!("{base}{glue}options=-csearch_path%3D{schema}")
}
