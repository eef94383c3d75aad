//! What is wrong with a deployment, or soon will be: facts in, findings out, the worst first. Each finding says
//! what is so, why it matters, and what cures it. It asks nobody: whatever could not be seen is a fact as well.

mod broker;
mod capacity;
mod fleet;
mod observers;
mod queue;

pub use capacity::losses_survived;

use crate::clock::Timestamp;
use crate::fleet::OrderBook;
use crate::id::Pool;
use crate::row::Row;
use crate::service::ServiceRow;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;
use uuid::Uuid;

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// Good to know; nothing has to be done.
    Info,
    /// It will hurt some day, or when something else goes wrong.
    Warning,
    /// Observers do not run, or will be lost or restarted.
    Critical,
}

/// One thing that a person should know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// Stable, for programs.
    pub code: &'static str,
    pub severity: Severity,
    /// What it is about.
    pub subject: String,
    pub what: String,
    pub why: String,
    pub cure: String,
}

/// Everything that is known of a deployment.
#[derive(Debug, Clone)]
pub struct Facts {
    pub now: Timestamp,
    pub manager: ManagerFacts,
    /// RabbitMQ; `None`: the broker is a part of this process.
    pub server: Option<Server>,
    /// Of the manager with the broker, or why there is none.
    pub session: Result<SessionFacts, String>,
    /// Of the database's tables, if it tells.
    pub schema: Option<Schema>,
    /// What the database holds, or why it does not answer.
    pub fleet: Result<FleetFacts, String>,
}

/// How new the tables of a database are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Schema {
    /// The newest change that was made to them; 0: none.
    pub found: i64,
    /// The newest that this program knows.
    pub known: i64,
}

/// The manager that answers.
#[derive(Debug, Clone, Default)]
pub struct ManagerFacts {
    /// Where it listens.
    pub listen: Option<SocketAddr>,
    /// Age of the newest mark that it has read from the state queue.
    pub state_lag: Duration,
    /// Events that it could not keep.
    pub lost_events: u64,
    /// Its host's clock minus the database's, in ms.
    pub clock_ahead_ms: i64,
}

/// A RabbitMQ as its users see it from outside.
#[derive(Debug, Clone, PartialEq)]
pub struct Server {
    /// Host and port.
    pub place: String,
    pub vhost: String,
    /// As "3.10.8"; `None` if it does not tell.
    pub version: Option<String>,
    /// Whether the account that everybody knows is used beyond the loopback interface.
    pub guest_over_network: bool,
    /// As configured here.
    pub heartbeat: Duration,
    pub management: Management,
}

/// RabbitMQ's own HTTP API.
#[derive(Debug, Clone, PartialEq)]
pub enum Management {
    /// Nobody said where it is.
    Unset,
    /// It does not answer; says why.
    Silent(String),
    Told(Told),
}

/// What RabbitMQ's own HTTP API tells.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Told {
    pub queues: Vec<QueueFacts>,
    pub nodes: Vec<NodeFacts>,
}

/// A queue that is to keep everything until it is acknowledged.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct QueueFacts {
    pub name: String,
    /// Arguments that are not as ours.
    pub differs: Vec<Difference>,
    pub policy: Option<String>,
    pub operator_policy: Option<String>,
    /// What both policies together say.
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
    /// Nodes that it has lost sight of.
    pub partitions: Vec<String>,
}

/// The present session of the manager.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SessionFacts {
    /// Publishers are blocked.
    pub blocked: bool,
    /// As both sides have agreed.
    pub heartbeat: Option<Duration>,
    /// Queues whose declaration the broker refuses, with its words.
    pub refused: Vec<(String, String)>,
}

/// What the database holds.
#[derive(Debug, Clone, Default)]
pub struct FleetFacts {
    /// Those that live.
    pub services: Vec<ServiceRow>,
    pub orders: OrderBook,
    /// Why conclusions from silence are switched off, if they are.
    pub hold: Option<String>,
    /// Messages that nobody could read.
    pub parked: u64,
    /// Observers that are to have a slot, by pool.
    pub wanted: BTreeMap<Pool, u64>,
    /// Of those that wait for a slot: the oldest.
    pub waiting: Vec<Row>,
    /// Of those that run: the oldest.
    pub running: Vec<Row>,
    /// Living services that come after one which the acknowledgement time-out has ended: name and cure.
    pub timed_out: Vec<(String, String)>,
    /// Rows of the database that the manager cannot read.
    pub unreadable: Vec<UnreadableRow>,
    /// Those that were born within [`LATELY`], whether they live or not.
    pub born_lately: Vec<ServiceRow>,
    /// Those that ended within [`LATELY`].
    pub ended_lately: Vec<ServiceRow>,
    /// Observers whose health is `restarting`.
    pub restarting: SomeRows,
    /// Observers that failed.
    pub failed: SomeRows,
}

/// The oldest of a sort, and how many there are in all.
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

/// So many lost sessions are counted together.
pub const LATELY: Duration = Duration::from_secs(600);

/// Everything worth telling, the worst first.
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
            why: "observers go on and move, but nothing can be created, changed or shown".to_owned(),
            cure: "start it, or correct `[store] url` and restart the manager".to_owned(),
        }),
    }
    findings.extend(facts.schema.and_then(of_schema));
    findings.extend(of_manager(&facts.manager));
    findings.sort_by(|a, b| (b.severity, a.code, &a.subject).cmp(&(a.severity, b.code, &b.subject)));
    findings
}

/// Managers bring the tables up to date when they start: what differs was changed under a running one.
fn of_schema(Schema { found, known }: Schema) -> Option<Finding> {
    let (code, severity, why, cure) = match found.cmp(&known) {
        Ordering::Equal => return None,
        Ordering::Greater => (
            "schema-newer",
            Severity::Warning,
            "a newer manager has changed the tables: what this one reads and writes may not fit them, and it \
             cannot start again",
            "replace this manager by the version that the newer ones run",
        ),
        Ordering::Less => (
            "schema-older",
            Severity::Critical,
            "an older database was put in its place: what this manager asks of it fails or is wrong",
            "stop all managers, `everwatch migrate` (with `--restored`, if that was a backup), and start them",
        ),
    };
    Some(Finding {
        code,
        severity,
        subject: "database".to_owned(),
        what: format!("its tables are of version {found}, and this manager is made for version {known}"),
        why: why.to_owned(),
        cure: cure.to_owned(),
    })
}

/// A mark is left every 5 s; older than this, reports wait.
const STATE_LAG_MAX: Duration = Duration::from_secs(15);

fn of_manager(manager: &ManagerFacts) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut warn = |code, what: String, why: &str, cure: &str| {
        let (why, cure, subject) = (why.to_owned(), cure.to_owned(), "this manager".to_owned());
        findings.push(Finding { code, severity: Severity::Warning, subject, what, why, cure });
    };
    if let Some(listen) = manager.listen.filter(|listen| !listen.ip().is_loopback()) {
        warn(
            "api-open",
            format!("the API listens on {listen} without authentication"),
            "whoever reaches that address commands everything, `exec` included",
            "set `[manager] listen = \"127.0.0.1:7700\"`, or let only a proxy that asks for a password reach it",
        );
    }
    if manager.state_lag > STATE_LAG_MAX {
        warn(
            "state-queue-lag",
            format!("what was read last from the state queue is {} s old", manager.state_lag.as_secs()),
            "what the API shows is as old, and nothing is concluded from silence meanwhile",
            "look at the database's load and at this manager's log; with PostgreSQL, start one more manager",
        );
    }
    if manager.lost_events > 0 {
        warn(
            "events-lost",
            format!("{} events were not kept since this manager started", manager.lost_events),
            "the history has holes: more happened than the database took",
            "give the database more room; `everwatch_lost_events_total` of /metrics tells when it happens",
        );
    }
    findings
}

#[cfg(test)]
#[path = "doctor/tests.rs"]
mod tests;
