//! What an operator wants of services: cordon, drain, another capacity. It is kept by the services' name,
//! outlives their incarnations, and says what is to be told to whom.

use crate::clock::{Timestamp, show};
use crate::id::{Pool, ServiceId};
use crate::message::{Cause, HandOver, Intent, Terms};
use crate::service::{ServiceRow, ServiceState};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

/// The most slots that can be set by hand.
pub const CAPACITY_MAX: u32 = 100_000;
/// Three beats: by then a service that understands an order shows it.
const CONFIRM_WITHIN: Duration = Duration::from_secs(15);
/// Observers that a drain moves a second unless it is told otherwise.
pub const DRAIN_PACE: u32 = 100;

/// What is wanted of the services of one name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Orders {
    /// Raised by every change.
    pub revision: u64,
    pub cordoned: bool,
    /// Slots, if not as their own settings say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity: Option<u32>,
    /// Under way, until nothing is held any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drain: Option<Drain>,
}

/// A service is being emptied; it stays cordoned afterwards.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Drain {
    pub asked_at: Timestamp,
    /// What was held then.
    pub of: u32,
    /// Observers a second.
    pub per_second: u32,
    /// From then on whether or not anybody has room.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
    /// Whether or not anybody has room.
    pub force: bool,
}

impl Orders {
    /// Takes nothing new from now on.
    pub fn cordon(&mut self, now: Timestamp) -> bool {
        !self.cordoned && self.change(now, |it| it.cordoned = true)
    }
    /// Takes again. A drain that is under way ends.
    pub fn uncordon(&mut self, now: Timestamp) -> bool {
        self.cordoned && self.change(now, |it| (it.cordoned, it.drain) = (false, None))
    }
    /// Gives away what is held. Asked again, the newer pace and deadline stand.
    pub fn drain(&mut self, drain: Drain) -> bool {
        let now = drain.asked_at;
        let of = self.drain.as_ref().map_or(drain.of, |before| before.of.max(drain.of));
        self.change(now, |it| (it.cordoned, it.drain) = (true, Some(Drain { of, ..drain })))
    }
    /// So many slots, or again as its own settings say.
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

    /// As the service is told.
    #[must_use]
    pub fn terms(&self) -> Terms {
        Terms {
            revision: self.revision,
            cordoned: self.cordoned,
            draining: self.drain.is_some(),
            capacity: self.capacity,
        }
    }

    /// Whether a service's newest beat says that it does as it was told.
    fn followed_by(&self, service: &ServiceRow) -> bool {
        let Some(beat) = &service.beat else { return self.revision == 0 };
        let wanted = match (&self.drain, self.cordoned) {
            (Some(_), _) => Intent::Draining,
            (None, true) => Intent::Cordoned,
            (None, false) => Intent::Active,
        };
        // One that is stopping says that it drains, whatever it was told, and is told in vain. Naively, it is
        // left alone: so is then one that has not heard that its drain is over, for ever.
        beat.state == wanted && beat.capacity == self.capacity.unwrap_or(service.birth.capacity)
    }
}

/// What was asked of a service and its newest beat does not show, as a sentence; `None`: it does as it was told.
///
/// Naively, what was asked is shown as what is so. But an older version that does not know the order ignores it.
#[must_use]
pub fn unconfirmed(orders: &Orders, service: &ServiceRow, now: Timestamp) -> Option<String> {
    let beat = service.beat.as_ref().filter(|_| !service.state().is_over())?;
    let capacity = orders.capacity.unwrap_or(service.birth.capacity);
    let asked = match (orders.drain.is_some(), orders.cordoned, beat.state) {
        (true, _, Intent::Active | Intent::Cordoned) => "drain asked".to_owned(),
        (false, true, Intent::Active) => "cordon asked".to_owned(),
        (false, false, Intent::Cordoned) => "uncordon asked".to_owned(),
        _ if beat.capacity != capacity => format!("capacity {capacity} asked"),
        // One that is stopping says that it drains, whatever it was told.
        _ => return None,
    };
    // Orders are numbered by the time of their last change.
    let silence = now.since(Timestamp(i64::try_from(orders.revision).unwrap_or(i64::MAX)));
    if silence < CONFIRM_WITHIN {
        return Some(format!("{asked}, not confirmed yet"));
    }
    let (silence, version) = (show(Duration::from_secs(silence.as_secs())), &service.birth.version);
    Some(format!("{asked}, not confirmed for {silence}: its version, {version}, may not know the order"))
}

/// Orders by the name of their services.
pub type OrderBook = BTreeMap<String, Orders>;

/// What is to be said and noted now.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct FleetPlan {
    pub terms: Vec<(ServiceId, Terms)>,
    pub hand_over: Vec<HandOver>,
    /// Names whose drain is over.
    pub drained: Vec<String>,
}

/// Compares what is wanted with what the services say of themselves.
#[must_use]
pub fn plan_fleet(services: &[ServiceRow], book: &OrderBook, now: Timestamp) -> FleetPlan {
    let mut plan = FleetPlan::default();
    let mut room = room_by_pool(services);
    for service in services.iter().filter(|service| !service.state().is_over()) {
        let Some(orders) = book.get(service.birth.name.as_str()) else { continue };
        if !orders.followed_by(service) {
            plan.terms.push((service.id, orders.terms()));
            continue;
        }
        let Some(drain) = &orders.drain else { continue };
        let room = room.entry(service.birth.pool.clone()).or_default();
        let goes = goes_now(drain, service.held(), *room, now);
        *room = room.saturating_sub(goes);
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
        let mut same = services.iter().filter(|it| it.birth.name.as_str() == name && !it.state().is_over());
        if same.all(|service| service.held() == 0 && orders.followed_by(service)) {
            plan.drained.push(name.clone());
        }
    }
    plan
}

/// Free slots that could be taken at once, of each pool.
#[must_use]
pub fn room_by_pool(services: &[ServiceRow]) -> BTreeMap<Pool, u32> {
    let mut room = BTreeMap::new();
    for service in services.iter().filter(|service| service.state() == ServiceState::Active) {
        let free = service.capacity().saturating_sub(service.held());
        let of_pool: &mut u32 = room.entry(service.birth.pool.clone()).or_default();
        *of_pool = of_pool.saturating_add(free);
    }
    room
}

fn goes_now(drain: &Drain, held: u32, room: u32, now: Timestamp) -> u32 {
    let late = drain.until.is_some_and(|until| now >= until);
    match (late, drain.force) {
        (true, _) => held,
        (false, true) => held.min(drain.per_second),
        (false, false) => held.min(drain.per_second).min(room),
    }
}

/// How far a drain is, for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DrainProgress {
    pub of: u32,
    pub moved: u32,
    /// What holds it up, as a sentence.
    pub waits: Option<String>,
}

/// How far the drain of this service is.
#[must_use]
pub fn progress(drain: &Drain, service: &ServiceRow, room: u32, now: Timestamp) -> DrainProgress {
    let held = service.held();
    let stuck = held > 0 && goes_now(drain, held, room, now) == 0;
    let waits = stuck.then(|| format!("no other service of pool {} has a free slot", service.birth.pool));
    // Until it says itself that it drains, what it holds by its beats is from before.
    let begun = service.beat.as_ref().is_some_and(|beat| beat.state == Intent::Draining);
    let moved = if begun { drain.of.saturating_sub(held) } else { 0 };
    DrainProgress { of: drain.of.max(held), moved, waits }
}

#[cfg(test)]
#[path = "fleet_tests.rs"]
mod tests;
