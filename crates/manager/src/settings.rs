//! What a manager can be told: values with defaults, no sources.

use everwatch_core::id::Pool;
use everwatch_core::record::row::RowPolicy;
use everwatch_door::hosts::Hosts;
use std::net::{Ipv4Addr, SocketAddr};
use std::num::NonZeroU32;
use std::time::Duration;

/// Everything a manager can be told.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Where the HTTP API listens (default `127.0.0.1:7700`; port 0 takes a free one).
    pub listen: SocketAddr,
    /// Names by which clients reach the API, besides loopback names and addresses (default none).
    pub hosts: Hosts,
    /// Separates deployments that share a vhost (default `everwatch.`).
    pub prefix: String,
    /// A service that is silent for this long is suspect (default 15 s).
    pub lost_after: Duration,
    /// How long an observer may have no holder before a manager republishes it (default 90 s).
    pub orphan_after: Duration,
    /// So many deaths of a service soon after its start fail an observer (default 5).
    pub quarantine_after: usize,
    /// How often services heartbeat, and managers mark the queues (default 5 s).
    pub heartbeat_interval: Duration,
    /// Leases, repeats and retention of observers.
    pub row: RowPolicy,
    /// How many requests one client may send per second; after a pause, twice as many at once. `None`: no limit
    /// (default 10,000).
    pub requests_per_second: Option<NonZeroU32>,
    /// How long an ended service stays readable (default 1 day).
    pub retention_services: Duration,
    /// How long, and how many, events are kept (defaults 7 days and 100,000).
    pub retention_events: Duration,
    pub events_max: usize,
    /// How long, and how many, parked messages are kept (defaults 30 days and 10,000).
    pub retention_parked: Duration,
    pub parked_max: usize,
    /// Take over the observers of another database, where the broker holds some (default no).
    pub adopt: bool,
    /// Whether services are made evenly used without being asked (default no).
    pub rebalance: AutoRebalance,
    /// Pools whose queues are there from the start (default `default`).
    pub pools: Vec<Pool>,
}

/// Rebalancing without being asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AutoRebalance {
    pub on: bool,
    /// Observers of one pool that may move in a minute (default 100).
    pub moves_per_minute: u32,
    /// No service of the pool may be younger (default 1 minute).
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
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 7700)),
            hosts: Hosts::default(),
            prefix: "everwatch.".to_owned(),
            lost_after: Duration::from_secs(15),
            orphan_after: Duration::from_secs(90),
            quarantine_after: 5,
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
