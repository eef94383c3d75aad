//! `everwatch observer edit`: changes the definition of an observer in an editor.

use super::versions::told_differences;
use crate::client::{Client, Failure};
use crate::item::Item;
use crate::output::{self, print};
use crate::requests::{path, told};
use anyhow::Context as _;
use everwatch_api::{Difference, Observer};
use everwatch_core::observer::definition::MEMBERS;
use reqwest::Method;
use serde_json::{Map, Value};
use std::io::Write as _;
use std::path::Path;
use std::process::Command;
use tempfile::NamedTempFile;

const HELP: &str = "# Change the definition, save the file and end the editor. Lines that begin with # are ignored.\n\
    # To change nothing, save the file as it is. A member that you remove gets its default.\n";

/// Opens the definition in the editor, and sends what was saved, unless someone else has changed the observer meanwhile.
pub(super) async fn run(client: &Client, name: &str) -> anyhow::Result<()> {
    let (it, tag) = client.read_tagged::<Item<Observer>>(&path(name)).await?;
    if it.spec.is_null() {
        let text = format!("your role does not permit to read the spec of {name}, so you cannot edit it");
        return Err(Failure::NotPermitted(text).into());
    }
    let before = definition(it.sent());
    let mut file = tempfile::Builder::new().prefix("everwatch-").suffix(".yaml").tempfile()?;
    writeln!(file, "{HELP}{}", output::yaml(&before)?)?;
    open(file.path())?;
    let text = std::fs::read_to_string(file.path())?;
    let after = match parse(&text) {
        Ok(after) => after,
        Err(why) => {
            return Err(kept(file, Failure::Usage(format!("what you saved is no definition: {why}"))));
        }
    };
    let differences = Difference::all(&before, &after);
    if differences.is_empty() {
        print(&format!("{name} unchanged"));
        return Ok(());
    }
    let path = path(&it.id.to_string());
    match client.send_if::<Observer>((Method::PUT, &path), &tag, &after).await {
        Ok(it) => {
            let head = format!("{}; definition version {}", told(&it.name, &it), it.definition_version);
            print(&[vec![head], told_differences(&differences)].concat().join("\n"));
            Ok(())
        }
        Err(error) => match error.downcast::<Failure>() {
            Ok(failure) => Err(kept(file, failure)),
            Err(error) => Err(kept(file, Failure::Failed(format!("{error:#}")))),
        },
    }
}

/// The members that a user may change, without those that have no value.
fn definition(sent: &Value) -> Value {
    let members = MEMBERS.into_iter().chain(["desired"]);
    let given = members.filter_map(|member| Some((member.to_owned(), sent.get(member)?.clone())));
    Value::Object(given.filter(|(_, value)| !value.is_null()).collect())
}

/// The definition in the file.
fn parse(text: &str) -> Result<Value, String> {
    let read: Map<String, Value> = serde_saphyr::from_str(text).map_err(|error| error.to_string())?;
    if read.is_empty() { Err("it is empty".to_owned()) } else { Ok(Value::Object(read)) }
}

/// Opens the file in the user's editor, and waits until it ends.
fn open(file: &Path) -> anyhow::Result<()> {
    let set = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
    let editor = set("VISUAL").or_else(|| set("EDITOR")).unwrap_or_else(|| "vi".to_owned());
    // By the shell, because the variable may contain arguments, as in `code --wait`.
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

/// The failure, with the place of the file, which is kept so that no change is lost.
fn kept(file: NamedTempFile, failure: Failure) -> anyhow::Error {
    match file.keep() {
        Ok((_, path)) => {
            let place = path.display();
            let cure = match &failure {
                // To apply the file would undo what someone else has changed.
                Failure::Conflict(_) => "edit the observer again, and copy them from there".to_owned(),
                _ => format!("correct them and run `everwatch observer apply -f {place}`"),
            };
            failure.with(&format!("your changes are in {place}: {cure}")).into()
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
            "start_at": null, "desired": "running", "epoch": 3});
        let expected =
            json!({"name": "one", "kind": "ticker", "spec": {"every": "1s"}, "desired": "running"});
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
