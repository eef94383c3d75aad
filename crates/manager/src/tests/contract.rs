//! Whether requests and answers keep to an OpenAPI document. Knows of no program: several tests share it.

use jsonschema::Validator;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};

pub(crate) struct Contract {
    pub(crate) document: Value,
    /// By the place of their schema in the document: reading one takes long.
    validators: Mutex<HashMap<String, Arc<Validator>>>,
}

impl Contract {
    /// Objects may hold nothing but what the document says of them.
    pub(crate) fn new(mut document: Value) -> Self {
        close(&mut document["components"]["schemas"]);
        Self { document, validators: Mutex::default() }
    }

    /// Every operation with its method and path.
    pub(crate) fn operations(&self) -> impl Iterator<Item = (&str, &str, &Value)> {
        let paths = self.document["paths"].as_object().into_iter().flatten();
        paths.flat_map(|(path, item)| {
            let operations = item.as_object().into_iter().flatten();
            operations.map(move |(method, operation)| (method.as_str(), path.as_str(), operation))
        })
    }

    /// The operation that answers this, with its path; a path without variables goes first.
    pub(crate) fn operation(&self, method: &str, uri: &str) -> Option<(&str, &Value)> {
        let given: Vec<&str> = uri.split('?').next().unwrap_or_default().split('/').collect();
        let fits = |path: &str| {
            let parts: Vec<&str> = path.split('/').collect();
            parts.len() == given.len()
                && parts.iter().zip(&given).all(|(part, given)| part == given || part.starts_with('{'))
        };
        let fitting = self.operations().filter(|(it, path, _)| method.eq_ignore_ascii_case(it) && fits(path));
        fitting.map(|(_, path, operation)| (path, operation)).min_by_key(|(path, _)| path.contains('{'))
    }

    /// Whether the document knows what is asked, with these query parameters and this body.
    pub(crate) fn check_request(
        &self,
        method: &str,
        uri: &str,
        body: Option<(&str, &Value)>,
    ) -> Result<(), String> {
        let (path, operation) = self.operation(method, uri).ok_or("no operation has this path")?;
        let parameters = operation["parameters"].as_array().map(Vec::as_slice).unwrap_or_default();
        let query = uri.split_once('?').map_or("", |(_, query)| query);
        for name in query.split('&').filter_map(|pair| pair.split('=').next()).filter(|name| !name.is_empty())
        {
            if !parameters.iter().any(|it| it["in"] == "query" && it["name"] == name) {
                return Err(format!("the parameter {name} is not known"));
            }
        }
        let needed = parameters.iter().filter(|it| it["in"] == "query" && it["required"] == true);
        for name in needed.filter_map(|it| it["name"].as_str()) {
            if !query.split('&').any(|pair| pair.split('=').next() == Some(name)) {
                return Err(format!("the parameter {name} is missing"));
            }
        }
        let told = &operation["requestBody"];
        match body {
            None if told["required"] == true => Err("a body is missing".to_owned()),
            None => Ok(()),
            Some((media_type, body)) => {
                // A merge patch may be called JSON.
                let content = told["content"].as_object();
                let known =
                    content.and_then(|it| it.keys().find(|it| *it == media_type).or(it.keys().next()));
                let known = known.ok_or("no body is known")?;
                self.check_body(&[path, method, "requestBody", "content", known.as_str()], body)
            }
        }
    }

    /// Whether the document knows this answer.
    pub(crate) fn check_answer(
        &self,
        (method, uri): (&str, &str),
        (status, media_type): (u16, &str),
        body: &Value,
    ) -> Result<(), String> {
        let (path, operation) = self.operation(method, uri).ok_or("no operation has this path")?;
        let status = status.to_string();
        let response = operation["responses"].get(&status).ok_or("the status is not known")?;
        let content = response.get("content").and_then(Value::as_object);
        if media_type.is_empty() {
            return if content.is_none() { Ok(()) } else { Err("a body is missing".to_owned()) };
        }
        let told = content.and_then(|it| it.get(media_type)).ok_or("the media type is not known")?;
        if media_type == "application/problem+json" {
            let code = body["code"].as_str().unwrap_or_default();
            told["examples"].get(code).ok_or_else(|| format!("the problem `{code}` is not known"))?;
        }
        self.check_body(&[path, method, "responses", &status, "content", media_type], body)
    }

    /// Whether the schema at this place, from a path on, takes a body.
    pub(crate) fn check_body(&self, place: &[&str], body: &Value) -> Result<(), String> {
        let mut pointer = "/paths".to_owned();
        for (at, part) in place.iter().enumerate() {
            let part = if at == 1 { part.to_lowercase() } else { (*part).to_owned() };
            pointer.push_str(&format!("/{}", part.replace('~', "~0").replace('/', "~1")));
        }
        let validator = self.validator(&pointer)?;
        let errors: Vec<String> =
            validator.iter_errors(body).map(|error| format!("{} {error}", error.instance_path())).collect();
        if errors.is_empty() { Ok(()) } else { Err(errors.join("; ")) }
    }

    fn validator(&self, pointer: &str) -> Result<Arc<Validator>, String> {
        let mut validators = self.validators.lock().unwrap();
        if let Some(known) = validators.get(pointer) {
            return Ok(Arc::clone(known));
        }
        let told = self.document.pointer(pointer).ok_or_else(|| format!("{pointer} is not there"))?;
        let mut schema = told["schema"].clone();
        close(&mut schema);
        schema["components"] = json!({"schemas": self.document["components"]["schemas"]});
        let validator =
            jsonschema::draft202012::new(&schema).map_err(|error| format!("{pointer}: {error}"))?;
        Ok(Arc::clone(validators.entry(pointer.to_owned()).or_insert(Arc::new(validator))))
    }
}

fn close(schema: &mut Value) {
    match schema {
        Value::Object(members) => {
            members.values_mut().for_each(close);
            if members.get("properties").is_some_and(Value::is_object) {
                members.entry("additionalProperties").or_insert(Value::Bool(false));
            }
        }
        Value::Array(items) => items.iter_mut().for_each(close),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}
