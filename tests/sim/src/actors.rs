//! Starts the processes on the hosts: the broker, the shipped service and the shipped manager.

use crate::code::{Common, Here, Rare};
use crate::database::{Database, RemoteStore};
use crate::history::{Runs, Setup};
use crate::machine;
use crate::network::Network;
use crate::session::RemoteBroker;
use axum::Router;
use everwatch::{Capacity, FenceOn, Handle, Machine, Registry, ServiceSettings};
use everwatch_core::access::Mode;
use everwatch_core::id::Pool;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Runtime;
use tokio_util::sync::CancellationToken;

/// The role of a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    Broker,
    Service(usize),
    Manager(usize),
}

thread_local! {
    /// The HTTP router of each manager, by host.
    static APPS: RefCell<BTreeMap<usize, Router>> = const { RefCell::new(BTreeMap::new()) };
    /// The token that stops each service gracefully, by host.
    static STOPS: RefCell<BTreeMap<usize, CancellationToken>> = const { RefCell::new(BTreeMap::new()) };
    /// Services that have stopped gracefully.
    static STOPPED: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
}

/// The HTTP router of a manager; `None` until the manager has started.
pub(crate) fn app(host: usize) -> Option<Router> {
    APPS.with_borrow(|apps| apps.get(&host).cloned())
}

pub(crate) fn forget_app(host: usize) {
    APPS.with_borrow_mut(|apps| apps.remove(&host));
}

/// Stops the service on a host gracefully.
pub(crate) fn stop(host: usize) {
    if let Some(stop) = STOPS.with_borrow(|stops| stops.get(&host).cloned()) {
        stop.cancel();
    }
}

pub(crate) fn take_stopped() -> Vec<usize> {
    STOPPED.take()
}

impl Role {
    /// The broker first, then services, then managers.
    pub(crate) fn all(setup: &Setup) -> impl Iterator<Item = Self> + use<> {
        let (services, managers) = (setup.services.len(), setup.managers);
        let services = (0..services).map(Self::Service);
        std::iter::once(Self::Broker).chain(services).chain((0..managers).map(Self::Manager))
    }

    pub(crate) fn name(self, setup: &Setup) -> String {
        match self {
            Self::Broker => "broker".to_owned(),
            Self::Service(number) => setup.services[number].name.to_string(),
            Self::Manager(number) => format!("manager-{}", number + 1),
        }
    }

    pub(crate) fn skew(self, setup: &Setup) -> i64 {
        match self {
            Self::Broker => 0,
            Self::Service(number) => setup.skews[number],
            Self::Manager(number) => setup.skews[setup.services.len() + number],
        }
    }

    /// Starts its process on a runtime.
    pub(crate) fn start(
        self,
        setup: &Setup,
        runtime: &Runtime,
        (host, life): (usize, u32),
        (network, database): (&Network, &Arc<Database>),
    ) {
        let is_older = matches!(self, Self::Service(number) if setup.services[number].runs == Runs::Nothing);
        let state_queues = setup.state_queues;
        let broker = Arc::new(RemoteBroker { network: network.clone(), host, life, is_older, state_queues });
        match self {
            Self::Broker => {}
            Self::Service(number) => start_service(setup, runtime, (host, number), broker),
            Self::Manager(_) => start_manager(setup, runtime, host, (broker, Arc::clone(database))),
        }
    }
}

fn start_service(
    setup: &Setup,
    runtime: &Runtime,
    (host, number): (usize, usize),
    broker: Arc<RemoteBroker>,
) {
    let service = &setup.services[number];
    let settings = ServiceSettings {
        pool: service.pool.clone(),
        capacity: Capacity::Fixed(service.capacity),
        weight_max: service.weight_max,
        start_rate: service.start_rate,
        state_queues: setup.state_queues,
        ..ServiceSettings::new(service.name.clone())
    };
    let mut registry = Registry::new().observer::<Common>().share(Here(host));
    if service.runs != Runs::Common {
        registry = registry.observer::<Rare>();
    }
    let machine = Machine {
        host_name: service.name.to_string(),
        resident_bytes: || 1 << 24,
        fence: FenceOn::ControlRuntime,
        end_process: machine::exit_process,
    };
    let mut handle = Handle::default();
    handle.machine = machine;
    STOPS.with_borrow_mut(|stops| stops.insert(host, handle.stop.clone()));
    let tasks = runtime.handle().clone();
    drop(runtime.spawn(async move {
        match everwatch::run(settings, registry, broker, tasks, handle).await {
            Ok(()) => STOPPED.with_borrow_mut(|stopped| stopped.push(host)),
            Err(error) => panic!("a service ended by itself: {error}"),
        }
    }));
}

fn start_manager(
    setup: &Setup,
    runtime: &Runtime,
    host: usize,
    (broker, database): (Arc<RemoteBroker>, Arc<Database>),
) {
    let settings = everwatch_manager::Settings {
        pools: if setup.pools_are_configured { setup.pools() } else { vec![Pool::default()] },
        state_queues: setup.state_queues,
        preempt_after: setup.preempt_after_ms.map(Duration::from_millis),
        // The histories have no tokens, so managers do not ask the database for them.
        auth: everwatch_manager::AuthSettings { mode: Mode::Off, ..Default::default() },
        ..everwatch_manager::Settings::default()
    };
    drop(runtime.spawn(async move {
        let (store, stop) = (Arc::new(RemoteStore(database)), CancellationToken::new());
        match everwatch_manager::start(settings, store, broker, Router::new(), stop).await {
            Ok(running) => {
                APPS.with_borrow_mut(|apps| apps.insert(host, running.app.clone()));
                let ended = running.until_end().await;
                panic!("a manager ended by itself: {ended:?}");
            }
            Err(error) => panic!("a manager does not start: {error}"),
        }
    }));
}
