//! Every queue and exchange of Everwatch, in one place.

use crate::port::{QueueKind, Target};
use everwatch_core::id::{Pool, RepliesId, ServiceId};

/// The names of a deployment's queues and exchanges.
#[derive(Debug, Clone)]
pub struct Topology {
    prefix: String,
}

impl Topology {
    /// `prefix` separates deployments that share a vhost (default `everwatch.`).
    #[must_use]
    pub fn new(prefix: &str) -> Self {
        Self { prefix: prefix.to_owned() }
    }
    /// One message per live observer of the pool.
    #[must_use]
    pub fn work(&self, pool: &Pool) -> String {
        format!("{}work.{pool}", self.prefix)
    }
    /// Reports, service to managers.
    #[must_use]
    pub fn state(&self) -> String {
        format!("{}state", self.prefix)
    }
    /// Heartbeats and probes.
    #[must_use]
    pub fn heartbeats(&self) -> String {
        format!("{}heartbeats", self.prefix)
    }
    /// The queue for messages that no version of Everwatch can read.
    #[must_use]
    pub fn parked(&self) -> String {
        format!("{}parked", self.prefix)
    }
    /// Holds one message: the identity of the database that owns this prefix.
    #[must_use]
    pub fn store(&self) -> String {
        format!("{}store", self.prefix)
    }
    /// The fan-out exchange for commands.
    #[must_use]
    pub fn commands(&self) -> String {
        format!("{}commands", self.prefix)
    }
    /// A service's own command queue: exclusive, so its existence tells whether its session lives.
    #[must_use]
    pub fn commands_of(&self, service: ServiceId) -> String {
        format!("{}commands.{service}", self.prefix)
    }
    /// The exclusive queue of one manager session for replies.
    #[must_use]
    pub fn replies(&self, to: RepliesId) -> String {
        format!("{}replies.{to}", self.prefix)
    }
    /// The topic exchange for the output of observers.
    #[must_use]
    pub fn output(&self) -> String {
        format!("{}output", self.prefix)
    }
    /// The durable queues that every deployment needs, in addition to the work queues.
    #[must_use]
    pub fn durable_queues(&self) -> Vec<(String, QueueKind)> {
        vec![
            (self.parked(), QueueKind::Durable { max_length: None }),
            (self.state(), QueueKind::Durable { max_length: None }),
            (self.heartbeats(), QueueKind::Heartbeats),
        ]
    }
    /// The exchanges that every deployment needs.
    #[must_use]
    pub fn exchanges(&self) -> Vec<Target> {
        vec![Target::Fanout(self.commands()), Target::Topic { exchange: self.output(), key: String::new() }]
    }
}
