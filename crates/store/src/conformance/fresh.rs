//! Gives each test an empty PostgreSQL database (a schema of its own), and runs statements that no store
//! would run.

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

/// Executes a statement directly in a database, without telling the stores that have it open.
pub async fn execute(url: &str, statement: &str) {
    let statement = AssertSqlSafe(statement.to_owned());
    if url.starts_with("sqlite:") {
        let mut connection = sqlx::SqliteConnection::connect(url).await.unwrap();
        sqlx::query(statement).execute(&mut connection).await.unwrap();
        connection.close().await.unwrap();
    } else {
        let mut connection = sqlx::PgConnection::connect(url).await.unwrap();
        sqlx::query(statement).execute(&mut connection).await.unwrap();
        connection.close().await.unwrap();
    }
}

/// The number that a query answers in a PostgreSQL database.
pub async fn count(url: &str, query: &str) -> i64 {
    let mut connection = sqlx::PgConnection::connect(url).await.unwrap();
    let count = sqlx::query_scalar(AssertSqlSafe(query.to_owned())).fetch_one(&mut connection).await.unwrap();
    connection.close().await.unwrap();
    count
}
