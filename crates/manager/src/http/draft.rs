//! Definitions in request bodies: complete ones, and merge patches (RFC 7396).

use super::problem::Problem;
use everwatch_core::id::Name;
use everwatch_core::observer::definition::{FieldError, ObserverDefinition};
use serde_json::{Map, Value};

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
    if definition.name == *name {
        return Ok(());
    }
    let detail = format!("is {name} for good: a name cannot be changed");
    Err(Problem::invalid(vec![FieldError { pointer: "/name".to_owned(), detail }]))
}

/// Applies a merge patch (RFC 7396).
pub(super) fn merged(target: Value, patch: &Value) -> Result<Value, Problem> {
    match (target, patch) {
        (Value::Object(mut members), Value::Object(changes)) => {
            for (member, change) in changes {
                // Of another kind, a retry policy has other members: what stood there means nothing.
                if member == "retry" && change.get("kind").is_some() {
                    members.remove(member);
                }
                merge_member(&mut members, member, change);
            }
            Ok(Value::Object(members))
        }
        _ => Err(Problem::invalid(vec![FieldError {
            pointer: String::new(),
            detail: "must be a JSON object".to_owned(),
        }])),
    }
}

pub(super) fn merge_member(members: &mut Map<String, Value>, member: &str, change: &Value) {
    match change {
        Value::Null => {
            members.remove(member);
        }
        Value::Object(changes) => {
            let mut inner = match members.remove(member) {
                Some(Value::Object(inner)) => inner,
                _ => Map::new(),
            };
            for (member, change) in changes {
                merge_member(&mut inner, member, change);
            }
            members.insert(member.to_owned(), Value::Object(inner));
        }
        other => {
            members.insert(member.to_owned(), other.clone());
        }
    }
}
