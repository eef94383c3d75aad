//! Puts the place where the user gave a member into errors of invalid input, instead of the pointer to the member.

use everwatch_core::wording;

/// What is wrong with a text in YAML, without the lines of the text, below which the parser repeats its message. Where the parser names
/// its own functions as the cure, the message names what the user can change.
pub(crate) fn yaml_error(error: &serde_saphyr::Error) -> String {
    use serde_saphyr::Error::{DuplicateMappingKey, MultipleDocuments};
    match error.without_snippet() {
        MultipleDocuments { .. } => {
            "it contains several YAML documents: remove all but one, and the lines `---` between them"
                .to_owned()
        }
        DuplicateMappingKey { key, location } => {
            let key = key.as_ref().map_or_else(String::new, |key| format!(" `{key}`"));
            format!("line {}: the key{key} is given twice: remove one of them", location.line())
        }
        _ => {
            let told = error.to_string();
            let first = told.lines().next().unwrap_or_default();
            first.strip_prefix("error: ").unwrap_or(first).to_owned()
        }
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

/// The path of a member, such as `spec.argv[0]` of `/spec/argv/0`; `None` if the word is no pointer.
pub(crate) fn path_of(pointer: &str) -> Option<String> {
    pointer.strip_prefix('/').filter(|path| !path.is_empty()).map(wording::path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    #[test]
    fn errors_of_yaml_name_what_the_user_can_change() {
        let told = |text: &str| yaml_error(&serde_saphyr::from_str::<Value>(text).unwrap_err());
        assert_eq!(
            told("a: 1\n---\nb: 2\n"),
            "it contains several YAML documents: remove all but one, and the lines `---` between them"
        );
        assert_eq!(told("a: 1\nb: 2\na: 3\n"), "line 3: the key `a` is given twice: remove one of them");
        let open = told("a: [1\nb: 2\n");
        assert!(open.starts_with("line ") && !open.contains('\n'), "{open}");
    }
}
