//! Words errors of invalid input: as sentences instead of the messages of parsers and JSON schemas, and with the place where
//! the user gave a member instead of its pointer.

/// The sentence for the message of a parser or a JSON schema; other texts as they are.
pub(crate) fn sentence(told: &str) -> String {
    of_schema(told).or_else(|| of_parser(told)).unwrap_or_else(|| told.to_owned())
}

/// The message of the YAML parser without the lines of the file, below which it repeats the message.
pub(crate) fn first_line(error: &impl std::fmt::Display) -> String {
    let told = error.to_string();
    let first = told.lines().next().unwrap_or_default();
    first.strip_prefix("error: ").unwrap_or(first).to_owned()
}

/// A message of the validation by a JSON schema, which calls what it validates `value`.
fn of_schema(told: &str) -> Option<String> {
    if let Some(names) = told.strip_prefix("Additional properties are not allowed (") {
        let names: Vec<_> = names.split('\'').skip(1).step_by(2).collect();
        let noun = if names.len() == 1 { "an unknown member" } else { "unknown members" };
        return Some(format!("has {noun}: {}", names.join(", ")));
    }
    if let Some((name, pattern)) = told.split_once(" does not match ")
        && name.starts_with('"')
    {
        return Some(format!("has the member {name}, whose name does not match {pattern}"));
    }
    let rest = told.strip_prefix("value ")?;
    let starts = [
        ("is less than the minimum of ", "must be at least "),
        ("is greater than the maximum of ", "must be at most "),
        ("is less than or equal to the minimum of ", "must be more than "),
        ("is greater than or equal to the maximum of ", "must be less than "),
        ("has less than ", "must have at least "),
        ("has more than ", "must have at most "),
        ("is shorter than ", "must have at least "),
        ("is longer than ", "must have at most "),
        ("does not match ", "must match the regular expression "),
        ("is not a multiple of ", "must be a multiple of "),
    ];
    if let Some((start, instead)) = starts.into_iter().find(|(start, _)| rest.starts_with(start)) {
        return Some(format!("{instead}{}", &rest[start.len()..]));
    }
    if let Some(types) = rest.strip_prefix("is not of type") {
        let types: Vec<_> = types.split('"').skip(1).step_by(2).map(type_in_words).collect();
        return Some(format!("must be {}", or(&types)));
    }
    if let Some(choices) = rest.strip_prefix("is not one of ") {
        let choices = choices.replace(" other candidates", " other values");
        return Some(format!("must be {choices}"));
    }
    if rest.starts_with("is not valid under any of the schemas") {
        let text = "matches none of the permitted forms: `everwatch kind describe KIND` shows them";
        return Some(text.to_owned());
    }
    let several = rest.starts_with("is valid under more than one of the schemas");
    several.then(|| "matches several forms, but must match exactly one".to_owned())
}

fn type_in_words(name: &str) -> &str {
    match name {
        "string" => "a string",
        "integer" => "a whole number",
        "number" => "a number",
        "boolean" => "true or false",
        "array" => "a list",
        "object" => "an object",
        other => other,
    }
}

/// A message of serde about data of another type, which can end with the place in the text.
fn of_parser(told: &str) -> Option<String> {
    let told = told.rsplit_once(" at line ").map_or(told, |(before, _)| before);
    for start in ["invalid type: ", "invalid value: "] {
        if let Some((found, expected)) = told.strip_prefix(start).and_then(|it| it.split_once(", expected "))
        {
            return Some(format!("is {}: write {}", found_in_words(found), expected_in_words(expected)));
        }
    }
    if let Some(member) = told.strip_prefix("missing field ") {
        return Some(format!("lacks the member {}", member.replace('`', "")));
    }
    for (start, instead) in [("unknown variant ", "is"), ("unknown field ", "has the unknown member")] {
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

/// `a`, `a or b`, `a, b or c`
fn or<T: AsRef<str>>(all: &[T]) -> String {
    let all: Vec<&str> = all.iter().map(AsRef::as_ref).collect();
    match all.split_last() {
        Some((last, before)) if !before.is_empty() => format!("{} or {last}", before.join(", ")),
        _ => all.concat(),
    }
}

/// Replaces each word that is a member.
pub(crate) fn text_in_place(text: &str, place_of: impl Fn(&str) -> Option<String>) -> String {
    let word = |word: &str| word_in_place(word, &place_of).unwrap_or_else(|| word.to_owned());
    text.split(' ').map(word).collect::<Vec<_>>().join(" ")
}

/// The place of a member, with the punctuation behind the member.
pub(crate) fn word_in_place(word: &str, place_of: impl Fn(&str) -> Option<String>) -> Option<String> {
    let name = word.trim_end_matches([':', ';', ',']);
    place_of(name).map(|place| format!("{place}{}", &word[name.len()..]))
}

/// The path of a member, such as `spec.argv.0` of `/spec/argv/0`; `None` if the word is no pointer.
pub(crate) fn path_of(pointer: &str) -> Option<String> {
    let path = pointer.strip_prefix('/').filter(|path| !path.is_empty())?;
    let parts: Vec<_> = path.split('/').map(|part| part.replace("~1", "/").replace("~0", "~")).collect();
    Some(parts.join("."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_of_schemas_and_parsers_become_sentences() {
        for (told, sentence_) in [
            (r#"value is not of type "string""#, "must be a string"),
            (r#"value is not of types "null", "integer""#, "must be null or a whole number"),
            ("Additional properties are not allowed ('x' was unexpected)", "has an unknown member: x"),
            ("Additional properties are not allowed ('x', 'y' were unexpected)", "has unknown members: x, y"),
            (
                r#"value is not one of "GET", "HEAD" or 5 other candidates"#,
                r#"must be "GET", "HEAD" or 5 other values"#,
            ),
            ("value has less than 1 item", "must have at least 1 item"),
            ("value is greater than the maximum of 9", "must be at most 9"),
            (
                r#""x" does not match "^[0-9]{1,3}$""#,
                r#"has the member "x", whose name does not match "^[0-9]{1,3}$""#,
            ),
            (
                "value is not valid under any of the schemas listed in the 'anyOf' keyword",
                "matches none of the permitted forms: `everwatch kind describe KIND` shows them",
            ),
            (
                r#"invalid type: string "x", expected u32"#,
                r#"is "x": write a whole number from 0 to 4294967295"#,
            ),
            ("invalid type: integer `5`, expected a string at line 1 column 9", "is 5: write a string"),
            ("invalid type: sequence, expected struct Retry", "is a list: write an object"),
            ("missing field `kind`", "lacks the member kind"),
            (
                "unknown variant `nonsense`, expected one of `exponential`, `fixed`, `intervals`",
                "is nonsense: write exponential, fixed or intervals",
            ),
            ("unknown field `a`, expected `b` or `c`", "has the unknown member a: write b or c"),
            ("at most 1h", "at most 1h"),
        ] {
            assert_eq!(sentence(told), sentence_);
        }
    }
}
