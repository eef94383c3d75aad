//! The operator's orders for services: cordon, drain, another capacity. Orders belong to the name of a service, outlive
//! its incarnations, and determine the directives that managers send.

use crate::capacity::blocks::BLOCK_MAX;
use crate::clock::{Timestamp, show};
use crate::id::{Pool, ServiceId};
use crate::record::row::Row;
use crate::record::service::ServiceRow;
use crate::record::taking::taking;
use crate::wire::command::{Cause, HandOver, ServiceDirectives};
use crate::wire::heartbeat::Intent;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

/// Three heartbeats: within this time, a service that understands an order shows it.
const CONFIRM_WITHIN: Duration = Duration::from_secs(15);
/// The default number of observers that a drain moves per second.
pub const DRAIN_PACE: u32 = 100;

/// The orders for the services of one name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Orders {
    /// Raised by each change.
    pub revision: u64,
    pub cordoned: bool,
    /// The number of slots, if it differs from the services' own settings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity: Option<u32>,
    /// In progress until no observer is held.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drain: Option<Drain>,
}

/// The drain of a service, which stays cordoned afterward.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Drain {
    pub asked_at: Timestamp,
    /// The number of observers held at that time.
    pub of: u32,
    /// Observers per second.
    pub per_second: u32,
    /// After this time, move observers even if no other service has room.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
    /// Move observers even if no other service has room.
    pub force: bool,
}

/// A request to drain. What it leaves out stays as in the drain in progress, if there is one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DrainRequest {
    pub asked_at: Timestamp,
    /// The number of observers held at that time.
    pub of: u32,
    /// Observers per second; [`DRAIN_PACE`] by default.
    pub per_second: Option<u32>,
    /// As [`Drain::until`].
    pub until: Option<Timestamp>,
    /// As [`Drain::force`]; false by default.
    pub force: Option<bool>,
}

impl Orders {
    /// The service takes no more observers.
    pub fn cordon(&mut self, now: Timestamp) -> bool {
        !self.cordoned && self.change(now, |it| it.cordoned = true)
    }
    /// The service takes observers again. A drain in progress ends.
    pub fn uncordon(&mut self, now: Timestamp) -> bool {
        self.cordoned && self.change(now, |it| (it.cordoned, it.drain) = (false, None))
    }
    /// The service hands over its observers. A repeated request changes what it names: a user who repeats it to see the progress
    /// keeps the deadline.
    pub fn drain(&mut self, asked: DrainRequest) -> bool {
        let before = self.drain.as_ref();
        let drain = Drain {
            asked_at: asked.asked_at,
            of: before.map_or(asked.of, |before| before.of.max(asked.of)),
            per_second: asked.per_second.or(before.map(|it| it.per_second)).unwrap_or(DRAIN_PACE),
            until: asked.until.or(before.and_then(|it| it.until)),
            force: asked.force.or(before.map(|it| it.force)).unwrap_or(false),
        };
        self.change(asked.asked_at, |it| (it.cordoned, it.drain) = (true, Some(drain)))
    }
    /// Sets the number of slots; `None` restores the service's own settings.
    pub fn resize(&mut self, capacity: Option<u32>, now: Timestamp) -> bool {
        self.capacity != capacity && self.change(now, |it| it.capacity = capacity)
    }
    /// The drain is over.
    pub fn drained(&mut self, now: Timestamp) -> bool {
        self.drain.is_some() && self.change(now, |it| it.drain = None)
    }

    fn change(&mut self, now: Timestamp, change: impl FnOnce(&mut Self)) -> bool {
        change(self);
        self.revision = (self.revision + 1).max(u64::try_from(now.0).unwrap_or(0));
        true
    }

    /// The directives for the service.
    #[must_use]
    pub fn directives(&self) -> ServiceDirectives {
        ServiceDirectives {
            revision: self.revision,
            cordoned: self.cordoned,
            draining: self.drain.is_some(),
            capacity: self.capacity,
        }
    }

    /// Whether a service's latest heartbeat shows that it follows the orders.
    fn followed_by(&self, service: &ServiceRow) -> bool {
        let Some(heartbeat) = &service.heartbeat else { return self.revision == 0 };
        let definition = match (&self.drain, self.cordoned) {
            (Some(_), _) => Intent::Draining,
            (None, true) => Intent::Cordoned,
            (None, false) => Intent::Active,
        };
        // A service that is stopping reports that it drains, whatever its orders. The obvious way sends it nothing,
        // but then a service that missed the end of its drain would never receive it.
        heartbeat.state == definition && heartbeat.capacity == capacity_under(self.capacity, service)
    }
}

/// The slots of a service under this order.
fn capacity_under(ordered: Option<u32>, service: &ServiceRow) -> u32 {
    let capacity = ordered.unwrap_or(service.registration.capacity);
    if service.registration.pool_single { capacity.min(BLOCK_MAX) } else { capacity }
}

/// The order that a service's latest heartbeat does not confirm, as a sentence; `None` if it follows its orders. Until its first
/// heartbeat, a service works as it has registered.
///
/// The obvious way shows the order as the state. But an older version that does not know the order ignores it.
#[must_use]
pub fn unconfirmed(orders: &Orders, service: &ServiceRow, now: Timestamp) -> Option<String> {
    if service.state().is_over() {
        return None;
    }
    let state = service.heartbeat.as_ref().map_or(Intent::Active, |heartbeat| heartbeat.state);
    let capacity = capacity_under(orders.capacity, service);
    // The number of an order is the time of its last change. A new process confirms older orders, too.
    let ordered = Timestamp(i64::try_from(orders.revision).unwrap_or(i64::MAX));
    let silence = now.since(ordered.max(service.registered_at));
    if service.heartbeat.is_none() && silence >= CONFIRM_WITHIN {
        // Its silence has another cause than the order.
        return None;
    }
    let asked = match (orders.drain.is_some(), orders.cordoned, state) {
        (true, _, Intent::Active | Intent::Cordoned) => "drain asked".to_owned(),
        (false, true, Intent::Active) => "cordon asked".to_owned(),
        (false, false, Intent::Cordoned) => "uncordon asked".to_owned(),
        _ if service.capacity() != capacity => format!("capacity {capacity} asked"),
        // Its heartbeats still tell of the drain that the order ends.
        (false, false, Intent::Draining) if silence < CONFIRM_WITHIN => "uncordon asked".to_owned(),
        // A service that is stopping reports that it drains, whatever its orders.
        _ => return None,
    };
    if silence < CONFIRM_WITHIN {
        return Some(format!("{asked}, not confirmed yet"));
    }
    let (silence, version) = (show(Duration::from_secs(silence.as_secs())), &service.registration.version);
    Some(format!("{asked}, not confirmed for {silence}: its version, {version}, may not know the order"))
}

/// Orders by service name.
pub type OrderBook = BTreeMap<String, Orders>;

/// The messages to send and the changes to record now.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct FleetPlan {
    pub directives: Vec<(ServiceId, ServiceDirectives)>,
    pub hand_over: Vec<HandOver>,
    /// Names of services whose drain is over.
    pub drained: Vec<String>,
}

/// What the reports of runs tell about slots; heartbeats are up to an interval older.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReportedSlots {
    /// The slots that observers in the work queues take as soon as services have room, by pool.
    pub queued: BTreeMap<Pool, u32>,
    /// The slots in use.
    pub held: BTreeMap<ServiceId, u64>,
}

/// The room of a pool for observers that a drain moves.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Room {
    /// The slots that can be taken at once.
    pub free: u32,
    /// Of these, the slots that observers in the work queue take first.
    pub queued: u32,
}

impl Room {
    fn left(self) -> u32 {
        self.free.saturating_sub(self.queued)
    }
}

/// Compares the orders with the reported state of the services.
///
/// The obvious way hands over as many observers as heartbeats show free slots. But after a restart, a service has free slots while
/// its former observers wait for them in the queue, and its heartbeat still shows them when these run there again: the
/// observers of the drain would end with nowhere to go.
#[must_use]
pub fn plan_fleet(
    services: &[ServiceRow],
    reported: &ReportedSlots,
    book: &OrderBook,
    now: Timestamp,
) -> FleetPlan {
    let mut plan = FleetPlan::default();
    let mut room = room_by_pool(services, reported);
    for service in services.iter().filter(|service| !service.state().is_over()) {
        let Some(orders) = book.get(service.registration.name.as_str()) else { continue };
        if !orders.followed_by(service) {
            plan.directives.push((service.id, orders.directives()));
            continue;
        }
        let Some(drain) = &orders.drain else { continue };
        let room = room.entry(service.registration.pool.clone()).or_default();
        let goes = goes_now(drain, service.held(), *room, now);
        room.free = room.free.saturating_sub(goes);
        if goes > 0 {
            let down_to = Some(service.held() - goes);
            let rest = Duration::ZERO;
            plan.hand_over.push(HandOver {
                service: service.id,
                ids: Vec::new(),
                down_to,
                rest,
                cause: Cause::Drain,
            });
        }
    }
    for (name, orders) in book.iter().filter(|(_, orders)| orders.drain.is_some()) {
        let mut same =
            services.iter().filter(|it| it.registration.name.as_str() == name && !it.state().is_over());
        if same.all(|service| orders.followed_by(service) && is_empty(service, orders, reported)) {
            plan.drained.push(name.clone());
        }
    }
    plan
}

/// Whether a service that drains surely holds nothing.
///
/// The obvious way takes the number in its latest heartbeat. But if the service took observers again shortly before the drain, that
/// heartbeat may be older than these observers.
fn is_empty(service: &ServiceRow, orders: &Orders, reported: &ReportedSlots) -> bool {
    let is_newer = orders.drain.as_ref().is_none_or(|drain| service.heard_at >= drain.asked_at);
    let holds = reported.held.get(&service.id).is_some_and(|held| *held > 0);
    service.held() == 0 && !holds && is_newer
}

/// The room of each pool, for observers of any weight.
#[must_use]
pub fn room_by_pool(services: &[ServiceRow], reported: &ReportedSlots) -> BTreeMap<Pool, Room> {
    let mut room: BTreeMap<Pool, Room> = BTreeMap::new();
    for service in taking(services) {
        let pool = &service.registration.pool;
        let held = u32::try_from(reported.held.get(&service.id).copied().unwrap_or(0)).unwrap_or(u32::MAX);
        let of_pool = room.entry(pool.clone()).or_default();
        of_pool.free = of_pool.free.saturating_add(service.room_beside(held.max(service.held())));
        of_pool.queued = reported.queued.get(pool).copied().unwrap_or(0);
    }
    room
}

/// The services that surely hold what they reported: no other process of the name has replaced them, and they are not silent.
#[must_use]
pub fn sure_holders(services: &[ServiceRow]) -> Vec<ServiceId> {
    let living = || services.iter().filter(|it| it.end.is_none());
    let is_replaced = |it: &ServiceRow| {
        let newer = |other: &ServiceRow| {
            other.registration.name == it.registration.name && other.registered_at > it.registered_at
        };
        living().any(newer)
    };
    living().filter(|it| it.suspect_since.is_none() && !is_replaced(it)).map(|it| it.id).collect()
}

/// The slots that these observers take when services get their messages; `unheld` have messages that no service holds.
#[must_use]
pub fn queued_slots(unheld: &[Row]) -> u32 {
    let starts = unheld.iter().filter(|row| row.refused_since.is_none() && !row.awaits_end());
    starts.fold(0, |slots, row| slots.saturating_add(row.definition.weight.into()))
}

fn goes_now(drain: &Drain, held: u32, room: Room, now: Timestamp) -> u32 {
    let late = drain.until.is_some_and(|until| now >= until);
    match (late, drain.force) {
        (true, _) => held,
        (false, true) => held.min(drain.per_second),
        (false, false) => held.min(drain.per_second).min(room.left()),
    }
}

/// The progress of a drain, for display.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DrainProgress {
    pub of: u32,
    pub moved: u32,
    /// The obstacle, as a sentence.
    pub waits: Option<String>,
}

/// The progress of the drain of this service.
#[must_use]
pub fn progress(drain: &Drain, service: &ServiceRow, room: Room, now: Timestamp) -> DrainProgress {
    let held = service.held();
    let stuck = held > 0 && goes_now(drain, held, room, now) == 0;
    let pool = &service.registration.pool;
    let deadline = drain.until.map_or_else(String::new, |until| {
        let secs = Duration::from_secs(until.since(now).as_secs());
        format!("; in {}, it hands the rest over all the same", show(secs))
    });
    let waits = stuck.then(|| match room.free {
        0 => format!("no other service of pool {pool} has a free slot{deadline}"),
        _ => format!("the free slots of pool {pool} go to observers that wait in its queue{deadline}"),
    });
    // Until the service reports that it drains, the number held in its heartbeats predates the drain.
    let begun = service.heartbeat.as_ref().is_some_and(|heartbeat| heartbeat.state == Intent::Draining);
    let moved = if begun { drain.of.saturating_sub(held) } else { 0 };
    DrainProgress { of: drain.of.max(held), moved, waits }
}

#[cfg(test)]
#[path = "maintenance_tests.rs"]
mod tests;
