//! The settings of a manager and their defaults. The program reads them from files and the environment.

use crate::excused::Excused;
use everwatch_core::access::{Mode, Oidc};
use everwatch_core::doctor::DatabaseLink;
use everwatch_core::id::{Name, Pool};
use everwatch_core::record::row_policy::RowPolicy;
use everwatch_door::hosts::Hosts;
use everwatch_door::tls::Files;
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

/// Authentication of the clients of the API.
#[derive(Debug, Clone)]
pub struct AuthSettings {
    /// Whether requests need a token (default [`Mode::Auto`]).
    pub mode: Mode,
    /// A file with the secret of the first administrator (default none).
    pub bootstrap_token_file: Option<PathBuf>,
    /// The longest validity of a token (default 365 days).
    pub token_ttl_max: Duration,
    /// How long a session of the console lasts (default 12 h).
    pub session_ttl: Duration,
    /// How long entries of the audit log are kept (default 365 days).
    pub retention_audit: Duration,
    /// The role of each client certificate, by its URI or DNS name (default none).
    pub mtls_roles: BTreeMap<String, Name>,
    /// How many requests one principal may send per second; after a pause, twice as many at once. `None`: no limit
    /// (default 2,000).
    pub requests_per_second: Option<NonZeroU32>,
    /// The identity provider (default none).
    pub oidc: Option<OidcSettings>,
}

/// How a manager reaches the identity provider.
#[derive(Debug, Clone)]
pub struct OidcSettings {
    /// Whose tokens are accepted, and the roles that they give.
    pub policy: Oidc,
    /// What a login requests besides `openid`.
    pub scopes: Vec<String>,
    /// A file with the secret of the client; `None`: the client has none.
    pub client_secret_file: Option<PathBuf>,
    /// A PEM file with the CA of the provider; `None`: those that the machine trusts.
    pub ca_file: Option<PathBuf>,
}

impl Default for AuthSettings {
    fn default() -> Self {
        Self {
            mode: Mode::Auto,
            bootstrap_token_file: None,
            token_ttl_max: Duration::from_secs(365 * 86_400),
            session_ttl: Duration::from_secs(12 * 3600),
            retention_audit: Duration::from_secs(365 * 86_400),
            mtls_roles: BTreeMap::new(),
            requests_per_second: NonZeroU32::new(2_000),
            oidc: None,
        }
    }
}

/// Settings of one manager.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Authentication of the clients of the API.
    pub auth: AuthSettings,
    /// Where the HTTP API listens (default `127.0.0.1:7700`; port 0 takes a free one).
    pub listen: SocketAddr,
    /// The certificate of the HTTP API (default none: it serves HTTP).
    pub tls: Option<Files>,
    /// Names by which clients reach the API, besides loopback names and addresses (default none).
    pub hosts: Hosts,
    /// How the manager reaches the database, for the doctor (default `None`: the database is a file).
    pub database: Option<DatabaseLink>,
    /// Separates deployments that share a vhost (default `everwatch.`).
    pub prefix: String,
    /// The number of state queues; at least the number that services use (default 1).
    pub state_queues: u16,
    /// A service that is silent for this long is suspect (default 15 s).
    pub lost_after: Duration,
    /// How long an observer may have no holder before a manager republishes it (default 90 s).
    pub orphan_after: Duration,
    /// How long an observer must have waited for a slot before it gets that of one with a lower priority (default `None`:
    /// managers end no run for another observer).
    pub preempt_after: Option<Duration>,
    /// The number of service deaths soon after a start that quarantines the started observer (default 5).
    pub quarantine_after: usize,
    /// Services whose deaths quarantine no observer (default: none).
    pub excused: Excused,
    /// Whether `everwatch dev` runs the manager, so that users can kill services (default no).
    pub dev: bool,
    /// Interval at which managers send watermarks (default 5 s).
    pub heartbeat_interval: Duration,
    /// Publish leases, resends and retention of observers.
    pub row: RowPolicy,
    /// How many requests one client may send per second; after a pause, twice as many at once. `None`: no limit
    /// (default 10,000).
    pub requests_per_second: Option<NonZeroU32>,
    /// How long managers keep a service that has ended (default 1 day).
    pub retention_services: Duration,
    /// How long, and how many, events are kept (defaults 7 days and 100,000).
    pub retention_events: Duration,
    pub events_max: usize,
    /// How long, and how many, parked messages are kept (defaults 30 days and 10,000).
    pub retention_parked: Duration,
    pub parked_max: usize,
    /// Take over observers in the broker that belong to another database (default no).
    pub adopt: bool,
    /// Whether managers rebalance pools automatically (default no).
    pub rebalance: AutoRebalance,
    /// Pools whose queues the manager declares when it starts (default `default`).
    pub pools: Vec<Pool>,
}

/// Automatic rebalancing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AutoRebalance {
    pub on: bool,
    /// Observers of one pool that may move in a minute (default 100).
    pub moves_per_minute: u32,
    /// Managers do not rebalance a pool while one of its services is younger than this (default 1 minute).
    pub min_age: Duration,
}

impl Default for AutoRebalance {
    fn default() -> Self {
        Self { on: false, moves_per_minute: 100, min_age: Duration::from_secs(60) }
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            auth: AuthSettings::default(),
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 7700)),
            tls: None,
            hosts: Hosts::default(),
            database: None,
            prefix: "everwatch.".to_owned(),
            state_queues: 1,
            lost_after: Duration::from_secs(15),
            orphan_after: Duration::from_secs(90),
            preempt_after: None,
            quarantine_after: 5,
            excused: Excused::default(),
            dev: false,
            heartbeat_interval: Duration::from_secs(5),
            requests_per_second: NonZeroU32::new(10_000),
            row: RowPolicy::default(),
            retention_services: Duration::from_secs(86_400),
            retention_events: Duration::from_secs(7 * 86_400),
            events_max: 100_000,
            retention_parked: Duration::from_secs(30 * 86_400),
            parked_max: 10_000,
            adopt: false,
            rebalance: AutoRebalance::default(),
            pools: vec![Pool::default()],
        }
    }
}
