//! Sends commands to services, and watermarks into the managers' own queues. Each is repeated, revocations until they
//! are answered, watermarks until they are read; so a lost one does no lasting harm.

use crate::context::Manager;
use crate::context::freshness::WatermarkQueue;
use crate::context::link::Link;
use crate::context::revocations::{Recipients, possible_holders, recipients};
use everwatch_broker::{Message, Target};
use everwatch_core::id::{ObserverId, Pool, ServiceId};
use everwatch_core::record::row::Row;
use everwatch_core::wire::command::{Command, Revocation, Welcome};
use everwatch_core::wire::heartbeat::{HeartbeatMessage, Watermark};
use everwatch_core::wire::message::{BATCH_MAX, encode};
use everwatch_core::wire::report::StateMessage;
use futures::future::join_all;
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tracing::{debug, error};

/// A command that is not confirmed by then is left to its repetition.
const SAY_WITHIN: Duration = Duration::from_secs(5);

/// How long a service may take to cancel its consumers after a command has reached its queue.
const FOLLOWED: Duration = Duration::from_millis(300);

/// Sends the revocations of these rows to all services that may hold them and waits until they are confirmed.
pub(crate) async fn revocations(manager: &Manager, rows: &[&Row]) {
    let mut by_recipients: BTreeMap<Recipients, Vec<Revocation>> = BTreeMap::new();
    for row in rows {
        let to = possible_holders(row, &manager.records.events.known);
        by_recipients.entry(to).or_default().push(row.revocation());
    }
    let sending = by_recipients.iter().map(|(to, revocations)| revocations_to(manager, to, revocations));
    join_all(sending).await;
}

/// Sends revocations and waits until they are confirmed. If a service has died, its queue is gone with it, and the
/// broker drops them.
pub(crate) async fn revocations_to(manager: &Manager, recipients: &Recipients, revocations: &[Revocation]) {
    let link = &manager.link;
    let targets = match recipients {
        Recipients::All => vec![link.topology.commands()],
        Recipients::Pools(pools) => pools.iter().map(|pool| link.topology.commands_to(pool)).collect(),
        Recipients::Service(service) => Vec::from_iter(queue_of(manager, *service).await.map(Target::Queue)),
    };
    for target in targets {
        for chunk in revocations.chunks(BATCH_MAX) {
            say(link, target.clone(), &Command::Revoke(chunk.to_vec())).await;
        }
    }
}

/// The command queue of a service. `None` if no manager has stored its registration.
pub(crate) async fn queue_of(manager: &Manager, service: ServiceId) -> Option<String> {
    let pool = match manager.records.events.known.pool(service) {
        Some(pool) => pool,
        None => manager.records.store.service(&service.into()).await.ok()??.registration.pool,
    };
    Some(manager.link.topology.commands_of(&pool, service))
}

/// Sends the revocation of a row, to its holder or to all services of its pools, without waiting.
pub(crate) fn revoke_later(manager: &Manager, row: &Row) {
    let to = recipients(row, &manager.records.events.known, &manager.records.clock);
    manager.link.revocations.send([(to, row.revocation())]);
}

/// Answers a registration without waiting, to the new service alone: after a restart of the broker all services
/// register at once, and every answer would otherwise reach every service.
pub(crate) fn welcome_later(
    manager: &Arc<Manager>,
    pool: &Pool,
    revocations: &[Revocation],
    mut welcome: Welcome,
) {
    let mut chunks: Vec<Vec<Revocation>> =
        revocations.chunks(BATCH_MAX).map(<[Revocation]>::to_vec).collect();
    // The welcome is sent last: a service that has received it has received all revocations.
    welcome.revocations = chunks.pop().unwrap_or_default();
    let it = Arc::clone(manager);
    let new_service = Target::Queue(it.link.topology.commands_of(pool, welcome.service));
    manager.tasks.spawn(async move {
        for chunk in chunks {
            say(&it.link, new_service.clone(), &Command::Revoke(chunk)).await;
        }
        say(&it.link, new_service, &Command::Welcome(Box::new(welcome))).await;
    });
}

/// Sends a command to one service, without waiting. Nothing is sent to a service whose registration is not stored: its
/// reports make managers send the command again.
pub(crate) fn order_later(manager: &Arc<Manager>, service: ServiceId, command: Command) {
    let it = Arc::clone(manager);
    manager.tasks.spawn(async move { order(&it, service, &command).await });
}

async fn order(manager: &Manager, service: ServiceId, command: &Command) {
    match queue_of(manager, service).await {
        Some(queue) => say(&manager.link, Target::Queue(queue), command).await,
        None => debug!(%service, "a command for an unknown service is dropped"),
    }
}

/// Sends commands to some services, and then one to another service, without waiting: the first ones have followed theirs by
/// then.
pub(crate) fn order_after(
    manager: &Arc<Manager>,
    first: Vec<(ServiceId, Command)>,
    (service, then): (ServiceId, Command),
) {
    if first.is_empty() {
        order_later(manager, service, then);
        return;
    }
    let it = Arc::clone(manager);
    manager.tasks.spawn(async move {
        join_all(first.iter().map(|(service, command)| order(&it, *service, command))).await;
        tokio::time::sleep(FOLLOWED).await;
        order(&it, service, &then).await;
    });
}

/// Requests the registration of a service that no manager knows, without waiting. Its pool is unknown too, so the
/// request goes to all services, and names no observer.
pub(crate) fn identify_later(manager: &Arc<Manager>, service: ServiceId) {
    let it = Arc::clone(manager);
    manager.tasks.spawn(async move {
        say(&it.link, it.link.topology.commands(), &Command::Describe { service, ids: Vec::new() }).await;
    });
}

/// Sends the list of suspects, which start one at a time, without waiting.
pub(crate) fn suspects_later(manager: &Arc<Manager>, suspects: Vec<ObserverId>) {
    let it = Arc::clone(manager);
    manager.tasks.spawn(async move {
        say(&it.link, it.link.topology.commands(), &Command::CrashLooping(suspects)).await;
    });
}

/// Announces the time by the database's clock to all services, without waiting.
pub(crate) fn time_later(manager: &Arc<Manager>) {
    let it = Arc::clone(manager);
    manager.tasks.spawn(async move {
        let time = Command::Time(it.records.clock.now());
        say(&it.link, it.link.topology.commands(), &time).await;
    });
}

/// Asks a service, without waiting, what these observers are that it holds. If no answer comes, the next report about
/// them makes a manager ask again.
pub(crate) fn describe_later(manager: &Arc<Manager>, service: ServiceId, ids: &[ObserverId]) {
    for ids in ids.chunks(BATCH_MAX).map(<[_]>::to_vec) {
        order_later(manager, service, Command::Describe { service, ids });
    }
}

/// Sends this manager's watermarks to all queues without waiting, unless the previous ones are still in progress.
pub(crate) fn watermarks_later(manager: &Arc<Manager>) {
    let Ok(turn) = Arc::clone(&manager.link.watermarks).try_acquire_owned() else { return };
    let it = Arc::clone(manager);
    manager.tasks.spawn(async move {
        let states =
            (0..it.freshness.state_queues()).map(|index| watermark(&it, WatermarkQueue::State(index)));
        tokio::join!(join_all(states), watermark(&it, WatermarkQueue::Heartbeats));
        drop(turn);
    });
}

async fn watermark(manager: &Manager, queue: WatermarkQueue) {
    let watermark = Watermark { manager: manager.link.id, sent_at: manager.records.clock.now() };
    match queue {
        WatermarkQueue::State(index) => {
            say(
                &manager.link,
                Target::Queue(manager.link.topology.state_queue(index)),
                &StateMessage::Watermark(watermark),
            )
            .await;
        }
        WatermarkQueue::Heartbeats => {
            say(
                &manager.link,
                Target::Queue(manager.link.topology.heartbeats()),
                &HeartbeatMessage::Watermark(watermark),
            )
            .await;
        }
    }
}

async fn say<T: Serialize + Sync>(link: &Link, target: Target, what: &T) {
    let Some(session) = link.open_session() else { return };
    let body = match encode(what) {
        Ok(body) => body.into(),
        Err(error) => {
            error!(%error, "a command could not be written");
            return;
        }
    };
    let said = session.publish(&target, Message { body, headers: Vec::new() });
    match tokio::time::timeout(SAY_WITHIN, said).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => debug!(?target, %error, "a command did not go out, it is repeated"),
        Err(_) => debug!(?target, "a command is not confirmed yet, it is repeated"),
    }
}
