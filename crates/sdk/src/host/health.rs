//! `/livez`, `/readyz` and `/metrics` of a service, if `service.listen` is set.

use super::HostError;
use crate::metric;
use crate::runtime::Handle;
use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::get;
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use tokio::net::TcpListener;

/// Bound or not wanted.
pub(super) struct Listener(Option<(TcpListener, Router)>);

impl Listener {
    pub(super) async fn bind(address: &str, handle: &Handle) -> Result<Self, HostError> {
        if address.is_empty() {
            return Ok(Self(None));
        }
        let cannot = |why: &dyn std::fmt::Display| {
            HostError::Machine(format!(
                "service.listen: cannot listen on {address}: {why}; choose another address and port"
            ))
        };
        let metrics = PrometheusBuilder::new().install_recorder().map_err(|error| cannot(&error))?;
        metric::describe();
        let listener = TcpListener::bind(address).await.map_err(|error| cannot(&error))?;
        // The listener runs on the control loop's own runtime: an answer shows that the loop turns.
        let router = Router::new()
            .route("/livez", get(|| async { "alive\n" }))
            .route("/readyz", get(ready).with_state(handle.clone()))
            .route("/metrics", get(render).with_state(metrics));
        Ok(Self(Some((listener, router))))
    }

    /// Serves for ever; returns why it no longer can.
    pub(super) async fn serve(self) -> HostError {
        match self.0 {
            None => std::future::pending().await,
            Some((listener, router)) => match axum::serve(listener, router).await {
                Ok(()) => HostError::Machine("service.listen: the listener ended".to_owned()),
                Err(error) => HostError::Machine(format!("service.listen: {error}")),
            },
        }
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
