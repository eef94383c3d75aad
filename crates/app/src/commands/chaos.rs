//! `everwatch chaos …`

use super::kills;
use super::unknown::{self, hinted};
use crate::cli::Chaos;
use crate::client::Client;
use crate::output::answer;
use crate::requests::service_path;
use everwatch_api::Service;
use reqwest::Method;
use std::time::Duration;
use tokio::time::Instant;

/// How long a command waits for a service that was thawed to register again.
const BACK_WITHIN: Duration = Duration::from_secs(10);
const LOOK_EVERY: Duration = Duration::from_millis(250);

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
            let before = client.read::<Service>(&service_path(service)).await.ok();
            order(client, service, "freeze").await?;
            match before {
                Some(it) if it.held == 0 => {
                    format!("service {service} is frozen; it holds no observer")
                }
                _ => format!(
                    "service {service} is frozen; after two heartbeats of silence, its observers run on other services; until \
                     then, managers cannot tell, and show them as running"
                ),
            }
        }
        Chaos::Thaw { service } => {
            let before = client.read::<Service>(&service_path(service)).await.ok();
            order(client, service, "thaw").await?;
            match until_heard(client, service, before.as_ref()).await {
                Some(true) => format!("service {service} is thawed, and continues"),
                Some(false) => {
                    format!("service {service} is thawed: it has registered again as a new incarnation")
                }
                None => format!("service {service} is thawed; `everwatch service get {service}` shows it"),
            }
        }
    };
    answer(&said);
    Ok(())
}

/// Waits, at most [`BACK_WITHIN`], until managers have heard from the service again: whether it is the same incarnation. `None` if they
/// have not, or do not answer. The next command then does not show the service as lost.
async fn until_heard(client: &Client, service: &str, before: Option<&Service>) -> Option<bool> {
    let (before, deadline) = (before?, Instant::now() + BACK_WITHIN);
    while Instant::now() < deadline {
        let it = client.read::<Service>(&service_path(service)).await.ok()?;
        let is_same = it.id == before.id;
        if !it.state.is_over() && (!is_same || it.last_heartbeat_at > before.last_heartbeat_at) {
            return Some(is_same);
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
    None
}

async fn order(client: &Client, service: &str, verb: &str) -> anyhow::Result<()> {
    let path = format!("/dev/chaos/{}/{verb}", Client::part(service));
    hinted(client, (unknown::SERVICES, service), client.order(Method::POST, &path, None)).await
}
