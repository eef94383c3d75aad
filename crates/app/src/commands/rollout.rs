//! `everwatch rollout …`

use super::observer::read_json;
use super::unknown::{Named, explained, hinted};
use super::{operations, progress};
use crate::cli::{OutputArgs, Rollout, Start};
use crate::client::{Client, Failure};
use crate::error_wording::text_in_place;
use crate::item::Item;
use crate::output::{self, MEMBERS, ROLLOUTS, TerminalStyle, answer, print};
use everwatch_api::{self as api, Listed, RolloutMember};
use everwatch_core::clock;
use everwatch_core::rollout::{MemberState, RolloutState};
use everwatch_core::wording::counted;
use reqwest::Method;
use serde_json::{Map, Value, json};

/// How many members a description shows.
const TOLD: usize = 15;
/// The most members of one page.
const PAGE: usize = 1000;
/// The list of rollouts, as long as managers make it.
const ROLLOUTS_OF_ALL: &str = "/v1/rollouts?limit=200";

#[tokio::main(flavor = "current_thread")]
pub(crate) async fn run(server: &str, verb: Rollout) -> anyhow::Result<()> {
    let client = &Client::new(server)?;
    match verb {
        Rollout::Start(asked) => start(client, *asked).await,
        Rollout::List(watched) => operations::list(client, ROLLOUTS_OF_ALL, &ROLLOUTS, &watched).await,
        Rollout::Describe { name, shown } => describe(client, &name, &shown).await,
        Rollout::Members { name, state, shown } => {
            let found = members(client, &name, &state, usize::MAX);
            output::show(&MEMBERS, &hinted(client, (ROLLOUTS_OF_ALL, &name), found).await?, &shown)
        }
        Rollout::Pause { name } => order(client, &name, "pause").await.map(drop),
        Rollout::Resume { name, wait } => {
            let it = order(client, &name, "resume").await?;
            if wait { until_over(client, it, RolloutState::Completed).await } else { Ok(()) }
        }
        Rollout::Revert { name, wait } => {
            let it = order(client, &name, "revert").await?;
            if wait { until_over(client, it, RolloutState::Reverted).await } else { Ok(()) }
        }
        Rollout::Cancel { name } => order(client, &name, "cancel").await.map(drop),
    }
}

fn path(name: &str) -> String {
    format!("/v1/rollouts/{}", Client::part(name))
}

fn told(it: &api::Rollout) -> String {
    use MemberState::{Changed, Done, Failed, Reverted, Reverting, Skipped};
    let count = |state| it.counts.get(&state).copied().unwrap_or(0);
    let (name, state, members) = (&it.name, it.state, counted(it.members, "observer"));
    let others = [Changed, Skipped, Failed, Reverting, Reverted].map(|state| (count(state), state));
    let others = others.iter().filter(|(count, _)| *count > 0);
    let others: String = others.map(|(count, state)| format!(", {count} {}", state.as_str())).collect();
    let reason = if it.reason.is_empty() { String::new() } else { format!("; {}", it.reason) };
    format!("rollout {name} is {state}: {} of {members} done{others}{reason}", count(Done))
}

async fn order(client: &Client, name: &str, verb: &str) -> anyhow::Result<api::Rollout> {
    let path = format!("{}/{verb}", path(name));
    let it: api::Rollout =
        hinted(client, (ROLLOUTS_OF_ALL, name), client.send(Method::POST, &path, None)).await?;
    answer(&told(&it));
    Ok(it)
}

/// Prints the progress until managers take no further step.
async fn until_over(client: &Client, it: api::Rollout, goal: RolloutState) -> anyhow::Result<()> {
    let is_over = |it: &api::Rollout| it.state.is_over() || it.state == RolloutState::Paused;
    let path = path(&it.id.to_string());
    let it = progress::follow(client, &path, it, (told, is_over)).await?;
    let failed = it.counts.get(&MemberState::Failed).copied().unwrap_or(0);
    if it.state == goal && failed == 0 {
        return Ok(());
    }
    let cure = match it.state {
        RolloutState::Paused => format!(
            ": correct the cause, then run `everwatch rollout resume {0}` or `everwatch rollout revert {0}`",
            it.name
        ),
        _ if failed > 0 => {
            format!(
                ", but {} failed: see `everwatch rollout members {}`",
                counted(failed, "observer"),
                it.name
            )
        }
        _ => String::new(),
    };
    Err(Failure::Failed(format!("rollout {} is {}{cure}", it.name, it.state)).into())
}

async fn start(client: &Client, asked: Start) -> anyhow::Result<()> {
    let patch = match &asked.patch {
        Some(given) => read_json("patch", given)?,
        None => patch_of(&asked.set)?,
    };
    let given = if asked.patch.is_some() { PatchFlags::Patch } else { PatchFlags::Set(&asked.set) };
    let selector = api::RolloutSelector {
        label_selector: asked.labels.selector(),
        labels: asked.labels.labels.into_iter().collect(),
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
    let path = if asked.dry_run { "/v1/rollouts?dry_run=true" } else { "/v1/rollouts" };
    let started = client.send(Method::POST, path, Some(&body)).await;
    let (kind, pool) = (body["selector"]["kind"].as_str(), body["selector"]["pool"].as_str());
    let started = explained(client, Named { kind, pool, service: None }, started).await;
    let it: api::Rollout = started.map_err(|error| in_flags(error, &given))?;
    if asked.dry_run {
        answer(&format!("the rollout would change {}; nothing is started", counted(it.members, "observer")));
        return Ok(());
    }
    answer(&told(&it));
    if asked.wait { until_over(client, it, RolloutState::Completed).await } else { Ok(()) }
}

/// The flags that give the patch.
enum PatchFlags<'a> {
    Patch,
    Set(&'a [String]),
}

impl PatchFlags<'_> {
    /// The flag that an error about the whole patch is about: the only one, or the one whose member the error names.
    fn of_text(&self, text: &str) -> String {
        let Self::Set(set) = self else { return "--patch".to_owned() };
        let words: Vec<&str> = text.split(|it: char| !it.is_alphanumeric() && it != '_').collect();
        let is_named = |given: &&String| given.split(['.', '=']).next().is_some_and(|it| words.contains(&it));
        let found = match set {
            [only] => Some(only),
            several => several.iter().find(is_named),
        };
        found.map_or_else(|| "--set".to_owned(), |given| format!("--set {given}"))
    }
}

/// The refusal of a rollout, with the flags of the command instead of the members of the request.
fn in_flags(error: anyhow::Error, given: &PatchFlags<'_>) -> anyhow::Error {
    match error.downcast::<Failure>() {
        Ok(failure) => {
            let text = text_in_flags(&failure.to_string(), given);
            failure.replaced(text).into()
        }
        Err(error) => error,
    }
}

fn text_in_flags(text: &str, given: &PatchFlags<'_>) -> String {
    let members = "labels, label_selector, namespace, kind, pool, status and q";
    let flags = "--label, --selector, --namespace, --kind, --pool, --status and --query";
    let text = text.replace(members, flags);
    text_in_place(&text, |member| flag_of(member, (&text, given)))
}

/// The flag that sets this member of the request.
fn flag_of(member: &str, (text, given): (&str, &PatchFlags<'_>)) -> Option<String> {
    let flag = match member {
        "/name" => "NAME",
        "/max_parallel" => "--max-parallel",
        "/healthy_for" | "healthy_for" => "--healthy-for",
        "/timeout" => "--timeout",
        "/on_failure" => "--on-failure",
        "/selector" => "selection:",
        "/selector/labels" => "--label",
        "/selector/label_selector" => "--selector",
        "/selector/namespace" => "--namespace",
        "/selector/kind" => "--kind",
        "/selector/pool" => "--pool",
        "/selector/status" => "--status",
        "/selector/q" => "--query",
        "/patch" => return Some(given.of_text(text)),
        _ => {
            let inner = member.strip_prefix("/patch/")?;
            return Some(match given {
                PatchFlags::Patch => format!("--patch /{inner}"),
                PatchFlags::Set(_) => format!("--set {}", inner.replace('/', ".")),
            });
        }
    };
    Some(flag.to_owned())
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

async fn describe(client: &Client, name: &str, shown: &OutputArgs) -> anyhow::Result<()> {
    use MemberState::{Changed, Failed, Reverting, Skipped};
    let it: Item<api::Rollout> = hinted(client, (ROLLOUTS_OF_ALL, name), client.read(&path(name))).await?;
    if output::structured(&it, shown)? {
        return Ok(());
    }
    let id = it.id.to_string();
    let open = members(client, &id, &[Changed, Skipped, Failed, Reverting], TOLD).await?;
    print(&output::describe_rollout(&it, &open, (TerminalStyle::stdout(), clock::now())));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_name_flags() {
        for (told, by_set, by_patch) in [
            ("/max_parallel is 0: 1 to 1000", "--max-parallel is 0: 1 to 1000", None),
            (
                "/timeout is 10s: it must be longer than healthy_for, 30s",
                "--timeout is 10s: it must be longer than --healthy-for, 30s",
                None,
            ),
            ("/selector no observer matches", "selection: no observer matches", None),
            (
                "/selector give at least one of labels, label_selector, namespace, kind, pool, status and q",
                "selection: give at least one of --label, --selector, --namespace, --kind, --pool, --status and --query",
                None,
            ),
            (
                "/patch/spec/every at least 10ms (observer a/name)",
                "--set spec.every at least 10ms (observer a/name)",
                Some("--patch /spec/every at least 10ms (observer a/name)"),
            ),
            ("the body is wrong\n  /name: too long", "the body is wrong\n  NAME: too long", None),
            ("observer x is a member of rollout y", "observer x is a member of rollout y", None),
        ] {
            assert_eq!(text_in_flags(told, &PatchFlags::Set(&[])), by_set);
            assert_eq!(text_in_flags(told, &PatchFlags::Patch), by_patch.unwrap_or(by_set));
        }
        let set = ["priority=1", "sepc.every=5s"].map(str::to_owned);
        let told = "/patch has an unknown member `sepc`";
        let named = "--set sepc.every=5s has an unknown member `sepc`";
        assert_eq!(text_in_flags(told, &PatchFlags::Set(&set)), named);
        assert_eq!(text_in_flags("/patch is wrong", &PatchFlags::Set(&set)), "--set is wrong");
        assert_eq!(
            text_in_flags("/patch is wrong", &PatchFlags::Set(&set[..1])),
            "--set priority=1 is wrong"
        );
    }

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
