//! `everwatch service …`, `everwatch rebalance …` and `everwatch chaos …`

use super::observer::{field, print, table};
use crate::cli::{Balance, Chaos, Drain, Output, Rebalance, Service};
use crate::client::{Client, Failure};
use everwatch_core::clock;
use reqwest::Method;
use serde_json::{Map, Value, json};
use std::time::{Duration, Instant};

/// Pause between two looks at a drain.
const LOOK_EVERY: Duration = Duration::from_millis(500);

#[tokio::main(flavor = "current_thread")]
pub(crate) async fn run(server: &str, verb: Service) -> anyhow::Result<()> {
    let client = Client::new(server)?;
    match verb {
        Service::List { output } => return list(&client, output).await,
        Service::Cordon { name } => order(&client, &name, "cordon", None).await,
        Service::Uncordon { name } => order(&client, &name, "uncordon", None).await,
        Service::Drain(drain) => return self::drain(&client, &drain).await,
        Service::Capacity { name, slots } => {
            let capacity = match slots.as_str() {
                "default" => Value::Null,
                number => number.parse::<u32>().map(Value::from).map_err(|_| {
                    Failure::Usage(format!("`{number}` is neither a number of slots nor `default`"))
                })?,
            };
            let body = json!({ "capacity": capacity });
            client.call(Method::PATCH, &path(&name), Some(&body)).await.map(|(_, it)| it)
        }
    }
    .map(|it| {
        let capacity = it["capacity_set"].as_u64().map_or_else(|| field(&it, "capacity"), |n| n.to_string());
        let cordoned = if it["cordoned"] == true { ", cordoned" } else { "" };
        print(&format!("{} holds {} of {capacity}{cordoned}", field(&it, "name"), field(&it, "held")));
    })
}

fn path(name: &str) -> String {
    format!("/v1/services/{}", Client::part(name))
}

async fn order(client: &Client, name: &str, verb: &str, body: Option<&Value>) -> anyhow::Result<Value> {
    Ok(client.call(Method::POST, &format!("{}/{verb}", path(name)), body).await?.1)
}

async fn list(client: &Client, output: Output) -> anyhow::Result<()> {
    let (_, page) = client.call(Method::GET, "/v1/services?limit=1000", None).await?;
    let items = page["items"].as_array().cloned().unwrap_or_default();
    match output {
        Output::Json => print(&serde_json::to_string_pretty(&items)?),
        Output::Name => items.iter().for_each(|it| print(&field(it, "name"))),
        Output::Table => {
            let head = ["NAME", "STATE", "POOL", "HELD", "CAPACITY", "HOST", "ID"];
            let row = |it: &Value| head.map(|column| field(it, &column.to_lowercase()));
            table(&head, items.iter().map(row));
        }
    }
    Ok(())
}

async fn drain(client: &Client, asked: &Drain) -> anyhow::Result<()> {
    let mut body = Map::from_iter([("force".to_owned(), json!(asked.force))]);
    if let Some(per_second) = asked.per_second {
        body.insert("per_second".to_owned(), json!(per_second));
    }
    if let Some(within) = asked.within {
        body.insert("within".to_owned(), json!(clock::show(within)));
    }
    let mut it = order(client, &asked.name, "drain", Some(&Value::Object(body))).await?;
    let begun = Instant::now();
    let mut told = String::new();
    loop {
        let now = progress(&it);
        if now != told {
            print(&now);
            told = now;
        }
        let Some(wait) = asked.wait.filter(|_| !it["drain"].is_null()) else { return Ok(()) };
        if begun.elapsed() >= wait {
            let text = format!("{told}: still so after {}; the drain goes on", clock::show(wait));
            return Err(Failure::TimedOut(text).into());
        }
        tokio::time::sleep(LOOK_EVERY).await;
        it = client.call(Method::GET, &path(&asked.name), None).await?.1;
    }
}

fn progress(it: &Value) -> String {
    let (name, drain) = (field(it, "name"), &it["drain"]);
    if drain.is_null() {
        return format!("{name} is drained and stays cordoned");
    }
    let told = format!("{name}: {} of {} moved", drain["moved"], drain["of"]);
    match drain["waits"].as_str() {
        Some(why) => format!("{told}; waiting: {why}"),
        None => told,
    }
}

#[tokio::main(flavor = "current_thread")]
pub(crate) async fn rebalance(server: &str, verb: Rebalance) -> anyhow::Result<()> {
    let (word, Balance { pool, moves, output }) = match verb {
        Rebalance::Plan(balance) => ("plan", balance),
        Rebalance::Apply(balance) => ("apply", balance),
    };
    let mut body = Map::new();
    if let Some(pool) = pool {
        body.insert("pool".to_owned(), json!(pool));
    }
    if let Some(moves) = moves {
        body.insert("moves".to_owned(), json!(moves));
    }
    let path = format!("/v1/rebalance:{word}");
    let (_, plan) = Client::new(server)?.call(Method::POST, &path, Some(&Value::Object(body))).await?;
    let pools = plan["pools"].as_array().cloned().unwrap_or_default();
    match output {
        Output::Json => print(&serde_json::to_string_pretty(&plan)?),
        Output::Name => pools.iter().for_each(|it| print(&field(it, "pool"))),
        Output::Table if pools.is_empty() => print("all services are evenly used"),
        Output::Table => {
            let services = |pool: &Value| {
                let name = field(pool, "pool");
                let row = |it: &Value| {
                    let cell = |member| field(it, member);
                    [
                        name.clone(),
                        cell("name"),
                        cell("held"),
                        cell("target"),
                        cell("capacity"),
                        cell("reason"),
                    ]
                };
                pool["services"].as_array().into_iter().flatten().map(row).collect::<Vec<_>>()
            };
            let head = ["POOL", "SERVICE", "HELD", "TARGET", "CAPACITY", "CHANGE"];
            table(&head, pools.iter().flat_map(services));
        }
    }
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
pub(crate) async fn chaos(server: &str, verb: Chaos) -> anyhow::Result<()> {
    let Chaos::Kill { service } = verb;
    let path = format!("/dev/chaos/{}/kill", Client::part(&service));
    Client::new(server)?.call(Method::POST, &path, None).await?;
    print(&format!("{service} killed; it comes back in a few seconds as a new incarnation"));
    Ok(())
}
