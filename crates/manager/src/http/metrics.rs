//! `/metrics`: gauges are computed for each request, everything else is counted where it happens.

use super::problem::Problem;
use crate::context::Manager;
use crate::context::link::Link;
use crate::fleet::shown_services;
use crate::lock::lock;
use crate::metric;
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse as _, Response};
use everwatch_broker::Session;
use everwatch_core::batch::BatchState;
use everwatch_core::capacity::admission::PoolCount;
use everwatch_core::id::{Pool, RateKey};
use everwatch_core::record::health::Health;
use everwatch_core::record::service::ServiceState;
use everwatch_core::record::status::Status;
use everwatch_core::record::taking::{Slots, slots_by_pool};
use everwatch_core::rollout::RolloutState;
use everwatch_store::{LimitCounts, Table};
use metrics_exporter_prometheus::PrometheusHandle;
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tracing::{debug, warn};

const UPKEEP_EVERY: Duration = Duration::from_secs(5);
/// The time limit for the depth of a queue.
const DEPTH_WITHIN: Duration = Duration::from_secs(2);
/// The most rates in the metrics, in the order of their keys.
const RATES_SHOWN: usize = 1000;

/// One recorder serves all managers of a process.
static RECORDER: OnceLock<Option<PrometheusHandle>> = OnceLock::new();

pub(crate) fn install(manager: &Arc<Manager>) {
    let recorder = RECORDER.get_or_init(|| {
        let installed = metric::recorder();
        installed.inspect_err(|error| warn!(%error, "no metrics: another recorder is installed")).ok()
    });
    let Some(recorder) = recorder.clone() else { return };
    let stop = manager.stop.clone();
    manager.tasks.spawn(async move {
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(UPKEEP_EVERY) => recorder.run_upkeep(),
            }
        }
    });
}

/// Metrics in the text format of Prometheus.
#[utoipa::path(get, path = "/metrics", tag = "operations", security(("token" = ["metrics:read"])),
    responses((status = 200, body = String, content_type = "text/plain")))]
pub(crate) async fn metrics(State(manager): State<Arc<Manager>>) -> Response {
    if let Err(problem) = look(&manager).await {
        debug!(?problem, "metrics without what the database knows");
    }
    set(metric::OUTBOX, manager.publishing.leases.count());
    set(metric::CONNECTED, usize::from(manager.link.session.get().is_some()));
    metrics::gauge!(metric::STATE_LAG).set(manager.freshness.state_lag().as_secs_f64());
    if let Some(session) = manager.link.session.get() {
        for pool in manager.link.pools.all() {
            ready(&manager.link, session.as_ref(), &pool).await;
        }
    }
    let text = RECORDER.get().and_then(Option::as_ref).map(PrometheusHandle::render).unwrap_or_default();
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text).into_response()
}

/// The limits that metrics show: each is three time series.
const LIMITS_SHOWN: usize = 100;

#[expect(clippy::cast_precision_loss, reason = "exact below 2^53")]
fn set(name: &'static str, value: usize) {
    metrics::gauge!(name).set(value as f64);
}

#[expect(clippy::cast_precision_loss, reason = "exact below 2^53")]
async fn look(manager: &Manager) -> Result<(), Problem> {
    let counts = manager.records.store.counts().await?;
    let healths = manager.records.store.health_counts().await?;
    let services = shown_services::living(manager).await?;
    let waiting = manager.records.store.waiting_pools().await?.pools;
    let slots = slots_by_pool(&services);
    let parked = manager.records.store.parked(None, 1).await?.1;
    metrics::gauge!(metric::PARKED).set(parked as f64);
    let rollouts = manager.records.store.open_rollouts().await?;
    for state in RolloutState::ALL.into_iter().filter(|state| !state.is_over()) {
        let count = rollouts.iter().filter(|it| it.state == state).count();
        metrics::gauge!(metric::ROLLOUTS, "state" => state.as_str()).set(count as f64);
    }
    let batches = manager.records.store.open_batches().await?;
    for state in BatchState::ALL.into_iter().filter(|state| !state.is_over()) {
        let count = batches.iter().filter(|it| it.state == state).count();
        metrics::gauge!(metric::BATCHES, "state" => state.as_str()).set(count as f64);
    }
    let unreadable = manager.records.store.unreadable().await?;
    for table in [Table::Observers, Table::Services] {
        let count = unreadable.iter().filter(|it| it.table == table).count();
        metrics::gauge!(metric::UNREADABLE_ROWS, "table" => table.to_string()).set(count as f64);
    }
    rates(manager).await?;
    limits(manager).await?;
    // What was shown once and is no more must be shown as zero.
    let pools: Vec<Pool> = {
        let mut shown = lock(&manager.requests.limits.shown_pools);
        shown.extend(manager.link.pools.all());
        shown.extend(counts.keys().map(|(pool, _)| pool.clone()));
        shown.extend(services.iter().map(|service| service.registration.pool.clone()));
        shown.iter().cloned().collect()
    };
    for pool in pools {
        for status in Status::ALL {
            let labels = [("pool", pool.to_string()), ("status", status.to_string())];
            let count = counts.get(&(pool.clone(), status)).map_or(0, |count| count.number);
            metrics::gauge!(metric::OBSERVERS, &labels).set(count as f64);
        }
        for health in Health::ALL {
            let labels = [("pool", pool.to_string()), ("health", health.to_string())];
            let count = healths.get(&(pool.clone(), health)).copied().unwrap_or_default();
            metrics::gauge!(metric::OBSERVER_HEALTH, &labels).set(count as f64);
        }
        let waiting = waiting.get(&pool).map_or(0, PoolCount::waiting);
        metrics::gauge!(metric::WAITING, "pool" => pool.to_string()).set(waiting as f64);
        let of_pool = || services.iter().filter(|service| service.registration.pool == pool);
        let Slots { capacity, free } = slots.get(&pool).copied().unwrap_or_default();
        metrics::gauge!(metric::FREE, "pool" => pool.to_string()).set(f64::from(free));
        metrics::gauge!(metric::CAPACITY, "pool" => pool.to_string()).set(f64::from(capacity));
        let held: f64 = of_pool().map(|service| f64::from(service.held())).sum();
        metrics::gauge!(metric::HELD, "pool" => pool.to_string()).set(held);
    }
    let mut states: BTreeMap<&'static str, f64> =
        ServiceState::LIVING.map(|state| (state.as_str(), 0.0)).into();
    for service in &services {
        *states.entry(service.state().as_str()).or_default() += 1.0;
    }
    for (state, count) in states {
        metrics::gauge!(metric::SERVICES, "state" => state).set(count);
    }
    Ok(())
}

#[expect(clippy::cast_precision_loss, reason = "exact below 2^53")]
async fn rates(manager: &Manager) -> Result<(), Problem> {
    let rates = manager.records.store.rates(None, RATES_SHOWN).await?.rows;
    let now = manager.records.clock.now();
    let waiting: BTreeMap<RateKey, u64> =
        rates.into_iter().map(|row| (row.key, row.bucket.waiting(now))).collect();
    // A deleted rate must be shown as zero.
    let mut shown = lock(&manager.requests.limits.shown_rates);
    shown.extend(waiting.keys().cloned());
    for key in shown.iter() {
        let waiting = waiting.get(key).copied().unwrap_or_default();
        metrics::gauge!(metric::PERMITS_WAITING, "rate" => key.to_string()).set(waiting as f64);
    }
    drop(shown);
    Ok(())
}

#[expect(clippy::cast_precision_loss, reason = "exact below 2^53")]
async fn limits(manager: &Manager) -> Result<(), Problem> {
    let all = manager.records.store.limits(None, LIMITS_SHOWN).await?.into_iter();
    let exact = all.filter(|it| it.limit.key.prefix().is_none());
    let counts: BTreeMap<String, LimitCounts> = exact.map(|it| (it.limit.key.to_string(), it)).collect();
    // A deleted limit must be shown as zero.
    let mut shown = lock(&manager.requests.limits.shown_limits);
    shown.extend(counts.keys().cloned());
    for key in shown.iter() {
        let it = counts.get(key);
        let label = [("key", key.clone())];
        metrics::gauge!(metric::LIMIT_USED, &label).set(it.map_or(0.0, |it| it.used as f64));
        metrics::gauge!(metric::LIMIT_MAX, &label).set(it.map_or(0.0, |it| f64::from(it.limit.max)));
        metrics::gauge!(metric::LIMIT_WAITING, &label).set(it.map_or(0.0, |it| it.waiting as f64));
    }
    drop(shown);
    Ok(())
}

async fn ready(link: &Link, session: &dyn Session, pool: &Pool) {
    let queue = link.topology.work(pool);
    if let Ok(Ok(depth)) = tokio::time::timeout(DEPTH_WITHIN, session.depth(&queue)).await {
        metrics::gauge!(metric::READY, "pool" => pool.to_string()).set(f64::from(depth.ready));
    }
}
