//! Measures how long it takes after a restart of the broker until everything runs again. For comparison, measures
//! how long the bare broker takes to deliver the same number of messages again. Both times start when the command
//! that restarts the broker has ended.

use super::creates::publish;
use super::deployment::{Deployment, PATIENCE, Place};
use super::failover::Holder;
use super::outcome::{Aim, Outcome};
use crate::client::Failure;
use everwatch_api::Service;
use everwatch_core::clock::{self, Timestamp};
use std::collections::BTreeSet;
use std::time::Duration;
use tokio::process::Command;
use tokio::time::{Instant, sleep};

/// The services that share the observers.
const SERVICES: u32 = 5;
/// How often the API is polled.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// The targets of the time until all services are active again, in seconds, and of the sessions of each service.
const ACTIVE_WITHIN: f64 = 60.0;
const SESSIONS: f64 = 1.0;

/// Restarts the broker under `count` observers on five services. Each service could run a quarter of the observers.
pub(super) async fn observers(place: &Place, restart: &str, count: u32) -> anyhow::Result<Vec<Outcome>> {
    let bare = bare_broker(&Deployment::new(place)?, restart, count).await?;
    let mut deployment = Deployment::new(place)?;
    let _manager = deployment.manager().await?;
    let mut services = Vec::new();
    for _ in 0..SERVICES {
        services.push(deployment.service(count.div_ceil(SERVICES - 1)).await?.0);
    }
    deployment.create_in_batches(count).await?;
    let former = until_they_run(&deployment, count, &BTreeSet::new()).await?;
    let begun = restarted(restart).await?;
    until_they_run(&deployment, count, &former).await?;
    let took = clock::now().since(begun).as_secs_f64();
    deployment.leave(count).await?;
    let what = format!("broker restarted, until the API shows all of {count} running");
    Ok(vec![Outcome::beside(what, "s", (took, bare)).aim(Aim::AtMost(2.0))])
}

/// Restarts the broker under `count` idle services.
pub(super) async fn services(place: &Place, restart: &str, count: u32) -> anyhow::Result<Vec<Outcome>> {
    let deployment = Deployment::new(place)?;
    let _manager = deployment.manager().await?;
    let _fleet = deployment.fleet(count).await?;
    let former: BTreeSet<_> = deployment.services("active").await?.iter().map(|it| it.id).collect();
    let begun = restarted(restart).await?;
    let waits = Instant::now();
    while new(&deployment, &former).await?.len() < count as usize {
        patience(waits, "not all services are active again")?;
        sleep(LOOK_EVERY).await;
    }
    let took = clock::now().since(begun).as_secs_f64();
    // A service that was fenced twice has registered twice.
    sleep(Duration::from_secs(15)).await;
    let all = deployment.services("active,standby,cordoned,draining,suspect,lost,gone").await?;
    let sessions = (all.len() - former.len()) as f64 / f64::from(count);
    Ok(vec![
        Outcome::alone(format!("broker restarted, until {count} services are active"), "s", took)
            .aim(Aim::AtMost(ACTIVE_WITHIN)),
        Outcome::alone(format!("sessions of each of {count} services after it"), "", sessions)
            .aim(Aim::AtMost(SESSIONS)),
    ])
}

/// Seconds until consumers hold all messages again.
async fn bare_broker(deployment: &Deployment, restart: &str, count: u32) -> anyhow::Result<f64> {
    publish(deployment, count).await?;
    let mut owner = Holder::start(deployment, count, 0).await?;
    owner.received().await?;
    let begun = restarted(restart).await?;
    drop(owner);
    let (most, mut left, mut heirs, mut last) = (count.div_ceil(SERVICES), count, Vec::new(), begun);
    while left > 0 {
        let held = left.min(most);
        left -= held;
        heirs.push(Holder::start(deployment, held, left + 1));
    }
    for mut heir in futures::future::try_join_all(heirs).await? {
        last = last.max(heir.received().await?);
    }
    Ok(last.since(begun).as_secs_f64())
}

/// Runs the command; returns when it has ended.
async fn restarted(command: &str) -> anyhow::Result<Timestamp> {
    // Nothing else happens at the moment of the restart.
    sleep(Duration::from_secs(3)).await;
    let ended = Command::new("sh").args(["-c", command]).output().await?;
    if !ended.status.success() {
        let error = String::from_utf8_lossy(&ended.stderr).into_owned();
        return Err(Failure::Failed(format!("--restart `{command}`: {}: {error}", ended.status)).into());
    }
    Ok(clock::now())
}

/// Waits until `count` observers run on services that are not among the former ones; returns the ids of these services.
async fn until_they_run(
    deployment: &Deployment,
    count: u32,
    former: &BTreeSet<uuid::Uuid>,
) -> anyhow::Result<BTreeSet<uuid::Uuid>> {
    let begun = Instant::now();
    loop {
        let services = new(deployment, former).await?;
        let mut running = 0;
        for service in &services {
            running += deployment.running(&service.id.to_string()).await?;
        }
        if running == u64::from(count) {
            return Ok(services.into_iter().map(|it| it.id).collect());
        }
        patience(begun, &format!("{running} of {count} observers run"))?;
        sleep(LOOK_EVERY).await;
    }
}

/// The active services that are not among the former ones.
async fn new(deployment: &Deployment, former: &BTreeSet<uuid::Uuid>) -> anyhow::Result<Vec<Service>> {
    let mut services = deployment.services("active").await?;
    services.retain(|it| !former.contains(&it.id));
    Ok(services)
}

fn patience(begun: Instant, state: &str) -> anyhow::Result<()> {
    if begun.elapsed() > PATIENCE {
        let text = format!("{state} after {} s", PATIENCE.as_secs());
        return Err(Failure::TimedOut(text).into());
    }
    Ok(())
}
