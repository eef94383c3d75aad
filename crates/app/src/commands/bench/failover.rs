//! Measures how long it takes until the observers of a killed service run elsewhere. For comparison, measures
//! how long the bare broker takes to redeliver the messages of a killed consumer to another one.

use super::creates::publish;
use super::deployment::{Deployment, PATIENCE, Place, Process, bare};
use super::outcome::{Aim, Outcome, median};
use super::processor::{Spent, processor};
use anyhow::Context as _;
use everwatch_core::clock::{self, Timestamp};
use std::time::Duration;
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::process::ChildStdout;

/// The number of observers for which the target is defined. With fewer, the constant part of the time
/// dominates.
const MANY: u32 = 10_000;
/// After this time, the manager has stored the events of a failover.
const SETTLE: Duration = Duration::from_secs(2);

pub(super) async fn measure(place: &Place, held: u32, rounds: u32) -> anyhow::Result<Vec<Outcome>> {
    let bare = bare_broker(&Deployment::new(place)?, held, rounds).await?;
    let took = everwatch(Deployment::new(place)?, held, rounds).await?;
    let what = |until: &str| format!("failover of {held}, until {until}");
    let running = Outcome::beside(what("all run"), "s", (took.started, bare));
    let seen = Outcome::beside(what("the API shows it"), "s", (took.seen, bare));
    let manager =
        Outcome::alone(format!("processor per move of {held}, manager and database"), "µs", took.manager);
    let service = Outcome::alone(format!("processor per start of {held}, service"), "µs", took.service);
    if held < MANY {
        return Ok(vec![running, seen]);
    }
    let of_the_manager = if place.store_url.is_some() { 45.0 } else { 35.0 };
    Ok(vec![
        running.aim(Aim::AtMost(1.5)),
        seen.aim(Aim::AtMost(3.0)),
        manager.aim(Aim::AtMost(of_the_manager)),
        service.aim(Aim::AtMost(15.0)),
    ])
}

/// What a failover takes: medians over the rounds.
struct Took {
    /// Seconds from the kill until the last observer had started elsewhere.
    started: f64,
    /// Seconds from the kill until the API showed it.
    seen: f64,
    /// Microseconds of processor time for each observer, until the events are stored.
    manager: f64,
    service: f64,
}

async fn everwatch(mut deployment: Deployment, held: u32, rounds: u32) -> anyhow::Result<Took> {
    let manager = deployment.manager().await?;
    let (mut owner, owner_id) = deployment.service(held).await?;
    deployment.create(held).await?;
    deployment.until_running(&owner_id, held).await?;
    let (mut started, mut seen) = (Vec::new(), Vec::new());
    let (mut of_manager, mut of_service) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        let (heir, heir_id) = deployment.service(held).await?;
        let before = (Spent::by(&manager)?, processor(&heir)?);
        let killed = clock::now();
        owner.kill()?;
        deployment.until_running(&heir_id, held).await?;
        seen.push(clock::now().since(killed).as_secs_f64());
        tokio::time::sleep(SETTLE).await;
        of_manager.push(Spent::by(&manager)?.per_operation(before.0, held));
        of_service.push((processor(&heir)? - before.1) * 1e6 / f64::from(held));
        started.push(last_start(&deployment, &heir_id).await?.since(killed).as_secs_f64());
        owner.wait().await?;
        owner = heir;
    }
    deployment.leave(held).await?;
    let (started, seen) = (median(started), median(seen));
    Ok(Took { started, seen, manager: median(of_manager), service: median(of_service) })
}

/// The time of the last start, as the services report it.
async fn last_start(deployment: &Deployment, service: &str) -> anyhow::Result<Timestamp> {
    let observers = deployment.observers(service).await?;
    let starts = observers.iter().map(|it| it.started_at).collect::<Option<Vec<_>>>();
    starts.context("an observer without its start")?.into_iter().max().context("no observers")
}

/// Seconds from the kill of a consumer until another consumer holds all its messages.
async fn bare_broker(deployment: &Deployment, held: u32, rounds: u32) -> anyhow::Result<f64> {
    publish(deployment, held).await?;
    let mut owner = Holder::start(deployment, held, 0).await?;
    owner.received().await?;
    let mut took = Vec::new();
    for round in 0..rounds {
        let mut heir = Holder::start(deployment, held, round + 1).await?;
        let killed = clock::now();
        owner.process.kill()?;
        took.push(heir.received().await?.since(killed).as_secs_f64());
        owner.process.wait().await?;
        owner = heir;
    }
    Ok(median(took))
}

pub(super) struct Holder {
    process: Process,
    says: Lines<BufReader<ChildStdout>>,
}

impl Holder {
    pub(super) async fn start(deployment: &Deployment, held: u32, number: u32) -> anyhow::Result<Self> {
        let (queue, count) = (bare(&deployment.prefix), held.to_string());
        let what = ["bench-holder", &queue, &count];
        let mut process = deployment.start(&format!("holder-{number}"), &what, &[])?;
        let says = process.stdout().context("no pipe from a child")?;
        let mut holder = Self { process, says: BufReader::new(says).lines() };
        holder.says().await?;
        // Gives the consumer a quiet second after its start, as a service has before its kill.
        tokio::time::sleep(Duration::from_secs(1)).await;
        Ok(holder)
    }

    pub(super) async fn received(&mut self) -> anyhow::Result<Timestamp> {
        Ok(Timestamp(self.says().await?.parse()?))
    }

    async fn says(&mut self) -> anyhow::Result<String> {
        let line = tokio::time::timeout(PATIENCE, self.says.next_line()).await;
        line.with_context(|| format!("{} says nothing", self.process.name))??
            .with_context(|| format!("{} ended", self.process.name))
    }
}
