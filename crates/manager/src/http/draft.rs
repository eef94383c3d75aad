//! Definitions in request bodies: complete ones, and merge patches (RFC 7396).

use super::caller;
use super::problem::Problem;
use super::query::bad;
use crate::context::Manager;
use crate::fleet::kind_check;
use everwatch_core::id::{Kind, Name, Namespace, Pool};
use everwatch_core::observer::definition::{FieldError, ObserverDefinition};
use everwatch_core::observer::patch;
use serde_json::{Value, json};

/// A parsed body: the definition, and the desired state.
pub(super) struct Draft {
    pub(super) definition: ObserverDefinition,
    pub(super) paused: Option<bool>,
}

/// The namespace of what a request creates: its body or its query names it, otherwise it is the only one of the sender, or
/// `default`.
pub(super) fn namespace_of(given: Option<Namespace>, body: &Value) -> Result<Namespace, Problem> {
    let in_body = match body.get("namespace") {
        None | Some(Value::Null) => None,
        Some(value) => Some(serde_json::from_value::<Namespace>(value.clone()).map_err(|error| {
            Problem::invalid(vec![FieldError { pointer: "/namespace".to_owned(), detail: error.to_string() }])
        })?),
    };
    match (given, in_body) {
        (Some(given), Some(in_body)) if given != in_body => {
            let detail = format!("is {given}, and the body names namespace {in_body}: name one of them");
            Err(bad("namespace", detail))
        }
        (given, in_body) => Ok(given.or(in_body).unwrap_or_else(caller::namespace)),
    }
}

/// Reads a body; `desired` beside the members of an observer is `running` or `paused`. Without a namespace or a name in the
/// body, the observer gets these.
pub(super) fn draft(mut body: Value, (namespace, fallback): (&Namespace, &Name)) -> Result<Draft, Problem> {
    let mut errors = Vec::new();
    if let Some(members) = body.as_object_mut()
        && members.get("namespace").is_none_or(Value::is_null)
    {
        members.insert("namespace".to_owned(), namespace.as_str().into());
    }
    let paused = match body.as_object_mut().and_then(|members| members.remove("desired")) {
        None | Some(Value::Null) => None,
        Some(Value::String(word)) if word == "running" => Some(false),
        Some(Value::String(word)) if word == "paused" => Some(true),
        Some(_) => {
            let detail = "is \"running\" or \"paused\"".to_owned();
            errors.push(FieldError { pointer: "/desired".to_owned(), detail });
            None
        }
    };
    match ObserverDefinition::parse(body, fallback) {
        Ok(definition) if errors.is_empty() => Ok(Draft { definition, paused }),
        Ok(_) => Err(Problem::invalid(errors)),
        Err(others) => {
            errors.extend(others);
            Err(Problem::invalid(errors))
        }
    }
}

/// As [`draft`]; if the body is refused, its spec is checked too, so that the user learns of all mistakes at once.
pub(super) async fn checked_draft(
    manager: &Manager,
    body: &Value,
    names: (&Namespace, &Name),
) -> Result<Draft, Problem> {
    let problem = match draft(body.clone(), names) {
        Ok(draft) => return Ok(draft),
        Err(problem) => problem,
    };
    let mut errors = problem.into_errors();
    let of = |member: &str| body.get(member).filter(|value| !value.is_null()).and_then(Value::as_str);
    let pool = of("pool").map_or_else(|| Ok(Pool::default()), Pool::new);
    let is_told = errors.iter().any(|it| it.pointer.starts_with("/spec"));
    if let (Some(Ok(kind)), Ok(pool), false) = (of("kind").map(Kind::new), pool, is_told)
        && caller::may_create(names.0, &pool, &kind)
    {
        let spec = body.get("spec").cloned().unwrap_or_else(|| json!({}));
        errors.extend(kind_check::spec_errors(manager, (&pool, &kind), &spec).await?);
    }
    Err(Problem::invalid(errors))
}

pub(super) fn same_name(
    definition: &ObserverDefinition,
    (namespace, name): (&Namespace, &Name),
) -> Result<(), Problem> {
    definition.check_name(namespace, name).map_err(|error| Problem::invalid(vec![error]))
}

/// Applies a merge patch (RFC 7396).
pub(super) fn merged(target: Value, changes: &Value) -> Result<Value, Problem> {
    patch::merged(target, changes).map_err(|error| Problem::invalid(vec![error]))
}
