//! Examples in the OpenAPI document: bodies out of `examples.json`, problems made from their codes.

use super::problem::{Code, MEDIA_TYPE, Problem};
use everwatch_core::observer::definition::FieldError;
use everwatch_core::observer::patch::merge_member;
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use utoipa::openapi::example::{Example, ExampleBuilder};
use utoipa::openapi::path::Operation;
use utoipa::openapi::{Content, RefOr, Schema};

/// The contents of `examples.json`.
#[derive(Debug, Deserialize)]
pub(super) struct Examples {
    /// By the name of a schema.
    bodies: BTreeMap<String, Value>,
    /// What differs, by operation and `request`, or status and media type: an object is merged into the body
    /// of the schema, anything else stands for itself.
    operations: BTreeMap<String, Value>,
    /// The detail of each problem, by its code.
    problems: BTreeMap<String, String>,
}

impl Examples {
    pub(super) fn load() -> Self {
        serde_json::from_str(include_str!("examples.json")).expect("it is a part of the program")
    }

    /// Gives every body of the operation its example.
    pub(super) fn add_to(&self, path: &str, operation: &mut Operation) {
        let id = operation.operation_id.clone().unwrap_or_default();
        if let Some(RefOr::T(body)) = &mut operation.request_body {
            for content in body.content.values_mut() {
                let RefOr::T(content) = content else { continue };
                content.example = self.of(content, &format!("{id} request"));
            }
        }
        for (status, response) in &mut operation.responses.responses {
            let RefOr::T(response) = response else { continue };
            let codes = Code::told_in(&response.description);
            for (media_type, content) in &mut response.content {
                let RefOr::T(content) = content else { continue };
                if media_type == MEDIA_TYPE {
                    content.examples = codes.iter().filter_map(|code| self.problem(*code, path)).collect();
                } else {
                    content.example = self.of(content, &format!("{id} {status} {media_type}"));
                }
            }
        }
    }

    fn of(&self, content: &Content, place: &str) -> Option<Value> {
        let whole = content.schema.as_ref().and_then(name).and_then(|name| {
            let body = |name: &str| self.bodies.get(name).cloned();
            let page = |item: &str| Some(json!({"items": [body(item)?], "next_cursor": null, "total": 1}));
            name.strip_prefix("Listed_").map_or_else(|| body(name), page)
        });
        match (whole, self.operations.get(place)) {
            (Some(Value::Object(mut members)), Some(Value::Object(changes))) => {
                for (member, change) in changes {
                    merge_member(&mut members, member, change);
                }
                Some(Value::Object(members))
            }
            (_, Some(own)) => Some(own.clone()),
            (whole, None) => whole,
        }
    }

    fn problem(&self, code: Code, path: &str) -> Option<(String, RefOr<Example>)> {
        let detail = self.problems.get(code.word())?;
        let mut problem = Problem::new(code, detail);
        if let (Code::Invalid, Some((pointer, what))) = (code, detail.split_once(' ')) {
            problem = problem.with(vec![FieldError { pointer: pointer.to_owned(), detail: what.to_owned() }]);
        }
        let body = problem.body(path);
        let example = ExampleBuilder::new().summary(&*body.title).value(Some(json!(body))).build();
        Some((code.word().to_owned(), RefOr::T(example)))
    }
}

/// Of the schema, or of that which it may be beside null.
fn name(schema: &RefOr<Schema>) -> Option<&str> {
    match schema {
        RefOr::Ref(it) => it.ref_location.rsplit('/').next(),
        RefOr::T(Schema::OneOf(choice)) => choice.items.iter().find_map(name),
        RefOr::T(_) => None,
    }
}
