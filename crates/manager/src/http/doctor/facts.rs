//! Gathers the facts for the doctor from the store, the session and the broker's HTTP API. Each source has its own time
//! limit, so that one that does not answer is itself a finding. It decides nothing.

use crate::context::Manager;
use crate::context::link::Link;
use crate::context::records::Records;
use crate::excused::ByHand;
use crate::fleet::orders;
use crate::fleet::{safe_mode, shown_services};
use crate::outgoing::state_queues;
use crate::outgoing::work_queues;
use everwatch_broker::{BrokerError, QueueKind, Session, ack_timeout};
use everwatch_core::capacity::headroom::needed_slots;
use everwatch_core::doctor::{
    Facts, FleetFacts, LATELY, ManagerFacts, SessionFacts, SomeRows, SurplusQueue, UnreadableRow,
};
use everwatch_core::id::Pool;
use everwatch_core::record::health::Health;
use everwatch_core::record::service::ServiceRow;
use everwatch_core::record::status::Status;
use everwatch_store::{Filter, Sort, StoreError, Unreadable};
use std::collections::BTreeSet;
use std::time::Duration;

/// The time limit of each source.
const WITHIN: Duration = Duration::from_secs(10);
/// The most waiting and the most running observers that are read, the oldest first.
const OLDEST: usize = 1000;

/// All facts that are available now.
pub(crate) async fn facts(manager: &Manager) -> Facts {
    let asked = tokio::time::timeout(WITHIN, fleet(manager)).await;
    let fleet = match asked {
        Ok(Ok(fleet)) => Ok(fleet),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err(format!("not within {} s", WITHIN.as_secs())),
    };
    // A database that does not answer is told as such.
    let schema = tokio::time::timeout(WITHIN, manager.records.store.schema()).await;
    let pools = pools(&manager.link, fleet.as_ref().ok());
    let work = |pool| (manager.link.topology.work(pool), work_queues::kind(&manager.records, pool));
    let mut all: Vec<_> = pools.iter().map(work).collect();
    all.extend(manager.link.topology.durable_queues());
    all.push((manager.link.topology.store(), QueueKind::Durable { max_length: Some(1) }));
    let (server, session) = tokio::join!(manager.link.broker.inspect(&all), session(manager, &pools));
    Facts {
        now: manager.records.clock.now(),
        manager: ManagerFacts {
            listen: Some(manager.settings.listen),
            tls: manager.settings.tls.is_some(),
            database: manager.settings.database.clone(),
            refused_max: manager.settings.row.refused_max,
            state_lag: manager.freshness.state_lag(),
            lost_events: manager.records.events.lost(),
            clock_ahead_ms: manager.records.clock.ahead_ms(),
        },
        server,
        session,
        schema: schema.ok().and_then(Result::ok),
        fleet,
    }
}

async fn fleet(manager: &Manager) -> Result<FleetFacts, StoreError> {
    let (records, excused) = (&manager.records, &manager.settings.excused);
    let services = shown_services::living(manager).await?;
    let mut registered_lately = records.store.services(records.clock.now().minus(LATELY)).await?.rows;
    let (mut ended_lately, mut killed_by_hand, mut frozen_by_hand) = (Vec::new(), Vec::new(), Vec::new());
    let living = |what| services.iter().filter(move |it| excused.cause(it.id) == Some(what)).cloned();
    killed_by_hand.extend(living(ByHand::Killed));
    frozen_by_hand.extend(living(ByHand::Frozen));
    for service in registered_lately.iter().filter(|service| service.end.is_some()) {
        let group = match excused.cause(service.id) {
            None => &mut ended_lately,
            Some(ByHand::Killed) => &mut killed_by_hand,
            Some(ByHand::Frozen) => &mut frozen_by_hand,
            Some(ByHand::Thawed) => continue,
        };
        group.push(service.clone());
    }
    registered_lately.retain(|service| records.clock.now().since(service.registered_at) < LATELY);
    let safe_mode = safe_mode::read(records).await?;
    let book = orders::book(records).await?;
    let mut facts = FleetFacts {
        reported: orders::reported(records, &services, &book).await?,
        orders: book,
        paused_pools: (*records.paused_pools(Duration::ZERO).await?).clone(),
        safe_mode: safe_mode.on.then_some(safe_mode.reason),
        parked: records.store.parked(None, 1).await?.1,
        waiting: oldest(records, of_status(Status::Created)).await?.rows,
        running: oldest(records, of_status(Status::Processing)).await?.rows,
        restarting: oldest(records, Filter { health: vec![Health::Restarting], ..Filter::default() }).await?,
        failed: oldest(records, of_status(Status::Failed)).await?,
        timed_out: services.iter().filter_map(timed_out).collect(),
        services,
        single_pools: (*records.single_pools()).clone(),
        registered_lately,
        ended_lately,
        killed_by_hand,
        frozen_by_hand,
        unreadable: records.store.unreadable().await?.into_iter().map(unreadable).collect(),
        ..FleetFacts::default()
    };
    let (counts, behind_limits) = (records.store.counts().await?, records.store.behind_limits().await?);
    let weights = counts.iter().map(|((pool, status), count)| (pool, *status, count.weight));
    let behind = behind_limits.iter().map(|(pool, load)| (pool, load.weight));
    facts.needed = needed_slots(weights, behind);
    Ok(facts)
}

fn of_status(status: Status) -> Filter {
    Filter { status: vec![status], ..Filter::default() }
}

async fn oldest(records: &Records, filter: Filter) -> Result<SomeRows, StoreError> {
    let filter = Filter { sort: Sort::CreatedAt, ..filter };
    let page = records.store.list(&filter, None, OLDEST).await?;
    Ok(SomeRows { rows: page.rows, total: page.total })
}

fn unreadable(row: Unreadable) -> UnreadableRow {
    let cure = row.cure();
    UnreadableRow { table: row.table.to_string(), id: row.id, why: row.why, cure }
}

fn timed_out(service: &ServiceRow) -> Option<(String, String)> {
    let cure = ack_timeout::after_loss(&service.registration.predecessor.as_ref()?.ended)?;
    Some((service.registration.name.to_string(), cure))
}

fn pools(link: &Link, fleet: Option<&FleetFacts>) -> BTreeSet<Pool> {
    let mut pools: BTreeSet<Pool> = link.pools.all().into_iter().collect();
    if let Some(fleet) = fleet {
        pools.extend(fleet.services.iter().map(|service| service.registration.pool.clone()));
        pools.extend(fleet.needed.keys().cloned());
    }
    pools
}

async fn session(manager: &Manager, pools: &BTreeSet<Pool>) -> Result<SessionFacts, String> {
    let session = manager.link.session.get().ok_or_else(|| manager.link.session.why_none())?;
    let blocked = session.is_blocked();
    let mut facts = SessionFacts { blocked, heartbeat: session.heartbeat(), ..SessionFacts::default() };
    // A blocked connection answers nothing.
    if !blocked {
        let looks = async {
            let refused = refused(manager, session.as_ref(), pools).await?;
            let surplus = state_queues::surplus(&manager.link, session.as_ref()).await?;
            Ok::<_, BrokerError>((refused, surplus))
        };
        let looked = tokio::time::timeout(WITHIN, looks).await;
        let late = || format!("it did not answer within {} s", WITHIN.as_secs());
        let (refused, surplus) = looked.map_err(|_| late())?.map_err(|error| error.to_string())?;
        let configured = manager.link.topology.state_queues();
        let surplus = surplus.into_iter().map(|(name, depth)| SurplusQueue {
            name,
            configured,
            ready: depth.ready,
            consumers: depth.consumers,
        });
        (facts.refused, facts.surplus) = (refused, surplus.collect());
    }
    Ok(facts)
}

/// Work queues that are there and cannot be declared as ours.
async fn refused(
    manager: &Manager,
    session: &dyn Session,
    pools: &BTreeSet<Pool>,
) -> Result<Vec<(String, String)>, BrokerError> {
    let mut refused = Vec::new();
    for pool in pools {
        let queue = manager.link.topology.work(pool);
        let declared = match session.depth(&queue).await {
            // whoever makes it anew in between notes that
            Ok(_) => work_queues::declare(manager, session, pool).await,
            Err(error) => Err(error),
        };
        match declared {
            Ok(()) | Err(BrokerError::NoQueue(_)) => {}
            Err(BrokerError::Refused(said)) => refused.push((queue, said)),
            Err(error) => return Err(error),
        }
    }
    Ok(refused)
}
