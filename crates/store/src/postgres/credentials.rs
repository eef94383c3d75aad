//! A new password of the database, without a restart: the file with the URL is read again, and later connections use
//! what it says. PostgreSQL checks a password when a connection begins, so existing ones stay.

use super::options;
use sqlx::PgPool;
use sqlx::postgres::PgConnectOptions;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::task::JoinSet;
use url::Url;

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

async fn follow(file: PathBuf, url: String, pool: PgPool) {
    let shown = file.display();
    // A text that was refused is logged once, and changes nothing.
    let (mut used, mut seen) = (url.clone(), Ok(url));
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        let read = tokio::fs::read_to_string(&file).await;
        let newer = read.map(|text| text.trim().to_owned()).map_err(|error| error.to_string());
        if newer == seen {
            continue;
        }
        match newer.clone().and_then(|url| Ok((renewed(&used, &url)?, url))) {
            Ok((_, url)) if url == used => {}
            Ok((options, url)) => {
                tracing::info!(file = %shown, "the credentials of the database have changed: new connections use them");
                pool.set_connect_options(options);
                used = url;
            }
            Err(error) => tracing::warn!(file = %shown, error, "new database URL ignored"),
        }
        seen = newer;
    }
}

/// The options of the new URL, which may differ in user and password only. The error has no password.
fn renewed(former: &str, newer: &str) -> Result<PgConnectOptions, String> {
    let unreadable = |_| "it cannot be read: expected postgres://user:password@host/database".to_owned();
    let rest = |url: &str| {
        let mut url = Url::parse(url).map_err(unreadable)?;
        let _has_host = url.set_username("").and_then(|()| url.set_password(None));
        Ok::<_, String>(url)
    };
    if rest(former)? != rest(newer)? {
        return Err("it differs in more than user and password: restart the manager to use it".to_owned());
    }
    options(newer)
        .map_err(|_| "it cannot be read: expected postgres://user:password@host/database".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_credentials_may_change() {
        let former = "postgres://me:old@db:5432/everwatch?sslmode=require";
        let told = |newer: &str| renewed(former, newer).map(|it| it.get_username().to_owned());
        assert_eq!(told("postgres://you:new@db:5432/everwatch?sslmode=require").unwrap(), "you");
        for other in [
            "postgres://me:new@other:5432/everwatch?sslmode=require",
            "postgres://me:new@db:5432/other?sslmode=require",
            "postgres://me:new@db:5432/everwatch",
            "postgres://me:new@db:1/everwatch?sslmode=require",
        ] {
            let error = told(other).unwrap_err();
            assert!(error.contains("restart the manager") && !error.contains("new@"), "{error}");
        }
        for broken in ["", "postgres"] {
            assert!(told(broken).unwrap_err().contains("postgres://user:password"), "{broken}");
        }
    }
}
