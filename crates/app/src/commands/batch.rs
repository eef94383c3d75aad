//! `everwatch batch …`

use super::unknown::hinted;
use super::{operations, progress};
use crate::cli::{Batch, CreateBatch, OutputArgs};
use crate::client::{Client, Failure};
use crate::error_wording::yaml_error;
use crate::item::Item;
use crate::output::{self, BATCH_MEMBERS, BATCHES, TerminalStyle, answer, print};
use crate::refusals::in_flags_or_file;
use everwatch_api::{self as api, BatchMember, Listed};
use everwatch_core::batch::BatchState;
use everwatch_core::clock::{self, show};
use everwatch_core::record::status::Status;
use everwatch_core::wording::counted;
use reqwest::Method;
use serde_json::{Value, json};
use std::path::Path;

/// How many failed members a description shows.
const TOLD: usize = 15;
/// The most members of one page.
const PAGE: usize = 1000;
/// The list of batches, as long as managers make it.
const BATCHES_OF_ALL: &str = "/v1/batches?limit=200";

#[tokio::main(flavor = "current_thread")]
pub(crate) async fn run(server: &str, verb: Batch) -> anyhow::Result<()> {
    let client = &Client::new(server)?;
    match verb {
        Batch::Create(asked) => create(client, asked).await,
        Batch::List(watched) => operations::list(client, BATCHES_OF_ALL, &BATCHES, &watched).await,
        Batch::Describe { name, shown } => describe(client, &name, &shown).await,
        Batch::Observers { name, status, shown } => {
            let found = members(client, &name, &status, usize::MAX);
            output::show(&BATCH_MEMBERS, &hinted(client, (BATCHES_OF_ALL, &name), found).await?, &shown)
        }
        Batch::RetryFailed { name } => retry_failed(client, &name).await,
        Batch::Cancel { name } => order(client, &name, (Method::POST, "/cancel")).await,
        Batch::Delete { name } => order(client, &name, (Method::DELETE, "")).await,
    }
}

fn path(name: &str) -> String {
    format!("/v1/batches/{}", Client::part(name))
}

/// The state and the progress in one line.
fn told(it: &api::Batch) -> String {
    let failed = match it.counts.get(&Status::Failed) {
        None | Some(0) => String::new(),
        Some(count) => format!(", {count} failed"),
    };
    let rate = it.rate_per_minute.map_or_else(String::new, |rate| format!(", {rate} a minute"));
    let left = it.time_left.map_or_else(String::new, |left| format!(", {} left", show(left)));
    let reason = if it.reason.is_empty() { String::new() } else { format!("; {}", it.reason) };
    let (name, state) = (&it.name, it.state);
    format!(
        "batch {name} is {state}: {} of {} ended{failed}{rate}{left}{reason}",
        it.settled,
        counted(it.members, "observer")
    )
}

/// The counts in the answer are those from before the retry.
async fn retry_failed(client: &Client, name: &str) -> anyhow::Result<()> {
    let path = format!("{}/retry-failed", path(name));
    let sent = client.send::<api::Batch>(Method::POST, &path, None);
    let it = hinted(client, (BATCHES_OF_ALL, name), sent).await?;
    let failed = it.counts.get(&Status::Failed).copied().unwrap_or(0);
    if failed == 0 && it.state == BatchState::Completed {
        answer(&format!("batch {} has no failed observer: there is nothing to retry", it.name));
        return Ok(());
    }
    let retried =
        if failed == 0 { "its failed observers".to_owned() } else { counted(failed, "failed observer") };
    answer(&format!("batch {0} retries {retried}; see `everwatch batch describe {0}`", it.name));
    Ok(())
}

async fn order(client: &Client, name: &str, (method, verb): (Method, &str)) -> anyhow::Result<()> {
    let path = format!("{}{verb}", path(name));
    let it: api::Batch = hinted(client, (BATCHES_OF_ALL, name), client.send(method, &path, None)).await?;
    answer(&told(&it));
    Ok(())
}

async fn create(client: &Client, asked: CreateBatch) -> anyhow::Result<()> {
    let mut body = read(&asked.file)?;
    let Some(members) = body.as_object_mut() else {
        let file = asked.file.display();
        return Err(Failure::Usage(format!("{file}: write an object with the field \"observers\"")).into());
    };
    let mut flags = Vec::new();
    if let Some(name) = asked.named.or(asked.name) {
        members.insert("name".to_owned(), json!(name));
        flags.push("name");
    }
    if let Some(max) = asked.max_running {
        members.insert("max_running".to_owned(), json!(max));
        flags.push("max_running");
    }
    let sent = client.create::<api::Batch>("/v1/batches", asked.key.as_deref(), &body).await;
    let mut it = sent.map_err(|error| in_flags_or_file(error, &flags, &asked.file))?;
    answer(&told(&it));
    if asked.wait {
        let path = path(&it.id.to_string());
        it = progress::follow(client, &path, it, (told, |it: &api::Batch| it.state.is_over())).await?;
    }
    let failed = it.counts.get(&Status::Failed).copied().unwrap_or(0);
    if asked.wait && (failed > 0 || it.state != BatchState::Completed) {
        return Err(Failure::Failed(format!("{failed} of {} failed", counted(it.members, "observer"))).into());
    }
    Ok(())
}

fn read(file: &Path) -> anyhow::Result<Value> {
    let told = |error: &dyn std::fmt::Display| Failure::Usage(format!("{}: {error}", file.display()));
    let text = if file == Path::new("-") {
        std::io::read_to_string(std::io::stdin()).map_err(|error| told(&error))?
    } else {
        std::fs::read_to_string(file).map_err(|error| told(&error))?
    };
    // JSON is YAML.
    Ok(serde_saphyr::from_str(&text).map_err(|error| told(&yaml_error(&error)))?)
}

async fn members(
    client: &Client,
    name: &str,
    statuses: &[Status],
    most: usize,
) -> anyhow::Result<Vec<Item<BatchMember>>> {
    let statuses: Vec<&str> = statuses.iter().map(|status| status.as_str()).collect();
    let status = if statuses.is_empty() { String::new() } else { format!("&status={}", statuses.join(",")) };
    let (mut items, mut cursor) = (Vec::new(), String::new());
    loop {
        let limit = (most - items.len()).min(PAGE);
        let page: Listed<Item<BatchMember>> =
            client.read(&format!("{}/observers?limit={limit}{status}{cursor}", path(name))).await?;
        items.extend(page.items);
        match page.next_cursor.filter(|_| items.len() < most) {
            Some(next) => cursor = format!("&cursor={}", Client::part(&next)),
            None => return Ok(items),
        }
    }
}

async fn describe(client: &Client, name: &str, shown: &OutputArgs) -> anyhow::Result<()> {
    let it: Item<api::Batch> = hinted(client, (BATCHES_OF_ALL, name), client.read(&path(name))).await?;
    if output::structured(&it, shown)? {
        return Ok(());
    }
    let failed = members(client, &it.id.to_string(), &[Status::Failed], TOLD).await?;
    print(&output::describe_batch(&it, &failed, (TerminalStyle::stdout(), clock::now())));
    Ok(())
}
