//! Numbers and choices in messages.

pub mod parser;

use std::fmt::Display;

/// A number of things: `1 observer`, `2 observers`.
pub fn counted(number: impl Display, noun: &str) -> String {
    let number = number.to_string();
    let ending = if number == "1" { "" } else { "s" };
    format!("{number} {noun}{ending}")
}

/// A number of things that do something: `1 observer waits`, `2 observers wait`.
pub fn counted_subject(number: impl Display, noun: &str, [one, many]: [&str; 2]) -> String {
    let subject = counted(number, noun);
    let verb = if subject.starts_with("1 ") { one } else { many };
    format!("{subject} {verb}")
}

/// The path of a value, such as `spec.argv[0]`, for its JSON Pointer.
#[must_use]
pub fn path(pointer: &str) -> String {
    let parts =
        pointer.trim_start_matches('/').split('/').map(|part| part.replace("~1", "/").replace("~0", "~"));
    parts.fold(String::new(), |path, part| match part.parse::<u32>() {
        Ok(index) if !path.is_empty() => format!("{path}[{index}]"),
        _ if path.is_empty() => part,
        _ => format!("{path}.{part}"),
    })
}

/// A choice: `a`, `a or b`, `a, b or c`.
pub fn or<T: AsRef<str>>(all: &[T]) -> String {
    let all: Vec<&str> = all.iter().map(AsRef::as_ref).collect();
    match all.split_last() {
        Some((last, before)) if !before.is_empty() => format!("{} or {last}", before.join(", ")),
        _ => all.concat(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_has_dots_and_indices() {
        for (pointer, told) in [
            ("/spec/argv/0", "spec.argv[0]"),
            ("/labels/a~1b", "labels.a/b"),
            ("/observers/1/kind", "observers[1].kind"),
        ] {
            assert_eq!(path(pointer), told);
        }
    }

    #[test]
    fn a_choice_ends_with_or() {
        assert_eq!(
            [or(&["a"]), or(&["a", "b"]), or(&["a", "b", "c"]), or::<&str>(&[])],
            ["a", "a or b", "a, b or c", ""]
        );
    }

    #[test]
    fn one_thing_has_no_plural() {
        assert_eq!([0, 1, 2, 11].map(|it| counted(it, "slot")), ["0 slots", "1 slot", "2 slots", "11 slots"]);
        let wait = |number| counted_subject(number, "observer", ["waits", "wait"]);
        assert_eq!([1, 2, 11].map(wait), ["1 observer waits", "2 observers wait", "11 observers wait"]);
    }
}
