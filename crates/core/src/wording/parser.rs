//! Errors of parsers as sentences.

use super::or;
use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_path_to_error::{Path, Segment};

/// What is wrong with a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wrong {
    /// The JSON Pointer of the part that is wrong; empty for the whole value.
    pub pointer: String,
    pub detail: String,
    /// The part is of another type, such as a text instead of a list.
    pub is_of_other_type: bool,
}

/// A JSON value as another type.
///
/// # Errors
/// The first part of the value that is wrong.
pub fn read<T: DeserializeOwned>(value: Value) -> Result<T, Wrong> {
    serde_path_to_error::deserialize(value).map_err(|error| {
        let told = error.inner().to_string();
        let is_of_other_type = told.starts_with("invalid type");
        Wrong { pointer: pointer(error.path(), &told), detail: sentence(&told), is_of_other_type }
    })
}

/// The pointer to the value at this path. An unknown member is an error of the object that has it.
fn pointer(path: &Path, told: &str) -> String {
    let token = |segment: &Segment| match segment {
        Segment::Seq { index } => Some(format!("/{index}")),
        Segment::Map { key } => Some(format!("/{}", key.replace('~', "~0").replace('/', "~1"))),
        Segment::Enum { .. } | Segment::Unknown => None,
    };
    let mut tokens: Vec<String> = path.iter().map_while(token).collect();
    if told.starts_with("unknown field") {
        tokens.pop();
    }
    tokens.concat()
}

/// The sentence for a message of serde about data of another type, without the place in the text; other texts as they are.
#[must_use]
pub fn sentence(told: &str) -> String {
    of_parser(told).unwrap_or_else(|| told.to_owned())
}

fn of_parser(told: &str) -> Option<String> {
    let told = told.rsplit_once(" at line ").map_or(told, |(before, _)| before);
    for start in ["invalid type: ", "invalid value: "] {
        if let Some((found, expected)) = told.strip_prefix(start).and_then(|it| it.split_once(", expected "))
        {
            return Some(format!("is {}: write {}", found_in_words(found), expected_in_words(expected)));
        }
    }
    // A list in place of an object is read as the values of its members.
    if told.starts_with("invalid length ") && told.contains(", expected struct ") {
        return Some("is a list: write an object".to_owned());
    }
    if let Some(member) = told.strip_prefix("missing field ") {
        return Some(format!("lacks the field {}", member.replace('`', "")));
    }
    for (start, instead) in [("unknown variant ", "is"), ("unknown field ", "has the unknown field")] {
        if let Some((found, expected)) = told.strip_prefix(start).and_then(|it| it.split_once(", expected "))
        {
            let known: Vec<_> = expected.split('`').skip(1).step_by(2).collect();
            return Some(format!("{instead} {}: write {}", found.replace('`', ""), or(&known)));
        }
    }
    None
}

fn found_in_words(found: &str) -> String {
    match found {
        "map" => "an object".to_owned(),
        "sequence" => "a list".to_owned(),
        "unit value" => "null".to_owned(),
        _ => {
            let kinds = ["string ", "integer ", "boolean ", "floating point ", "character "];
            let value = kinds.into_iter().find_map(|kind| found.strip_prefix(kind)).unwrap_or(found);
            value.replace('`', "")
        }
    }
}

fn expected_in_words(expected: &str) -> String {
    let number = |bits: u32| format!("a whole number from 0 to {}", u64::MAX >> (64 - bits));
    match expected {
        "u8" => number(8),
        "u16" => number(16),
        "u32" => number(32),
        "u64" | "usize" => "a whole number of at least 0".to_owned(),
        "i8" => format!("a whole number from {} to {}", i8::MIN, i8::MAX),
        "i16" | "i32" | "i64" | "isize" => "a whole number".to_owned(),
        "f32" | "f64" => "a number".to_owned(),
        "a boolean" => "true or false".to_owned(),
        "a sequence" => "a list".to_owned(),
        "a map" => "an object".to_owned(),
        it if it.starts_with("struct ") || it.starts_with("internally tagged enum ") => {
            "an object".to_owned()
        }
        other => other.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_of_parsers_become_sentences() {
        for (told, sentence_) in [
            (
                r#"invalid type: string "x", expected u32"#,
                r#"is "x": write a whole number from 0 to 4294967295"#,
            ),
            ("invalid type: integer `5`, expected a string at line 1 column 9", "is 5: write a string"),
            ("invalid type: sequence, expected struct Retry", "is a list: write an object"),
            ("invalid length 1, expected struct Windows with 3 elements", "is a list: write an object"),
            ("missing field `kind`", "lacks the field kind"),
            (
                "unknown variant `nonsense`, expected one of `exponential`, `fixed`, `intervals`",
                "is nonsense: write exponential, fixed or intervals",
            ),
            ("unknown field `a`, expected `b` or `c`", "has the unknown field a: write b or c"),
            ("at most 1h", "at most 1h"),
        ] {
            assert_eq!(sentence(told), sentence_);
        }
    }
}
