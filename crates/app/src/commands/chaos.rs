//! `everwatch chaos …`

use super::kills;
use super::unknown::{self, hinted};
use crate::cli::Chaos;
use crate::client::Client;
use crate::output::answer;
use reqwest::Method;

#[tokio::main(flavor = "current_thread")]
pub(crate) async fn run(server: &str, verb: &Chaos) -> anyhow::Result<()> {
    let client = &Client::new(server)?;
    let said = match verb {
        Chaos::Kill { service, no_wait } => {
            let kill = kills::kill(client, service);
            let killed = hinted(client, (unknown::SERVICES, service), kill).await?;
            answer(&format!("service {service} is killed; a new incarnation starts in a few seconds"));
            if *no_wait {
                return Ok(());
            }
            killed.until_moved(client).await
        }
        Chaos::Freeze { service } => {
            order(client, service, "freeze").await?;
            format!(
                "service {service} is frozen; after two heartbeats of silence, its observers run on other services"
            )
        }
        Chaos::Thaw { service } => {
            order(client, service, "thaw").await?;
            format!(
                "service {service} is thawed; it stops the runs that it no longer holds and registers again as a new incarnation"
            )
        }
    };
    answer(&said);
    Ok(())
}

async fn order(client: &Client, service: &str, verb: &str) -> anyhow::Result<()> {
    let path = format!("/dev/chaos/{}/{verb}", Client::part(service));
    hinted(client, (unknown::SERVICES, service), client.order(Method::POST, &path, None)).await
}
