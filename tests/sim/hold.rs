//! The switch that stops all conclusions from silence, and the watch over those who draw them nevertheless.

use crate::world::World;

/// Whoever looked at the switch before it was turned has carried out by then what follows from that look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Within {
    /// Only the database is asked.
    AMoment = 500,
    /// The broker is asked about one service after another.
    Questions = 16_000,
}

impl World {
    pub(crate) fn switch_hold(&mut self, on: bool) {
        self.db.hold = on;
        self.check.held_since = on.then_some(self.now);
        self.tell(|_| format!("hold is {}", if on { "on" } else { "off" }));
    }

    /// A manager goes on with what it had begun before it froze.
    pub(crate) fn manager_thaws(&mut self) {
        if let Some(since) = &mut self.check.held_since {
            *since = self.now;
        }
    }

    /// Something was concluded from silence and is committed.
    pub(crate) fn on_concluded(&mut self, within: Within, what: impl FnOnce(&Self) -> String) {
        if self.check.held_since.is_some_and(|since| self.now - since > within as u64) {
            let text = format!("{}, on hold", what(self));
            self.check.fail("hold", text);
        }
    }
}
