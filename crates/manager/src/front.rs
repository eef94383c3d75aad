//! The server of the API. It listens before the manager has a database: an orchestrator that asks whether the process lives
//! must not end it while the database is away or its schema is migrated.

use crate::http;
use crate::settings::Settings;
use crate::{RunError, listen};
use axum::Router;
use axum::extract::Request;
use everwatch_door::serve::{Limits, serve};
use everwatch_door::tls::Tls;
use std::net::SocketAddr;
use std::sync::{Arc, PoisonError, RwLock};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;

pub(crate) struct Front {
    pub(crate) addr: SocketAddr,
    /// Serves the requests that arrive now.
    app: Arc<RwLock<Router>>,
    server: JoinSet<()>,
}

impl Front {
    /// Listens and answers that the manager is starting, until `stop`.
    pub(crate) async fn open(settings: &Settings, stop: CancellationToken) -> Result<Self, RunError> {
        let tls = settings.tls.clone().map(Tls::read).transpose()?.map(Arc::new);
        let listener = listen(settings.listen).await?;
        let addr =
            listener.local_addr().map_err(|error| RunError::CannotListen { addr: settings.listen, error })?;
        let app = Arc::new(RwLock::new(http::starting()));
        let current = Arc::clone(&app);
        let switch = Router::new().fallback(move |request: Request| {
            let app = current.read().unwrap_or_else(PoisonError::into_inner).clone();
            app.oneshot(request)
        });
        let mut server = JoinSet::new();
        server.spawn(serve(listener, tls, switch, Limits::default().with_files(), stop));
        Ok(Self { addr, app, server })
    }

    /// From now on, requests go to this application.
    pub(crate) fn show(&self, app: Router) {
        *self.app.write().unwrap_or_else(PoisonError::into_inner) = app;
    }

    /// Waits until it has answered its last request.
    pub(crate) async fn ended(&mut self) {
        while self.server.join_next().await.is_some() {}
    }
}
