//! What differs between two definitions, member by member.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// One member that differs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Difference {
    /// The place of the member, as a JSON pointer.
    pub pointer: String,
    /// Missing: the member is new.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<Value>,
    /// Missing: the member is gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<Value>,
}

/// The members that differ, ordered by their place. Lists are compared as a whole.
#[must_use]
pub fn differences(before: &Value, after: &Value) -> Vec<Difference> {
    let mut found = Vec::new();
    compare("", Some(before), Some(after), &mut found);
    found
}

fn compare(pointer: &str, before: Option<&Value>, after: Option<&Value>, found: &mut Vec<Difference>) {
    if before == after {
        return;
    }
    let (Some(Value::Object(old)), Some(Value::Object(new))) = (before, after) else {
        found.push(Difference {
            pointer: pointer.to_owned(),
            before: before.cloned(),
            after: after.cloned(),
        });
        return;
    };
    let mut members: Vec<&String> = old.keys().chain(new.keys()).collect();
    members.sort_unstable();
    members.dedup();
    for member in members {
        let escaped = member.replace('~', "~0").replace('/', "~1");
        compare(&format!("{pointer}/{escaped}"), old.get(member), new.get(member), found);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn members_are_compared_and_lists_as_a_whole() {
        let before = json!({"name": "a", "spec": {"url": "x", "headers": {"a/b": "1"}, "list": [1, 2]}, "grace": "1s"});
        let after = json!({"name": "a", "spec": {"url": "y", "headers": {}, "list": [1]}, "priority": 3});
        let found = differences(&before, &after);
        let told: Vec<String> = found
            .iter()
            .map(|it| {
                let show = |it: &Option<Value>| it.as_ref().map_or("none".to_owned(), Value::to_string);
                format!("{} {} {}", it.pointer, show(&it.before), show(&it.after))
            })
            .collect();
        assert_eq!(
            told,
            [
                "/grace \"1s\" none",
                "/priority none 3",
                "/spec/headers/a~1b \"1\" none",
                "/spec/list [1,2] [1]",
                "/spec/url \"x\" \"y\""
            ]
        );
        assert_eq!(differences(&before, &before), []);
    }
}
