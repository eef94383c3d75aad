//! What travels: work (manager to services), reports (service to managers), beats and commands.
//! Every body is `{"v": 1, …}`; a reader ignores members it does not know.

mod birth;

pub use birth::{KindInfo, Predecessor};

use crate::clock::{Timestamp, friendly};
use crate::epoch::Epoch;
use crate::id::{Kind, ManagerId, Name, ObserverId, Pool, ServiceId};
use crate::logs::AskLogs;
use crate::observer::{Overlap, Wanted};
use crate::retry::Retry;
use crate::trace::{self, TraceContext};
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use std::time::Duration;

/// The version that this program writes.
pub const VERSION: u16 = 1;
/// The most entries in one batch of reports, floors or list entries.
pub const BATCH_MAX: usize = 500;

/// Why a body could not be read, as a sentence.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Unreadable(pub String);

/// An observer on its way to a service. `v`, `id`, `generation` and `kind` never change their
/// meaning, so that any version of a service can settle any version of a message.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct Work {
    pub v: u16,
    pub id: ObserverId,
    pub generation: u32,
    pub kind: Kind,
    pub name: Name,
    /// Kept as text: a service hands it to the observer's code and never looks inside.
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
}

/// The part of a work message that every version can read.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Label {
    pub v: u16,
    pub id: ObserverId,
    pub generation: u32,
    pub kind: String,
}

/// What became of reading a work message.
#[derive(Debug, Clone)]
pub enum WorkRead {
    /// Ours to run.
    Ours(Box<Work>),
    /// It can be settled or passed on, but not run; says why.
    Foreign(Label, String),
}

impl Work {
    /// The message of one generation of an observer.
    ///
    /// # Errors
    /// If the spec cannot be written as JSON.
    pub fn of(id: ObserverId, generation: u32, wanted: &Wanted) -> Result<Self, serde_json::Error> {
        Ok(Self {
            v: VERSION,
            id,
            generation,
            kind: wanted.kind.clone(),
            name: wanted.name.clone(),
            spec: serde_json::value::to_raw_value(&wanted.spec)?,
            labels: wanted.labels.clone(),
            retry: wanted.retry.clone(),
            overlap: wanted.overlap,
            grace: wanted.grace,
        })
    }

    /// # Errors
    /// When not even the fixed part can be read: such a message is parked.
    pub fn read(body: &[u8]) -> Result<WorkRead, Unreadable> {
        let label: Label = serde_json::from_slice(body)
            .map_err(|error| Unreadable(format!("not a work message: {error}")))?;
        if label.v != VERSION {
            let why = format!("message version {} is unknown here", label.v);
            return Ok(WorkRead::Foreign(label, why));
        }
        match serde_json::from_slice::<Self>(body) {
            Ok(work) => Ok(WorkRead::Ours(Box::new(work))),
            Err(error) => Ok(WorkRead::Foreign(label, format!("cannot be read here: {error}"))),
        }
    }
}

/// A message of the state queue.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum StateMessage {
    Reports(Reports),
    Tick(Tick),
}

/// A message of the beats queue.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum BeatMessage {
    Beat(Beat),
    Probe { service: ServiceId },
    Tick(Tick),
}

/// A manager's own mark in a queue: applied, it shows that the queue is being read.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Tick {
    pub manager: ManagerId,
    pub sent_at: Timestamp,
}

/// A batch of reports of one service, in the order of their numbers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Reports {
    pub service: ServiceId,
    pub entries: Vec<Numbered>,
}

/// One report; numbers count from 1 within one incarnation of a service.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Numbered {
    pub seq: u64,
    pub at: Timestamp,
    pub report: Report,
    /// The trace of the run that it is about, if that is sampled. Naively a header, but a message has the
    /// reports of many runs.
    #[serde(default, with = "trace::carried", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<trace::Carried>")]
    pub trace: Option<TraceContext>,
}

impl Numbered {
    /// Of no trace.
    #[must_use]
    pub fn new(seq: u64, at: Timestamp, report: Report) -> Self {
        Self { seq, at, report, trace: None }
    }
}

/// What a service tells the managers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Report {
    ServiceBorn(Box<Birth>),
    ServiceGone,
    /// Something happened to one run.
    Run(RunReport),
    /// One chunk of everything that the service holds: the repair of last resort.
    List(ListChunk),
    /// The answer to [`Command::Describe`].
    Described(Described),
    /// A work queue was not there and was made.
    WorkQueueCreated {
        pool: Pool,
    },
    /// Written by a newer version: counted and passed over.
    #[serde(untagged)]
    #[schemars(skip)]
    Unknown(Value),
}

fn first_version() -> u16 {
    1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde wants it so")]
fn is_first_version(version: &u16) -> bool {
    *version == first_version()
}

/// Who was born.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Birth {
    pub name: Name,
    pub pool: Pool,
    pub capacity: u32,
    pub kinds: Vec<KindInfo>,
    pub version: String,
    /// The highest version of work messages that it reads.
    #[serde(default = "first_version", skip_serializing_if = "is_first_version")]
    pub message_version: u16,
    pub host: String,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// The incarnation before this one in the same process and how it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub predecessor: Option<Predecessor>,
}

/// One event of one run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RunReport {
    pub id: ObserverId,
    pub epoch: Epoch,
    pub event: RunEvent,
}

/// What can happen to a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RunEvent {
    /// Held, not started yet; says why. `refuses`: this service cannot run it, and holds the message for a while so
    /// that others are served meanwhile.
    Taken {
        reason: String,
        #[serde(default, skip_serializing_if = "is_false")]
        refuses: bool,
    },
    /// The code was started (the `attempt`th time in this run).
    Started { attempt: u32, started_at: Timestamp },
    /// The code failed and is started again at `next_at`.
    Erred { attempt: u32, error: String, next_at: Timestamp },
    /// What the code says of itself.
    Progress { text: String },
    /// The code was ended here so that it can go on elsewhere.
    HandedOver,
    /// The same, because a person or a plan wanted it.
    HandedOverFor { cause: Cause },
    /// This service cannot run it and passes it on.
    Refused { why: String },
    /// Over: it was told to stop.
    Stopped,
    /// Over: a finite one that ended well.
    Completed,
    /// Over: it gave up.
    Failed { error: String, attempts: u32 },
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde wants it so")]
pub(crate) fn is_false(flag: &bool) -> bool {
    !*flag
}

impl RunEvent {
    /// Whether the run is over and will be acknowledged.
    #[must_use]
    pub fn settles(&self) -> bool {
        match self {
            Self::Stopped | Self::Completed | Self::Failed { .. } => true,
            Self::Taken { .. }
            | Self::Started { .. }
            | Self::Erred { .. }
            | Self::Progress { .. }
            | Self::HandedOver
            | Self::HandedOverFor { .. }
            | Self::Refused { .. } => false,
        }
    }
    /// Whether the service still holds the message after saying this.
    #[must_use]
    pub fn holds(&self) -> bool {
        match self {
            Self::Taken { .. } | Self::Started { .. } | Self::Erred { .. } | Self::Progress { .. } => true,
            Self::HandedOver | Self::HandedOverFor { .. } | Self::Refused { .. } => false,
            Self::Stopped | Self::Completed | Self::Failed { .. } => false,
        }
    }
}

/// One part of a full list; each entry applies like the report it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ListChunk {
    pub list: u64,
    pub chunk: u32,
    pub chunks: u32,
    pub entries: Vec<RunReport>,
    /// Of the ids in here these entries are all that are held.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub range: Option<ListRange>,
}

/// A stretch of ids, after the one and up to the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ListRange {
    pub after: Option<ObserverId>,
    pub upto: Option<ObserverId>,
}

impl ListChunk {
    /// A whole list, at least one chunk: the ranges of its chunks are all ids there are. Each chunk says by
    /// itself what is not held: naively, a manager waits for all chunks, but another one may get some of them.
    #[must_use]
    pub fn all(list: u64, mut entries: Vec<RunReport>) -> Vec<Self> {
        entries.sort_by_key(|entry| entry.id);
        let parts: Vec<&[RunReport]> =
            if entries.is_empty() { vec![&[]] } else { entries.chunks(BATCH_MAX).collect() };
        let chunks = u32::try_from(parts.len()).unwrap_or(u32::MAX);
        let mut after = None;
        let chunk = |(chunk, part): (u32, &&[RunReport])| {
            let upto = part.last().map(|last| last.id).filter(|_| chunk + 1 < chunks);
            let range = Some(ListRange { after, upto });
            after = upto;
            Self { list, chunk, chunks, entries: part.to_vec(), range }
        };
        (0..).zip(&parts).map(chunk).collect()
    }
}

/// Messages that a service holds, for managers that do not know their observers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Described {
    pub pool: Pool,
    pub held: Vec<HeldWork>,
}

/// One message that is held, and what goes on with it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HeldWork {
    pub run: RunReport,
    /// A [`Work`] as JSON text: numbers in it come out as they went in.
    pub work: String,
}

/// A sign of life of a service (one per service, never one per observer).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Beat {
    pub service: ServiceId,
    pub seq: u64,
    pub state: Intent,
    pub capacity: u32,
    pub held: u32,
    pub loop_lag_ms: u32,
    pub rss_bytes: u64,
    /// By the clock of the service's host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sent_at: Option<Timestamp>,
}

/// What a service is about, by its own word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Intent {
    Active,
    Cordoned,
    Draining,
}

/// What a manager tells the services: every service receives every command.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Command {
    /// No run of `id` under `below` may start or go on.
    Floors(Vec<Floor>),
    /// The answer to a birth.
    Welcome(Box<Welcome>),
    /// What one service may take from now on.
    Terms { service: ServiceId, terms: Terms },
    /// What one service is to give to others.
    HandOver(HandOver),
    /// These may end their services: to be started one at a time.
    Suspect(Vec<ObserverId>),
    /// What are these that you hold? With none: who are you, and what is all that you hold?
    Describe { service: ServiceId, ids: Vec<ObserverId> },
    /// The only one that goes to one service alone: its answer goes to one manager alone.
    Logs(AskLogs),
    /// Written by a newer version: counted and passed over.
    #[serde(untagged)]
    #[schemars(skip)]
    Unknown(Value),
}

/// The answer to a birth: what was said before the newborn listened.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Welcome {
    pub service: ServiceId,
    pub floors: Vec<Floor>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub suspects: Vec<ObserverId>,
    /// What was set by hand for its name, if anything was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub terms: Option<Terms>,
    /// Its predecessor said goodbye lately: the queue is to serve it first for a while.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub returning: bool,
}

impl Welcome {
    /// Floors alone.
    #[must_use]
    pub fn new(service: ServiceId, floors: Vec<Floor>) -> Self {
        Self { service, floors, suspects: Vec::new(), terms: None, returning: false }
    }
}

/// What a service may take. It belongs to the name of a service and outlives its incarnations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Terms {
    /// The higher one stands.
    pub revision: u64,
    /// It takes nothing new.
    pub cordoned: bool,
    /// It takes nothing new because it is being emptied.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub draining: bool,
    /// Slots, if they are not as its own settings say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity: Option<u32>,
}

/// What one service is to give to others. Said twice it does no more than said once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HandOver {
    pub service: ServiceId,
    /// These.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ids: Vec<ObserverId>,
    /// It holds at most so many: what is beyond that goes, those first that have run the shortest time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub down_to: Option<u32>,
    /// For so long it takes nothing beyond `down_to`, or nothing at all after having given `ids` away; then
    /// it goes on by itself.
    #[serde(with = "friendly")]
    #[schemars(with = "String")]
    pub rest: Duration,
    pub cause: Cause,
}

/// Why a service hands over what it could go on running.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    Drain,
    Rebalance,
    Move,
    /// Its capacity is less than what it held.
    Resize,
    /// Told by a newer version.
    #[serde(other)]
    Other,
}

impl Cause {
    /// The word as it is written.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Drain => "drain",
            Self::Rebalance => "rebalance",
            Self::Move => "move",
            Self::Resize => "resize",
            Self::Other => "other",
        }
    }
}

/// No run of `id` with an epoch under `below` may start or go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Floor {
    pub id: ObserverId,
    pub below: Epoch,
}

#[derive(Serialize)]
struct Versioned<'a, T> {
    v: u16,
    body: &'a T,
}
#[derive(Deserialize)]
struct VersionOnly {
    v: u16,
}
#[derive(Deserialize)]
struct BodyOnly<T> {
    body: T,
}

/// The bytes of a report, beat or command.
///
/// # Errors
/// If a value cannot be written as JSON (a bug of the caller's).
pub fn encode<T: Serialize>(body: &T) -> Result<Vec<u8>, serde_json::Error> {
    serde_json::to_vec(&Versioned { v: VERSION, body })
}

/// # Errors
/// Not JSON, another version, or not such a message; says which.
pub fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Unreadable> {
    let VersionOnly { v } = serde_json::from_slice(bytes)
        .map_err(|error| Unreadable(format!("not a message of Everwatch: {error}")))?;
    if v != VERSION {
        return Err(Unreadable(format!("message version {v} is unknown here")));
    }
    serde_json::from_slice::<BodyOnly<T>>(bytes)
        .map(|it| it.body)
        .map_err(|error| Unreadable(format!("not a message of this queue: {error}")))
}
