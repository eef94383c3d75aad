//! `/livez`, `/readyz` and `/metrics` of a service, if `service.listen` is set. A separate
//! thread serves them, so the control loop never waits for their clients.

use super::HostError;
use crate::handle::Handle;
use crate::metric;
use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::get;
use everwatch_door::quota::Limit;
use everwatch_door::serve::{Limits, serve};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use std::net::TcpListener;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;

/// How often the control loop shows that it turns, and after what silence `/livez` answers 503.
const TURN_EVERY: Duration = Duration::from_secs(1);
const TURN_WITHIN: Duration = Duration::from_secs(10);
/// Few clients need these routes: probes and a metrics collector.
const LIMITS: Limits = Limits {
    headers_within: Duration::from_secs(30),
    handshake_within: Duration::from_secs(10),
    writes_within: Duration::from_secs(10),
    connections: Limit { total: 500, per_client: 250 },
};

/// The bound listener, or none if `service.listen` is empty.
pub(super) struct Listener {
    bound: Option<(TcpListener, Router)>,
    turned: Turned,
}

/// When the control loop last turned.
type Turned = Arc<Mutex<Instant>>;

impl Listener {
    pub(super) fn bind(address: &str, handle: &Handle) -> Result<Self, HostError> {
        let turned = Turned::new(Mutex::new(Instant::now()));
        if address.is_empty() {
            return Ok(Self { bound: None, turned });
        }
        let cannot = |error| HostError::CannotListen { address: address.to_owned(), error };
        let metrics = PrometheusBuilder::new().install_recorder().map_err(HostError::NoMetrics)?;
        metric::describe();
        let listener = TcpListener::bind(address).map_err(cannot)?;
        listener.set_nonblocking(true).map_err(cannot)?;
        let router = Router::new()
            .route("/livez", get(live).with_state(Arc::clone(&turned)))
            .route("/readyz", get(ready).with_state(handle.clone()))
            .route("/metrics", get(render).with_state(metrics));
        Ok(Self { bound: Some((listener, router)), turned })
    }

    /// Serves until that fails, and returns why. The control loop polls this and so shows that it turns.
    pub(super) async fn serve(self) -> HostError {
        let Some((listener, router)) = self.bound else { return std::future::pending().await };
        let ended = CancellationToken::new();
        let over = ended.clone().drop_guard();
        let thread = std::thread::Builder::new().name("health".to_owned()).spawn(move || {
            let _over = over;
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(async {
                let listener = tokio::net::TcpListener::from_std(listener)?;
                serve(listener, None, router, LIMITS, CancellationToken::new()).await;
                std::io::Result::Ok(())
            })
        });
        if let Err(error) = thread {
            return HostError::NoThread { purpose: "service.listen", error };
        }
        let mut turns = tokio::time::interval(TURN_EVERY);
        loop {
            tokio::select! {
                () = ended.cancelled() => {
                    return HostError::ListenerEnded;
                }
                _ = turns.tick() => *lock(&self.turned) = Instant::now(),
            }
        }
    }
}

fn lock(turned: &Turned) -> std::sync::MutexGuard<'_, Instant> {
    turned.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn live(State(turned): State<Turned>) -> (StatusCode, String) {
    let since = lock(&turned).elapsed();
    if since <= TURN_WITHIN {
        (StatusCode::OK, "alive\n".to_owned())
    } else {
        let since = since.as_secs();
        (StatusCode::SERVICE_UNAVAILABLE, format!("the control loop has not turned for {since} s\n"))
    }
}

async fn ready(State(handle): State<Handle>) -> (StatusCode, &'static str) {
    if handle.is_ready() {
        (StatusCode::OK, "ready\n")
    } else {
        (
            StatusCode::SERVICE_UNAVAILABLE,
            "no session with the broker, or not all of its slots are open yet\n",
        )
    }
}

async fn render(State(metrics): State<PrometheusHandle>) -> String {
    metrics.render()
}
