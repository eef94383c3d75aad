//! Words what is wrong with a spec, without the values of the spec: they may be secrets.

use everwatch_core::clock::DURATION_FORMAT;
use everwatch_core::spelling::nearest;
use everwatch_core::wording::{counted, or};
use jsonschema::ValidationError;
use jsonschema::error::{TypeKind, ValidationErrorKind};
use serde_json::Value;

/// The choices and members that an error names.
const NAMED_MAX: usize = 20;

/// What is wrong, as the predicate of a sentence about the member.
pub(super) fn told(error: &ValidationError<'_>, schema: &Value) -> String {
    use ValidationErrorKind as Kind;
    match error.kind() {
        Kind::Format { format } => not_of_format(format),
        Kind::AdditionalProperties { unexpected } | Kind::UnevaluatedProperties { unexpected } => {
            unknown(unexpected, &permitted(error, schema))
        }
        Kind::Type { kind } => format!("must be {}", or(&types(kind))),
        Kind::Enum { options } => match options.as_array() {
            Some(options) if options.len() <= NAMED_MAX => {
                format!("must be {}", or(&options.iter().map(Value::to_string).collect::<Vec<_>>()))
            }
            _ => "is none of the permitted values".to_owned(),
        },
        Kind::Constant { expected_value } => format!("must be {expected_value}"),
        Kind::Minimum { limit } => format!("must be at least {limit}"),
        Kind::Maximum { limit } => format!("must be at most {limit}"),
        Kind::ExclusiveMinimum { limit } => format!("must be more than {limit}"),
        Kind::ExclusiveMaximum { limit } => format!("must be less than {limit}"),
        Kind::MultipleOf { multiple_of } => format!("must be a multiple of {multiple_of}"),
        Kind::MinItems { limit } => format!("must have at least {}", counted(limit, "item")),
        Kind::MaxItems { limit } => format!("must have at most {}", counted(limit, "item")),
        Kind::MinProperties { limit } => format!("must have at least {}", counted(limit, "field")),
        Kind::MaxProperties { limit } => format!("must have at most {}", counted(limit, "field")),
        Kind::MinLength { limit } => format!("must have at least {}", counted(limit, "character")),
        Kind::MaxLength { limit } => format!("must have at most {}", counted(limit, "character")),
        Kind::UniqueItems => "must not have the same item twice".to_owned(),
        Kind::Pattern { pattern } => format!("must match the regular expression \"{pattern}\""),
        Kind::PropertyNames { error } => format!("has a field whose name {}", told(error, schema)),
        Kind::AnyOf { .. } if let Some(members) = alternatives(error, schema) => {
            format!("needs at least one of {}", members.join(", "))
        }
        Kind::AnyOf { .. } | Kind::OneOfNotValid { .. } => {
            "matches none of the permitted forms: `everwatch kind describe KIND` shows them".to_owned()
        }
        Kind::OneOfMultipleValid { .. } => "matches several forms, but must match exactly one".to_owned(),
        Kind::FalseSchema => "is not permitted".to_owned(),
        _ => error.masked().to_string(),
    }
}

fn types(kind: &TypeKind) -> Vec<&'static str> {
    let word = |name: &str| match name {
        "string" => "a string",
        "integer" => "a whole number",
        "number" => "a number",
        "boolean" => "true or false",
        "array" => "a list",
        "object" => "an object",
        _ => "null",
    };
    match kind {
        TypeKind::Single(of) => vec![word(of.as_str())],
        TypeKind::Multiple(all) => all.iter().map(|of| word(of.as_str())).collect(),
    }
}

/// The members beside the keyword that refuses others; empty if the schema does not list them there.
fn permitted<'a>(error: &ValidationError<'_>, schema: &'a Value) -> Vec<&'a str> {
    let beside = error.schema_path().as_str().rsplit_once('/').map_or("", |(parent, _)| parent);
    let members = schema.pointer(beside).and_then(|schema| schema["properties"].as_object());
    members.into_iter().flatten().map(|(name, _)| name.as_str()).collect()
}

/// The members of which one must be present; `None` if the permitted forms differ in something else.
fn alternatives(error: &ValidationError<'_>, schema: &Value) -> Option<Vec<String>> {
    let required = |form: &Value| {
        let all = form["required"].as_array()?;
        let is_all_that_it_asks = form.as_object()?.len() == 1;
        let [Value::String(member)] = &all[..] else { return None };
        is_all_that_it_asks.then(|| format!("`{member}`"))
    };
    schema.pointer(error.schema_path().as_str())?.as_array()?.iter().map(required).collect()
}

fn unknown(unexpected: &[String], permitted: &[&str]) -> String {
    let named = unexpected.iter().take(NAMED_MAX).map(String::as_str).collect::<Vec<_>>().join(", ");
    let noun = if unexpected.len() == 1 { "an unknown field" } else { "unknown fields" };
    let near = unexpected.first().and_then(|name| nearest(name, permitted.iter().copied()));
    let advice = match near {
        Some(near) => format!("; did you mean `{near}`?"),
        None if permitted.is_empty() || permitted.len() > NAMED_MAX => String::new(),
        None => format!("; permitted: {}", permitted.join(", ")),
    };
    format!("has {noun}: {named}{advice}")
}

/// Formats are asserted: a URL that is none would otherwise fail on a service, long after the create.
fn not_of_format(format: &str) -> String {
    match format {
        DURATION_FORMAT => {
            "is not a duration: write it like \"500ms\", \"30s\", \"1h 30m\" or \"30d\"".to_owned()
        }
        "uri" => "is not a URL: write it like \"https://example.org/path\"".to_owned(),
        "regex" => "is not a regular expression".to_owned(),
        other => format!("is not of the format \"{other}\""),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Schemas;
    use everwatch_core::id::Kind;
    use serde_json::{Value, json};

    fn told(schema: &Value, spec: &Value) -> String {
        let kind = Kind::new("poll").unwrap();
        let all = Schemas::default().errors(&kind, schema, spec).into_iter();
        all.map(|it| format!("{} {}", it.pointer, it.detail)).collect::<Vec<_>>().join("; ")
    }

    #[test]
    fn errors_are_sentences() {
        let of = |schema: Value| json!({"properties": {"a": schema}});
        for (schema, value, expected) in [
            (json!({"type": "string"}), json!(5), "must be a string"),
            (json!({"type": ["null", "integer"]}), json!("x"), "must be null or a whole number"),
            (json!({"enum": ["GET", "HEAD", "PUT"]}), json!("x"), "must be \"GET\", \"HEAD\" or \"PUT\""),
            (json!({"minItems": 1}), json!([]), "must have at least 1 item"),
            (json!({"maxLength": 2}), json!("xyz"), "must have at most 2 characters"),
            (json!({"maximum": 9}), json!(10), "must be at most 9"),
            (json!({"pattern": "^x"}), json!("y"), "must match the regular expression \"^x\""),
            (
                json!({"propertyNames": {"maxLength": 1}}),
                json!({"bb": 1}),
                "has a field whose name must have at most 1 character",
            ),
            (
                json!({"oneOf": [{"type": "null"}, {"type": "string"}]}),
                json!(1),
                "matches none of the permitted forms: `everwatch kind describe KIND` shows them",
            ),
            (
                json!({"anyOf": [{"required": ["channels"]}, {"required": ["query"]}]}),
                json!({}),
                "needs at least one of `channels`, `query`",
            ),
            (
                json!({"anyOf": [{"required": ["b"]}, {"type": "string"}]}),
                json!({}),
                "matches none of the permitted forms: `everwatch kind describe KIND` shows them",
            ),
        ] {
            assert_eq!(told(&of(schema), &json!({ "a": value })), format!("/spec/a {expected}"));
        }
    }

    #[test]
    fn an_unknown_member_is_named_with_the_member_that_it_resembles() {
        let schema = json!({"properties": {"every": {}, "text": {}, "in": {"$ref": "#/$defs/inner"}},
            "additionalProperties": false,
            "$defs": {"inner": {"properties": {"url": {}}, "additionalProperties": false}}});
        assert_eq!(
            told(&schema, &json!({"evry": 1})),
            "/spec has an unknown field: evry; did you mean `every`?"
        );
        assert_eq!(
            told(&schema, &json!({"x": 1, "z": 1})),
            "/spec has unknown fields: x, z; permitted: every, in, text"
        );
        assert_eq!(
            told(&schema, &json!({"in": {"ulr": 1}})),
            "/spec/in has an unknown field: ulr; did you mean `url`?"
        );
    }
}
