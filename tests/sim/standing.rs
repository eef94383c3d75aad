//! What must be so of standing orders some time after the last fault: they are followed, and what they
//! leave free is used.

use crate::net::Lane;
use crate::world::World;
use everwatch_core::fleet::Orders;
use everwatch_core::message::Intent;

impl World {
    pub(crate) fn orders_of(&self, s: usize) -> Orders {
        self.db.orders.get(self.services[s].setup.name.as_str()).cloned().unwrap_or_default()
    }

    pub(crate) fn has_orders(&self) -> bool {
        self.db.orders.values().any(|orders| orders.cordoned || orders.capacity.is_some())
    }

    pub(crate) fn nobody_takes(&self) -> bool {
        (0..self.services.len()).all(|s| self.orders_of(s).cordoned)
    }

    /// The slots that it is to have.
    fn slots_of(&self, s: usize) -> u32 {
        self.orders_of(s).capacity.unwrap_or(self.services[s].setup.capacity)
    }

    pub(crate) fn held_by(&self, s: usize) -> usize {
        let conn = self.services[s].conn(Lane::Consume);
        self.broker.held_work().filter(|(holder, _, _)| *holder == conn).count()
    }

    /// Whether it is to take one more.
    pub(crate) fn may_take(&self, s: usize) -> bool {
        !self.orders_of(s).cordoned && self.held_by(s) < self.slots_of(s) as usize
    }

    /// What all of them may hold: those that take nothing keep what they have.
    pub(crate) fn room(&self) -> usize {
        let of = |s| if self.orders_of(s).cordoned { self.held_by(s) } else { self.slots_of(s) as usize };
        let room: usize = (0..self.services.len()).map(of).sum();
        room.saturating_sub(self.broker.wasted_slots())
    }

    pub(crate) fn orders_are_followed(&self) -> Result<(), String> {
        for (s, service) in self.services.iter().enumerate() {
            let (orders, name, held) = (self.orders_of(s), self.name(s), self.held_by(s));
            let taking = &service.taking;
            let active = taking.intent() == Intent::Active;
            if active == orders.cordoned {
                return Err(format!("{name} is {:?}, and its orders are {orders:?}", taking.intent()));
            }
            if taking.blocks.capacity() != self.slots_of(s) {
                return Err(format!(
                    "{name} has {} slots, not {}",
                    taking.blocks.capacity(),
                    self.slots_of(s)
                ));
            }
            if held > self.slots_of(s) as usize {
                return Err(format!("{name} holds {held} of {}", self.slots_of(s)));
            }
            let elsewhere = (0..self.services.len()).any(|other| other != s && self.may_take(other));
            if orders.drain.is_some() && (elsewhere || held == 0) {
                return Err(format!("{name} is not drained: it holds {held}"));
            }
        }
        Ok(())
    }
}
