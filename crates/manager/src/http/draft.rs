//! Definitions in request bodies: complete ones, and merge patches (RFC 7396).

use super::problem::Problem;
use everwatch_core::id::Name;
use everwatch_core::observer::definition::{FieldError, ObserverDefinition};
use everwatch_core::observer::patch;
use serde_json::Value;

/// A parsed body: the definition, and the desired state.
pub(super) struct Draft {
    pub(super) definition: ObserverDefinition,
    pub(super) paused: Option<bool>,
}

/// Reads a body; `desired` beside the members of an observer is `running` or `paused`.
pub(super) fn draft(mut body: Value, fallback: &Name) -> Result<Draft, Problem> {
    let mut errors = Vec::new();
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

pub(super) fn same_name(definition: &ObserverDefinition, name: &Name) -> Result<(), Problem> {
    definition.check_name(name).map_err(|error| Problem::invalid(vec![error]))
}

/// Applies a merge patch (RFC 7396).
pub(super) fn merged(target: Value, changes: &Value) -> Result<Value, Problem> {
    patch::merged(target, changes).map_err(|error| Problem::invalid(vec![error]))
}
