//! Puts the place where the user gave a member into errors of invalid input, instead of the pointer to the member.

/// The message of the YAML parser without the lines of the file, below which it repeats the message.
pub(crate) fn first_line(error: &impl std::fmt::Display) -> String {
    let told = error.to_string();
    let first = told.lines().next().unwrap_or_default();
    first.strip_prefix("error: ").unwrap_or(first).to_owned()
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
