//! `everwatch service …` and `everwatch chaos …`

use super::observer::{field, print, table};
use crate::cli::{Chaos, Output, Service};
use crate::client::Client;
use reqwest::Method;

#[tokio::main(flavor = "current_thread")]
pub(crate) async fn run(server: &str, verb: Service) -> anyhow::Result<()> {
    let Service::List { output } = verb;
    let (_, page) = Client::new(server)?.call(Method::GET, "/v1/services?limit=1000", None).await?;
    let items = page["items"].as_array().cloned().unwrap_or_default();
    match output {
        Output::Json => print(&serde_json::to_string_pretty(&items)?),
        Output::Name => items.iter().for_each(|it| print(&field(it, "name"))),
        Output::Table => {
            let head = ["NAME", "STATE", "POOL", "HELD", "CAPACITY", "HOST", "ID"];
            let row = |it: &serde_json::Value| head.map(|column| field(it, &column.to_lowercase()));
            table(&head, items.iter().map(row));
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
