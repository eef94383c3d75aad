//! JSON schemas of the OpenAPI document as cells of tables.

use everwatch_core::clock::parse_duration;
use everwatch_core::wording::or;
use serde_json::Value;

/// The named schemas, and how a page links to one.
pub(super) struct Schemas<'a> {
    pub(super) all: &'a Value,
    pub(super) link: fn(&str) -> String,
}

/// A description in one line of a table.
pub(super) fn text(schema: &Value) -> String {
    schema["description"].as_str().unwrap_or_default().replace('\n', " ").replace('|', "\\|")
}

impl<'a> Schemas<'a> {
    /// The schema to which a member refers, with its name.
    pub(super) fn named(&self, member: &Value) -> Option<(String, &'a Value)> {
        let name = [member, &member["oneOf"][0]].into_iter().find_map(|it| it["$ref"].as_str())?;
        let name = name.rsplit('/').next()?;
        Some((name.to_owned(), &self.all[name]))
    }

    /// What the document says about a member, or about the schema to which it refers.
    pub(super) fn about(&self, member: &Value) -> String {
        let own = [member, &member["oneOf"][0]].into_iter().map(text).find(|text| !text.is_empty());
        own.or_else(|| self.named(member).map(|(_, schema)| text(schema))).unwrap_or_default()
    }

    pub(super) fn kind(&self, member: &Value) -> String {
        let named = self.named(member);
        let words = named.as_ref().map_or(member, |(_, schema)| *schema)["enum"].as_array();
        if let Some(words) = words {
            return or(&words.iter().map(|it| format!("`{}`", it.as_str().unwrap())).collect::<Vec<_>>());
        }
        if let Some((name, _)) = named {
            return match name.strip_prefix("Listed_") {
                Some(item) => format!("page of {}", (self.link)(item)),
                None => (self.link)(&name),
            };
        }
        let kind = member["type"].as_str().or_else(|| member["type"][0].as_str()).unwrap_or("object");
        match (kind, member.get("additionalProperties")) {
            ("array", _) => format!("list of {}{}", number(member), plural(&self.kind(&item_of(member)))),
            ("object", Some(values @ Value::Object(_))) => format!("map of {}", plural(&self.kind(values))),
            ("string", _) if member["format"] == "date-time" => "time".to_owned(),
            ("string", _) if is_duration(member) => "duration".to_owned(),
            ("integer", _) => match (&member["minimum"], &member["maximum"]) {
                (least, Value::Null) if least.is_null() || *least == 0 => "number".to_owned(),
                (least, Value::Null) => format!("number from {least}"),
                (least, most) => format!("number from {least} to {most}"),
            },
            _ => kind.to_owned(),
        }
    }
}

/// The schema of the items of a list, with the first item of its example.
fn item_of(list: &Value) -> Value {
    let mut items = list["items"].clone();
    if items.get("$ref").is_none() && items.is_object() {
        items["example"] = list["example"][0].clone();
    }
    items
}

/// How many items a list may have.
fn number(list: &Value) -> String {
    match (&list["minItems"], &list["maxItems"]) {
        (Value::Null, Value::Null) => String::new(),
        (Value::Null, most) => format!("at most {most} "),
        (least, most) => format!("{least} to {most} "),
    }
}

fn plural(kind: &str) -> String {
    if kind.ends_with([')', '`']) { kind.to_owned() } else { format!("{kind}s") }
}

fn is_duration(member: &Value) -> bool {
    ["default", "example"].iter().any(|it| member[it].as_str().is_some_and(|it| parse_duration(it).is_ok()))
}
