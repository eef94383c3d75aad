//! Work messages: an observer on its way to a service.

use crate::clock::{Timestamp, friendly};
use crate::id::{Kind, LimitKey, Name, Namespace, ObserverId};
use crate::observer::definition::{ObserverDefinition, Overlap, is_one, one};
use crate::observer::retry::Retry;
use crate::observer::schedule::Schedule;
use crate::observer::windows::Windows;
use crate::wire::message::{Unreadable, VERSION, WORK_VERSION};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// An observer on its way to a service. `v`, `id`, `generation` and `kind` never change their
/// meaning, so that any version of a service can settle any version of a message.
///
/// Version 2 is a message with a weight above 1. A service that reads only version 1 would count it as one slot, so it
/// gives the message back instead.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct Work {
    pub v: u16,
    pub id: ObserverId,
    pub generation: u32,
    pub kind: Kind,
    pub name: Name,
    /// Missing: `default`.
    #[serde(default, skip_serializing_if = "Namespace::is_default")]
    pub namespace: Namespace,
    /// Kept as text: a service passes it to the observer's code and never interprets it.
    #[schemars(with = "Value")]
    pub spec: Box<RawValue>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    #[serde(default)]
    pub retry: Retry,
    #[serde(default)]
    pub overlap: Overlap,
    #[serde(with = "friendly")]
    #[schemars(with = "String")]
    pub grace: Duration,
    /// Its place among observers that wait for a slot. A service does not use it; if the manager loses the observer's
    /// row, it restores the priority from here.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub priority: i8,
    /// The number of slots that it takes.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub weight: u16,
    /// The limits that it counts towards. After such a message, its service reports that the queue no longer has it: only
    /// then may another observer have its places.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub limits: BTreeSet<LimitKey>,
    /// After this time, the code of an attempt is told to stop, and the attempt counts as an error.
    #[serde(default, with = "friendly::optional", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub attempt_timeout: Option<Duration>,
    /// It ends at this time by the database's clock: the code is told to stop, and a run that has not started yet does
    /// not start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finish_at: Option<Timestamp>,
    /// Its window ends at this time by the database's clock: the code is told to stop, and a run that has not started yet
    /// does not start. A manager publishes the next generation when it opens again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub closes_at: Option<Timestamp>,
    /// The hours in which it may run. A service does not use them; if the manager loses the observer's row, it restores
    /// them from here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub windows: Option<Windows>,
    /// The time of its schedule for which it executes; missing if it has no schedule, or if a request started the execution.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheduled_for: Option<Timestamp>,
    /// The times at which its runs start. A service does not use them; if the manager loses the observer's row, it
    /// restores them from here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schedule: Option<Schedule>,
}

/// The part of a work message that every version can read.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct WorkHeader {
    pub v: u16,
    pub id: ObserverId,
    pub generation: u32,
    pub kind: String,
}

/// The result of reading a work message.
#[derive(Debug, Clone)]
pub enum DecodedWork {
    /// This version can run it.
    Ours(Box<Work>),
    /// This version can settle it or give it back, but not run it; contains the reason.
    Foreign(WorkHeader, String),
}

impl DecodedWork {
    /// The observer of the message.
    #[must_use]
    pub fn id(&self) -> ObserverId {
        match self {
            Self::Ours(work) => work.id,
            Self::Foreign(label, _) => label.id,
        }
    }

    /// The number of slots that the message takes; one if this version cannot read it.
    #[must_use]
    pub fn weight(&self) -> u16 {
        match self {
            Self::Ours(work) => work.weight,
            Self::Foreign(..) => 1,
        }
    }
}

impl Work {
    /// The message of one generation of an observer.
    ///
    /// # Errors
    /// If the spec cannot be written as JSON.
    pub fn of(
        id: ObserverId,
        generation: u32,
        definition: &ObserverDefinition,
    ) -> Result<Self, serde_json::Error> {
        Ok(Self {
            v: if definition.weight > 1 { WORK_VERSION } else { VERSION },
            id,
            generation,
            kind: definition.kind.clone(),
            name: definition.name.clone(),
            namespace: definition.namespace.clone(),
            spec: serde_json::value::to_raw_value(&definition.spec)?,
            labels: definition.labels.clone(),
            retry: definition.retry.clone(),
            overlap: definition.overlap,
            grace: definition.grace,
            priority: definition.priority,
            weight: definition.weight,
            limits: definition.limits.clone(),
            attempt_timeout: definition.attempt_timeout,
            finish_at: definition.finish_at,
            closes_at: None,
            windows: definition.windows.clone(),
            scheduled_for: None,
            schedule: definition.schedule.clone(),
        })
    }

    /// When a run of this message ends: at its `finish_at` or at the end of its window, by the database's clock.
    #[must_use]
    pub fn ends_at(&self) -> Option<Timestamp> {
        [self.finish_at, self.closes_at].into_iter().flatten().min()
    }

    /// # Errors
    /// If not even the fixed part is readable: such a message is parked.
    pub fn read(body: &[u8]) -> Result<DecodedWork, Unreadable> {
        let error = match serde_json::from_slice::<Self>(body) {
            Ok(work) if reads(work.v) => return Ok(DecodedWork::Ours(Box::new(work))),
            Ok(_) => None,
            Err(error) => Some(error),
        };
        let label: WorkHeader = serde_json::from_slice(body)
            .map_err(|error| Unreadable(format!("not a work message: {error}")))?;
        let why = match error.filter(|_| reads(label.v)) {
            Some(error) => format!("cannot be read here: {error}"),
            None => format!("message version {} is unknown here", label.v),
        };
        Ok(DecodedWork::Foreign(label, why))
    }
}

fn reads(version: u16) -> bool {
    (VERSION..=WORK_VERSION).contains(&version)
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde wants it so")]
fn is_zero(number: &i8) -> bool {
    *number == 0
}
