//! Sends commands to services, and watermarks into the managers' own queues. Each is repeated, revocations until they
//! are answered, watermarks until they are read; so a lost one does no lasting harm.

use crate::context::Manager;
use crate::context::freshness::WatermarkQueue;
use crate::context::link::Link;
use crate::context::revocations::recipient;
use everwatch_broker::{Message, Target};
use everwatch_core::id::{ObserverId, ServiceId};
use everwatch_core::record::row::Row;
use everwatch_core::wire::command::{Command, Revocation, Welcome};
use everwatch_core::wire::heartbeat::{HeartbeatMessage, Watermark};
use everwatch_core::wire::message::{BATCH_MAX, encode};
use everwatch_core::wire::report::StateMessage;
use futures::future::join_all;
use serde::Serialize;
use std::sync::Arc;
use std::time::Duration;
use tracing::{debug, error};

/// A command that is not confirmed by then is left to its repetition.
const SAY_WITHIN: Duration = Duration::from_secs(5);

/// Sends revocations to every service and waits until they are confirmed.
pub(crate) async fn revocations(link: &Link, revocations: &[Revocation]) {
    for chunk in revocations.chunks(BATCH_MAX) {
        say(link, Target::Fanout(link.topology.commands()), &Command::Revoke(chunk.to_vec())).await;
    }
}

/// Sends revocations to one service and waits until they are confirmed. If it has died, its queue is gone with it, and
/// the broker drops them.
pub(crate) async fn revocations_to(link: &Link, service: ServiceId, revocations: &[Revocation]) {
    for chunk in revocations.chunks(BATCH_MAX) {
        let target = Target::Queue(link.topology.commands_of(service));
        say(link, target, &Command::Revoke(chunk.to_vec())).await;
    }
}

/// Sends the revocation of a row, to its holder or to all services, without waiting.
pub(crate) fn revoke_later(manager: &Manager, row: &Row) {
    let to = recipient(row, &manager.records.events.known, &manager.records.clock);
    manager.link.revocations.send([(to, row.revocation())]);
}

/// Answers a registration without waiting, to the new service alone: after a restart of the broker all services
/// register at once, and every answer would otherwise reach every service.
pub(crate) fn welcome_later(manager: &Arc<Manager>, revocations: &[Revocation], mut welcome: Welcome) {
    let mut chunks: Vec<Vec<Revocation>> =
        revocations.chunks(BATCH_MAX).map(<[Revocation]>::to_vec).collect();
    // The welcome is sent last: a service that has received it has received all revocations.
    welcome.revocations = chunks.pop().unwrap_or_default();
    let it = Arc::clone(manager);
    manager.tasks.spawn(async move {
        let new_service = Target::Queue(it.link.topology.commands_of(welcome.service));
        for chunk in chunks {
            say(&it.link, new_service.clone(), &Command::Revoke(chunk)).await;
        }
        say(&it.link, new_service, &Command::Welcome(Box::new(welcome))).await;
    });
}

/// Sends a command to one service, without waiting.
pub(crate) fn order_later(manager: &Arc<Manager>, service: ServiceId, command: Command) {
    let it = Arc::clone(manager);
    manager.tasks.spawn(async move {
        say(&it.link, Target::Queue(it.link.topology.commands_of(service)), &command).await;
    });
}

/// Sends the list of suspects, which start one at a time, without waiting.
pub(crate) fn suspects_later(manager: &Arc<Manager>, suspects: Vec<ObserverId>) {
    let it = Arc::clone(manager);
    manager.tasks.spawn(async move {
        say(&it.link, Target::Fanout(it.link.topology.commands()), &Command::CrashLooping(suspects)).await;
    });
}

/// Announces the time by the database's clock to all services, without waiting.
pub(crate) fn time_later(manager: &Arc<Manager>) {
    let it = Arc::clone(manager);
    manager.tasks.spawn(async move {
        let time = Command::Time(it.records.clock.now());
        say(&it.link, Target::Fanout(it.link.topology.commands()), &time).await;
    });
}

/// Asks a service, without waiting, what these observers are that it holds (none: what the service itself is). If no
/// answer comes, the next report about them makes a manager ask again.
pub(crate) fn describe_later(manager: &Arc<Manager>, service: ServiceId, ids: &[ObserverId]) {
    let mut parts: Vec<Vec<ObserverId>> = ids.chunks(BATCH_MAX).map(<[_]>::to_vec).collect();
    if parts.is_empty() {
        parts.push(Vec::new());
    }
    for ids in parts {
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
