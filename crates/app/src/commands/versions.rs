//! `everwatch observer versions`, `diff` and `revert`.

use super::operations;
use crate::answers::Action;
use crate::cli::Watched;
use crate::client::{Client, Failure};
use crate::error_wording::path_of;
use crate::output::{VERSIONS, answer, print};
use crate::requests::path;
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
    let versions = all(client, name).await?;
    let present = versions.first().map_or(1, |it| it.version);
    let to = to.unwrap_or(present);
    let from = from.unwrap_or_else(|| to.saturating_sub(1));
    if from == 0 && present == 1 {
        answer(&format!("{name} has one version: its definition has never changed"));
        return Ok(());
    }
    if from == 0 {
        let text =
            format!("version 1 of {name} is its first: pass --from to compare it with another version");
        return Err(Failure::Failed(text).into());
    }
    let definition = |version: u32| -> Result<&Value, Failure> {
        let found = versions.iter().find(|it| it.version == version);
        found.map(|it| &it.definition).ok_or_else(|| unknown(name, version, &versions))
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
        let path = path_of(pointer).unwrap_or_default();
        lines.extend(before.as_ref().map(|value| format!("- {path}: {value}")));
        lines.extend(after.as_ref().map(|value| format!("+ {path}: {value}")));
    }
    lines
}

pub(super) async fn revert(client: &Client, name: &str, to: Option<u32>) -> anyhow::Result<()> {
    let to = match to {
        Some(to) => to,
        None => former(name, &all(client, name).await?)?,
    };
    let before = client.read::<Observer>(&path(name)).await?.definition_version;
    let body = serde_json::to_value(RevertTo { to })?;
    let reverted = client.send(Method::POST, &format!("{}/revert", path(name)), Some(&body)).await;
    let it: Observer = match reverted {
        Ok(it) => it,
        Err(error) if matches!(error.downcast_ref(), Some(Failure::Usage(_))) => {
            let versions = all(client, name).await?;
            let is_known = versions.iter().any(|it| it.version == to);
            return Err(if is_known { error } else { unknown(name, to, &versions).into() });
        }
        Err(error) => return Err(error),
    };
    if it.definition_version == before {
        answer(&format!("observer {name} is unchanged: its definition is that of version {to}"));
    } else {
        answer(&Action::Revert(to).told_alone(&it));
    }
    Ok(())
}

/// All versions that the manager keeps, the newest first.
async fn all(client: &Client, name: &str) -> anyhow::Result<Vec<DefinitionVersion>> {
    let path = format!("{}/versions?limit={ALL}", path(name));
    Ok(client.read::<Listed<DefinitionVersion>>(&path).await?.items)
}

/// The version before the current one.
fn former(name: &str, versions: &[DefinitionVersion]) -> Result<u32, Failure> {
    let former = versions.get(1).map(|it| it.version);
    former
        .ok_or_else(|| Failure::Failed(format!("observer {name} has one version: there is none to restore")))
}

fn unknown(name: &str, version: u32, versions: &[DefinitionVersion]) -> Failure {
    let (oldest, newest) = (versions.last(), versions.first());
    let [oldest, newest] = [oldest, newest].map(|it| it.map_or(1, |it| it.version));
    Failure::NotFound(format!(
        "observer {name} has no version {version}: its versions from {oldest} to {newest} are kept"
    ))
}
