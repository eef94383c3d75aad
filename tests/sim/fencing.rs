//! A service's proofs of life and its fence; mirrors `fence` of the SDK. The clock counts while frozen.

use crate::net::{Ending, Lane};
use crate::service::{FENCE_AFTER, FENCE_GRACE, Stage};
use crate::world::{World, duration};
use everwatch_core::fence::Silence;

const PROBE: u64 = 1000;
const LOOK: u64 = 100;

/// What follows when all code has let go.
enum Then {
    ComesBack(String),
    Ends,
}

impl World {
    /// Begins the proofs of life and the looks of the fence.
    pub(crate) fn watch(&mut self, s: usize) {
        self.prove(s, Lane::Consume);
        self.prove(s, Lane::Publish);
        self.look(s);
    }

    fn prove(&mut self, s: usize, lane: Lane) {
        let (sent, conn) = (self.now, self.services[s].conn(lane));
        let incarnation = self.services[s].incarnation;
        self.ask(
            conn,
            |_| (),
            move |world, answer| {
                if world.services[s].incarnation != incarnation {
                    return;
                }
                if answer.is_none() {
                    return world.fall(s, "the session is lost");
                }
                let proofs = &mut world.services[s].proofs;
                match lane {
                    Lane::Consume => proofs.answered = proofs.answered.max(duration(sent)),
                    Lane::Publish => proofs.confirmed = proofs.confirmed.max(duration(sent)),
                }
                let next = (sent + PROBE).saturating_sub(world.now);
                world.soon(s, next, move |world| world.prove(s, lane));
            },
        );
    }

    fn look(&mut self, s: usize) {
        if !matches!(self.services[s].stage, Stage::Living | Stage::Draining) {
            return;
        }
        let now = duration(self.now);
        let publishes = self.services[s].conn(Lane::Publish);
        if self.net.conns[publishes].blocked {
            self.services[s].proofs.confirmed = now;
        }
        if self.is_deaf(publishes) {
            return self.fall(s, "no heartbeat of the broker");
        }
        let fence_after = duration(self.rules.fence_after(FENCE_AFTER));
        match self.services[s].proofs.silence(now, fence_after) {
            Some(Silence::Answer) => self.fall(s, "the broker has not answered"),
            Some(Silence::Confirm) => self.fall(s, "the broker has not confirmed"),
            None => {
                let due = self.now + LOOK;
                self.soon(s, LOOK, move |world| {
                    // After a thaw all threads run at once: the fence's may not be the first.
                    let late = if world.now > due { world.roll(0, 5) } else { 0 };
                    world.soon(s, late, move |world| world.look(s));
                });
            }
        }
    }

    /// Whether what is held here is surely still ours.
    pub(crate) fn stands(&self, s: usize) -> bool {
        let it = &self.services[s];
        let fence_after = duration(self.rules.fence_after(FENCE_AFTER));
        it.stage != Stage::Fenced && it.proofs.are_fresh(duration(self.now), fence_after)
    }

    /// Ends everything that runs here, then the session.
    pub(crate) fn fall(&mut self, s: usize, reason: &str) {
        let it = &mut self.services[s];
        if !matches!(it.stage, Stage::Living | Stage::Draining | Stage::Leaving) {
            return;
        }
        let stage = std::mem::replace(&mut it.stage, Stage::Fenced);
        self.tell(|world| format!("{} is fenced: {reason}", world.name(s)));
        // A stop that loses its session just ends.
        let then = if stage == Stage::Living { Then::ComesBack(reason.to_owned()) } else { Then::Ends };
        if self.rules.fence_cancels() {
            let running: Vec<_> = self.services[s].units.keys().copied().collect();
            for id in running {
                self.cancel_code(s, id);
            }
        }
        self.soon(s, FENCE_GRACE, move |world| {
            let running: Vec<_> = world.services[s].units.keys().copied().collect();
            for id in running {
                if world.rules.fence_cancels() {
                    world.abort_code(s, id);
                }
            }
        });
        self.await_silence(s, then);
    }

    fn await_silence(&mut self, s: usize, then: Then) {
        if !self.services[s].units.is_empty() && self.rules.fence_cancels() {
            return self.soon(s, 5, move |world| world.await_silence(s, then));
        }
        match then {
            Then::ComesBack(reason) => self.reborn(s, reason),
            Then::Ends => self.kill(s, Ending::Killed),
        }
    }

    /// A connection is lost, and the service hears of it.
    pub(crate) fn service_loses(&mut self, s: usize, conn: usize) {
        if self.services[s].conns.contains(&conn) && self.services[s].stage != Stage::Connecting {
            self.fall(s, "a connection is lost");
        }
    }
}
