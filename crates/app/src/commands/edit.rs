//! `everwatch observer edit`: changes the definition of an observer in an editor.

use super::unknown;
use super::versions::told_differences;
use crate::answers::Action;
use crate::client::{Client, Failure};
use crate::error_wording::{path_of, yaml_error};
use crate::item::Item;
use crate::output::{self, answer, print};
use crate::refusals::in_place;
use crate::requests::path;
use anyhow::Context as _;
use everwatch_api::{Difference, Observer};
use everwatch_core::observer::definition::MEMBERS;
use reqwest::Method;
use serde_json::{Map, Value};
use std::path::Path;
use std::process::Command;
use tempfile::NamedTempFile;

const HELP: &str = "# Change the definition, save the file and end the editor. Lines that begin with # are ignored.\n\
    # To change nothing, save the file as it is. A member that you remove gets its default.\n";

/// How often a user may correct a definition that the manager refuses.
const ATTEMPTS: usize = 20;

/// Opens the definition in the editor and sends the saved definition; the manager refuses it if another user has changed the observer
/// meanwhile. If the definition is not valid, or names something that does not exist, opens it again with the error, until the user
/// saves it without a change.
pub(super) async fn run(client: &Client, name: &str) -> anyhow::Result<()> {
    let (it, tag) = client.read_tagged::<Item<Observer>>(&path(name)).await?;
    if it.spec.is_null() {
        let text = format!("your role does not permit you to read the spec of {name}, so you cannot edit it");
        return Err(Failure::NotPermitted(text).into());
    }
    let before = definition(it.sent());
    let file = tempfile::Builder::new().prefix("everwatch-").suffix(".yaml").tempfile()?;
    let mut text = format!("{}\n", output::yaml(&before)?);
    let mut refused = None;
    for _ in 0..ATTEMPTS {
        std::fs::write(file.path(), format!("{HELP}{}{text}", refusal(refused.as_ref())))?;
        open(file.path())?;
        let saved = without_comments(&std::fs::read_to_string(file.path())?);
        match refused.take().filter(|_| saved == text) {
            Some(failure) => return Err(kept(file, failure)),
            None if saved == text => {
                answer(&format!("observer {name} is unchanged"));
                return Ok(());
            }
            None => text = saved,
        }
        match send(client, (&it, &tag), (&before, &text)).await {
            Ok((lines, pool)) => {
                print(&lines);
                unknown::warn_unserved(client, pool.iter().map(String::as_str).collect()).await;
                return Ok(());
            }
            Err(failure @ (Failure::Usage(_) | Failure::NotFound(_))) => refused = Some(failure),
            Err(failure) => return Err(kept(file, failure)),
        }
    }
    Err(kept(file, refused.unwrap_or_else(|| Failure::Failed("the observer was not changed".to_owned()))))
}

/// Sends the definition in the text. Returns the message for the user, and the pool if it is another one.
async fn send(
    client: &Client,
    (it, tag): (&Observer, &str),
    (before, text): (&Value, &str),
) -> Result<(String, Option<String>), Failure> {
    let after = parse(text).map_err(|why| Failure::Usage(format!("the file is not a definition: {why}")))?;
    let differences = Difference::all(before, &after);
    let path = path(&it.id.to_string());
    let sent = client.send_if::<Observer>((Method::PUT, &path), tag, &after).await;
    let now = sent.map_err(|error| {
        let error = in_place(error, path_of);
        error.downcast::<Failure>().unwrap_or_else(|error| Failure::Failed(format!("{error:#}")))
    })?;
    if (now.definition_version, now.desired) == (it.definition_version, it.desired) {
        return Ok((format!("{} unchanged", now.name), None));
    }
    let head = Action::Edit.told_alone(&now);
    let lines = [vec![head], told_differences(&differences)].concat().join("\n");
    Ok((lines, Some(now.pool).filter(|pool| *pool != it.pool)))
}

/// A refusal as comments.
fn refusal(failure: Option<&Failure>) -> String {
    let Some(failure) = failure else { return String::new() };
    let lines = failure.to_string().lines().map(|line| format!("#   {line}\n")).collect::<String>();
    format!(
        "#\n# Nothing was changed, because of this error. Correct the definition, or save the file as it is to end.\n{lines}#\n"
    )
}

fn without_comments(text: &str) -> String {
    text.lines().filter(|line| !line.starts_with('#')).map(|line| format!("{line}\n")).collect()
}

/// The members that a user may change, without those that have no value.
pub(super) fn definition(sent: &Value) -> Value {
    let members = MEMBERS.into_iter().chain(["desired"]);
    let given = members.filter_map(|member| Some((member.to_owned(), sent.get(member)?.clone())));
    Value::Object(given.filter(|(_, value)| !value.is_null()).collect())
}

/// The definition in the file.
fn parse(text: &str) -> Result<Value, String> {
    let read: Map<String, Value> = serde_saphyr::from_str(text).map_err(|error| yaml_error(&error))?;
    if read.is_empty() { Err("it is empty".to_owned()) } else { Ok(Value::Object(read)) }
}

/// Opens the file in the user's editor, and waits until the editor ends.
fn open(file: &Path) -> anyhow::Result<()> {
    let set = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
    let editor = set("VISUAL").or_else(|| set("EDITOR")).unwrap_or_else(|| "vi".to_owned());
    // A shell starts it, because the variable may contain arguments, as in `code --wait`.
    let ended = Command::new("sh").args(["-c", &format!("{editor} \"$1\""), "everwatch"]).arg(file).status();
    let ended = ended.with_context(|| format!("cannot start the editor `{editor}`"))?;
    if !ended.success() {
        let text = format!(
            "the editor `{editor}` failed ({ended}), so nothing was changed: set EDITOR to a program that works"
        );
        return Err(Failure::Failed(text).into());
    }
    Ok(())
}

/// Keeps the file, so that the user loses no change, and adds its path to the failure.
fn kept(file: NamedTempFile, failure: Failure) -> anyhow::Error {
    match file.keep() {
        Ok((_, path)) => {
            let place = path.display();
            failure
                .with(&format!(
                    "your changes are in {place}: edit the observer again, and copy them from there"
                ))
                .into()
        }
        Err(error) => failure.with(&format!("your changes are lost: {error}")).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_file_has_what_a_user_may_change() {
        let sent = json!({"id": "x", "name": "one", "kind": "ticker", "spec": {"every": "1s"}, "status": "Processing",
            "labels": {"app": "y", "size": "1.0"},
            "start_at": null, "desired": "running", "epoch": 3});
        let expected = json!({"name": "one", "kind": "ticker", "spec": {"every": "1s"}, "desired": "running",
                "labels": {"app": "y", "size": "1.0"}});
        assert_eq!(definition(&sent), expected);
        let text = format!("{HELP}{}\n", output::yaml(&expected).unwrap());
        assert_eq!(parse(&text).unwrap(), expected, "the help is a comment");
    }

    #[test]
    fn a_file_without_a_definition_is_refused() {
        for text in ["", "# nothing", "- a", "name: [", "7"] {
            assert!(parse(text).is_err(), "{text:?}");
        }
    }
}
