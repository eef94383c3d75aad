//! The manager of Everwatch: HTTP API, intake, outbox and reconciler around a store and a broker.
//! `core` makes every decision; this crate has the loops. It knows no SQL and no AMQP.

mod backup_restore;
mod clock;
mod commit;
mod config;
mod context;
mod events;
mod excused;
mod fleet;
mod front;
mod http;
mod intake;
mod lock;
mod loops;
mod metric;
mod outgoing;
mod queue_reader;
mod settings;
#[cfg(test)]
mod tests;

pub use backup_restore::{Restored, restored};
pub use config::{
    AuthSection, ConfigError, ManagerSection, MtlsSection, OidcSection, Rebalance, StoreSection,
};
pub use excused::{ByHand, Excused};
pub use loops::link::ownership::NotOwner;
pub use metric::described_metrics;
pub use settings::{AuthSettings, AutoRebalance, OidcSettings, Settings};

use context::Manager;
use context::audit::Note;
use everwatch_broker::{Broker, ConnectError};
use everwatch_core::access::Mode;
use everwatch_door::tls::TlsError;
use everwatch_store::{Store, StoreError};
use front::Front;
use loops::{
    accounts, admission, audit, confirms, create_batcher, event_feed, event_writer, identity_provider,
    leases, link, observer_batches, orphans, preemption, reconcile, returned_work, revoker, rollouts,
    save_batcher, sweep,
};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

/// How long the soft stage of a shutdown may take.
const SOFT_STOP: Duration = Duration::from_secs(5);

/// Why a manager could not start, or ended without being asked to.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// Another program listens there.
    #[error(
        "cannot listen on {addr}: another program listens there (stop it, or choose another address with [manager] listen)"
    )]
    PortOccupied { addr: SocketAddr },
    /// Any other reason not to listen.
    #[error("cannot listen on {addr}: {error} (check [manager] listen)")]
    CannotListen { addr: SocketAddr, error: std::io::Error },
    /// The certificate of the API cannot be used.
    #[error("cannot serve HTTPS: {0} (check [manager] tls_cert_file, tls_key_file and tls_client_ca_file)")]
    Tls(#[from] TlsError),
    /// The broker refuses the connection: an operator must act.
    #[error(transparent)]
    ConnectRefused(ConnectError),
    /// The prefix cannot be used: an operator must act.
    #[error(transparent)]
    NotOwner(NotOwner),
    /// The database cannot be opened: an operator must act.
    #[error(transparent)]
    StoreUnusable(#[from] ConfigError),
    /// The database refuses this manager, or cannot be read: an operator must act.
    #[error(transparent)]
    StoreRefused(StoreError),
    /// A loop ended that never ends: a bug.
    #[error("the {part} of the manager ended: {why}")]
    Ended { part: &'static str, why: String },
}

/// One of the manager's loops and how it ended.
type Ending = (&'static str, Result<(), RunError>);

/// Runs a manager until `stop`. It listens at once, and answers that it is starting until `opening` has its database.
/// `listening` is then called once with the address. `opening` ends with `None` after `stop`.
///
/// # Errors
/// When it cannot start, or when one of its loops ends without being asked to.
pub async fn run(
    settings: Settings,
    opening: impl Future<Output = Result<Option<Arc<dyn Store>>, ConfigError>>,
    broker: Arc<dyn Broker>,
    extra_routes: axum::Router,
    stop: CancellationToken,
    listening: impl FnOnce(SocketAddr),
) -> Result<(), RunError> {
    let door = stop.child_token();
    let _shut = door.clone().drop_guard();
    let mut front = Front::open(&settings, door.clone()).await?;
    let addr = front.addr;
    let Some(store) = opening.await? else { return Ok(()) };
    let mut running = start(settings, store, broker, extra_routes, stop).await?;
    http::metrics::install(&running.manager);
    // Not loops of `start`: the simulation plays no batches and no tokens, and other tasks would change its recorded
    // histories.
    let it = Arc::clone(&running.manager);
    running.loops.spawn(async move { ("batches", observer_batches::run(it).await) });
    if running.manager.settings.auth.mode != Mode::Off
        && let Some(notes) = running.audit.take()
    {
        let it = Arc::clone(&running.manager);
        running.loops.spawn(async move { ("audit log", audit::run(it, notes).await) });
        let it = Arc::clone(&running.manager);
        running.loops.spawn(async move { ("reader of tokens", accounts::run(it).await) });
        if let Some(provider) = running.manager.accounts.provider().cloned() {
            let stop = running.manager.stop.clone();
            running.loops.spawn(async move {
                ("reader of the identity provider", identity_provider::run(provider, stop).await)
            });
        }
    }
    front.show(running.app.clone());
    let over = running.manager.stop.clone();
    running.loops.spawn(async move {
        tokio::select! {
            () = over.cancelled() => door.cancel(),
            () = front.ended() => {}
        }
        front.ended().await;
        ("HTTP server", Ok(()))
    });
    let tls = running.manager.settings.tls.is_some();
    info!(%addr, tls, manager = %running.manager.link.id, "manager listens");
    listening(addr);
    running.until_end().await
}

/// A manager whose loops run.
pub struct Running {
    /// Serves the HTTP API and the console.
    pub app: axum::Router,
    manager: Arc<Manager>,
    loops: JoinSet<Ending>,
    /// What is to be written to the audit log, until a loop does it.
    audit: Option<mpsc::Receiver<Note>>,
}

/// Starts a manager that listens on no address: its requests come through [`Running::app`].
///
/// # Errors
/// When the store refuses it.
pub async fn start(
    settings: Settings,
    store: Arc<dyn Store>,
    broker: Arc<dyn Broker>,
    extra_routes: axum::Router,
    stop: CancellationToken,
) -> Result<Running, RunError> {
    let (manager, inboxes) = Manager::new(settings, store, broker, stop.child_token());
    manager.check_store().await?;
    let app = http::app(Arc::clone(&manager), extra_routes);

    let mut loops: JoinSet<Ending> = JoinSet::new();
    let it = Arc::clone(&manager);
    loops.spawn(async move { ("link with the broker", link::run(it).await) });
    let it = Arc::clone(&manager);
    loops.spawn(async move { ("creator", create_batcher::run(it, inboxes.creates).await) });
    let it = Arc::clone(&manager);
    loops.spawn(async move { ("saver of changes", save_batcher::run(it, inboxes.saves).await) });
    let it = Arc::clone(&manager);
    loops.spawn(async move { ("admission", admission::run(it).await) });
    if let Some(after) = manager.settings.preempt_after {
        let it = Arc::clone(&manager);
        loops.spawn(async move { ("preemption", preemption::run(it, after).await) });
    }
    let it = Arc::clone(&manager);
    loops.spawn(async move { ("sender of revocations", revoker::run(it, inboxes.revocations).await) });
    let it = Arc::clone(&manager);
    loops.spawn(async move { ("writer of publish results", confirms::run(it, inboxes.published).await) });
    let it = Arc::clone(&manager);
    loops.spawn(async move { ("writer of events", event_writer::run(it, inboxes.events).await) });
    let it = Arc::clone(&manager);
    loops.spawn(async move { ("reader of events", event_feed::run(it).await) });
    let it = Arc::clone(&manager);
    loops.spawn(async move { ("keeper of leases", leases::run(it).await) });
    let it = Arc::clone(&manager);
    loops.spawn(async move { ("reconciler", reconcile::run(it).await) });
    let it = Arc::clone(&manager);
    loops.spawn(async move { ("search for what is missing", orphans::run(it).await) });
    let it = Arc::clone(&manager);
    loops.spawn(async move { ("watch of returned messages", returned_work::run(it).await) });
    let it = Arc::clone(&manager);
    loops.spawn(async move { ("rollouts", rollouts::run(it).await) });
    let it = Arc::clone(&manager);
    loops.spawn(async move { ("sweep", sweep::run(it).await) });
    Ok(Running { app, manager, loops, audit: Some(inboxes.audit) })
}

impl Running {
    /// Waits until the manager is told to stop, or until one of its loops ends, then ends the other loops.
    ///
    /// # Errors
    /// When a loop ended before the manager was told to stop.
    pub async fn until_end(self) -> Result<(), RunError> {
        let Self { manager, mut loops, .. } = self;
        let outcome = first_ending(&mut loops, &manager.stop).await;
        manager.stop.cancel();
        manager.tasks.close();
        let drained = async {
            while loops.join_next().await.is_some() {}
            manager.tasks.wait().await;
        };
        if tokio::time::timeout(SOFT_STOP, drained).await.is_err() {
            warn!("aborting requests that did not finish in time");
        }
        loops.shutdown().await;
        if tokio::time::timeout(SOFT_STOP, manager.records.store.close()).await.is_err() {
            warn!("the database did not close in time");
        }
        outcome
    }
}

async fn listen(addr: SocketAddr) -> Result<TcpListener, RunError> {
    TcpListener::bind(addr).await.map_err(|error| match error.kind() {
        std::io::ErrorKind::AddrInUse => RunError::PortOccupied { addr },
        _ => RunError::CannotListen { addr, error },
    })
}

/// Waits for `stop`, or for a loop that ends before it: that one ends the manager.
async fn first_ending(loops: &mut JoinSet<Ending>, stop: &CancellationToken) -> Result<(), RunError> {
    let ended = tokio::select! {
        () = stop.cancelled() => return Ok(()),
        ended = loops.join_next() => ended,
    };
    match ended {
        _ if stop.is_cancelled() => Ok(()),
        Some(Ok((_, Err(error)))) => Err(error),
        Some(Ok((part, Ok(())))) => Err(RunError::Ended { part, why: "it returned".to_owned() }),
        Some(Err(error)) => Err(RunError::Ended { part: "loop", why: error.to_string() }),
        None => Err(RunError::Ended { part: "loop", why: "none is left".to_owned() }),
    }
}
