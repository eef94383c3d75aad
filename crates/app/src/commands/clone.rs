//! `everwatch observer clone`: a new observer with the definition of another one.

use super::edit::definition;
use super::unknown::{self, hinted};
use crate::answers::Action;
use crate::cli::CloneArgs;
use crate::client::{Client, Failure};
use crate::item::Item;
use crate::output::answer;
use crate::refusals::with_cure;
use crate::requests::path;
use everwatch_api::Observer;
use reqwest::Method;
use serde_json::json;

/// Reads the definition, and creates an observer of the new name from it.
///
/// # Errors
/// If there is no such observer, if its spec is hidden from this user, or if the manager refuses the create.
pub(super) async fn run(client: &Client, asked: &CloneArgs) -> anyhow::Result<()> {
    let place = path(&asked.name);
    let read = client.read::<Item<Observer>>(&place);
    let it = hinted(client, (unknown::OBSERVERS, &asked.name), read).await?;
    if it.spec.is_null() {
        let text = format!("your role does not permit you to read the spec of {}", asked.name);
        return Err(Failure::NotPermitted(text).into());
    }
    let mut body = definition(it.sent());
    body["name"] = json!(asked.new_name);
    body["desired"] = json!(if asked.paused { "paused" } else { "running" });
    let sent = client.send::<Observer>(Method::POST, "/v1/observers", Some(&body)).await;
    let made = sent.map_err(|error| with_cure(error, &asked.new_name))?;
    answer(&Action::Create.told_alone(&made));
    Ok(())
}
