//! `everwatch rollout …`

use super::observer::read_json;
use super::operations;
use crate::cli::{Rollout, Start};
use crate::client::{Client, Failure};
use crate::item::Item;
use crate::output::{self, MEMBERS, ROLLOUTS, TerminalStyle, print};
use everwatch_api::{self as api, Listed, RolloutMember};
use everwatch_core::clock;
use everwatch_core::rollout::MemberState;
use reqwest::Method;
use serde_json::{Map, Value, json};

/// How many members a description shows.
const TOLD: usize = 15;
/// The most members of one page.
const PAGE: usize = 1000;
/// The most rollouts of a list.
const ALL: u32 = 200;

#[tokio::main(flavor = "current_thread")]
pub(crate) async fn run(server: &str, verb: Rollout) -> anyhow::Result<()> {
    let client = &Client::new(server)?;
    match verb {
        Rollout::Start(asked) => start(client, *asked).await,
        Rollout::List(watched) => {
            operations::list(client, &format!("/v1/rollouts?limit={ALL}"), &ROLLOUTS, &watched).await
        }
        Rollout::Describe { name } => describe(client, &name).await,
        Rollout::Members { name, state, shown } => {
            output::show(&MEMBERS, &members(client, &name, &state, usize::MAX).await?, &shown)
        }
        Rollout::Pause { name } => order(client, &name, "pause").await,
        Rollout::Resume { name } => order(client, &name, "resume").await,
        Rollout::Revert { name } => order(client, &name, "revert").await,
        Rollout::Cancel { name } => order(client, &name, "cancel").await,
    }
}

fn path(name: &str) -> String {
    format!("/v1/rollouts/{}", Client::part(name))
}

fn told(it: &api::Rollout) -> String {
    let over = it.members - it.counts.get(&MemberState::Pending).copied().unwrap_or(0);
    format!("{} {}, {over} of {} observers {}", it.name, it.state, it.members, it.reason)
        .trim_end()
        .to_owned()
}

async fn order(client: &Client, name: &str, verb: &str) -> anyhow::Result<()> {
    let it: api::Rollout = client.send(Method::POST, &format!("{}/{verb}", path(name)), None).await?;
    print(&told(&it));
    Ok(())
}

async fn start(client: &Client, asked: Start) -> anyhow::Result<()> {
    let patch = match &asked.patch {
        Some(given) => read_json("patch", given)?,
        None => patch_of(&asked.set)?,
    };
    let selector = api::RolloutSelector {
        labels: asked.labels.labels.into_iter().collect(),
        label_selector: asked.selector,
        namespace: client.namespace().map(str::to_owned),
        kind: asked.kind,
        pool: asked.pool,
        status: asked.status.iter().map(ToString::to_string).collect(),
        q: asked.query,
    };
    let mut body = json!({
        "selector": selector,
        "patch": patch,
        "max_parallel": asked.max_parallel,
        "healthy_for": asked.healthy_for,
        "timeout": asked.timeout,
        "on_failure": asked.on_failure,
    });
    if let (Some(members), Some(name)) = (body.as_object_mut(), asked.name) {
        members.insert("name".to_owned(), json!(name));
    }
    let it: api::Rollout = client.send(Method::POST, "/v1/rollouts", Some(&body)).await?;
    print(&told(&it));
    Ok(())
}

/// The patch that sets these members: `spec.every=5s` is `{"spec": {"every": "5s"}}`. A value that is JSON is that JSON.
fn patch_of(set: &[String]) -> anyhow::Result<Value> {
    let mut patch = Map::new();
    for text in set {
        let wrong = || Failure::Usage(format!("--set {text}: write MEMBER=VALUE, such as spec.every=5s"));
        let (members, value) = text.split_once('=').ok_or_else(wrong)?;
        let value = serde_json::from_str(value).unwrap_or_else(|_| json!(value));
        let mut members: Vec<&str> = members.split('.').collect();
        let last = members.pop().filter(|last| !last.is_empty()).ok_or_else(wrong)?;
        let mut inner = &mut patch;
        for member in members {
            let next = inner.entry(member).or_insert_with(|| Value::Object(Map::new()));
            inner = next.as_object_mut().ok_or_else(wrong)?;
        }
        inner.insert(last.to_owned(), value);
    }
    Ok(Value::Object(patch))
}

async fn members(
    client: &Client,
    name: &str,
    states: &[MemberState],
    most: usize,
) -> anyhow::Result<Vec<Item<RolloutMember>>> {
    let states: Vec<&str> = states.iter().map(|state| state.as_str()).collect();
    let state = if states.is_empty() { String::new() } else { format!("&state={}", states.join(",")) };
    let (mut items, mut cursor) = (Vec::new(), String::new());
    loop {
        let limit = (most - items.len()).min(PAGE);
        let page: Listed<Item<RolloutMember>> =
            client.read(&format!("{}/members?limit={limit}{state}{cursor}", path(name))).await?;
        items.extend(page.items);
        match page.next_cursor.filter(|_| items.len() < most) {
            Some(next) => cursor = format!("&cursor={}", Client::part(&next)),
            None => return Ok(items),
        }
    }
}

async fn describe(client: &Client, name: &str) -> anyhow::Result<()> {
    use MemberState::{Changed, Failed, Reverting, Skipped};
    let it: api::Rollout = client.read(&path(name)).await?;
    let id = it.id.to_string();
    let open = members(client, &id, &[Changed, Skipped, Failed, Reverting], TOLD).await?;
    print(&output::describe_rollout(&it, &open, (TerminalStyle::stdout(), clock::now())));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_to_set_make_a_patch() {
        let patch = |set: &[&str]| patch_of(&set.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>());
        let told = patch(&["spec.every=5s", "spec.count=3", "priority=null", "labels.team=a=b"]).unwrap();
        let expected =
            json!({"spec": {"every": "5s", "count": 3}, "priority": null, "labels": {"team": "a=b"}});
        assert_eq!(told, expected);
        for wrong in [["spec.every"].as_slice(), &["=5"], &["spec.=5"], &["spec=5", "spec.every=5s"]] {
            assert!(patch(wrong).unwrap_err().to_string().contains("MEMBER=VALUE"), "{wrong:?}");
        }
    }
}
