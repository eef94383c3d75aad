//! Measures the cost of idle services: the manager's processor time beside many services without observers.

use super::deployment::{Deployment, HEARTBEAT, Place};
use super::outcome::{Aim, Outcome};
use super::processor::processor;
use crate::output::print;
use everwatch::dev::Settings;
use everwatch::host::{CapacityText, observer_runtime};
use everwatch::kinds::built_in;
use everwatch_broker::{Broker, RabbitBroker};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// After this time, all services have been welcomed.
const SETTLE: Duration = Duration::from_secs(20);
const WINDOW: Duration = Duration::from_secs(60);
/// Services that start at the same moment.
const AT_ONCE: usize = 20;
/// The targets are stated for these numbers of services, as a share of a core.
const AIMS: [(u32, f64); 2] = [(150, 1.0), (1000, 5.0)];

pub(super) async fn measure(place: &Place, count: u32) -> anyhow::Result<Vec<Outcome>> {
    let deployment = Deployment::new(place)?;
    let manager = deployment.manager().await?;
    let begun = Instant::now();
    let _fleet = deployment.fleet(count).await?;
    let registered = begun.elapsed().as_secs_f64();
    sleep(SETTLE).await;
    let before = (Instant::now(), processor(&manager)?);
    sleep(WINDOW).await;
    let percent = (processor(&manager)? - before.1) / before.0.elapsed().as_secs_f64() * 100.0;
    let idle = Outcome::alone(format!("processor, manager, {count} idle services"), "% of a core", percent);
    let aim = AIMS.into_iter().find(|(services, _)| count <= *services);
    Ok(vec![
        Outcome::alone(format!("until {count} services are active"), "s", registered),
        aim.map_or(idle.clone(), |(_, most)| idle.aim(Aim::AtMost(most))),
    ])
}

/// Runs `count` services in one process, each with its own session.
pub(crate) fn run(settings: &Settings, count: u32) -> anyhow::Result<()> {
    let broker: Arc<dyn Broker> =
        Arc::new(RabbitBroker::new(&settings.broker.url, &settings.broker.prefix, HEARTBEAT)?);
    let tasks = observer_runtime(settings.service.threads)?;
    let control = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let local = tokio::task::LocalSet::new();
    let starts = Arc::new(tokio::sync::Semaphore::new(AT_ONCE));
    for number in 1..=count {
        let mut settings = settings.clone();
        settings.service.name = format!("fleet-{number:04}");
        settings.service.capacity = CapacityText(everwatch::Capacity::Fixed(1));
        let service = settings.service.settings(&settings.broker)?;
        let registry =
            built_in(settings.service.kind_settings(&settings.broker)).secrets(settings.service.secrets());
        let (broker, tasks, starts) = (Arc::clone(&broker), tasks.handle().clone(), Arc::clone(&starts));
        local.spawn_local(async move {
            let handle = everwatch::Handle::default();
            let turn = starts.acquire_owned().await;
            let release = async {
                sleep(Duration::from_secs(1)).await;
                drop(turn);
                std::future::pending::<()>().await;
            };
            tokio::select! {
                ended = everwatch::run(service, registry, broker, tasks, handle) => {
                    if let Err(error) = ended {
                        tracing::error!(%error, "a service ended");
                    }
                }
                () = release => {}
            }
        });
    }
    print("started");
    control.block_on(local);
    Ok(())
}
