//! Selects the implementations of broker and store. No other file of this crate names them.

use crate::settings::{Rebalance, Settings};
use anyhow::Context as _;
use everwatch_broker::{Broker, MemoryBroker};
use everwatch_core::id::Pool;
use everwatch_core::redact::redacted;
use everwatch_door::hosts::Hosts;
use everwatch_manager::AutoRebalance;
use everwatch_store::{Store, StoreError};
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// RabbitMQ.
pub(crate) fn rabbit(settings: &Settings) -> anyhow::Result<Arc<dyn Broker>> {
    Ok(Arc::new(settings.broker.inspectable()?))
}

/// The broker inside this process.
pub(crate) fn in_process() -> Arc<dyn Broker> {
    Arc::new(MemoryBroker::default())
}

/// Opens the database. If it cannot be reached, retries until `stop`.
pub(crate) async fn store(
    settings: &Settings,
    stop: &CancellationToken,
) -> anyhow::Result<Option<Arc<dyn Store>>> {
    let url = &settings.store.url;
    let mut pause = Duration::from_millis(500);
    loop {
        match everwatch_store::open(url, settings.row_policy()).await {
            Ok(store) => return Ok(Some(store)),
            Err(StoreError::Unavailable(why)) => {
                tracing::warn!(store = redacted(url), error = why, "database unreachable; retrying");
                if stop.run_until_cancelled(tokio::time::sleep(pause)).await.is_none() {
                    return Ok(None);
                }
                pause = (pause * 2).min(Duration::from_secs(10));
            }
            Err(error) => return Err(error).context(format!("store.url = {}", redacted(url))),
        }
    }
}

/// The manager's settings.
pub(crate) fn manager(settings: &Settings) -> anyhow::Result<everwatch_manager::Settings> {
    let manager = &settings.manager;
    let listen = manager.listen.parse().with_context(|| {
        format!("manager.listen: `{}` is not an address with a port, such as 127.0.0.1:7700", manager.listen)
    })?;
    // Accepts this machine's host name: other machines use it to reach the manager, and only the
    // administrator sets it.
    let own = nix::unistd::gethostname().ok().and_then(|name| name.into_string().ok());
    let hosts = Hosts::new(manager.hosts.iter().cloned()).map_err(|wrong| {
        anyhow::anyhow!(
            "manager.hosts: `{wrong}` is not valid: write a host name without a port, `*.example.org`, or `*`"
        )
    })?;
    Ok(everwatch_manager::Settings {
        listen,
        hosts: hosts.and(own),
        prefix: settings.broker.prefix.clone(),
        state_queues: settings.broker.state_queues,
        lost_after: manager.lost_after,
        orphan_after: manager.orphan_after,
        quarantine_after: usize::try_from(manager.quarantine_after)?,
        retention_events: manager.retention_events,
        events_max: usize::try_from(manager.events_max)?,
        retention_parked: manager.retention_parked,
        parked_max: usize::try_from(manager.parked_max)?,
        requests_per_second: NonZeroU32::new(manager.requests_per_second),
        heartbeat_interval: manager.heartbeat_interval,
        row: settings.row_policy(),
        retention_services: manager.retention_services,
        pools: vec![Pool::default()],
        rebalance: AutoRebalance {
            on: manager.rebalance == Rebalance::Auto,
            moves_per_minute: manager.rebalance_moves,
            min_age: manager.rebalance_min_age,
        },
        ..everwatch_manager::Settings::default()
    })
}
