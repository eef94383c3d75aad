//! Which server a spec means, how to reach it, and what its errors mean.

use super::PostgresListen;
use super::permit::PostgresSettings;
use everwatch_core::redact::{redacted, without_credentials};
use percent_encoding::percent_decode_str;
use reqwest::Url;
use sqlx::postgres::{PgConnectOptions, PgListener, PgPoolOptions, PgSslMode};
use std::time::Duration;

const DEFAULT_PORT: u16 = 5432;

/// Why a connection ended, or why there is none.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Lost {
    /// Another connection may help.
    Passes(String),
    /// The server refuses the user or the statement: its operator or the spec must change.
    Final(String),
}

impl From<sqlx::Error> for Lost {
    fn from(error: sqlx::Error) -> Self {
        let Some(refusal) = error.as_database_error() else {
            return Self::Passes(format!("no connection: {error}"));
        };
        let told = refusal.message().to_owned();
        // Connections, resources, operators and the system itself pass; the spec, the user and the data do not.
        let class = refusal.code().map(|code| code.chars().take(2).collect::<String>());
        match class.as_deref() {
            Some("08" | "40" | "53" | "55" | "57" | "58" | "XX") => Self::Passes(told),
            _ => Self::Final(told),
        }
    }
}

/// The checked server.
pub(super) struct Target {
    options: PgConnectOptions,
    /// The URL without its secrets.
    pub(super) shown: String,
}

impl Target {
    /// # Errors
    /// Names the member of the spec and the cure.
    pub(super) fn new(spec: &PostgresListen, servers: &PostgresSettings) -> Result<Self, String> {
        let hidden = redacted(&spec.url);
        let wrong =
            |what: &str| format!("`url`: `{hidden}` {what}; write postgres://user@host:5432/database");
        let url: Url = spec.url.parse().map_err(|_| wrong("is not a URL"))?;
        if !matches!(url.scheme(), "postgres" | "postgresql") {
            return Err(wrong("does not begin with postgres://"));
        }
        let host = url.host_str().filter(|it| !it.is_empty()).ok_or_else(|| wrong("names no host"))?;
        let host = decoded(host.trim_start_matches('[').trim_end_matches(']'));
        let user = Some(decoded(url.username()))
            .filter(|it| !it.is_empty())
            .ok_or_else(|| wrong("names no user"))?;
        let database = decoded(url.path().trim_start_matches('/'));
        if database.is_empty() {
            return Err(wrong("names no database"));
        }
        let port = url.port().unwrap_or(DEFAULT_PORT);
        servers.ensure_allowed(&host, port)?;
        // The variables of the service's environment and its password file are not for specs: everything is set here.
        let password = url.password().map(decoded).unwrap_or_default();
        let options = PgConnectOptions::new_without_pgpass()
            .host(&host)
            .port(port)
            .username(&user)
            .password(&password)
            .database(&database)
            .application_name("everwatch")
            .options([("default_transaction_read_only", "on")]);
        Ok(Self { options: parameters(options, &url)?, shown: without_credentials(url.as_str()) })
    }

    pub(super) fn with_password(mut self, password: Option<String>) -> Self {
        if let Some(password) = password {
            self.options = self.options.password(&password);
        }
        self
    }

    /// # Errors
    /// If the server is not reached within the time limit, or refuses.
    pub(super) async fn connect(&self, timeout: Duration) -> Result<PgListener, Lost> {
        let pool = PgPoolOptions::new()
            .max_connections(1)
            .acquire_timeout(timeout)
            .idle_timeout(None)
            .max_lifetime(None)
            .test_before_acquire(false)
            .connect_lazy_with(self.options.clone());
        let mut listener = super::within(timeout, PgListener::connect_with(&pool)).await?;
        listener.eager_reconnect(false);
        Ok(listener)
    }
}

fn parameters(mut options: PgConnectOptions, url: &Url) -> Result<PgConnectOptions, String> {
    options = options.ssl_mode(PgSslMode::Prefer);
    for (name, value) in url.query_pairs() {
        options = match &*name {
            "sslmode" => {
                let mode: PgSslMode = value.parse().map_err(|_| {
                    format!("`url`: `{value}` is no sslmode; write disable, prefer, require, verify-ca or verify-full")
                })?;
                options.ssl_mode(mode)
            }
            "application_name" => options.application_name(&value),
            _ => {
                return Err(format!(
                    "`url`: parameter `{name}` is not supported; use sslmode and application_name"
                ));
            }
        };
    }
    Ok(options)
}

fn decoded(text: &str) -> String {
    percent_decode_str(text).decode_utf8_lossy().into_owned()
}
