//! What operators and orchestrators ask: parked messages, totals, health, metrics.

use super::api::{Health, Listed, ParkedMessage, ProblemBody, Stats, Version};
use super::page::{Part, cursor};
use super::problem::{Code, Problem};
use super::query::Params;
use crate::shared::Manager;
use axum::Json;
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse as _, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use everwatch_core::service::ServiceState;
use everwatch_core::status::Status;
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tracing::{debug, warn};

const UPKEEP_EVERY: Duration = Duration::from_secs(5);
const SERVICES_AGE: Duration = Duration::from_secs(1);

type Shared = State<Arc<Manager>>;

/// One recorder serves all managers of a process.
static RECORDER: OnceLock<Option<PrometheusHandle>> = OnceLock::new();

pub(super) fn install_metrics(manager: &Arc<Manager>) {
    let recorder = RECORDER.get_or_init(|| {
        let installed = PrometheusBuilder::new().install_recorder();
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

/// List messages that nobody could read, newest first.
#[utoipa::path(get, path = "/v1/parked", tag = "operations",
    params(("limit" = Option<u32>, Query), ("cursor" = Option<String>, Query)),
    responses((status = 200, body = Listed<ParkedMessage>), (status = 400, body = ProblemBody)))]
pub(crate) async fn parked(
    State(manager): Shared,
    mut params: Params,
) -> Result<Json<Listed<ParkedMessage>>, Problem> {
    let part: Part<i64> = Part::read(&mut params)?;
    params.finish()?;
    let (mut messages, total) = manager.store.parked(part.after, part.limit + 1).await?;
    let more = messages.len() > part.limit;
    messages.truncate(part.limit);
    let next_cursor = messages.last().filter(|_| more).and_then(|last| cursor(&last.id));
    let items = messages.into_iter().map(|it| ParkedMessage {
        id: it.id,
        queue: it.queue,
        reason: it.reason,
        body: STANDARD.encode(&it.body),
        text: String::from_utf8(it.body).ok(),
        at: it.at,
    });
    Ok(Json(Listed { items: items.collect(), next_cursor, total }))
}

/// Totals.
#[utoipa::path(get, path = "/v1/stats", tag = "operations", responses((status = 200, body = Stats)))]
pub(crate) async fn stats(State(manager): Shared, params: Params) -> Result<Json<Stats>, Problem> {
    params.finish()?;
    let mut stats = Stats { broker: manager.session().is_some(), ..Stats::default() };
    stats.observers.extend(Status::ALL.map(|status| (status.to_string(), 0)));
    for ((_, status), count) in manager.store.counts().await? {
        *stats.observers.entry(status.to_string()).or_default() += count;
    }
    for service in manager.services(SERVICES_AGE).await?.iter() {
        *stats.services.entry(service.state().as_str().to_owned()).or_default() += 1;
        stats.held = stats.held.saturating_add(service.held());
        if service.state() == ServiceState::Active {
            stats.capacity = stats.capacity.saturating_add(service.capacity());
        }
    }
    Ok(Json(stats))
}

/// Which program answers.
#[utoipa::path(get, path = "/v1/version", tag = "operations", responses((status = 200, body = Version)))]
pub(crate) async fn version(State(manager): Shared, params: Params) -> Result<Json<Version>, Problem> {
    params.finish()?;
    Ok(Json(Version { version: env!("CARGO_PKG_VERSION").to_owned(), manager: manager.id.0 }))
}

/// Whether the process serves requests.
#[utoipa::path(get, path = "/livez", tag = "operations", responses((status = 200, body = Health)))]
pub(crate) async fn livez() -> Json<Health> {
    Json(Health { ok: true })
}

/// Whether the database answers, the broker is connected and the state queue is read up to now.
#[utoipa::path(get, path = "/readyz", tag = "operations",
    responses((status = 200, body = Health), (status = 503, body = ProblemBody)))]
pub(crate) async fn readyz(State(manager): Shared) -> Result<Json<Health>, Problem> {
    match manager.lacks() {
        lacks if lacks.is_empty() => Ok(Json(Health { ok: true })),
        lacks => Err(Problem::new(Code::NotReady, lacks.join("; "))),
    }
}

/// Metrics in the text format of Prometheus.
#[utoipa::path(get, path = "/metrics", tag = "operations", responses((status = 200, body = String)))]
pub(crate) async fn metrics(State(manager): Shared) -> Response {
    match manager.store.counts().await {
        Ok(counts) => {
            for ((pool, status), count) in counts {
                let labels = [("pool", pool.to_string()), ("status", status.to_string())];
                #[expect(clippy::cast_precision_loss, reason = "exact below 2^53 observers")]
                metrics::gauge!("everwatch_observers", &labels).set(count as f64);
            }
        }
        Err(error) => debug!(%error, "metrics without the counts of observers"),
    }
    let connected = if manager.session().is_some() { 1.0 } else { 0.0 };
    metrics::gauge!("everwatch_broker_connected").set(connected);
    let text = RECORDER.get().and_then(Option::as_ref).map(PrometheusHandle::render).unwrap_or_default();
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], text).into_response()
}
