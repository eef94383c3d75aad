//! The filter of observers, as the user types it: words `key=value` are fields or labels, all other words are parts of a name.
//! Independent of terminal, HTTP and clock.

use crate::cli::{health_word, status_word};
use everwatch_core::record::reason::ReasonCode;
use everwatch_core::spelling::{advice, nearest};

/// The keys that are no labels.
const FIELDS: [&str; 6] = ["status", "health", "reason", "kind", "pool", "service"];

/// A filter as parameters of the API.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Filter<'a> {
    pub(super) parameters: Vec<(&'static str, String)>,
    /// The keys of the labels.
    pub(super) labels: Vec<&'a str>,
}

/// # Errors
/// A sentence about the word that a field does not have.
pub(super) fn parsed(text: &str) -> Result<Filter<'_>, String> {
    let (mut filter, mut names) = (Filter::default(), Vec::new());
    for word in text.split_whitespace() {
        let parameter = match word.split_once('=') {
            Some(("status", all)) => ("status", each(all, |word| Ok(status_word(word)?.as_str()))?),
            Some(("health", all)) => ("health", each(all, |word| Ok(health_word(word)?.as_str()))?),
            Some(("reason", all)) => ("reason_code", each(all, |word| Ok(reason(word)?.as_str()))?),
            Some(("kind", name)) => ("kind", name.to_owned()),
            Some(("pool", name)) => ("pool", name.to_owned()),
            Some(("service", name)) => ("service", name.to_owned()),
            Some((key, _)) => {
                filter.labels.push(key);
                ("label", word.to_owned())
            }
            None => {
                names.push(word);
                continue;
            }
        };
        filter.parameters.push(parameter);
    }
    if !names.is_empty() {
        filter.parameters.push(("q", names.join(" ")));
    }
    Ok(filter)
}

/// The comma-separated words of a field.
fn each(all: &str, known: impl Fn(&str) -> Result<&'static str, String>) -> Result<String, String> {
    Ok(all.split(',').map(known).collect::<Result<Vec<_>, _>>()?.join(","))
}

/// The error suggests a similar reason code instead of listing all of them: the list does not fit the line.
fn reason(word: &str) -> Result<ReasonCode, String> {
    word.parse().map_err(|told| match nearest(word, ReasonCode::ALL.iter().map(|code| code.as_str())) {
        Some(near) => format!("`{word}` is not a reason code; did you mean {near}?"),
        None => told,
    })
}

/// What to say about a label that no observer has: its key is probably a misspelled field.
pub(super) fn unknown_label(key: &str) -> String {
    format!("`{key}` is neither a field nor a label of any observer; {}", advice(key, "fields", &FIELDS))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parameters(text: &str) -> Vec<String> {
        let filter = parsed(text).unwrap();
        filter.parameters.iter().map(|(key, value)| format!("{key}: {value}")).collect()
    }

    #[test]
    fn fields_labels_and_parts_of_names_are_told_apart() {
        let text = "feed  health=restarting,Waiting reason=pool-is-full status=failed kind=k pool=p service=s team=a b";
        assert_eq!(
            parameters(text),
            [
                "health: restarting,waiting",
                "reason_code: pool-is-full",
                "status: Failed",
                "kind: k",
                "pool: p",
                "service: s",
                "label: team=a",
                "q: feed b"
            ]
        );
        assert_eq!(parsed(text).unwrap().labels, ["team"]);
        assert_eq!(parsed("").unwrap(), Filter::default());
    }

    #[test]
    fn a_word_that_a_field_does_not_have_is_named_with_what_was_meant() {
        for (text, told) in [
            (
                "health=restartin",
                "`restartin` is not a health: one of running, restarting, waiting, moving, stopping; did you mean restarting?",
            ),
            ("health=running,", "`` is not a health: one of running, restarting, waiting, moving, stopping"),
            ("reason=pool-full", "`pool-full` is not a reason code; did you mean pool-is-full?"),
        ] {
            assert_eq!(parsed(text).unwrap_err(), told);
        }
        assert!(parsed("status=Tired").unwrap_err().starts_with("`Tired` is not a status"));
        assert!(parsed("reason=xyz").unwrap_err().starts_with("`xyz` is not a reason code: one of "));
    }

    #[test]
    fn a_label_that_nobody_has_is_probably_a_field() {
        assert_eq!(
            unknown_label("helth"),
            "`helth` is neither a field nor a label of any observer; did you mean `health`?"
        );
        assert_eq!(
            unknown_label("owner"),
            "`owner` is neither a field nor a label of any observer; fields: status, health, reason, kind, pool, service"
        );
    }
}
