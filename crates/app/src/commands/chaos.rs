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
            order(client, service, "freeze").await?;
            format!(
                "service {service} is frozen; after two heartbeats of silence, its observers run on other services; until then, \
                 managers cannot tell, and show them as running"
            )
        }
        Chaos::Thaw { service } => {
            let was_lost = is_lost(client, service).await;
            order(client, service, "thaw").await?;
            if !was_lost {
                format!("service {service} is thawed, and continues")
            } else if is_back(client, service).await {
                format!("service {service} is thawed: it has registered again as a new incarnation")
            } else {
                format!("service {service} is thawed; it registers again as a new incarnation")
            }
        }
    };
    answer(&said);
    Ok(())
}

/// Whether managers consider the newest process of this name lost; not if they do not answer.
async fn is_lost(client: &Client, service: &str) -> bool {
    client.read::<Service>(&service_path(service)).await.is_ok_and(|it| it.state.is_over())
}

/// Waits until a process of this name lives, at most [`BACK_WITHIN`]: the next command then does not show the service as lost.
async fn is_back(client: &Client, service: &str) -> bool {
    let deadline = Instant::now() + BACK_WITHIN;
    while is_lost(client, service).await {
        if Instant::now() >= deadline {
            return false;
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
    true
}

async fn order(client: &Client, service: &str, verb: &str) -> anyhow::Result<()> {
    let path = format!("/dev/chaos/{}/{verb}", Client::part(service));
    hinted(client, (unknown::SERVICES, service), client.order(Method::POST, &path, None)).await
}
