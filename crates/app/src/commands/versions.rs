//! `everwatch observer versions`, `diff` and `revert`.

use super::operations;
use crate::cli::Watched;
use crate::client::Client;
use crate::output::{VERSIONS, print};
use crate::requests::{path, told};
use anyhow::bail;
use everwatch_api::{DefinitionVersion, Difference, Listed, Observer, RevertTo};
use reqwest::Method;
use serde_json::Value;

/// The most versions that a manager keeps: 100 former ones and the current one.
const ALL: u32 = 101;

pub(super) async fn list(client: &Client, name: &str, watched: &Watched) -> anyhow::Result<()> {
    operations::list(client, &format!("{}/versions?limit={ALL}", path(name)), &VERSIONS, watched).await
}

pub(super) async fn diff(
    client: &Client,
    name: &str,
    (from, to): (Option<u32>, Option<u32>),
) -> anyhow::Result<()> {
    let versions: Listed<DefinitionVersion> =
        client.read(&format!("{}/versions?limit={ALL}", path(name))).await?;
    let versions = versions.items;
    let present = versions.first().map_or(1, |it| it.version);
    let to = to.unwrap_or(present);
    let from = from.unwrap_or_else(|| to.saturating_sub(1));
    if from == 0 && present == 1 {
        print(&format!("{name} has one version: its definition has never changed"));
        return Ok(());
    }
    if from == 0 {
        bail!("version 1 of {name} is its first: pass --from to compare it with another version");
    }
    let definition = |version: u32| -> anyhow::Result<&Value> {
        let Some(found) = versions.iter().find(|it| it.version == version) else {
            let oldest = versions.last().map_or(1, |it| it.version);
            bail!("{name} has no version {version}: its versions from {oldest} to {present} are kept");
        };
        Ok(&found.definition)
    };
    let after = definition(to)?;
    let found = Difference::all(definition(from)?, after);
    let mut lines = vec![format!("{name}: version {from} to version {to}")];
    lines.extend(told_differences(&found));
    if found.is_empty() {
        lines.push("nothing differs".to_owned());
    }
    print(&lines.join("\n"));
    Ok(())
}

/// Each member that differs, with its values before and after.
pub(super) fn told_differences(all: &[Difference]) -> Vec<String> {
    let mut lines = Vec::new();
    for Difference { pointer, before, after } in all {
        lines.extend(before.as_ref().map(|value| format!("- {pointer}: {value}")));
        lines.extend(after.as_ref().map(|value| format!("+ {pointer}: {value}")));
    }
    lines
}

pub(super) async fn revert(client: &Client, name: &str, to: u32) -> anyhow::Result<()> {
    let body = serde_json::to_value(RevertTo { to })?;
    let it: Observer = client.send(Method::POST, &format!("{}/revert", path(name)), Some(&body)).await?;
    print(&format!("{}; definition version {}", told(name, &it), it.definition_version));
    Ok(())
}
