//! Merge patches (RFC 7396) of definitions.

use crate::id::{Name, Namespace};
use crate::observer::definition::{FieldError, MEMBERS, ObserverDefinition};
use serde_json::{Map, Value};

/// Applies a merge patch to the members of an observer.
///
/// # Errors
/// If one of the two is not an object.
pub fn merged(target: Value, patch: &Value) -> Result<Value, FieldError> {
    match (target, patch) {
        (Value::Object(mut members), Value::Object(changes)) => {
            for (member, change) in changes {
                // Of another kind, a retry policy has other members: what stood there means nothing.
                if member == "retry" && change.get("kind").is_some() {
                    members.remove(member);
                }
                merge_member(&mut members, member, change);
                // A misspelled member must be named, also if it was to take a default back.
                if change.is_null() && !MEMBERS.contains(&member.as_str()) {
                    members.insert(member.clone(), Value::Null);
                }
            }
            Ok(Value::Object(members))
        }
        _ => Err(FieldError { pointer: String::new(), detail: "must be a JSON object".to_owned() }),
    }
}

/// Applies the change of one member.
pub fn merge_member(members: &mut Map<String, Value>, member: &str, change: &Value) {
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

impl ObserverDefinition {
    /// The definition after a merge patch.
    ///
    /// # Errors
    /// Every member that is unknown, of a wrong type or invalid after the patch, and a changed name.
    pub fn patched(&self, patch: &Value) -> Result<Self, Vec<FieldError>> {
        let body = serde_json::to_value(self)
            .map_err(|error| vec![FieldError { pointer: String::new(), detail: error.to_string() }])?;
        let patched = Self::parse(merged(body, patch).map_err(|error| vec![error])?, &self.name)?;
        patched.check_name(&self.namespace, &self.name).map_err(|error| vec![error])?;
        Ok(patched)
    }

    /// Whether it has this name in this namespace.
    ///
    /// # Errors
    /// That neither can be changed.
    pub fn check_name(&self, namespace: &Namespace, name: &Name) -> Result<(), FieldError> {
        if self.namespace != *namespace {
            let detail = format!("is {namespace} for good: create another observer in {}", self.namespace);
            return Err(FieldError { pointer: "/namespace".to_owned(), detail });
        }
        if self.name == *name {
            return Ok(());
        }
        let detail = format!("is {name} for good: a name cannot be changed");
        Err(FieldError { pointer: "/name".to_owned(), detail })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_patch_changes_members_and_takes_defaults_back() {
        let body = json!({"kind": "ticker", "spec": {"every": "2s", "text": "x"}, "priority": 7, "labels": {"a": "b"}});
        let before = ObserverDefinition::parse(body, &Name::new("one").unwrap()).unwrap();
        let patch = json!({"spec": {"text": null, "every": "3s"}, "priority": null, "labels": {"c": "d"},
            "retry": {"kind": "fixed", "every": "5s"}});
        let after = before.patched(&patch).unwrap();
        assert_eq!((after.spec.clone(), after.priority, after.labels.len()), (json!({"every": "3s"}), 0, 2));
        let again = after.patched(&json!({"retry": {"kind": "intervals", "delays": ["1s"]}})).unwrap();
        assert!(again.runs_like(&again.clone()) && again != after);
        let wrong = |patch: Value| before.patched(&patch).unwrap_err().remove(0).pointer;
        assert_eq!(wrong(json!({"name": "two"})), "/name");
        assert_eq!(wrong(json!({"namespace": "other"})), "/namespace");
        assert_eq!(wrong(json!({"specs": 1})), "/specs");
        assert_eq!(wrong(json!({"specs": null})), "/specs");
        assert_eq!(wrong(json!([])), "");
    }
}
