//! Whether a spec is what its kind wants, by the JSON schema that the services tell of it.

mod durations;
mod wording;

use crate::lock::lock;
use everwatch_core::id::Kind;
use everwatch_core::observer::definition::FieldError;
use everwatch_core::observer::secret;
use everwatch_core::record::service::ServiceRow;
use jsonschema::error::ValidationErrorKind;
use jsonschema::{PatternOptions, ValidationError, Validator};
use serde_json::Value;
use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex};
use tracing::warn;

/// Complaints about one spec.
const ERRORS_MAX: usize = 20;
/// Kinds whose schema is kept ready; beyond it, memory starts again.
const KNOWN_MAX: usize = 1000;

/// Schemas that were made ready once.
#[derive(Debug, Default)]
pub(crate) struct Schemas(Mutex<HashMap<Kind, Ready>>);

#[derive(Debug)]
struct Ready {
    schema: Value,
    /// `None` if it is no schema: nothing is refused by it.
    validator: Option<Arc<Validator>>,
}

/// What the youngest of these services says of a kind: in a rolling deploy it speaks for what is to come.
pub(crate) fn of_kind<'a>(services: impl Iterator<Item = &'a ServiceRow>, kind: &Kind) -> Option<&'a Value> {
    let schema = |service: &'a ServiceRow| {
        let info = service.registration.kinds.iter().find(|info| info.name == *kind)?;
        (!info.schema.is_null()).then_some((service.registered_at, info.schema.as_ref()))
    };
    services.filter_map(schema).max_by_key(|(registered_at, _)| *registered_at).map(|(_, schema)| schema)
}

impl Schemas {
    /// What is wrong with a spec, each with a pointer from `/spec` on.
    pub(crate) fn errors(&self, kind: &Kind, schema: &Value, spec: &Value) -> Vec<FieldError> {
        let Some(validator) = self.ready(kind, schema) else { return Vec::new() };
        let replaced = secret::with_placeholders(spec);
        let (spec, secrets) = replaced.as_ref().map_or((spec, None), |(spec, places)| (spec, Some(places)));
        let is_secret = |error: &ValidationError<'_>| {
            secrets.is_some_and(|places| places.contains(error.instance_path().as_str()))
        };
        let is_open = |error: &ValidationError<'_>| secrets.is_some_and(|places| depends_on(error, places));
        validator
            .iter_errors(spec)
            .filter(|error| !is_open(error))
            .take(ERRORS_MAX)
            .map(|error| {
                let at = error.instance_path();
                if is_secret(&error) {
                    let detail = "is a reference to a secret, but the kind does not accept every string here: write the value itself";
                    return FieldError { pointer: format!("/spec{at}"), detail: detail.to_owned() };
                }
                match error.kind() {
                    ValidationErrorKind::Required { property } => {
                        let property = property.as_str().unwrap_or_default();
                        let property = property.replace('~', "~0").replace('/', "~1");
                        let detail = "is missing".to_owned();
                        FieldError { pointer: format!("/spec{at}/{property}"), detail }
                    }
                    _ => FieldError { pointer: format!("/spec{at}"), detail: wording::told(&error, schema) },
                }
            })
            .collect()
    }

    fn ready(&self, kind: &Kind, schema: &Value) -> Option<Arc<Validator>> {
        let mut known = lock(&self.0);
        if let Some(ready) = known.get(kind)
            && ready.schema == *schema
        {
            return ready.validator.clone();
        }
        // Patterns that take no more than linear time.
        let options =
            jsonschema::options().with_pattern_options(PatternOptions::regex()).should_validate_formats(true);
        let made = durations::known_to(options).build(schema);
        let made = made
            .inspect_err(
                |error| warn!(%kind, %error, "a service registered a kind with an invalid JSON schema"),
            )
            .ok()
            .map(Arc::new);
        if known.len() >= KNOWN_MAX {
            known.clear();
        }
        known.insert(kind.clone(), Ready { schema: schema.clone(), validator: made.clone() });
        made
    }
}

/// Whether an error depends on the characters of a secret, which only the service knows.
fn depends_on(error: &ValidationError<'_>, secrets: &BTreeSet<String>) -> bool {
    use ValidationErrorKind as Kind;
    match error.kind() {
        Kind::Format { .. }
        | Kind::Pattern { .. }
        | Kind::MinLength { .. }
        | Kind::MaxLength { .. }
        | Kind::ContentEncoding { .. }
        | Kind::ContentMediaType { .. }
        | Kind::Custom { .. } => secrets.contains(error.instance_path().as_str()),
        Kind::AnyOf { context } | Kind::OneOfNotValid { context } => {
            context.iter().any(|branch| branch.iter().all(|error| depends_on(error, secrets)))
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use everwatch_core::clock::DURATION_FORMAT;
    use serde_json::json;

    #[test]
    fn durations_and_urls_are_checked_and_their_errors_say_how_to_write_them() {
        let (schemas, kind) = (Schemas::default(), Kind::new("poll").unwrap());
        let every = json!({"type": ["string", "null"], "format": DURATION_FORMAT,
            "durationMinimum": "100ms", "durationMaximum": "1h"});
        let schema = json!({"type": "object", "properties": {"every": every,
            "url": {"type": "string", "format": "uri", "pattern": "^https?://"}, "size": {"format": "uint32"}}});
        let told = |spec: Value| {
            let all = schemas.errors(&kind, &schema, &spec).into_iter();
            all.map(|it| format!("{} {}", it.pointer, it.detail)).collect::<Vec<_>>()
        };
        for every in ["100ms", "1h", "1m 30s", "PT5S", "2 seconds"] {
            assert_eq!(told(json!({"every": every, "url": "http://h/", "size": 1})), [""; 0], "{every}");
        }
        assert_eq!(told(json!({"every": null})), [""; 0]);
        for (every, wrong) in [
            ("1 parsec", "is not a duration: write it like"),
            ("", "is not a duration"),
            ("-5s", "is not a duration"),
            ("99ms", "is below the minimum of 100ms"),
            ("61m", "is above the maximum of 1h"),
        ] {
            let told = told(json!({"every": every}));
            assert!(
                told.len() == 1 && told[0].starts_with(&format!("/spec/every {wrong}")),
                "{every}: {told:?}"
            );
        }
        assert!(told(json!({"url": "not a url"}))[0].starts_with("/spec/url "));
        assert!(told(json!({"url": "ftp://h/"}))[0].starts_with("/spec/url "));
        assert!(told(json!("not a url"))[0].starts_with("/spec "));
    }

    #[test]
    fn a_secret_may_stand_for_any_string_and_for_nothing_else() {
        let (schemas, kind) = (Schemas::default(), Kind::new("poll").unwrap());
        let schema = json!({"type": "object", "additionalProperties": false, "properties": {
            "url": {"type": "string", "format": "uri", "pattern": "^https?://", "minLength": 10},
            "body": {"anyOf": [{"type": "null"}, {"type": "string", "maxLength": 2}]},
            "method": {"enum": ["get", "post"]}, "count": {"type": "integer"},
            "headers": {"type": "object", "additionalProperties": {"type": "string"}}, "free": true,
            "login": {"anyOf": [{"type": "null"}, {"type": "object", "required": ["url"],
                "properties": {"url": {"type": "string", "format": "uri"}}}]},
            "set": {"type": "array", "uniqueItems": true, "items": {"type": "string"}}}});
        let secret = json!({"$secret": "file:a"});
        let told = |spec: Value| {
            let all = schemas.errors(&kind, &schema, &spec).into_iter();
            all.map(|it| format!("{} {}", it.pointer, it.detail)).collect::<Vec<_>>()
        };
        for member in ["url", "body", "free"] {
            assert_eq!(told(json!({ member: secret })), [""; 0], "{member}");
        }
        assert_eq!(told(json!({"headers": {"authorization": secret}, "free": [secret]})), [""; 0]);
        assert_eq!(told(json!({"login": {"url": secret}, "set": [secret, secret]})), [""; 0], "inside");
        assert!(told(json!({"login": {"other": secret}}))[0].starts_with("/spec/login "));
        for member in ["method", "count", "headers"] {
            let told = told(json!({ member: secret }));
            let expected = format!("/spec/{member} is a reference to a secret, but the kind does not");
            assert!(told.len() == 1 && told[0].starts_with(&expected), "{told:?}");
        }
        assert!(told(json!({"other": secret}))[0].starts_with("/spec "));
    }

    #[test]
    fn what_is_wrong_is_told_by_field_and_without_its_value() {
        let (schemas, kind) = (Schemas::default(), Kind::new("exec").unwrap());
        let schema = json!({"type": "object", "required": ["argv"], "additionalProperties": false,
            "properties": {"argv": {"type": "array", "items": {"type": "string"}}, "a/b": {"pattern": "^x+$"}}});
        let told = |spec: Value| {
            let mut all: Vec<String> = schemas
                .errors(&kind, &schema, &spec)
                .into_iter()
                .map(|it| format!("{} {}", it.pointer, it.detail))
                .collect();
            all.sort();
            all
        };
        assert!(told(json!({"argv": ["true"]})).is_empty());
        assert_eq!(told(json!({})), ["/spec/argv is missing"]);
        let wrong = told(json!({"argv": ["true", 77_123], "a/b": "secret", "more": 1}));
        assert_eq!(wrong.len(), 3, "{wrong:?}");
        assert!(wrong.iter().any(|it| it.starts_with("/spec/argv/1 ")), "{wrong:?}");
        assert!(wrong.iter().any(|it| it.starts_with("/spec/a~1b ")), "{wrong:?}");
        assert!(!wrong.iter().any(|it| it.contains("secret") || it.contains("77123")), "{wrong:?}");
        assert_eq!(schemas.errors(&kind, &json!(true), &json!(1)).len(), 0, "another schema counts at once");
        assert!(schemas.errors(&kind, &json!({"type": "nonsense"}), &json!(1)).is_empty());
        assert!(schemas.errors(&kind, &json!({"$ref": "http://127.0.0.1:1/x"}), &json!(1)).is_empty());
        assert!(!schemas.errors(&kind, &json!({"maxItems": 1}), &json!([1, 1])).is_empty());
        assert_eq!(schemas.errors(&kind, &json!({"items": false}), &json!(vec![1; 99])).len(), ERRORS_MAX);
    }
}
