//! `everwatch observer …`

use super::{apply, operations};
use crate::cli::{Observer, Output};
use crate::client::{Client, Failure};
use everwatch_core::clock;
use reqwest::Method;
use serde_json::{Map, Value, json};
use std::time::{Duration, Instant};

/// The longest that one long poll may last.
const POLL: Duration = Duration::from_secs(30);

#[tokio::main(flavor = "current_thread")]
pub(crate) async fn run(server: &str, verb: Observer) -> anyhow::Result<()> {
    let client = Client::new(server)?;
    match verb {
        Observer::Apply(asked) => apply::run(&client, &asked).await?,
        Observer::Create { name, kind, spec, pool, labels, on_full } => {
            let mut body =
                Map::from_iter([("name".to_owned(), json!(name)), ("kind".to_owned(), json!(kind))]);
            if let Some(spec) = spec {
                body.insert("spec".to_owned(), read_spec(&spec)?);
            }
            if !labels.is_empty() {
                body.insert("labels".to_owned(), read_labels(&labels)?);
            }
            for (member, value) in [("pool", pool), ("on_full", on_full)] {
                if let Some(value) = value {
                    body.insert(member.to_owned(), json!(value));
                }
            }
            let (_, made) = client.call(Method::POST, "/v1/observers", Some(&Value::Object(body))).await?;
            print(&format!("{} {}", field(&made, "name"), field(&made, "status")));
        }
        Observer::Get { name, output } => {
            let (_, it) = client.call(Method::GET, &path(&name), None).await?;
            show(std::slice::from_ref(&it), output, Shape::One)?;
        }
        Observer::List { status, kind, pool, service, output } => {
            let filters = [("status", status), ("kind", kind), ("pool", pool), ("service", service)];
            show(&all(&client, &filters).await?, output, Shape::Many)?;
        }
        Observer::Delete { names, wait } => {
            for name in names {
                let wait =
                    wait.map_or_else(String::new, |wait| format!("?wait={}s", wait.as_secs().clamp(1, 60)));
                let (_, it) = client.call(Method::DELETE, &format!("{}{wait}", path(&name)), None).await?;
                print(&format!("{name} {}", field(&it, "status")));
            }
        }
        Observer::Wait { name, until, timeout } => wait(&client, &name, &until, timeout).await?,
        Observer::Retry { name } => act(&client, &name, "retry", None).await?,
        Observer::Pause { name } => act(&client, &name, "pause", None).await?,
        Observer::Resume { name } => act(&client, &name, "resume", None).await?,
        Observer::Restart { name } => act(&client, &name, "restart", None).await?,
        Observer::Move { name, pool } => {
            let body = pool.map(|pool| json!({ "pool": pool }));
            act(&client, &name, "move", body.as_ref()).await?;
        }
        Observer::Events { name, output } => {
            let (_, page) =
                client.call(Method::GET, &format!("{}/events?limit=1000", path(&name)), None).await?;
            operations::show_events(&page, output)?;
        }
    }
    Ok(())
}

async fn act(client: &Client, name: &str, verb: &str, body: Option<&Value>) -> anyhow::Result<()> {
    let (_, it) = client.call(Method::POST, &format!("{}/{verb}", path(name)), body).await?;
    let (status, reason) = (field(&it, "status"), field(&it, "reason"));
    print(format!("{name} {status} {reason}").trim_end());
    Ok(())
}

fn path(name: &str) -> String {
    format!("/v1/observers/{}", Client::part(name))
}

fn read_spec(text: &str) -> anyhow::Result<Value> {
    let text = match text.strip_prefix('@') {
        Some(file) => std::fs::read_to_string(file)
            .map_err(|error| Failure::Usage(format!("--spec @{file}: {error}")))?,
        None => text.to_owned(),
    };
    serde_json::from_str(&text).map_err(|error| Failure::Usage(format!("--spec is not JSON: {error}")).into())
}

fn read_labels(labels: &[String]) -> anyhow::Result<Value> {
    let pairs = labels.iter().map(|label| {
        let (key, value) = label
            .split_once('=')
            .ok_or_else(|| Failure::Usage(format!("--label `{label}` has no `=`: write key=value")))?;
        Ok((key.to_owned(), json!(value)))
    });
    Ok(Value::Object(pairs.collect::<anyhow::Result<Map<_, _>>>()?))
}

pub(super) async fn all(client: &Client, filters: &[(&str, Option<String>)]) -> anyhow::Result<Vec<Value>> {
    let mut query = "limit=1000".to_owned();
    for (key, value) in filters {
        if let Some(value) = value {
            query.push_str(&format!("&{key}={}", Client::part(value)));
        }
    }
    let (mut items, mut cursor) = (Vec::new(), String::new());
    loop {
        let (_, page) = client.call(Method::GET, &format!("/v1/observers?{query}{cursor}"), None).await?;
        items.extend(page["items"].as_array().cloned().unwrap_or_default());
        match page["next_cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={}", Client::part(next)),
            None => return Ok(items),
        }
    }
}

async fn wait(client: &Client, name: &str, until: &str, timeout: Duration) -> anyhow::Result<()> {
    let Some(status) = until.strip_prefix("status=") else {
        return Err(Failure::Usage(format!("--for `{until}`: write status=Processing")).into());
    };
    let begun = Instant::now();
    loop {
        let left = timeout.saturating_sub(begun.elapsed());
        let poll = left.min(POLL).as_secs().max(1);
        let query = format!("?wait_for=status%3D{}&wait={poll}s", Client::part(status));
        let (_, it) = client.call(Method::GET, &format!("{}{query}", path(name)), None).await?;
        let now = field(&it, "status");
        if now == status {
            print(&format!("{name} {now}"));
            return Ok(());
        }
        if begun.elapsed() >= timeout {
            let waited = clock::show(timeout);
            let reason = field(&it, "reason");
            return Err(
                Failure::TimedOut(format!("{name} is {now} after {waited}, not {status}: {reason}")).into()
            );
        }
    }
}

#[derive(Clone, Copy)]
enum Shape {
    One,
    Many,
}

fn show(items: &[Value], output: Output, shape: Shape) -> anyhow::Result<()> {
    match (output, shape, items) {
        (Output::Json, Shape::One, [it]) => print(&serde_json::to_string_pretty(it)?),
        (Output::Json, ..) => print(&serde_json::to_string_pretty(&items)?),
        (Output::Name, ..) => items.iter().for_each(|it| print(&field(it, "name"))),
        (Output::Table, ..) => {
            let row = |it: &Value| {
                let service = it["service"]["name"].as_str().unwrap_or("-").to_owned();
                let epoch = format!("{}.{}", it["generation"], it["acquisitions"]);
                [
                    field(it, "name"),
                    field(it, "kind"),
                    field(it, "status"),
                    service,
                    epoch,
                    field(it, "reason"),
                ]
            };
            table(&["NAME", "KIND", "STATUS", "SERVICE", "EPOCH", "REASON"], items.iter().map(row));
        }
    }
    Ok(())
}

pub(super) fn field(it: &Value, member: &str) -> String {
    match &it[member] {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    }
}

pub(super) fn table<const N: usize>(head: &[&str; N], rows: impl Iterator<Item = [String; N]>) {
    let mut table = comfy_table::Table::new();
    table.load_style(comfy_table::presets::NOTHING).set_header(head.to_vec());
    rows.for_each(|row| {
        table.add_row(row.to_vec());
    });
    print(&table.to_string());
}

#[expect(clippy::print_stdout, reason = "a command's answer")]
pub(super) fn print(text: &str) {
    println!("{text}");
}
