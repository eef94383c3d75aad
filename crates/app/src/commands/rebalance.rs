//! `everwatch rebalance …`

use super::unknown::{self, Named, explained};
use crate::cli::{Balance, Rebalance};
use crate::client::{Client, Failure};
use crate::item::Item;
use crate::output::{self, Change, Output, REBALANCE, note};
use everwatch_api::{self as api, Listed, Operation, OperationType};
use everwatch_core::clock;
use everwatch_core::wording::counted;
use reqwest::Method;
use serde_json::{Map, Value, json};
use std::time::{Duration, Instant};

/// The pause between two looks at the progress.
const LOOK_EVERY: Duration = Duration::from_millis(500);

#[tokio::main(flavor = "current_thread")]
pub(crate) async fn run(server: &str, verb: Rebalance) -> anyhow::Result<()> {
    let client = &Client::new(server)?;
    match verb {
        Rebalance::Plan(balance) => _ = request(client, "plan", &balance).await?,
        Rebalance::Apply { balance, wait } => {
            let plan = request(client, "apply", &balance).await?;
            match wait {
                Some(wait) => follow(client, &plan, wait).await?,
                None if plan.pools.is_empty() || !balance.shown.is_table() => {}
                None => note(
                    "the services hand these observers over now; `everwatch rebalance apply --wait TIME` waits for it, and \
                     `everwatch status` shows the progress",
                ),
            }
        }
    }
    Ok(())
}

/// Requests the plan and shows it.
async fn request(
    client: &Client,
    word: &str,
    Balance { pool, moves, shown }: &Balance,
) -> anyhow::Result<Item<api::Rebalance>> {
    let mut body = Map::new();
    if let Some(pool) = pool {
        body.insert("pool".to_owned(), json!(pool));
    }
    if let Some(moves) = moves {
        body.insert("moves".to_owned(), json!(moves));
    }
    let path = format!("/v1/rebalance:{word}");
    let named = || Named { pool: pool.as_deref(), ..Named::default() };
    let planned = client.send(Method::POST, &path, Some(&Value::Object(body))).await;
    let plan: Item<api::Rebalance> = explained(client, named(), planned).await?;
    if plan.pools.is_empty() {
        unknown::check(client, named()).await?;
    }
    if matches!(shown.output, Output::Columns(_)) || !output::structured(&plan, shown)? {
        output::show(&REBALANCE, &changes(&plan)?, shown)?;
    }
    Ok(plan)
}

/// Prints the progress of the plan until its moves are done.
async fn follow(client: &Client, plan: &api::Rebalance, wait: Duration) -> anyhow::Result<()> {
    let begun = Instant::now();
    let mut told = String::new();
    loop {
        let open: Listed<Operation> = client.read("/v1/operations").await?;
        let open = open.items.iter().filter(|it| it.kind == OperationType::Rebalance);
        let open = open.filter(|it| plan.pools.iter().any(|pool| pool.pool == it.name));
        let lines: Vec<String> = open.map(progress).collect();
        if lines.is_empty() {
            break;
        }
        let now = lines.join("; ");
        if now != told {
            note(&now);
        }
        told = now;
        if begun.elapsed() >= wait {
            let text = format!("not over after {}: {told}; the rebalance continues", clock::show(wait));
            return Err(Failure::TimedOut(text).into());
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
    // Pool by pool: a role may permit only these.
    for pool in &plan.pools {
        let body = json!({ "pool": pool.pool });
        let left: api::Rebalance = client.send(Method::POST, "/v1/rebalance:plan", Some(&body)).await?;
        note(&ended(&pool.pool, pool.moves, left.pools.iter().map(|it| it.moves).sum()));
    }
    Ok(())
}

fn progress(it: &Operation) -> String {
    let done = match (it.done, it.of) {
        (Some(done), Some(of)) => format!("{done} of {} moved", counted(of, "slot")),
        _ => "the services hand over observers".to_owned(),
    };
    format!("pool {}: {done}", it.name)
}

/// What holds for a pool after a rebalance of this many slots, if a plan now would move `left` slots.
fn ended(pool: &str, moves: u32, left: u32) -> String {
    match left {
        0 => format!("pool {pool} is even: {} moved", counted(moves, "slot")),
        left => format!(
            "pool {pool} is not even yet, {} should move: `everwatch rebalance apply --pool {pool}`",
            counted(left, "slot")
        ),
    }
}

/// The services of every pool, each with its pool.
fn changes(plan: &api::Rebalance) -> anyhow::Result<Vec<Item<Change>>> {
    let pools = plan.pools.iter();
    let all = pools.flat_map(|pool| pool.services.iter().map(|service| (pool.pool.clone(), service.clone())));
    all.map(|(pool, service)| Item::new(Change { pool, service })).collect()
}
