//! What a manager says: commands to the services, marks into its own queues. Nothing said here is
//! needed for long: floors are repeated until they are answered, marks until they are read.

use crate::shared::{Manager, Marked};
use everwatch_broker::{Message, Target};
use everwatch_core::id::{ObserverId, ServiceId};
use everwatch_core::message::{BATCH_MAX, BeatMessage, Command, Floor, StateMessage, Tick, Welcome, encode};
use serde::Serialize;
use std::sync::Arc;
use std::time::Duration;
use tracing::{debug, error};

/// A command that is not out by then is left to its repetition.
const SAY_WITHIN: Duration = Duration::from_secs(5);

/// Sends floors to every service and waits until they are out.
pub(crate) async fn floors(manager: &Manager, floors: &[Floor]) {
    for chunk in floors.chunks(BATCH_MAX) {
        say(manager, Target::Fanout(manager.topology.commands()), &Command::Floors(chunk.to_vec())).await;
    }
}

/// Sends floors without waiting.
pub(crate) fn floors_later(manager: &Arc<Manager>, mut list: Vec<Floor>) {
    if list.is_empty() {
        return;
    }
    list.sort_unstable_by_key(|floor| (floor.id, std::cmp::Reverse(floor.below)));
    list.dedup_by_key(|floor| floor.id);
    let it = Arc::clone(manager);
    manager.tasks.spawn(async move { floors(&it, &list).await });
}

/// Sends floors to one service without waiting. If it has died, its queue is gone with it, and the broker drops them.
pub(crate) fn floors_to_later(manager: &Arc<Manager>, service: ServiceId, list: Vec<Floor>) {
    let it = Arc::clone(manager);
    manager.tasks.spawn(async move {
        for chunk in list.chunks(BATCH_MAX) {
            let target = || Target::Queue(it.topology.commands_of(service));
            say(&it, target(), &Command::Floors(chunk.to_vec())).await;
        }
    });
}

/// Answers a birth without waiting. It is said to the newborn alone: after a broker's restart all services are born at
/// once, and what each of them must hear would otherwise reach every other one as well.
pub(crate) fn welcome_later(manager: &Arc<Manager>, floors: &[Floor], mut welcome: Welcome) {
    let mut chunks: Vec<Vec<Floor>> = floors.chunks(BATCH_MAX).map(<[Floor]>::to_vec).collect();
    // The welcome itself is the last word: whoever has it has all floors.
    welcome.floors = chunks.pop().unwrap_or_default();
    let it = Arc::clone(manager);
    manager.tasks.spawn(async move {
        let newborn = Target::Queue(it.topology.commands_of(welcome.service));
        for chunk in chunks {
            say(&it, newborn.clone(), &Command::Floors(chunk)).await;
        }
        say(&it, newborn, &Command::Welcome(Box::new(welcome))).await;
    });
}

/// Tells one service what it may take, or what it is to give away, without waiting.
pub(crate) fn order_later(manager: &Arc<Manager>, command: Command) {
    let it = Arc::clone(manager);
    manager.tasks.spawn(async move {
        say(&it, Target::Fanout(it.topology.commands()), &command).await;
    });
}

/// Tells who is to start one at a time, without waiting.
pub(crate) fn suspects_later(manager: &Arc<Manager>, suspects: Vec<ObserverId>) {
    let it = Arc::clone(manager);
    manager.tasks.spawn(async move {
        say(&it, Target::Fanout(it.topology.commands()), &Command::Suspect(suspects)).await;
    });
}

/// Asks a service what these are that it holds (none: who it is itself), without waiting. Whoever is not
/// answered hears of them again and asks again.
pub(crate) fn describe_later(manager: &Arc<Manager>, service: ServiceId, ids: Vec<ObserverId>) {
    let it = Arc::clone(manager);
    manager.tasks.spawn(async move {
        let mut parts: Vec<Vec<ObserverId>> = ids.chunks(BATCH_MAX).map(<[_]>::to_vec).collect();
        if parts.is_empty() {
            parts.push(Vec::new());
        }
        for ids in parts {
            let asked = Target::Queue(it.topology.commands_of(service));
            say(&it, asked, &Command::Describe { service, ids }).await;
        }
    });
}

/// Leaves this manager's marks in both queues without waiting; not while the last ones are on their way.
pub(crate) fn ticks_later(manager: &Arc<Manager>) {
    let Ok(turn) = Arc::clone(&manager.ticking).try_acquire_owned() else { return };
    let it = Arc::clone(manager);
    manager.tasks.spawn(async move {
        tokio::join!(tick(&it, Marked::State), tick(&it, Marked::Beats));
        drop(turn);
    });
}

async fn tick(manager: &Manager, queue: Marked) {
    let tick = Tick { manager: manager.id, sent_at: manager.clock.now() };
    match queue {
        Marked::State => {
            say(manager, Target::Queue(manager.topology.state()), &StateMessage::Tick(tick)).await;
        }
        Marked::Beats => {
            say(manager, Target::Queue(manager.topology.beats()), &BeatMessage::Tick(tick)).await;
        }
    }
}

async fn say<T: Serialize + Sync>(manager: &Manager, target: Target, what: &T) {
    let Some(session) = manager.session().filter(|session| !session.is_blocked()) else { return };
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
