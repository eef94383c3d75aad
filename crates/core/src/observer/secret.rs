//! References to secrets in a spec: `{"$secret": "file:db/password"}` stands for a string that the service reads when an
//! attempt starts. Managers, messages and the database have the reference only.

use serde_json::{Map, Value};
use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

/// The only member of a reference.
pub const MEMBER: &str = "$secret";
/// The largest number of references in a spec.
pub const REFERENCES_MAX: usize = 50;
/// The largest number of bytes of the text of a reference.
const TEXT_MAX_BYTES: usize = 512;
/// What stands for a secret while a spec is compared with its schema.
const PLACEHOLDER: &str = "secret";

/// Where a service reads a secret.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum SecretRef {
    /// A file, by its path below the folder of secrets of the service.
    File(String),
    /// A variable of the environment of the service.
    Env(String),
}

impl fmt::Display for SecretRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => write!(f, "file:{path}"),
            Self::Env(name) => write!(f, "env:{name}"),
        }
    }
}

impl FromStr for SecretRef {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let forms = "write \"file:PATH\", with a path below the folder of secrets, or \"env:NAME\"";
        if text.len() > TEXT_MAX_BYTES {
            return Err(format!(
                "is a reference of {} bytes: at most {TEXT_MAX_BYTES} are allowed",
                text.len()
            ));
        }
        match text.split_once(':') {
            Some(("file", path)) if path.split('/').all(is_file_name) => Ok(Self::File(path.to_owned())),
            Some(("file", path)) => Err(format!(
                "`{path}` is not a path below the folder of secrets: names of A-Z a-z 0-9 . _ - that do not begin with a dot, separated by /"
            )),
            Some(("env", name)) if is_variable(name) => Ok(Self::Env(name.to_owned())),
            Some(("env", name)) => Err(format!("`{name}` is not the name of a variable: use A-Z a-z 0-9 _")),
            _ => Err(format!("`{text}` is not a reference to a secret: {forms}")),
        }
    }
}

fn is_file_name(name: &str) -> bool {
    let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    !name.is_empty() && !name.starts_with('.') && name.chars().all(legal)
}

/// Whether a variable can have this name.
#[must_use]
pub fn is_variable(name: &str) -> bool {
    let legal = |c: char| c.is_ascii_alphanumeric() || c == '_';
    name.starts_with(|c: char| !c.is_ascii_digit()) && name.chars().all(legal)
}

/// Whether a spec, as JSON text, may contain a reference. Cheap: services call it for each attempt.
#[must_use]
pub fn may_contain(spec: &str) -> bool {
    // A member name may be written with escapes, such as `\u0024secret`.
    spec.contains(MEMBER) || spec.contains("\\u")
}

/// What is wrong with the references of a spec, each with its JSON pointer.
#[must_use]
pub fn errors(spec: &Value) -> Vec<(String, String)> {
    let all = references(spec);
    let count = all.len();
    let mut wrong: Vec<_> =
        all.into_iter().filter_map(|(at, reference)| Some((at, reference.err()?))).collect();
    if count > REFERENCES_MAX {
        let rule = format!("has {count} references to secrets: at most {REFERENCES_MAX} are allowed");
        wrong.push((String::new(), rule));
    }
    wrong
}

/// A spec with a string in place of each reference, and the JSON pointers of these strings; `None` if it has none.
#[must_use]
pub fn with_placeholders(spec: &Value) -> Option<(Value, BTreeSet<String>)> {
    let places: BTreeSet<String> = references(spec).into_iter().map(|(at, _)| at).collect();
    if places.is_empty() {
        return None;
    }
    let mut spec = spec.clone();
    // Different ones: two secrets of a set are no duplicates.
    places.iter().enumerate().for_each(|(number, at)| put(&mut spec, at, format!("{PLACEHOLDER} {number}")));
    Some((spec, places))
}

/// Replaces each reference of a spec by the secret that `lookup` returns.
///
/// # Errors
/// The first reference that cannot be read or found, with its place and the cure; never a secret.
pub fn resolve(
    spec: &mut Value,
    mut lookup: impl FnMut(&SecretRef) -> Result<String, String>,
) -> Result<(), String> {
    for (at, reference) in references(spec) {
        let place = format!("the secret at /spec{at}");
        let reference = reference.map_err(|error| format!("{place}: {error}"))?;
        let secret = lookup(&reference).map_err(|error| format!("{place}, {reference}: {error}"))?;
        put(spec, &at, secret);
    }
    Ok(())
}

fn put(spec: &mut Value, at: &str, secret: String) {
    if let Some(place) = spec.pointer_mut(at) {
        *place = Value::String(secret);
    }
}

/// The references of a spec, each with its JSON pointer.
fn references(spec: &Value) -> Vec<(String, Result<SecretRef, String>)> {
    let mut found = Vec::new();
    find(spec, &mut String::new(), &mut found);
    found
}

fn find(value: &Value, at: &mut String, found: &mut Vec<(String, Result<SecretRef, String>)>) {
    let mut below = |step: &str, inner: &Value| {
        let length = at.len();
        at.push('/');
        at.push_str(step);
        find(inner, at, found);
        at.truncate(length);
    };
    match value {
        Value::Object(members) if members.contains_key(MEMBER) => found.push((at.clone(), read(members))),
        Value::Object(members) => members
            .iter()
            .for_each(|(name, member)| below(&name.replace('~', "~0").replace('/', "~1"), member)),
        Value::Array(items) => {
            items.iter().enumerate().for_each(|(index, item)| below(&index.to_string(), item));
        }
        _ => {}
    }
}

fn read(members: &Map<String, Value>) -> Result<SecretRef, String> {
    match (members.len(), members.get(MEMBER)) {
        (1, Some(Value::String(text))) => text.parse(),
        (1, _) => Err("is not a reference to a secret: the value of $secret must be a string".to_owned()),
        _ => Err("is not a reference to a secret: $secret must be its only field".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_reference_is_replaced_wherever_it_stands() {
        let mut spec = json!({"url": "https://h/", "headers": {"a/b": {"$secret": "file:api/token"}},
            "argv": ["x", {"$secret": "env:DB_PASSWORD"}]});
        resolve(&mut spec, |reference| Ok(format!("<{reference}>"))).unwrap();
        let expected = json!({"url": "https://h/", "headers": {"a/b": "<file:api/token>"},
            "argv": ["x", "<env:DB_PASSWORD>"]});
        assert_eq!(spec, expected);
    }

    #[test]
    fn a_secret_that_is_missing_is_named_with_its_place() {
        let mut spec = json!({"headers": {"a/b": {"$secret": "file:api/token"}}});
        let error = resolve(&mut spec, |_| Err("there is no such file".to_owned())).unwrap_err();
        assert_eq!(error, "the secret at /spec/headers/a~1b, file:api/token: there is no such file");
    }

    #[test]
    fn what_is_no_reference_is_refused_with_its_place() {
        let told = |spec: Value| {
            errors(&spec).iter().map(|(at, rule)| format!("{at} {rule}")).collect::<Vec<_>>().join("; ")
        };
        let outside = told(json!({"a": {"$secret": "file:db/..data"}, "b": 1}));
        assert!(outside.starts_with("/a `db/..data` is not a path below the folder of secrets"), "{outside}");
        for wrong in
            ["file:", "file:/etc/passwd", "file:../x", "file:a//b", "file:a/.b", "file:a b", "file:a/"]
        {
            let told = told(json!([{ "$secret": wrong }]));
            assert!(told.starts_with("/0 `") && told.contains("below the folder of secrets"), "{told}");
        }
        for wrong in ["env:", "env:1A", "env:A-B", "env:A=B"] {
            assert!(told(json!({ "$secret": wrong })).contains("is not the name of a variable"), "{wrong}");
        }
        for wrong in ["db/password", "", "vault:x"] {
            assert!(told(json!({ "$secret": wrong })).contains("write \"file:PATH\""), "{wrong}");
        }
        assert!(told(json!({"$secret": 1})).contains("must be a string"));
        assert!(told(json!({"$secret": "env:A", "x": 1})).contains("only field"));
        assert!(told(json!({ "$secret": format!("env:{}", "A".repeat(600)) })).contains("604 bytes"));
        let many = vec![json!({"$secret": "env:A"}); REFERENCES_MAX + 1];
        assert_eq!(told(json!(many)), " has 51 references to secrets: at most 50 are allowed");
        assert_eq!(told(json!({"a": {"secret": "file:x"}, "b": ["$secret"]})), "");
    }

    #[test]
    fn a_name_with_escapes_is_a_reference_too() {
        let text = r#"{"a": {"\u0024secret": "env:A"}}"#;
        assert!(may_contain(text) && !may_contain(r#"{"a": "secret"}"#));
        let (spec, places) = with_placeholders(&serde_json::from_str(text).unwrap()).unwrap();
        assert_eq!((spec, places), (json!({"a": "secret 0"}), BTreeSet::from(["/a".to_owned()])));
    }
}
