//! Labels: their keys and values, and selectors of them, such as `app=feeds, tier in (a, b), env!=test, !old`.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

/// The most requirements of a selector.
pub const REQUIREMENTS_MAX: usize = 50;
/// The most values of a requirement.
pub const VALUES_MAX: usize = 100;

/// The rule of [`is_key`].
pub const KEY_RULE: &str = "a label's key is 1 to 128 of A-Z a-z 0-9 . _ - /";
/// The rule of [`is_value`].
pub const VALUE_RULE: &str = "a label's value is at most 256 bytes without control characters";

/// Whether a label may have this key.
#[must_use]
pub fn is_key(key: &str) -> bool {
    let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '/');
    (1..=128).contains(&key.len()) && key.chars().all(legal)
}

/// Whether a label may have this value.
#[must_use]
pub fn is_value(value: &str) -> bool {
    value.len() <= 256 && !value.chars().any(char::is_control)
}

/// The values that are strings; and the keys of the others, with what is wrong with each.
#[must_use]
pub fn strings(given: BTreeMap<String, Value>) -> (BTreeMap<String, String>, Vec<(String, String)>) {
    let (mut labels, mut wrong) = (BTreeMap::new(), Vec::new());
    for (key, value) in given {
        match value {
            Value::String(value) => drop(labels.insert(key, value)),
            other @ (Value::Bool(_) | Value::Number(_)) => {
                wrong.push((key, format!("is {other}: write a string, such as \"{other}\"")));
            }
            other => wrong.push((key, format!("is {other}: write a string"))),
        }
    }
    (labels, wrong)
}

/// The labels that break a rule: the key, and the rule.
pub fn errors(labels: &BTreeMap<String, String>) -> impl Iterator<Item = (&str, &'static str)> {
    let keys = labels.keys().filter(|key| !is_key(key)).map(|key| (key.as_str(), KEY_RULE));
    let values = labels.iter().filter(|(_, value)| !is_value(value));
    keys.chain(values.map(|(key, _)| (key.as_str(), VALUE_RULE)))
}

/// What the labels of an observer must fulfil.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Requirement {
    pub key: String,
    /// One of these values; `None`: any.
    pub values: Option<Vec<String>>,
    /// Whether the labels must *not* have such a value, or the key.
    pub not: bool,
}

/// Requirements, all of which must be fulfilled.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Selector(pub Vec<Requirement>);

impl Requirement {
    /// Whether these labels fulfil it. Labels without the key fulfil `key != value` and `key notin (…)`.
    #[must_use]
    pub fn is_met_by(&self, labels: &BTreeMap<String, String>) -> bool {
        let has = labels
            .get(&self.key)
            .is_some_and(|value| self.values.as_ref().is_none_or(|values| values.contains(value)));
        has != self.not
    }
}

impl Selector {
    /// Whether these labels fulfil all requirements.
    #[must_use]
    pub fn selects(&self, labels: &BTreeMap<String, String>) -> bool {
        self.0.iter().all(|requirement| requirement.is_met_by(labels))
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Display for Requirement {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { key, values, not } = self;
        match values {
            Some(values) => {
                write!(out, "{key} {} ({})", if *not { "notin" } else { "in" }, values.join(", "))
            }
            None => write!(out, "{}{key}", if *not { "!" } else { "" }),
        }
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all: Vec<String> = self.0.iter().map(ToString::to_string).collect();
        out.write_str(&all.join(", "))
    }
}

impl FromStr for Selector {
    type Err = String;

    /// # Errors
    /// The requirement that is wrong, and the forms that are right.
    fn from_str(text: &str) -> Result<Self, String> {
        let requirements = parts(text)?.into_iter().map(requirement).collect::<Result<Vec<_>, _>>()?;
        if requirements.len() > REQUIREMENTS_MAX {
            return Err(format!(
                "has {} requirements; the maximum is {REQUIREMENTS_MAX}",
                requirements.len()
            ));
        }
        Ok(Self(requirements))
    }
}

/// The requirements of a text: the commas between parentheses do not separate them.
fn parts(text: &str) -> Result<Vec<&str>, String> {
    let (mut parts, mut start, mut is_inside) = (Vec::new(), 0, false);
    for (at, sign) in text.char_indices() {
        match sign {
            '(' if is_inside => return Err("has a parenthesis within parentheses".to_owned()),
            ')' if !is_inside => return Err("has a closing parenthesis without an opening one".to_owned()),
            '(' => is_inside = true,
            ')' => is_inside = false,
            ',' if !is_inside => {
                parts.push(text[start..at].trim());
                start = at + 1;
            }
            _ => {}
        }
    }
    if is_inside {
        return Err("has a parenthesis that is not closed".to_owned());
    }
    parts.push(text[start..].trim());
    Ok(parts)
}

fn requirement(text: &str) -> Result<Requirement, String> {
    let made = |key: &str, values: Option<Vec<&str>>, not: bool| {
        let key = key.trim();
        let values = values.map(|values| values.into_iter().map(|value| value.trim().to_owned()).collect());
        checked(text, Requirement { key: key.to_owned(), values, not })
    };
    if let Some(rest) = text.strip_suffix(')') {
        let (head, values) = rest.split_once('(').ok_or_else(|| wrong(text))?;
        let values = Some(values.split(',').collect());
        let head = head.trim_end();
        return match (head.strip_suffix(" notin"), head.strip_suffix(" in")) {
            (Some(key), _) => made(key, values, true),
            (None, Some(key)) => made(key, values, false),
            (None, None) => Err(wrong(text)),
        };
    }
    if let Some((key, value)) = text.split_once("!=") {
        return made(key, Some(vec![value]), true);
    }
    if let Some((key, value)) = text.split_once("==").or_else(|| text.split_once('=')) {
        if value.starts_with('=') {
            return Err(wrong(text));
        }
        return made(key, Some(vec![value]), false);
    }
    match text.strip_prefix('!') {
        Some(key) => made(key, None, true),
        None => made(text, None, false),
    }
}

fn checked(text: &str, requirement: Requirement) -> Result<Requirement, String> {
    let values = requirement.values.as_deref().unwrap_or_default();
    let shown = || text.chars().take(140).collect::<String>();
    if requirement.key.chars().any(|sign| !is_key(&sign.to_string())) || requirement.key.is_empty() {
        return Err(wrong(text));
    }
    if !is_key(&requirement.key) {
        return Err(format!("`{}`: {KEY_RULE}", shown()));
    }
    if values.len() > VALUES_MAX {
        return Err(format!("`{}` has {} values; the maximum is {VALUES_MAX}", shown(), values.len()));
    }
    if !values.iter().all(|value| is_value(value)) {
        return Err(format!("`{}`: {VALUE_RULE}", shown()));
    }
    Ok(requirement)
}

fn wrong(text: &str) -> String {
    let text: String = text.chars().take(140).collect();
    format!(
        "`{text}` is not a requirement: write KEY=VALUE, KEY!=VALUE, KEY in (A, B), KEY notin (A, B), KEY or !KEY, with commas \
         between requirements"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn selected(selector: &str) -> String {
        let all: [(&str, &[(&str, &str)]); 4] = [
            ("a", &[("app", "feeds"), ("tier", "gold")]),
            ("b", &[("app", "feeds"), ("tier", "silver"), ("old", "")]),
            ("c", &[("app", "prices"), ("a/b", "x (y), z")]),
            ("d", &[]),
        ];
        let selector: Selector = selector.parse().unwrap();
        let labels = |pairs: &[(&str, &str)]| {
            pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
        };
        all.iter().filter(|(_, pairs)| selector.selects(&labels(pairs))).map(|(name, _)| *name).collect()
    }

    #[test]
    fn labels_are_selected_by_equality_by_sets_and_by_presence() {
        for (selector, expected) in [
            ("app=feeds", "ab"),
            ("app==feeds, tier = gold", "a"),
            ("app!=feeds", "cd"),
            ("tier in (gold, silver)", "ab"),
            ("tier notin (gold,bronze)", "bcd"),
            ("app in(feeds)", "ab"),
            ("tier", "ab"),
            ("!tier", "cd"),
            ("old=", "b"),
            ("app,!old,tier!=silver", "ac"),
            ("a/b", "c"),
        ] {
            assert_eq!(selected(selector), expected, "{selector}");
        }
    }

    #[test]
    fn what_is_no_selector_is_refused_with_the_part_that_is_wrong() {
        for (text, expected) in [
            ("", "`` is not"),
            ("app,", "`` is not"),
            ("a b", "`a b` is not"),
            ("app in feeds", "`app in feeds` is not"),
            ("app within (x)", "`app within (x)` is not"),
            ("!a=b", "`!a=b` is not"),
            ("a===", "`a===` is not"),
            ("app in (x", "is not closed"),
            ("app in ((x))", "within parentheses"),
            ("app)", "without an opening"),
            ("ä=x", "`ä=x` is not"),
        ] {
            let refused = text.parse::<Selector>().unwrap_err();
            assert!(refused.contains(expected), "{text}: {refused}");
        }
        let refused = |text: String| text.parse::<Selector>().unwrap_err();
        assert!(refused("k".repeat(129)).ends_with(KEY_RULE));
        assert!(refused(format!("app={}", "v".repeat(257))).ends_with(VALUE_RULE));
        assert!(
            refused(format!("app in ({})", "v,".repeat(100))).ends_with("has 101 values; the maximum is 100")
        );
        assert!(vec!["a"; REQUIREMENTS_MAX + 1].join(",").parse::<Selector>().is_err());
    }
}
