//! Checks a batch before anything is stored: one member that is not valid refuses it.

use super::super::draft::{Draft, draft, merged};
use super::super::problem::Problem;
use super::super::{limits, namespaces};
use crate::context::Manager;
use crate::fleet::kind_check::{self, Unfit};
use everwatch_api::NewBatch;
use everwatch_core::batch::MEMBERS_MAX;
use everwatch_core::capacity::limits::MAX_MAX;
use everwatch_core::id::{BatchId, LimitKey, Name, Namespace};
use everwatch_core::observer::definition::{FieldError, LIMITS_MAX, ObserverDefinition, OnFull};
use serde_json::{Value, json};
use std::collections::{BTreeSet, HashSet};
use std::time::Duration;
use uuid::Uuid;

/// The errors that a refusal names.
const ERRORS_MAX: usize = 20;
/// The longest name of a batch: its members are named after it.
const NAME_MAX: usize = 120;
/// Members that are checked before other tasks have their turn.
const TURN: usize = 200;

/// A batch whose members can be read.
pub(super) struct BatchDraft {
    pub(super) name: Name,
    pub(super) namespace: Namespace,
    pub(super) max_running: Option<u32>,
    pub(super) members: Vec<Draft>,
    sent: Sent,
}

/// The request, as the client sent it: each observer is merged into the defaults.
struct Sent {
    defaults: Value,
    observers: Vec<Value>,
}

impl Sent {
    /// The place in the request of a member of an observer: if only the defaults have it, they are wrong.
    fn pointer(&self, place: usize, pointer: &str) -> String {
        let own = self.observers.get(place).and_then(|it| it.pointer(pointer));
        if !pointer.is_empty() && own.is_none() && self.defaults.pointer(pointer).is_some() {
            return format!("/defaults{pointer}");
        }
        format!("/observers/{place}{pointer}")
    }
}

fn wrong(pointer: &str, detail: impl Into<String>) -> FieldError {
    FieldError { pointer: pointer.to_owned(), detail: detail.into() }
}

fn refused(pointer: &str, detail: impl Into<String>) -> Problem {
    Problem::invalid(vec![wrong(pointer, detail)])
}

/// The errors of members, with their places.
struct Errors<'a> {
    sent: &'a Sent,
    shown: Vec<FieldError>,
    all: usize,
}

impl<'a> Errors<'a> {
    fn new(sent: &'a Sent) -> Self {
        Self { sent, shown: Vec::new(), all: 0 }
    }

    fn add(&mut self, place: usize, error: FieldError) {
        let error = FieldError { pointer: self.sent.pointer(place, &error.pointer), ..error };
        // All observers have the mistakes of the defaults.
        if self.shown.contains(&error) {
            return;
        }
        self.all += 1;
        if self.shown.len() < ERRORS_MAX {
            self.shown.push(error);
        }
    }
    fn finish(mut self) -> Result<(), Problem> {
        let more = self.all - self.shown.len();
        if more > 0 {
            self.shown.push(wrong("/observers", format!("has {more} more errors")));
        }
        if self.shown.is_empty() { Ok(()) } else { Err(Problem::invalid(self.shown)) }
    }
}

/// Reads a request; its members are merged into the defaults.
pub(super) async fn checked(namespace: Namespace, wanted: NewBatch) -> Result<BatchDraft, Problem> {
    let name = match wanted.name.as_deref() {
        Some(text) => Name::new(text).map_err(|error| refused("/name", error.to_string()))?,
        None => made_up(),
    };
    if name.as_str().len() > NAME_MAX {
        return Err(refused(
            "/name",
            format!("is longer than {NAME_MAX} characters: its members are named after it"),
        ));
    }
    if let Some(max) = wanted.max_running.filter(|max| !(1..=MAX_MAX).contains(max)) {
        return Err(refused("/max_running", format!("is {max}: 1 to {MAX_MAX}, or leave it out")));
    }
    let count = wanted.observers.len();
    if !(1..=MEMBERS_MAX).contains(&count) {
        return Err(refused("/observers", format!("has {count} observers: a batch has 1 to {MEMBERS_MAX}")));
    }
    let sent = Sent { defaults: Value::Object(wanted.defaults), observers: wanted.observers };
    let (mut errors, mut members, mut names) = (Errors::new(&sent), Vec::new(), HashSet::new());
    for (place, observer) in sent.observers.iter().enumerate() {
        if place % TURN == 0 {
            tokio::task::yield_now().await;
        }
        let fallback = Name::new(&format!("{name}-{place}")).expect("a number is legal at the end of a name");
        match member(&sent.defaults, observer, (&namespace, &fallback), wanted.max_running.is_some()) {
            Err(found) => found.into_iter().for_each(|error| errors.add(place, error)),
            Ok(member) => {
                if !names.insert(member.definition.name.clone()) {
                    let detail = "is also the name of an earlier observer: give each its own name";
                    errors.add(place, wrong("/name", detail));
                }
                members.push(member);
            }
        }
    }
    errors.finish()?;
    Ok(BatchDraft { name, namespace, max_running: wanted.max_running, members, sent })
}

fn made_up() -> Name {
    let random = Uuid::new_v4().simple().to_string();
    Name::new(&format!("batch-{}", &random[..12])).expect("hexadecimal digits are legal in a name")
}

fn member(
    defaults: &Value,
    observer: &Value,
    (namespace, fallback): (&Namespace, &Name),
    is_limited: bool,
) -> Result<Draft, Vec<FieldError>> {
    if !observer.is_object() {
        return Err(vec![wrong("", "must be a JSON object")]);
    }
    let mut body = merged(defaults.clone(), observer).map_err(Problem::into_errors)?;
    if let Some(members) = body.as_object_mut() {
        members.entry("on_full").or_insert_with(|| json!("queue"));
    }
    let mut draft = draft(body, (namespace, fallback)).map_err(Problem::into_errors)?;
    limits::drop_own(&mut draft.definition);
    let definition = &draft.definition;
    let mut errors = Vec::new();
    if definition.on_full == OnFull::Reject {
        errors.push(wrong("/on_full", "is \"reject\": the members of a batch wait for slots, leave it out"));
    }
    if definition.schedule.is_some() {
        errors.push(wrong("/schedule", "starts again and again: the members of a batch end, leave it out"));
    }
    if definition.namespace != *namespace {
        let detail =
            format!("is {}, and the batch belongs to {namespace}: leave it out", definition.namespace);
        errors.push(wrong("/namespace", detail));
    }
    if definition.limits.iter().any(LimitKey::is_of_batch) {
        errors.push(wrong("/limits", "names the limit of a batch: only the members of that batch use it"));
    }
    if definition.limits.iter().any(LimitKey::is_of_namespace) {
        errors.push(wrong("/limits", "names the limit of another namespace: only its observers use it"));
    }
    let own = LimitKey::of_namespace(namespace);
    let most = LIMITS_MAX - usize::from(is_limited) - usize::from(own.is_some());
    if definition.limits.len() > most {
        let number = definition.limits.len();
        let detail = if is_limited && own.is_none() {
            format!("names {LIMITS_MAX} limits, but max_running counts as one of them: name one fewer")
        } else {
            format!("names {number} limits, at most {most} beside those of its batch and its namespace")
        };
        errors.push(wrong("/limits", detail));
    }
    if errors.is_empty() { Ok(draft) } else { Err(errors) }
}

/// Checks what depends on services, limits and other observers.
pub(super) async fn check_members(
    manager: &Manager,
    batch: BatchId,
    draft: &BatchDraft,
) -> Result<(), Problem> {
    let records = &manager.records;
    let services = records.services(Duration::ZERO).await?;
    let (mut errors, now) = (Errors::new(&draft.sent), records.clock.now());
    let keys: BTreeSet<&LimitKey> = draft.members.iter().flat_map(|it| &it.definition.limits).collect();
    let keys: Vec<LimitKey> = keys.into_iter().cloned().collect();
    let known = if keys.is_empty() { [].into() } else { records.store.limits_of(&keys).await? };
    let row = namespaces::check_many(records, &draft.namespace, draft.members.len() as u64).await?;
    let pools = row.and_then(|row| row.settings.pools);
    let names: Vec<String> = draft.members.iter().map(|it| it.definition.name_key()).collect();
    let taken: BTreeSet<Name> = records.store.taken_names(&names, batch).await?.into_iter().collect();
    for (place, it) in draft.members.iter().enumerate() {
        if place % TURN == 0 {
            tokio::task::yield_now().await;
        }
        let definition: &ObserverDefinition = &it.definition;
        match kind_check::against(manager, &services, definition) {
            Ok(()) => {}
            Err(Unfit::Spec(found)) => found.into_iter().for_each(|error| errors.add(place, error)),
            Err(Unfit::Kind(detail)) => errors.add(place, wrong("/kind", detail)),
            Err(Unfit::Weight(detail)) => errors.add(place, wrong("/weight", detail)),
        }
        if let Err(error) = definition.check_at(now) {
            errors.add(place, error);
        }
        for key in definition.limits.iter().filter(|key| !known.contains_key(key)) {
            let cure = format!("create it with everwatch limit set {key} --max NUMBER");
            errors.add(place, wrong("/limits", format!("{key} is unknown: {cure}")));
        }
        if pools.as_ref().is_some_and(|pools| !pools.contains(&definition.pool)) {
            let detail = format!("is {}, which namespace {} may not use", definition.pool, draft.namespace);
            errors.add(place, wrong("/pool", detail));
        }
        if taken.contains(&definition.name) {
            let detail = format!(
                "an observer named {} exists already: delete it, or use another name",
                definition.name
            );
            errors.add(place, wrong("/name", detail));
        }
    }
    errors.finish()
}
