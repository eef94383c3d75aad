//! The text of `describe` for a kind: the members of its spec, from its schema.

use super::{aligned, line};
use everwatch_api::Kind;
use everwatch_core::clock::DURATION_FORMAT;
use serde_json::{Map, Value, json};

/// A kind, with each member of its spec.
pub(crate) fn kind(it: &Kind) -> String {
    let facts = vec![
        ("Name", it.name.clone()),
        ("Pools", it.pools.join(", ")),
        ("Services", it.services.to_string()),
        ("About", it.schema["description"].as_str().map(line).unwrap_or_default()),
    ];
    let facts: Vec<_> = facts.into_iter().filter(|(_, told)| !told.is_empty()).collect();
    let members = it.schema["properties"].as_object().filter(|members| !members.is_empty());
    let spec = match (&it.schema, members) {
        (Value::Null, _) => "Spec:\n  not known: its services have sent no schema".to_owned(),
        (_, None) => "Spec:\n  no fields".to_owned(),
        (schema, Some(members)) => format!("Spec:\n{}", told(schema, members)),
    };
    let create = format!(
        "Create one:\n  everwatch observer create NAME --kind {} --spec '{}'",
        it.name,
        example(&it.schema)
    );
    [aligned(&facts), spec, create].join("\n\n")
}

/// Each member on a line with its type and default, and its description below.
fn told(schema: &Value, members: &Map<String, Value>) -> String {
    let required = |name: &str| is_required(schema, name);
    let mut lines = Vec::new();
    for (name, member) in members {
        let default = member.get("default").filter(|it| !it.is_null());
        let default = default.map(|it| format!(", default {it}"));
        let default = default.unwrap_or_else(|| if required(name) { ", required" } else { "" }.to_owned());
        lines.push(format!("  {name}: {}{default}", type_of(schema, member)));
        lines.extend(member["description"].as_str().map(|text| format!("    {}", line(text))));
    }
    lines.join("\n")
}

fn is_required(schema: &Value, name: &str) -> bool {
    schema["required"].as_array().is_some_and(|all| all.iter().any(|it| it == name))
}

/// The schema of a member; if it refers to a definition, the schema of that definition.
fn resolved<'a>(schema: &'a Value, member: &'a Value) -> &'a Value {
    let reference = member["$ref"].as_str().and_then(|it| it.strip_prefix('#'));
    reference.and_then(|pointer| schema.pointer(pointer)).unwrap_or(member)
}

fn type_of(schema: &Value, member: &Value) -> String {
    let member = resolved(schema, member);
    if let Some(values) = member["enum"].as_array() {
        return values.iter().map(ToString::to_string).collect::<Vec<_>>().join(" | ");
    }
    if member["format"] == DURATION_FORMAT {
        return "duration, for example 30s".to_owned();
    }
    match &member["type"] {
        Value::String(one) => match member["format"].as_str() {
            Some(format) => format!("{one} ({format})"),
            None => one.clone(),
        },
        Value::Array(several) => several.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" or "),
        _ => "any".to_owned(),
    }
}

/// A spec with the required members and the members that have an example.
fn example(schema: &Value) -> String {
    if let Some(example) = schema["examples"].as_array().and_then(|all| all.first()) {
        return example.to_string();
    }
    let members = schema["properties"].as_object().into_iter().flatten();
    let value = |member: &Value| {
        let member = resolved(schema, member);
        let given =
            member["examples"].as_array().and_then(|all| all.first()).or_else(|| member.get("default"));
        given.cloned().unwrap_or_else(|| match member["type"].as_str() {
            Some("array") => json!(["…"]),
            Some("object") => json!({}),
            Some("integer" | "number") => json!(1),
            Some("boolean") => json!(true),
            _ => json!("…"),
        })
    };
    let needed = members.filter(|(name, _)| is_required(schema, name));
    Value::Object(needed.map(|(name, member)| (name.clone(), value(member))).collect()).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_is_a_type() {
        for kind in [json!("string"), json!(["string", "null"])] {
            let member = json!({"type": kind, "format": DURATION_FORMAT});
            assert_eq!(type_of(&json!({}), &member), "duration, for example 30s");
        }
        assert_eq!(type_of(&json!({}), &json!({"type": "string", "format": "uri"})), "string (uri)");
    }
}
