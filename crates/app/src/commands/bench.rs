//! `everwatch bench`: measures Everwatch on this machine and broker, and compares each figure with that of
//! the bare broker in the same run. This file lists the parts of the benchmark; other files measure them.

mod creates;
mod deployment;
mod failover;
mod holder;
mod idle;
mod outcome;
mod processor;
mod restart;
mod services;

use super::roles::configured;
use crate::cli::{Bench, BenchOutput, Part};
use crate::client::Failure;
use deployment::Place;
use everwatch::host::on_signals;
use outcome::Outcome;
use std::path::Path;
use tokio_util::sync::CancellationToken;

pub(crate) use holder::run as hold;
pub(crate) use services::run as fleet;

/// Measures the selected figures and prints them. Ctrl-C and SIGTERM stop all processes and end it early.
///
/// # Errors
/// If the broker cannot be used or a process does not do its part.
#[tokio::main]
pub(crate) async fn run(config: Option<&Path>, arguments: &Bench) -> anyhow::Result<()> {
    let settings = configured(config)?;
    let broker_url = arguments.broker.clone().unwrap_or(settings.broker.url);
    let place = Place::new(broker_url, arguments.store.clone());
    place.check().await?;
    let (soft, hard) = (CancellationToken::new(), CancellationToken::new());
    let mut outcomes = Vec::new();
    let ended = tokio::select! {
        ended = measure(&place, arguments, &mut outcomes) => ended,
        Err(error) = on_signals(soft.clone(), hard) => Err(error.into()),
        () = soft.cancelled() => Err(Failure::Failed("stopped".to_owned()).into()),
    };
    let cleaned = place.clean().await;
    match arguments.output {
        BenchOutput::Table => outcome::table(&outcomes)?,
        BenchOutput::Json => outcome::json(&outcomes)?,
    }
    ended.and(cleaned)
}

async fn measure(place: &Place, arguments: &Bench, outcomes: &mut Vec<Outcome>) -> anyhow::Result<()> {
    let wants = |part: Part| arguments.only.is_empty() || arguments.only.contains(&part);
    if wants(Part::Creates) {
        outcomes.extend(creates::measure(place, arguments.creates).await?);
    }
    if wants(Part::Failover) {
        for held in &arguments.failover {
            outcomes.extend(failover::measure(place, *held, arguments.rounds).await?);
        }
    }
    if wants(Part::Idle) {
        outcomes.extend(idle::measure(place, arguments.idle).await?);
    }
    if wants(Part::Services) {
        for count in &arguments.services {
            outcomes.extend(services::measure(place, *count).await?);
        }
    }
    if let Some(command) = arguments.restart.as_ref().filter(|_| wants(Part::Restart)) {
        for count in &arguments.restart_observers {
            outcomes.extend(restart::observers(place, command, *count).await?);
        }
        for count in &arguments.restart_services {
            outcomes.extend(restart::services(place, command, *count).await?);
        }
    }
    Ok(())
}
