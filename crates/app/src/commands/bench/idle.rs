//! Measures the cost of idle observers: memory and processor time in the service and in the manager.

use super::deployment::{Deployment, Place};
use super::outcome::{Aim, Outcome};
use super::processor::{processor, resident};
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// After this time, the work of starting the observers is done.
const SETTLE: Duration = Duration::from_secs(20);
/// A service sends its inventory once a minute, so each window contains one inventory.
const WINDOW: Duration = Duration::from_secs(60);

pub(super) async fn measure(place: &Place, count: u32) -> anyhow::Result<Vec<Outcome>> {
    let mut deployment = Deployment::new(place)?;
    let manager = deployment.manager().await?;
    let (service, id) = deployment.service(count).await?;
    let empty = resident(&service)?;
    deployment.create(count).await?;
    deployment.until_running(&id, count).await?;
    sleep(SETTLE).await;
    let full = resident(&service)?;
    let before = (Instant::now(), processor(&service)?, processor(&manager)?);
    sleep(WINDOW).await;
    let seconds = before.0.elapsed().as_secs_f64();
    let percent = |now: f64, before: f64| (now - before) / seconds * 100.0;
    let (of_service, of_manager) =
        (percent(processor(&service)?, before.1), percent(processor(&manager)?, before.2));
    deployment.leave(count).await?;
    let of_the_manager = resident(&manager)? / (1024.0 * 1024.0);
    let per_observer = (full - empty) / f64::from(count) / 1024.0;
    let idle = |what: &str| format!("{what}, {count} idle observers");
    Ok(vec![
        Outcome::alone(idle("memory per observer in the service"), "KiB", per_observer).aim(Aim::AtMost(1.5)),
        Outcome::alone(idle("memory of the manager"), "MiB", of_the_manager),
        Outcome::alone(idle("processor, service"), "% of a core", of_service).aim(Aim::AtMost(0.2)),
        Outcome::alone(idle("processor, manager"), "% of a core", of_manager).aim(Aim::AtMost(0.5)),
    ])
}
