//! The sections `[manager]` and `[store]` of a configuration file.

mod oidc;

pub use oidc::OidcSection;

use crate::excused::Excused;
use crate::settings::{AuthSettings, AutoRebalance, Settings};
use everwatch_core::access::Mode;
use everwatch_core::clock::friendly;
use everwatch_core::id::Name;
use everwatch_core::id::Pool;
use everwatch_core::record::row_policy::RowPolicy;
use everwatch_core::redact::redacted;
use everwatch_door::hosts::Hosts;
use everwatch_door::tls::{Clients, Files};
use everwatch_store::{Store, StoreError};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// The longest wait that outweighs one point of priority.
const AGING_MAX: Duration = Duration::from_secs(86_400);
const TOKEN_LIVES: RangeInclusive<Duration> = Duration::from_secs(60)..=Duration::from_secs(3650 * 86_400);
const PREEMPT_AFTER: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(86_400);

/// What is wrong with a value; names its key and the rule.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct ConfigError(String);

/// `[store]`
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct StoreSection {
    /// `postgres://…` or `sqlite://FILE`.
    pub url: String,
    /// A file that contains the URL; it takes precedence over `url`.
    pub url_file: Option<PathBuf>,
}

/// `[auth]`
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct AuthSection {
    /// Whether requests need a token.
    pub mode: Mode,
    /// A file with the secret of the first administrator.
    pub bootstrap_token_file: Option<PathBuf>,
    /// The longest validity of a token.
    #[serde(with = "friendly")]
    pub token_ttl_max: Duration,
    /// How long a session of the console lasts.
    #[serde(with = "friendly")]
    pub session_ttl: Duration,
    /// How long entries of the audit log are kept.
    #[serde(with = "friendly")]
    pub retention_audit: Duration,
    /// How many requests one principal may send per second; 0: no limit.
    pub requests_per_second: u32,
    /// Client certificates as credentials.
    pub mtls: MtlsSection,
    /// Single sign-on, and tokens of an identity provider.
    pub oidc: OidcSection,
}

/// `[auth.mtls]`
#[derive(Debug, Clone, Default, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct MtlsSection {
    /// The role of each certificate, by its URI or DNS name.
    pub roles: BTreeMap<String, Name>,
}

impl Default for AuthSection {
    fn default() -> Self {
        let auth = AuthSettings::default();
        Self {
            mode: auth.mode,
            bootstrap_token_file: auth.bootstrap_token_file,
            token_ttl_max: auth.token_ttl_max,
            session_ttl: auth.session_ttl,
            retention_audit: auth.retention_audit,
            requests_per_second: auth.requests_per_second.map_or(0, NonZeroU32::get),
            mtls: MtlsSection::default(),
            oidc: OidcSection::default(),
        }
    }
}

impl AuthSection {
    /// The rules that a type cannot state.
    ///
    /// # Errors
    /// Names the key and the rule.
    pub fn check(&self) -> Result<(), ConfigError> {
        let lives = [("auth.token_ttl_max", self.token_ttl_max), ("auth.session_ttl", self.session_ttl)];
        if let Some((key, _)) = lives.into_iter().find(|(_, lives)| !TOKEN_LIVES.contains(lives)) {
            return Err(ConfigError(format!("{key}: 1m to 3650d")));
        }
        self.oidc.settings()?;
        match self.mtls.roles.keys().find(|name| !is_certificate_name(name)) {
            None => Ok(()),
            Some(name) => Err(ConfigError(format!(
                "auth.mtls.roles: `{name}` is not a URI such as spiffe://example.org/ci, or a DNS name in lower case"
            ))),
        }
    }

    /// As a manager that listens there takes it.
    ///
    /// # Errors
    /// If everybody could use the API.
    pub fn settings(&self, listen: SocketAddr) -> Result<AuthSettings, ConfigError> {
        if self.mode == Mode::Off && !listen.ip().is_loopback() {
            let rule = format!(
                "auth.mode: \"off\" is for loopback addresses only, and manager.listen is {listen}: everybody who reaches \
                 it could do everything. Remove auth.mode, and set auth.bootstrap_token_file"
            );
            return Err(ConfigError(rule));
        }
        Ok(AuthSettings {
            mode: self.mode,
            bootstrap_token_file: self.bootstrap_token_file.clone(),
            token_ttl_max: self.token_ttl_max,
            session_ttl: self.session_ttl,
            retention_audit: self.retention_audit,
            mtls_roles: self.mtls.roles.clone(),
            requests_per_second: NonZeroU32::new(self.requests_per_second),
            oidc: self.oidc.settings()?,
        })
    }
}

/// Whether a certificate can have this name.
fn is_certificate_name(name: &str) -> bool {
    let is_printable = name.chars().all(|c| c.is_ascii_graphic()) && !name.is_empty();
    // The names of users of an identity provider begin with it.
    !name.starts_with("oidc:") && is_printable && (name.contains("://") || name.to_ascii_lowercase() == name)
}

/// `[manager]`
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct ManagerSection {
    /// Address of the HTTP API.
    pub listen: String,
    /// PEM file with the certificate of the API; `None`: the API is served without TLS.
    pub tls_cert_file: Option<PathBuf>,
    /// PEM file with the private key of the certificate.
    pub tls_key_file: Option<PathBuf>,
    /// PEM file with the CA of client certificates.
    pub tls_client_ca_file: Option<PathBuf>,
    /// Whether clients without a certificate are refused.
    pub tls_client_required: bool,
    /// Names by which clients reach the API, besides loopback names and addresses.
    pub hosts: Vec<String>,
    /// A service that is silent for this long is suspect.
    #[serde(with = "friendly")]
    pub lost_after: Duration,
    /// Interval at which managers send watermarks.
    #[serde(with = "friendly")]
    pub heartbeat_interval: Duration,
    /// How long an observer may have no holder before a manager republishes it.
    #[serde(with = "friendly")]
    pub orphan_after: Duration,
    /// How long an observer may be refused by all services before it fails.
    #[serde(with = "friendly")]
    pub refused_max: Duration,
    /// The waiting time that counts as much as one point of priority; 0 disables aging.
    #[serde(with = "friendly")]
    pub aging: Duration,
    /// Observers of each pool that are published beyond its free slots: they start without a manager, in the order of
    /// the queue.
    pub admit_ahead: u32,
    /// How long an observer waits for a slot before it gets that of one with a lower priority; 0: it does not.
    #[serde(with = "friendly")]
    pub preempt_after: Duration,
    /// The number of service deaths soon after a start that quarantines the started observer.
    pub quarantine_after: u32,
    /// How long a deleted observer is kept.
    #[serde(with = "friendly")]
    pub retention_deleted: Duration,
    /// How long a completed observer is kept, with its result.
    #[serde(with = "friendly")]
    pub retention_completed: Duration,
    /// How long a failed observer is kept.
    #[serde(with = "friendly")]
    pub retention_failed: Duration,
    /// How long a service that has ended is kept.
    #[serde(with = "friendly")]
    pub retention_services: Duration,
    /// How long events are kept.
    #[serde(with = "friendly")]
    pub retention_events: Duration,
    /// How many events are kept.
    pub events_max: u32,
    /// How long parked messages are kept.
    #[serde(with = "friendly")]
    pub retention_parked: Duration,
    /// How many parked messages are kept.
    pub parked_max: u32,
    /// Pools whose queues managers create when they connect. Managers create the queues of other pools when the first
    /// observer is published to them, and services do if their broker user may. Single pools do not belong here: their queues
    /// have other arguments.
    pub pools: Vec<Pool>,
    /// How many requests one client may send per second; 0: no limit.
    pub requests_per_second: u32,
    /// Whether managers rebalance pools automatically.
    pub rebalance: Rebalance,
    /// Observers of one pool that may move in a minute.
    pub rebalance_moves: u32,
    /// Managers do not rebalance a pool while one of its services is younger than this.
    #[serde(with = "friendly")]
    pub rebalance_min_age: Duration,
}

/// Whether managers rebalance services automatically.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Rebalance {
    /// Only on request.
    Off,
    /// While the services of a pool have uneven load.
    Auto,
}

impl Default for StoreSection {
    fn default() -> Self {
        Self { url: "sqlite://everwatch.db".to_owned(), url_file: None }
    }
}

impl Default for ManagerSection {
    fn default() -> Self {
        let row = RowPolicy::default();
        Self {
            listen: "127.0.0.1:7700".to_owned(),
            tls_cert_file: None,
            tls_key_file: None,
            tls_client_ca_file: None,
            tls_client_required: false,
            hosts: Vec::new(),
            lost_after: Duration::from_secs(15),
            heartbeat_interval: Duration::from_secs(5),
            orphan_after: Duration::from_secs(90),
            refused_max: row.refused_max,
            aging: Duration::ZERO,
            admit_ahead: row.admit_ahead,
            preempt_after: Duration::ZERO,
            quarantine_after: 5,
            retention_deleted: row.retention_deleted,
            retention_completed: row.retention_completed,
            retention_failed: row.retention_failed,
            retention_services: Duration::from_secs(86_400),
            retention_events: Duration::from_secs(7 * 86_400),
            events_max: 100_000,
            retention_parked: Duration::from_secs(30 * 86_400),
            parked_max: 10_000,
            pools: vec![Pool::default()],
            requests_per_second: 10_000,
            rebalance: Rebalance::Off,
            rebalance_moves: 100,
            rebalance_min_age: Duration::from_secs(60),
        }
    }
}

impl ManagerSection {
    /// The rules that a type cannot state.
    ///
    /// # Errors
    /// Names the key and the rule.
    pub fn check(&self) -> Result<(), ConfigError> {
        self.tls()?;
        let rules = [
            (
                self.quarantine_after >= 2,
                "manager.quarantine_after: must be at least 2, because a single death does not identify an observer",
            ),
            (
                self.preempt_after.is_zero() || PREEMPT_AFTER.contains(&self.preempt_after),
                "manager.preempt_after: 1s to 1d, or 0s",
            ),
            (self.aging <= AGING_MAX, "manager.aging: at most 1d"),
            (self.rebalance_moves >= 1, "manager.rebalance_moves: at least 1"),
            (self.orphan_after >= self.lost_after, "manager.orphan_after: at least manager.lost_after"),
        ];
        let broken = rules.into_iter().find(|(holds, _)| !holds);
        broken.map_or(Ok(()), |(_, rule)| Err(ConfigError(rule.to_owned())))
    }

    /// The certificate of the API, if it has one.
    ///
    /// # Errors
    /// Names the key that is missing.
    pub fn tls(&self) -> Result<Option<Files>, ConfigError> {
        let wrong = |rule: &str| Err(ConfigError(rule.to_owned()));
        if self.tls_client_required && self.tls_client_ca_file.is_none() {
            return wrong(
                "manager.tls_client_required: set manager.tls_client_ca_file too, the CA of the client certificates",
            );
        }
        let (certificate, key) = match (self.tls_cert_file.clone(), self.tls_key_file.clone()) {
            (Some(certificate), Some(key)) => (certificate, key),
            (Some(_), None) => {
                return wrong(
                    "manager.tls_cert_file: set manager.tls_key_file too, the file with its private key",
                );
            }
            (None, Some(_)) => {
                return wrong(
                    "manager.tls_key_file: set manager.tls_cert_file too, the file with its certificate",
                );
            }
            (None, None) if self.tls_client_ca_file.is_some() => {
                return wrong(
                    "manager.tls_client_ca_file: set manager.tls_cert_file and manager.tls_key_file too: without TLS, \
                     no client presents a certificate",
                );
            }
            (None, None) => return Ok(None),
        };
        let required = self.tls_client_required;
        let clients = self.tls_client_ca_file.clone().map(|ca| Clients { ca, required });
        Ok(Some(Files { certificate, key, clients }))
    }

    /// Publish leases, resends and retention of observers.
    #[must_use]
    pub fn row_policy(&self) -> RowPolicy {
        RowPolicy {
            refused_max: self.refused_max,
            admit_ahead: self.admit_ahead,
            aging: Some(self.aging).filter(|aging| !aging.is_zero()),
            retention_deleted: self.retention_deleted,
            retention_completed: self.retention_completed,
            retention_failed: self.retention_failed,
            ..RowPolicy::default()
        }
    }

    /// As a manager takes it. `own`: the name of this host, by which other machines reach the manager; only the
    /// administrator sets it.
    ///
    /// # Errors
    /// Names the key and the rule.
    pub fn settings(
        &self,
        (prefix, state_queues): (&str, u16),
        auth: &AuthSection,
        own: Option<String>,
    ) -> Result<Settings, ConfigError> {
        let listen = self.listen.parse().map_err(|_| {
            let text = format!(
                "manager.listen: `{}` is not an address with a port, such as 127.0.0.1:7700",
                self.listen
            );
            ConfigError(text)
        })?;
        let hosts = Hosts::new(self.hosts.iter().cloned()).map_err(|wrong| {
            ConfigError(format!(
                "manager.hosts: `{wrong}` is not valid: write a host name without a port, `*.example.org`, or `*`"
            ))
        })?;
        if !auth.mtls.roles.is_empty() && self.tls_client_ca_file.is_none() {
            let rule = "auth.mtls.roles: set manager.tls_client_ca_file, manager.tls_cert_file and \
                        manager.tls_key_file too: without them, no client certificate is verified";
            return Err(ConfigError(rule.to_owned()));
        }
        Ok(Settings {
            auth: auth.settings(listen)?,
            listen,
            tls: self.tls()?,
            hosts: hosts.and(own),
            prefix: prefix.to_owned(),
            state_queues,
            lost_after: self.lost_after,
            orphan_after: self.orphan_after,
            preempt_after: Some(self.preempt_after).filter(|after| !after.is_zero()),
            quarantine_after: self.quarantine_after as usize,
            excused: Excused::default(),
            dev: false,
            retention_events: self.retention_events,
            events_max: self.events_max as usize,
            retention_parked: self.retention_parked,
            parked_max: self.parked_max as usize,
            requests_per_second: NonZeroU32::new(self.requests_per_second),
            heartbeat_interval: self.heartbeat_interval,
            row: self.row_policy(),
            pools: self.pools.clone(),
            retention_services: self.retention_services,
            rebalance: AutoRebalance {
                on: self.rebalance == Rebalance::Auto,
                moves_per_minute: self.rebalance_moves,
                min_age: self.rebalance_min_age,
            },
            ..Settings::default()
        })
    }
}

impl StoreSection {
    /// Reads the URL without opening the database.
    ///
    /// # Errors
    /// Names the key and the rule. The error holds no password.
    pub fn check(&self) -> Result<(), ConfigError> {
        let shown = redacted(&self.url);
        everwatch_store::check_url(&self.url)
            .map_err(|error| ConfigError(format!("store.url = {shown}: {error}")))
    }

    /// Opens the database. While it cannot be reached, retries; `None` after `stop`.
    ///
    /// # Errors
    /// If an operator must act. No message holds a password.
    pub async fn open(
        &self,
        policy: RowPolicy,
        stop: &CancellationToken,
    ) -> Result<Option<Arc<dyn Store>>, ConfigError> {
        let (shown, file) = (redacted(&self.url), self.url_file.as_deref());
        let mut pause = Duration::from_millis(500);
        loop {
            match everwatch_store::open_following(&self.url, file, policy.clone()).await {
                Ok(store) => return Ok(Some(store)),
                Err(StoreError::Unavailable(why)) => {
                    tracing::warn!(store = shown, error = why, "database unreachable; retrying");
                    if stop.run_until_cancelled(tokio::time::sleep(pause)).await.is_none() {
                        return Ok(None);
                    }
                    pause = (pause * 2).min(Duration::from_secs(10));
                }
                Err(error) => return Err(ConfigError(format!("store.url = {shown}: {error}"))),
            }
        }
    }
}
