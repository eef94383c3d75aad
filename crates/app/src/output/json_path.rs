//! JSONPath as users write it: RFC 9535, such as `$.items[*].name`, or the simple form of kubectl, such as
//! `{.items[*].name}`.

use serde_json::Value;
use std::str::FromStr;

/// An expression that selects values of an answer.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Path {
    /// As the user wrote it.
    text: String,
    path: serde_json_path::JsonPath,
}

impl Path {
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    fn selects(&self, root: &Value) -> bool {
        !self.path.query(root).is_empty()
    }

    /// The selected values as text: a string without its quotes, nothing for `null`, anything else as JSON.
    pub(crate) fn values(&self, root: &Value) -> Vec<String> {
        let text = |value: &Value| match value {
            Value::Null => String::new(),
            Value::String(text) => text.clone(),
            value => value.to_string(),
        };
        self.path.query(root).iter().map(|value| text(value)).collect()
    }
}

impl FromStr for Path {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = |why: &str| {
            format!(
                "`{text}` is not a JSONPath: {why}; examples: {{.status}}, {{.items[*].name}}, \
                 $.items[?@.status == 'Failed'].name, {{.labels['my-key']}}"
            )
        };
        let standard = standard(text.trim()).map_err(|why| wrong(&why))?;
        let path = serde_json_path::JsonPath::parse(&standard).map_err(|error| wrong(&error.to_string()))?;
        Ok(Self { text: text.to_owned(), path })
    }
}

/// The expression in the form of RFC 9535.
fn standard(text: &str) -> Result<String, String> {
    // Each value is printed on its own line anyway.
    let text = text.strip_suffix(r#"{"\n"}"#).unwrap_or(text);
    let braced = text.strip_prefix('{');
    let inner = match braced {
        None if !text.starts_with('$') && text.contains('{') => {
            return Err("text around the braces is not supported: -o custom-columns prints heads and values"
                .to_owned());
        }
        None => text,
        Some(_) if text.contains("{range") => {
            return Err("`range` is not supported: each value is printed on its own line".to_owned());
        }
        Some(rest) => rest.strip_suffix('}').ok_or_else(|| unclosed(rest))?.trim(),
    };
    if inner.contains("}{") {
        return Err(
            "a single pair of braces is supported: -o custom-columns prints several values".to_owned()
        );
    }
    match inner.chars().next() {
        None => Err("it is empty".to_owned()),
        Some('$') if braced.is_none() => Ok(inner.to_owned()),
        Some('$' | '@') => lenient(&inner[1..]),
        Some('.' | '[') => lenient(inner),
        Some(_) => lenient(&format!(".{inner}")),
    }
}

fn unclosed(rest: &str) -> String {
    let why = if rest.contains('}') {
        "text after the closing brace is not supported"
    } else {
        "the closing brace is missing"
    };
    why.to_owned()
}

/// The steps of kubectl: names without quotes may contain hyphens and slashes, and dots after a backslash.
fn lenient(mut rest: &str) -> Result<String, String> {
    let mut written = "$".to_owned();
    if rest == "." {
        return Ok(written);
    }
    while !rest.is_empty() {
        if rest.starts_with('[') {
            let length = bracket(rest).ok_or("a bracket is not closed")?;
            written.push_str(&rest[..length]);
            rest = &rest[length..];
        } else if let Some(after) = rest.strip_prefix("..") {
            written.push_str("..");
            rest = if after.starts_with('[') { after } else { name(after, &mut written)? };
        } else if let Some(after) = rest.strip_prefix('.') {
            rest = name(after, &mut written)?;
        } else {
            return Err(format!("a `.` or `[` is missing before `{rest}`"));
        }
    }
    Ok(written)
}

/// Writes the name at the beginning of `rest` as a selector in brackets, and returns what follows it.
fn name<'a>(rest: &'a str, written: &mut String) -> Result<&'a str, String> {
    let (mut name, mut end, mut escaped) = (String::new(), rest.len(), false);
    for (at, it) in rest.char_indices() {
        match it {
            '\\' if !escaped => escaped = true,
            '.' | '[' if !escaped => {
                end = at;
                break;
            }
            it if !escaped && !it.is_alphanumeric() && !"_-/:*".contains(it) => {
                return Err(format!(
                    "`{it}` is not part of a name: write names with such characters as ['name']"
                ));
            }
            it => {
                name.push(it);
                escaped = false;
            }
        }
    }
    match name.as_str() {
        "" => return Err("a name is missing after `.`".to_owned()),
        "*" => written.push_str("[*]"),
        name => written.push_str(&format!("['{}']", name.replace('\\', "\\\\").replace('\'', "\\'"))),
    }
    Ok(&rest[end..])
}

/// The length of the brackets at the beginning of the text, with the brackets and quotes inside them.
fn bracket(text: &str) -> Option<usize> {
    let (mut depth, mut quote, mut escaped) = (0_u32, None, false);
    for (at, it) in text.char_indices() {
        match (quote, it) {
            (Some(_), _) if escaped => escaped = false,
            (Some(_), '\\') => escaped = true,
            (Some(open), it) if open == it => quote = None,
            (Some(_), _) => {}
            (None, '\'' | '"') => quote = Some(it),
            (None, '[') => depth += 1,
            (None, ']') => depth -= 1,
            (None, _) => {}
        }
        if depth == 0 {
            return Some(at + it.len_utf8());
        }
    }
    None
}

/// A column that a user defines: its head, and the values in it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct CustomColumn {
    pub(super) head: String,
    path: Path,
}

impl CustomColumn {
    /// The columns of a text such as `NAME:.name,SERVICE:.service.name`.
    pub(super) fn all(text: &str) -> Result<Vec<Self>, String> {
        parts(text).into_iter().map(Self::of).collect()
    }

    fn of(text: &str) -> Result<Self, String> {
        let pair = text.split_once(':').filter(|(head, _)| !head.trim().is_empty());
        let (head, path) = pair.ok_or_else(|| {
            format!(
                "`{text}` is not a column: write HEAD:PATH, as in custom-columns=NAME:.name,SERVICE:.service.name"
            )
        })?;
        Ok(Self { head: head.trim().to_owned(), path: path.parse()? })
    }

    /// Whether the path leads to a value of this object, which may be null.
    pub(super) fn selects(&self, of: &Value) -> bool {
        self.path.selects(of)
    }

    /// The head and the path, as the user wrote them.
    pub(super) fn text(&self) -> String {
        format!("{}:{}", self.head, self.path.text())
    }

    /// The values of an object, comma-separated; `<none>` if there are none, as kubectl prints it.
    pub(super) fn cell(&self, of: &Value) -> String {
        let values: Vec<String> =
            self.path.values(of).into_iter().filter(|value| !value.is_empty()).collect();
        Some(values.join(",")).filter(|text| !text.is_empty()).unwrap_or_else(|| "<none>".to_owned())
    }
}

/// The parts between commas that are neither in brackets nor in quotes.
fn parts(text: &str) -> Vec<&str> {
    let (mut all, mut begin, mut skip) = (Vec::new(), 0, 0);
    for (at, it) in text.char_indices() {
        if at < skip {
            continue;
        }
        match it {
            '[' => skip = at + bracket(&text[at..]).unwrap_or(1),
            ',' => {
                all.push(&text[begin..at]);
                begin = at + 1;
            }
            _ => {}
        }
    }
    all.push(&text[begin..]);
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn values(path: &str) -> Vec<String> {
        let root = json!({"items": [
            {"name": "one", "status": "Processing", "restarts": 2, "labels": {"app.io/tier": "a", "my-key": "x"}},
            {"name": "two", "status": "Failed", "restarts": 0, "labels": {}, "service": {"name": "amber"}},
        ]});
        path.parse::<Path>().unwrap().values(&root)
    }

    #[test]
    fn both_forms_select_the_same() {
        for path in [
            "$.items[*].name",
            "{.items[*].name}",
            ".items[*].name",
            "{$.items.*.name}",
            "{ items[*].name }",
            r#"{.items[*].name}{"\n"}"#,
        ] {
            assert_eq!(values(path), ["one", "two"], "{path}");
        }
        assert_eq!(values("{..service.name}"), ["amber"]);
        assert_eq!(values("{..name}").len(), 3);
        assert_eq!(values("{.items[0].labels.app\\.io/tier}"), ["a"]);
        assert_eq!(values("{.items[0].labels.my-key}"), ["x"]);
        assert_eq!(values("{.items[?(@.status==\"Failed\")].name}"), ["two"]);
        assert_eq!(values("$.items[?@.restarts > 1].restarts"), ["2"]);
        assert_eq!(values("{.items[1].service}"), ["{\"name\":\"amber\"}"]);
        assert_eq!(values("{.absent}"), [""; 0]);
        assert_eq!(values("{.}").len(), 1);
    }

    #[test]
    fn a_mistake_is_named_with_an_example() {
        for (path, why) in [
            ("{.items[*.name}", "a bracket is not closed"),
            ("{.items[*].name} {end}", "`}` is not part of a name"),
            ("{[0]name}", "a `.` or `[` is missing"),
            ("{range .items[*]}{.name}{end}", "`range` is not supported"),
            ("{.name}{.status}", "a single pair of braces"),
            ("{.name}\\n", "text after the closing brace"),
            ("{.name", "the closing brace is missing"),
            ("name: {.name}", "text around the braces"),
            ("{.a..}", "a name is missing"),
            ("{}", "it is empty"),
            ("$.items[?", "position"),
        ] {
            let told = path.parse::<Path>().unwrap_err();
            assert!(told.contains(path) && told.contains(why) && told.contains("{.items[*].name}"), "{told}");
        }
    }

    #[test]
    fn columns_are_split_at_commas_outside_of_brackets() {
        let columns = CustomColumn::all("NAME:.name,X:.items['a','b'],N:{.n}").unwrap();
        let heads: Vec<_> = columns.iter().map(|column| column.head.as_str()).collect();
        assert_eq!(heads, ["NAME", "X", "N"]);
        let of = json!({"name": "one", "items": {"a": 1, "b": "y"}, "n": null});
        let cells: Vec<_> = columns.iter().map(|column| column.cell(&of)).collect();
        assert_eq!(cells, ["one", "1,y", "<none>"]);
        let misspelled = CustomColumn::all("NAME:.nmae").unwrap();
        assert_eq!((misspelled[0].cell(&of).as_str(), misspelled[0].selects(&of)), ("<none>", false));
        assert!(columns[2].selects(&of), "null is a value");
        for wrong in ["", "NAME", ":.name", "NAME:.name,", "NAME:"] {
            CustomColumn::all(wrong).unwrap_err();
        }
    }
}
