//! The definition of an observer: its name, code, arguments and policies, validated field by field.

use crate::clock::{Timestamp, friendly, show};
use crate::id::{Kind, LimitKey, Name, Namespace, ObserverId, Pool};
use crate::observer::labels;
pub use crate::observer::members::MEMBERS;
use crate::observer::members::{alternative, example};
use crate::observer::retry::Retry;
use crate::observer::schedule::Schedule;
use crate::observer::secret;
use crate::observer::windows::Windows;
use crate::spelling::nearest;
use crate::wording::parser;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use uuid::Uuid;

/// The largest `spec`, as JSON text: the work message contains it, and the broker stores that message.
pub const SPEC_MAX_BYTES: usize = 64 * 1024;
/// The deepest nesting of a `spec`: it must remain readable inside rows and messages, and JSON parsers stop at 128.
pub const SPEC_MAX_DEPTH: usize = 64;
/// The most labels of one observer.
pub const LABELS_MAX: usize = 64;
/// The longest time between telling an observer to stop and aborting it.
pub const GRACE_MAX: Duration = Duration::from_secs(3600);
/// The shortest `attempt_timeout`.
pub const ATTEMPT_TIMEOUT_MIN: Duration = Duration::from_secs(1);
/// The shortest `start_within`: managers look once a second.
pub const START_WITHIN_MIN: Duration = Duration::from_secs(1);

/// The highest priority; the lowest one is its negative.
pub const PRIORITY_MAX: i8 = 100;

/// The greatest weight.
pub const WEIGHT_MAX: u16 = 1000;

/// The most limits that one observer counts towards.
pub const LIMITS_MAX: usize = 8;

/// The reaction to a redelivery while the previous run might still be ending.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Overlap {
    /// Start at once.
    #[default]
    Allow,
    /// Start a redelivery only after twice the fence grace.
    Forbid,
}

/// The reaction of a create if the pool has no free slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnFull {
    /// Refuse.
    #[default]
    Reject,
    /// Accept and wait for a slot.
    Queue,
}

/// The complete definition of an observer. Created only by [`ObserverDefinition::parse`] or read from the store.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ObserverDefinition {
    pub name: Name,
    #[serde(default, skip_serializing_if = "Namespace::is_default")]
    pub namespace: Namespace,
    pub kind: Kind,
    pub spec: Value,
    #[serde(default)]
    pub pool: Pool,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    #[serde(default)]
    pub retry: Retry,
    #[serde(default)]
    pub overlap: Overlap,
    #[serde(default = "ten_seconds", with = "friendly")]
    pub grace: Duration,
    #[serde(default)]
    pub on_full: OnFull,
    /// Its place among observers that wait for a slot: -100 to 100, the highest first.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub priority: i8,
    /// The number of slots that it takes: 1 to 1000.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub weight: u16,
    /// The keys of the limits that it counts towards: it runs only while each of them has a free place.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub limits: BTreeSet<LimitKey>,
    /// It does not start before this time, by the database's clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_at: Option<Timestamp>,
    /// It ends at this time, by the database's clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finish_at: Option<Timestamp>,
    /// It runs only within these hours.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub windows: Option<Windows>,
    /// Its runs start at these times.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schedule: Option<Schedule>,
    /// It fails if it still waits for a slot after this time.
    #[serde(default, with = "friendly::optional", skip_serializing_if = "Option::is_none")]
    pub start_within: Option<Duration>,
    /// After this time, the service stops an attempt, and the retry policy decides whether another one follows.
    #[serde(default, with = "friendly::optional", skip_serializing_if = "Option::is_none")]
    pub attempt_timeout: Option<Duration>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde wants it so")]
fn is_zero(number: &i8) -> bool {
    *number == 0
}

/// The default weight.
#[must_use]
pub fn one() -> u16 {
    1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde wants it so")]
pub(crate) fn is_one(number: &u16) -> bool {
    *number == 1
}

fn ten_seconds() -> Duration {
    Duration::from_secs(10)
}

/// One error in a body: its location (a JSON pointer) and the problem.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FieldError {
    pub pointer: String,
    pub detail: String,
}

impl std::fmt::Display for FieldError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.pointer, self.detail)
    }
}

impl FieldError {
    fn new(pointer: impl Into<String>, detail: impl Into<String>) -> Self {
        Self { pointer: pointer.into(), detail: detail.into() }
    }
}

/// Takes members out of a JSON object one at a time and collects all errors.
struct Reader {
    members: Map<String, Value>,
    errors: Vec<FieldError>,
}

impl Reader {
    fn optional<T: DeserializeOwned>(&mut self, member: &str) -> Option<T> {
        let value = self.members.remove(member).filter(|value| !value.is_null())?;
        parser::read(value)
            .map_err(|wrong| {
                let such_as = match wrong.pointer.as_str() {
                    "" if wrong.is_of_other_type => {
                        example(member).map(|it| format!(", such as {it}{}", alternative(member)))
                    }
                    "/kind" => Some(alternative(member).to_owned()),
                    _ => None,
                };
                let detail = wrong.detail + &such_as.unwrap_or_default();
                self.errors.push(FieldError::new(format!("/{member}{}", wrong.pointer), detail));
            })
            .ok()
    }
    fn required<T: DeserializeOwned>(&mut self, member: &str) -> Option<T> {
        // Null counts as absent.
        if self.members.get(member).is_none_or(Value::is_null) {
            self.errors.push(FieldError::new(format!("/{member}"), "is required"));
        }
        self.optional(member)
    }
    fn duration(&mut self, member: &str) -> Option<Duration> {
        let text: String = self.optional(member)?;
        crate::clock::parse_duration(&text)
            .map_err(|error| self.errors.push(FieldError::new(format!("/{member}"), error)))
            .ok()
    }
    fn moment(&mut self, member: &str) -> Option<Timestamp> {
        let value: Value = self.optional(member)?;
        let moment = serde_json::from_value(value.clone()).ok();
        if moment.is_none() {
            let detail = format!(
                "is {value}: write a time in RFC 3339 with an offset, for example \"2030-01-31T09:30:00Z\""
            );
            self.errors.push(FieldError::new(format!("/{member}"), detail));
        }
        moment
    }
    fn priority(&mut self) -> Option<i8> {
        let value: Value = self.optional("priority")?;
        let number = value.as_i64().and_then(|number| i8::try_from(number).ok());
        let priority = number.filter(|it| (-PRIORITY_MAX..=PRIORITY_MAX).contains(it));
        if priority.is_none() {
            let detail =
                format!("is {value}: a priority is a whole number from -{PRIORITY_MAX} to {PRIORITY_MAX}");
            self.errors.push(FieldError::new("/priority", detail));
        }
        priority
    }
    fn weight(&mut self) -> Option<u16> {
        let value: Value = self.optional("weight")?;
        let number = value.as_u64().and_then(|number| u16::try_from(number).ok());
        let weight = number.filter(|it| (1..=WEIGHT_MAX).contains(it));
        if weight.is_none() {
            let detail = format!("is {value}: a weight is a whole number from 1 to {WEIGHT_MAX}");
            self.errors.push(FieldError::new("/weight", detail));
        }
        weight
    }
    fn labels(&mut self) -> Option<BTreeMap<String, String>> {
        let (labels, wrong) = labels::strings(self.optional("labels")?);
        self.errors.extend(wrong.into_iter().map(|(key, detail)| of_label(&key, detail)));
        Some(labels)
    }
    fn limits(&mut self) -> BTreeSet<LimitKey> {
        let keys: Vec<String> = self.optional("limits").unwrap_or_default();
        if keys.len() > LIMITS_MAX {
            let detail =
                format!("names {} keys: an observer counts towards at most {LIMITS_MAX} limits", keys.len());
            self.errors.push(FieldError::new("/limits", detail));
            return BTreeSet::new();
        }
        let mut limits = BTreeSet::new();
        for (place, key) in keys.iter().enumerate() {
            let pointer = format!("/limits/{place}");
            match LimitKey::new(key) {
                Ok(key) if limits.contains(&key) => {
                    let detail = format!("repeats the key {}: name each key once", key.as_str());
                    self.errors.push(FieldError::new(pointer, detail));
                }
                Ok(key) => drop(limits.insert(key)),
                Err(error) => self.errors.push(FieldError::new(pointer, error.to_string())),
            }
        }
        limits
    }
    fn reject_unknown(&mut self) {
        for member in self.members.keys() {
            let known = || MEMBERS.into_iter().chain(["desired"]);
            let cure = match nearest(member, known()) {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("known: {}", known().collect::<Vec<_>>().join(", ")),
            };
            let detail = format!("is an unknown field; {cure}");
            self.errors.push(FieldError::new(format!("/{}", escape(member)), detail));
        }
    }
}

/// The violations of the rules for specs of every kind: size, depth and references to secrets. The schema of a kind has
/// further rules.
#[must_use]
pub fn spec_errors(spec: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let bytes = spec.to_string().len();
    if bytes > SPEC_MAX_BYTES {
        let detail = format!("is {bytes} bytes of JSON, at most {SPEC_MAX_BYTES} travel with an observer");
        errors.push(FieldError::new("/spec", detail));
    }
    if depth(spec) > SPEC_MAX_DEPTH {
        let detail = format!("nests deeper than {SPEC_MAX_DEPTH} levels: make it flatter");
        errors.push(FieldError::new("/spec", detail));
    }
    let wrong = secret::errors(spec).into_iter();
    errors.extend(wrong.map(|(pointer, rule)| FieldError::new(format!("/spec{pointer}"), rule)));
    errors
}

/// A member's name inside a JSON pointer (RFC 6901), shortened.
fn escape(member: &str) -> String {
    member.chars().take(100).collect::<String>().replace('~', "~0").replace('/', "~1")
}

fn of_label(key: &str, detail: impl Into<String>) -> FieldError {
    FieldError::new(format!("/labels/{}", escape(key)), detail)
}

impl ObserverDefinition {
    /// Parses a create body. `fallback_name` is used if the body contains no name.
    ///
    /// # Errors
    /// Every member that is missing, unknown, of a wrong type or invalid.
    pub fn parse(body: Value, fallback_name: &Name) -> Result<Self, Vec<FieldError>> {
        let Value::Object(members) = body else {
            return Err(vec![FieldError::new("", "must be a JSON object")]);
        };
        let mut reader = Reader { members, errors: Vec::new() };
        let (name, namespace) = (reader.optional("name"), reader.optional("namespace"));
        let kind = reader.required("kind");
        let spec = reader.optional("spec").unwrap_or_else(|| Value::Object(Map::new()));
        let pool = reader.optional("pool");
        let labels = reader.labels();
        let retry = reader.optional("retry");
        let overlap = reader.optional("overlap");
        let grace = reader.duration("grace");
        let on_full = reader.optional("on_full");
        let (priority, weight) = (reader.priority(), reader.weight());
        let limits = reader.limits();
        let (start_at, finish_at) = (reader.moment("start_at"), reader.moment("finish_at"));
        let windows = reader.optional("windows");
        let schedule = reader.optional("schedule");
        let start_within = reader.duration("start_within");
        let attempt_timeout = reader.duration("attempt_timeout");
        reader.reject_unknown();
        let Some(kind) = kind else { return Err(reader.errors) };
        // A wrong member counts as missing, so that the rules for the others are checked, too.
        let definition = Self {
            name: name.unwrap_or_else(|| fallback_name.clone()),
            namespace: namespace.unwrap_or_default(),
            kind,
            spec,
            pool: pool.unwrap_or_default(),
            labels: labels.unwrap_or_default(),
            retry: retry.unwrap_or_default(),
            overlap: overlap.unwrap_or_default(),
            grace: grace.unwrap_or_else(ten_seconds),
            on_full: on_full.unwrap_or_default(),
            priority: priority.unwrap_or_default(),
            weight: weight.unwrap_or(1),
            limits,
            start_at,
            finish_at,
            windows,
            schedule,
            start_within,
            attempt_timeout,
        };
        let mut errors = reader.errors;
        errors.extend(definition.check().err().unwrap_or_default());
        if errors.is_empty() { Ok(definition) } else { Err(errors) }
    }

    /// The arguments by which commands find it: its name, and its namespace unless it is the default one.
    #[must_use]
    pub fn arguments(&self) -> String {
        if self.namespace.is_default() {
            self.name.to_string()
        } else {
            format!("-n {} {}", self.namespace, self.name)
        }
    }

    /// Gives it the limits of the batch and the namespace of this definition. Users can neither add such a limit nor remove
    /// it.
    pub fn imply_limits(&mut self, of: &Self) {
        self.limits.retain(|key| !key.is_implied());
        self.limits.extend(of.limits.iter().filter(|key| key.is_implied()).cloned());
    }

    /// Whether it has room for the limits of the batch and the namespace of the definition that it replaces.
    ///
    /// # Errors
    /// If they are more than [`LIMITS_MAX`] together.
    pub fn check_limits(&self, before: &Self) -> Result<(), FieldError> {
        let own = self.limits.iter().filter(|key| !key.is_implied()).count();
        let implied = before.limits.iter().filter(|key| key.is_implied()).count();
        if own + implied <= LIMITS_MAX {
            return Ok(());
        }
        let others =
            if before.limits.iter().any(LimitKey::is_of_batch) { "its batch" } else { "its namespace" };
        let detail =
            format!("names {own} limits, and {others} limits it, too: at most {LIMITS_MAX} together");
        Err(FieldError::new("/limits", detail))
    }

    /// A text that no other live observer has: its name, qualified by its namespace.
    #[must_use]
    pub fn name_key(&self) -> String {
        self.namespace.qualify(&self.name)
    }

    /// Whether the code would run the same: a service gets the same work message, apart from labels.
    #[must_use]
    pub fn runs_like(&self, other: &Self) -> bool {
        let told = |it: &Self| Self {
            labels: BTreeMap::new(),
            on_full: OnFull::default(),
            priority: 0,
            start_at: None,
            start_within: None,
            schedule: None,
            name: other.name.clone(),
            ..it.clone()
        };
        told(self) == told(other)
    }

    /// Whether [`Self::check_at`] may answer otherwise than for `other`.
    #[must_use]
    pub fn is_timed_unlike(&self, other: &Self) -> bool {
        self.finish_at != other.finish_at || self.schedule != other.schedule
    }

    /// Whether it may still run, by the database's clock.
    ///
    /// # Errors
    /// That its `finish_at` has passed, or comes before the next time of its schedule.
    pub fn check_at(&self, now: Timestamp) -> Result<(), FieldError> {
        match self.finish_at {
            Some(finish) if finish <= now => {
                let detail = format!("is {finish}, which has passed: the clock of the database shows {now}");
                Err(FieldError::new("/finish_at", detail))
            }
            Some(finish) => self.check_first_run(now, finish),
            None => Ok(()),
        }
    }

    fn check_first_run(&self, now: Timestamp, finish: Timestamp) -> Result<(), FieldError> {
        let Some(schedule) = &self.schedule else { return Ok(()) };
        let first = self.start_at.map_or(now, |at| now.max(at.minus(Duration::from_millis(1))));
        match schedule.next_after(first, ObserverId(Uuid::nil())) {
            Some(next) if next < finish => Ok(()),
            Some(next) => {
                let detail = format!(
                    "its next time is {next}, not before finish_at, {finish}, so the observer would not execute: change the expression or finish_at"
                );
                Err(FieldError::new("/schedule/cron", detail))
            }
            None => {
                let detail = format!("it has no time after {first}: change the expression or start_at");
                Err(FieldError::new("/schedule/cron", detail))
            }
        }
    }

    fn check(&self) -> Result<(), Vec<FieldError>> {
        let mut errors = Vec::new();
        errors.extend(spec_errors(&self.spec));
        if self.grace > GRACE_MAX {
            let detail = format!("is {}: write at most 1h", show(self.grace));
            errors.push(FieldError::new("/grace", detail));
        }
        let short = |it: Duration| format!("is {}: write at least 1s", show(it));
        if let Some(it) = self.attempt_timeout.filter(|it| *it < ATTEMPT_TIMEOUT_MIN) {
            errors.push(FieldError::new("/attempt_timeout", short(it)));
        }
        if let Some(it) = self.start_within.filter(|it| *it < START_WITHIN_MIN) {
            errors.push(FieldError::new("/start_within", short(it)));
        }
        if let (Some(start), Some(finish)) = (self.start_at, self.finish_at)
            && finish <= start
        {
            let detail = format!("is {finish}: it must be later than start_at, which is {start}");
            errors.push(FieldError::new("/finish_at", detail));
        }
        if let Some(Err(wrong)) = self.windows.as_ref().map(Windows::check) {
            let field = |(pointer, rule)| FieldError::new(format!("/windows{pointer}"), rule);
            errors.extend(wrong.into_iter().map(field));
        }
        if let Some(Err(wrong)) = self.schedule.as_ref().map(Schedule::check) {
            let field = |(pointer, rule)| FieldError::new(format!("/schedule{pointer}"), rule);
            errors.extend(wrong.into_iter().map(field));
        }
        if self.schedule.is_some() && self.windows.is_some() {
            let rule = "an observer has windows or a schedule, not both: write the times of the windows into the cron expression";
            errors.push(FieldError::new("/schedule", rule));
        }
        if let Err((pointer, rule)) = self.retry.check() {
            errors.push(FieldError::new(format!("/retry{pointer}"), rule));
        }
        if self.labels.len() > LABELS_MAX {
            errors.push(FieldError::new("/labels", format!("at most {LABELS_MAX} labels")));
        }
        errors.extend(labels::errors(&self.labels).map(|(key, rule)| of_label(key, rule)));
        if errors.is_empty() { Ok(()) } else { Err(errors) }
    }
}

fn depth(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
        Value::Object(members) => 1 + members.values().map(depth).max().unwrap_or(0),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
    }
}

#[cfg(test)]
#[path = "definition_tests.rs"]
mod tests;
