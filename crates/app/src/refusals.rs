//! The refusal of a request with the flag or the file of the user instead of the member of the request.

use crate::error_wording::{path_of, word_in_place};
use crate::failure::Failure;
use std::path::Path;

/// The refusal of a request, with the place where the user gave each member, for instance its flag.
pub(crate) fn in_place(error: anyhow::Error, place_of: impl Fn(&str) -> Option<String>) -> anyhow::Error {
    match error.downcast::<Failure>() {
        Ok(failure @ Failure::Usage(_)) => {
            let text = failure.to_string();
            let begins = |before: Option<&str>| before.is_none_or(|it| it.is_empty() || it.ends_with(';'));
            let words: Vec<_> = text.split(' ').collect();
            let before = std::iter::once(None).chain(words.iter().map(|word| Some(*word)));
            // A path inside of a sentence is no member.
            let word = |(word, before): (&&str, _)| {
                let place = begins(before).then(|| word_in_place(word, &place_of)).flatten();
                place.unwrap_or_else(|| (*word).to_owned())
            };
            // `/name name ... is not valid` names the member twice.
            let is_again = |word: &str, before: Option<&str>| {
                before.and_then(path_of).is_some_and(|path| path.rsplit('.').next() == Some(word))
            };
            let all = words.iter().zip(before).filter(|(word, before)| !is_again(word, *before));
            let text = all.map(word).collect::<Vec<_>>().join(" ");
            failure.replaced(text).into()
        }
        Ok(failure) => failure.into(),
        Err(error) => error,
    }
}

/// The refusal of a request whose members are in this file.
pub(crate) fn in_file(error: anyhow::Error, file: &Path) -> anyhow::Error {
    in_flags_or_file(error, &[], file)
}

/// The refusal of a request whose members come from flags of the same names.
pub(crate) fn as_flags(error: anyhow::Error) -> anyhow::Error {
    in_place(error, |word| path_of(word).map(|path| flag(&path)))
}

/// The refusal of a request whose members are in this file, apart from those that flags of the same names give.
pub(crate) fn in_flags_or_file(error: anyhow::Error, flags: &[&str], file: &Path) -> anyhow::Error {
    let told = in_place(error, |word| {
        let path = path_of(word)?;
        Some(if flags.contains(&path.as_str()) { flag(&path) } else { format!("{}: {path}", file.display()) })
    });
    match told.downcast::<Failure>() {
        Ok(failure @ Failure::Usage(_)) => {
            let text = failure.to_string();
            let of_file = text.strip_prefix("the body ").map(|rest| format!("{}: it {rest}", file.display()));
            failure.replaced(of_file.unwrap_or(text)).into()
        }
        Ok(failure) => failure.into(),
        Err(error) => error,
    }
}

fn flag(path: &str) -> String {
    format!("--{}", path.replace('_', "-"))
}

const RETRY_EXAMPLE: &str =
    "; for example --retry '{\"kind\": \"fixed\", \"every\": \"5s\", \"attempts\": 10}', or --retry never";

/// What the user can do if another observer has the name, and the flag of a cure that the manager names.
pub(crate) fn with_cure(error: anyhow::Error, name: &str) -> anyhow::Error {
    match error.downcast::<Failure>() {
        Ok(Failure::Exists(told)) => Failure::Exists(format!(
            "{told}: choose another name, change it with `everwatch observer edit {name}`, or use \
             `everwatch observer apply`, which creates or updates"
        ))
        .into(),
        Ok(failure) => {
            let text = failure.to_string().replace("on_full \"queue\"", "--on-full queue");
            let is_about_retry = text.starts_with("--retry") || text.contains("; --retry");
            let example = if is_about_retry { RETRY_EXAMPLE } else { "" };
            failure.replaced(text + example).into()
        }
        Err(error) => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flag_is_named_rather_than_the_file_that_it_overrides() {
        let told = |flags: &[&str]| {
            let error = Failure::Usage("/max_running is 0; /observers/3/kind is missing".to_owned());
            in_flags_or_file(error.into(), flags, Path::new("b.json")).to_string()
        };
        let file = "b.json: observers[3].kind is missing";
        assert_eq!(told(&["max_running"]), format!("--max-running is 0; {file}"));
        assert_eq!(told(&["name"]), format!("b.json: max_running is 0; {file}"));
        let error = Failure::Usage("the body has the unknown field default: write name".to_owned());
        let told = in_flags_or_file(error.into(), &["name"], Path::new("b.json")).to_string();
        assert_eq!(told, "b.json: it has the unknown field default: write name");
    }

    #[test]
    fn members_are_named_by_their_place() {
        let refused = || Failure::Usage("/spec/every is not /bin/sh; /a~1b: no\n  /c: no".to_owned()).into();
        let told = in_file(refused(), Path::new("a.yaml")).to_string();
        assert_eq!(told, "a.yaml: spec.every is not /bin/sh; a.yaml: a/b: no\n  a.yaml: c: no");
        let told = as_flags(Failure::Usage("/expires_in is 5".to_owned()).into()).to_string();
        assert_eq!(told, "--expires-in is 5");
        assert_eq!(path_of("/"), None);
        assert_eq!(path_of("and/or"), None);
        let told = in_place(Failure::Usage("/name name `a b` is not valid".to_owned()).into(), |word| {
            path_of(word).map(|_| "NAME".to_owned())
        });
        assert_eq!(told.to_string(), "NAME `a b` is not valid");
    }
}
