//! `everwatch status`: the health of a deployment on one screen.

use crate::cli::OutputArgs;
use crate::client::{Client, Failure};
use crate::item::Item;
use crate::output::{self, Condition, Output, TerminalStyle, print};
use everwatch_api::{Finding, Listed, Observer, Operation, Pool, SafeMode, Stats, Version};
use everwatch_core::clock;
use serde::de::DeserializeOwned;

#[tokio::main(flavor = "current_thread")]
pub(crate) async fn run(server: &str, shown: &OutputArgs) -> anyhow::Result<()> {
    if shown.output == Output::Name {
        let text = "`status` has no names: use -o table, json or yaml";
        return Err(Failure::Usage(text.to_owned()).into());
    }
    if shown.no_headers && matches!(shown.output, Output::Table | Output::Wide) {
        let text = "`status` has no header row: remove --no-headers";
        return Err(Failure::Usage(text.to_owned()).into());
    }
    let client = Client::new(server)?;
    let restarting = format!("/v1/observers?health=restarting&sort=name&limit={}", output::NAMED_MAX);
    let (version, stats, pools, operations, findings, safe_mode, restarting) = tokio::try_join!(
        client.read::<Version>("/v1/version"),
        client.read::<Stats>("/v1/stats"),
        client.read::<Listed<Item<Pool>>>("/v1/pools"),
        known::<Listed<Item<Operation>>>(&client, "/v1/operations"),
        client.read::<Listed<Item<Finding>>>("/v1/doctor"),
        client.read::<SafeMode>("/v1/safe-mode"),
        known::<Listed<Item<Observer>>>(&client, &restarting),
    )?;
    let condition = Condition {
        version: version.version,
        stats,
        pools: pools.items,
        restarting: restarting.map_or_else(Vec::new, |it| it.items),
        operations: operations.map_or_else(Vec::new, |it| it.items),
        findings: findings.items,
        safe_mode,
    };
    if output::structured(&condition, shown)? {
        return Ok(());
    }
    print(&output::status(&condition, (TerminalStyle::stdout(), clock::now())));
    Ok(())
}

/// The resource at a path; `None` if the version of the manager does not have it, or the token may not read it.
async fn known<T: DeserializeOwned>(client: &Client, path: &str) -> anyhow::Result<Option<T>> {
    match client.read(path).await {
        Ok(found) => Ok(Some(found)),
        Err(error)
            if matches!(error.downcast_ref(), Some(Failure::NotFound(_) | Failure::NotPermitted(_))) =>
        {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}
