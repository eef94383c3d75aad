//! Current and impending problems of a deployment: facts in, findings out, most severe first. Each finding states
//! the problem, why it matters, and the cure. This module does no I/O: a source that did not answer is a fact too.

mod broker;
mod capacity;
mod codes;
mod fleet;
mod observers;
mod queue;
mod stalls;
mod state_queues;
mod tls;

pub use codes::CODES;
pub use tls::DatabaseLink;

use crate::capacity::maintenance::{OrderBook, ReportedSlots};
use crate::clock::Timestamp;
use crate::id::Pool;
use crate::record::row::Row;
use crate::record::service::ServiceRow;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;
use uuid::Uuid;

/// The severity of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// For information; no action is needed.
    Info,
    /// Harms later, or as soon as something else fails.
    Warning,
    /// Observers do not run, or will be lost or restarted.
    Critical,
}

/// One problem that an operator should know about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// Stable, for use by programs.
    pub code: &'static str,
    pub severity: Severity,
    /// The affected component.
    pub subject: String,
    pub what: String,
    pub why: String,
    pub cure: String,
}

/// All known facts about a deployment.
#[derive(Debug, Clone)]
pub struct Facts {
    pub now: Timestamp,
    pub manager: ManagerFacts,
    /// RabbitMQ; `None` if the broker is part of this process.
    pub server: Option<Server>,
    /// The manager's session with the broker, or why there is none.
    pub session: Result<SessionFacts, String>,
    /// The schema version of the database, if it reports one.
    pub schema: Option<Schema>,
    /// The contents of the database, or why it does not answer.
    pub fleet: Result<FleetFacts, String>,
}

/// The schema version of a database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Schema {
    /// The newest migration that was applied; 0 if none was.
    pub found: i64,
    /// The newest migration that this program knows.
    pub known: i64,
}

/// The manager that answers the request.
#[derive(Debug, Clone, Default)]
pub struct ManagerFacts {
    /// The address that it listens on.
    pub listen: Option<SocketAddr>,
    /// Whether it serves HTTPS.
    pub tls: bool,
    /// How it reaches the database; `None`: the database is a file.
    pub database: Option<DatabaseLink>,
    /// Age of the newest watermark that it has read from the state queue that lags most.
    pub state_lag: Duration,
    /// How long it waits for a service that takes an observer which services refuse.
    pub refused_max: Duration,
    /// Events that it failed to store.
    pub lost_events: u64,
    /// Its host's clock minus the database's, in ms.
    pub clock_ahead_ms: i64,
}

/// A RabbitMQ server as its clients see it.
#[derive(Debug, Clone, PartialEq)]
pub struct Server {
    /// Host and port.
    pub place: String,
    pub vhost: String,
    /// Such as "3.10.8"; `None` if the server does not report it.
    pub version: Option<String>,
    /// Whether the default account `guest` is used beyond the loopback interface.
    pub guest_over_network: bool,
    /// Whether a node beyond the loopback interface is reached without TLS.
    pub plain_over_network: bool,
    /// The configured heartbeat interval.
    pub heartbeat: Duration,
    pub management: Management,
}

/// RabbitMQ's own HTTP API.
#[derive(Debug, Clone, PartialEq)]
pub enum Management {
    /// Its address is not configured.
    Unset,
    /// It does not answer; contains the reason.
    Silent(String),
    ManagementSnapshot(ManagementSnapshot),
}

/// The state of the broker as RabbitMQ's own HTTP API reports it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ManagementSnapshot {
    pub queues: Vec<QueueFacts>,
    pub nodes: Vec<NodeFacts>,
}

/// A queue that must keep every message until it is acknowledged.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct QueueFacts {
    pub name: String,
    /// Arguments that differ from those that Everwatch declares.
    pub differs: Vec<Difference>,
    pub policy: Option<String>,
    pub operator_policy: Option<String>,
    /// The effective definition of both policies.
    pub definition: Map<String, Value>,
    /// The shortest acknowledgement time-out of its consumers, in ms.
    pub consumer_timeout_ms: Option<u64>,
}

/// An argument of a queue.
#[derive(Debug, Clone, PartialEq)]
pub struct Difference {
    pub argument: String,
    pub ours: Value,
    /// Null: not set.
    pub theirs: Value,
}

/// A node of the broker.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeFacts {
    pub name: String,
    pub running: bool,
    pub memory_alarm: bool,
    pub disk_alarm: bool,
    /// Nodes that it cannot reach.
    pub partitions: Vec<String>,
}

/// The manager's current session with the broker.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SessionFacts {
    /// Publishers are blocked.
    pub blocked: bool,
    /// The negotiated interval.
    pub heartbeat: Option<Duration>,
    /// Queues whose declaration the broker refuses, with its error message.
    pub refused: Vec<(String, String)>,
    pub surplus: Vec<SurplusQueue>,
}

/// A state queue beyond the configured number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SurplusQueue {
    pub name: String,
    /// The number of state queues in the configuration of the manager.
    pub configured: u16,
    /// Messages that wait.
    pub ready: u32,
    pub consumers: u32,
}

/// The relevant contents of the database.
#[derive(Debug, Clone, Default)]
pub struct FleetFacts {
    /// The living services.
    pub services: Vec<ServiceRow>,
    pub orders: OrderBook,
    /// The pools whose admission is paused.
    pub paused_pools: BTreeSet<Pool>,
    /// The reason for safe mode, if safe mode is on.
    pub safe_mode: Option<String>,
    /// The number of parked messages.
    pub parked: u64,
    /// The pools whose work queues only one service at a time may consume.
    pub single_pools: BTreeSet<Pool>,
    /// The slots that observers need, by pool.
    pub needed: BTreeMap<Pool, u64>,
    /// What runs report about slots, if there are drains.
    pub reported: ReportedSlots,
    /// The oldest observers that wait for a slot.
    pub waiting: Vec<Row>,
    /// The oldest running observers.
    pub running: Vec<Row>,
    /// Living services whose predecessor lost its session to the acknowledgement timeout: name and cure.
    pub timed_out: Vec<(String, String)>,
    /// Database rows that the manager cannot read.
    pub unreadable: Vec<UnreadableRow>,
    /// The services that registered within [`LATELY`], living or not.
    pub registered_lately: Vec<ServiceRow>,
    /// The services that ended within [`LATELY`], but for those that a person killed or froze.
    pub ended_lately: Vec<ServiceRow>,
    /// The services that a person killed within [`LATELY`] to try out failover: they come back by themselves. Also those whose loss no
    /// manager has noticed yet.
    pub killed_by_hand: Vec<ServiceRow>,
    /// The services that a person froze to try out failover: they live, or were lost within [`LATELY`].
    pub frozen_by_hand: Vec<ServiceRow>,
    /// Observers whose health is `restarting`.
    pub restarting: SomeRows,
    /// Observers that failed.
    pub failed: SomeRows,
}

/// The oldest rows of a category, and the total number of rows in it.
#[derive(Debug, Clone, Default)]
pub struct SomeRows {
    pub rows: Vec<Row>,
    pub total: u64,
}

/// A stored row that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnreadableRow {
    pub table: String,
    pub id: Uuid,
    pub why: String,
    pub cure: String,
}

/// The window in which lost sessions and lost services are counted.
pub const LATELY: Duration = Duration::from_secs(600);

/// All findings, most severe first.
#[must_use]
pub fn diagnose(facts: &Facts) -> Vec<Finding> {
    let mut findings = broker::findings(facts);
    match &facts.fleet {
        Ok(fleet) => {
            findings.extend(fleet::findings(fleet, facts));
            findings.extend(observers::findings(fleet, facts));
        }
        Err(why) => findings.push(Finding {
            code: "database-unreachable",
            severity: Severity::Critical,
            subject: "database".to_owned(),
            what: format!("the database does not answer: {why}"),
            why: "observers keep running and moving, but nothing can be created, changed or shown".to_owned(),
            cure: "start the database, or correct `[store] url` and restart the manager".to_owned(),
        }),
    }
    findings.extend(facts.schema.and_then(of_schema));
    findings.extend(of_manager(&facts.manager));
    findings.extend(tls::findings(facts));
    debug_assert!(
        findings.iter().all(|it| CODES.iter().any(|(code, _)| *code == it.code)),
        "a code is missing in doctor::CODES"
    );
    findings.sort_by(|a, b| (b.severity, a.code, &a.subject).cmp(&(a.severity, b.code, &b.subject)));
    findings
}

/// Managers migrate the schema when they start, so a different version was put in place under a running manager.
fn of_schema(Schema { found, known }: Schema) -> Option<Finding> {
    let (code, severity, why, cure) = match found.cmp(&known) {
        Ordering::Equal => return None,
        Ordering::Greater => (
            "schema-newer",
            Severity::Warning,
            "a newer manager has migrated the schema: this manager's queries may fail, and it cannot start \
             again",
            "upgrade this manager to the version of the other managers",
        ),
        Ordering::Less => (
            "schema-older",
            Severity::Critical,
            "an older database has replaced the current one: this manager's queries fail or are wrong",
            "stop all managers, run `everwatch migrate` (with `--restored` after a restore), and start them",
        ),
    };
    Some(Finding {
        code,
        severity,
        subject: "database".to_owned(),
        what: format!("the schema has version {found}, but this manager requires version {known}"),
        why: why.to_owned(),
        cure: cure.to_owned(),
    })
}

/// Each manager sends a watermark every 5 s; one that is older than this means that reports wait.
const STATE_LAG_MAX: Duration = Duration::from_secs(15);

fn of_manager(manager: &ManagerFacts) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut warn = |code, what: String, why: &str, cure: &str| {
        let (why, cure, subject) = (why.to_owned(), cure.to_owned(), "this manager".to_owned());
        findings.push(Finding { code, severity: Severity::Warning, subject, what, why, cure });
    };
    if manager.state_lag > STATE_LAG_MAX {
        warn(
            "state-queue-lag",
            format!("this manager reads a state queue with a lag of {} s", manager.state_lag.as_secs()),
            "the API shows outdated state, and no service is declared lost until the lag is gone",
            "check the load of the database and this manager's log; with PostgreSQL, start another manager",
        );
    }
    if manager.lost_events > 0 {
        warn(
            "events-lost",
            format!("{} events were not stored since this manager started", manager.lost_events),
            "the history has gaps: events occurred faster than the database stored them",
            "give the database more resources; the metric `everwatch_lost_events_total` counts them",
        );
    }
    findings
}

/// The number of names in one finding, and of findings about one row each.
const NAMED_MAX: usize = 5;

/// The first of these names, and how many more there are.
fn listed(names: &[String], total: u64) -> String {
    let shown = names.iter().take(NAMED_MAX).cloned().collect::<Vec<_>>();
    let more = total.saturating_sub(shown.len() as u64);
    let more = if more == 0 { String::new() } else { format!(" and {more} more") };
    format!("{}{more}", shown.join(", "))
}

#[cfg(test)]
#[path = "doctor/tests.rs"]
mod tests;
