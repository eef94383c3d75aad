//! A new password of the database, without a restart: the file with the URL is read again, and later connections use
//! what it says. PostgreSQL checks a password when a connection begins, so existing ones stay.

use super::options;
use sqlx::PgPool;
use sqlx::postgres::PgConnectOptions;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::task::JoinSet;

/// The pause between two looks at the file.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// Looks at the file until this is dropped.
pub(super) struct Credentials {
    _looking: JoinSet<()>,
}

impl Credentials {
    pub(super) fn follow(file: &Path, url: &str, pool: PgPool) -> Self {
        let mut looking = JoinSet::new();
        looking.spawn(follow(file.to_owned(), url.to_owned(), pool));
        Self { _looking: looking }
    }
}

async fn follow(file: PathBuf, mut url: String, pool: PgPool) {
    let shown = file.display();
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        let Ok(text) = tokio::fs::read_to_string(&file).await else { continue };
        let newer = text.trim();
        if newer == url {
            continue;
        }
        match renewed(&url, newer) {
            Ok(options) => {
                tracing::info!(file = %shown, "the credentials of the database have changed: new connections use them");
                pool.set_connect_options(options);
            }
            Err(error) => tracing::warn!(file = %shown, error, "the new URL of the database is not used"),
        }
        newer.clone_into(&mut url);
    }
}

/// The options of the new URL, which must name the same database. The error has no password.
fn renewed(former: &str, newer: &str) -> Result<PgConnectOptions, String> {
    let (former, newer) = (options(former), options(newer));
    let (Ok(former), Ok(newer)) = (former, newer) else {
        return Err("it cannot be read: expected postgres://user:password@host/database".to_owned());
    };
    let place = |it: &PgConnectOptions| {
        (it.get_host().to_owned(), it.get_port(), it.get_database().map(str::to_owned))
    };
    if place(&former) != place(&newer) {
        return Err("it names another server or database: restart the manager to use it".to_owned());
    }
    Ok(newer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_credentials_may_change() {
        let former = "postgres://me:old@db:5432/everwatch?sslmode=require";
        let told = |newer: &str| renewed(former, newer).map(|it| it.get_username().to_owned());
        assert_eq!(told("postgres://you:new@db/everwatch").unwrap(), "you");
        for other in [
            "postgres://me:new@other/everwatch",
            "postgres://me:new@db/other",
            "postgres://me:new@db:1/everwatch",
        ] {
            let error = told(other).unwrap_err();
            assert!(error.contains("restart the manager") && !error.contains("new@"), "{error}");
        }
        assert!(told("no URL").unwrap_err().contains("postgres://user:password"));
    }
}
