//! Applies one verb to all observers that match a filter, in one request. The user confirms a number: if the
//! filter matches another number when the request arrives, the manager does nothing.

use super::unknown::{self, Named};
use crate::answers::Action;
use crate::cli::Selection;
use crate::client::{Client, Failure};
use crate::output::{answer, note};
use everwatch_api::{Listed, Observer, Outcome, Outcomes};
use everwatch_core::wording::counted;
use reqwest::Method;
use std::io::{IsTerminal as _, Write as _};

/// The most observers that the question names.
const NAMED_MAX: usize = 5;

/// Returns the ids of the observers for which the manager accepted the request.
///
/// # Errors
/// If the user declines, if the count differs, and the first failure of an observer.
pub(super) async fn run(
    client: &Client,
    action: Action<'_>,
    (chosen, filter): (&Selection, &[(&str, String)]),
) -> anyhow::Result<Vec<String>> {
    let verb = action.verb();
    let query = query_of(filter);
    let count = agreed(client, verb, (chosen.expect, chosen.yes), filter).await?;
    if count == 0 && chosen.expect.is_none() {
        unknown::check(client, Named::of(&chosen.filter)).await?;
        return Ok(Vec::new());
    }
    let (method, path) = match verb {
        "delete" => (Method::DELETE, "/v1/observers".to_owned()),
        verb => (Method::POST, format!("/v1/observers:{verb}")),
    };
    let answer: Outcomes = client.send(method, &format!("{path}?expect={count}{query}"), None).await?;
    tell(action, &answer.items)
}

fn query_of(filter: &[(&str, String)]) -> String {
    filter.iter().map(|(key, value)| format!("&{key}={}", Client::part(value))).collect()
}

/// The number of observers on which the user wants to act: the one that `expect` names, or all that match, once the user agrees.
///
/// # Errors
/// If the user declines, or cannot be asked.
pub(super) async fn agreed(
    client: &Client,
    verb: &str,
    (expect, yes): (Option<u64>, bool),
    filter: &[(&str, String)],
) -> anyhow::Result<u64> {
    if let Some(count) = expect {
        return Ok(count);
    }
    let path = format!("/v1/observers?limit={NAMED_MAX}{}", query_of(filter));
    let found: Listed<Observer> = client.read(&path).await?;
    if found.total == 0 {
        note("no observers");
    } else if !yes {
        agree(verb, &found)?;
    }
    Ok(found.total)
}

/// Asks the user at the terminal.
#[expect(clippy::print_stderr, reason = "a question, which is no answer")]
fn agree(verb: &str, found: &Listed<Observer>) -> anyhow::Result<()> {
    let (count, things) = (found.total, counted(found.total, "observer"));
    let (stdin, mut stderr) = (std::io::stdin(), std::io::stderr());
    if !stdin.is_terminal() || !stderr.is_terminal() {
        let text = format!(
            "this would {verb} {things}, and there is no terminal to confirm it on: give --expect {count}, \
             or --yes for however many it finds"
        );
        return Err(Failure::Usage(text).into());
    }
    let capital = verb[..1].to_uppercase();
    eprint!("{capital}{} {things} ({})? [y/N] ", &verb[1..], named(found));
    stderr.flush()?;
    let mut line = String::new();
    stdin.read_line(&mut line)?;
    match line.trim() {
        "y" | "Y" | "yes" => Ok(()),
        _ => Err(Failure::Failed("nothing was done".to_owned()).into()),
    }
}

/// The names of the first observers of a list, and how many others it has.
fn named(found: &Listed<Observer>) -> String {
    let names: Vec<&str> = found.items.iter().map(|it| it.name.as_str()).collect();
    match found.total.saturating_sub(found.items.len() as u64) {
        0 => names.join(", "),
        others => format!("{} and {others} more", names.join(", ")),
    }
}

fn tell(action: Action<'_>, outcomes: &[Outcome]) -> anyhow::Result<Vec<String>> {
    let (mut taken, mut first) = (Vec::new(), None);
    for outcome in outcomes {
        if let Some(it) = &outcome.observer {
            answer(&action.told(it));
            taken.push(it.id.to_string());
        }
        if let Some(problem) = &outcome.problem {
            let failure = Failure::of_problem(problem);
            note(&failure.to_string());
            first.get_or_insert(failure);
        }
    }
    let Some(failure) = first else { return Ok(taken) };
    note(&format!("{} of {} done, {} failed", taken.len(), outcomes.len(), outcomes.len() - taken.len()));
    Err(failure.into())
}
