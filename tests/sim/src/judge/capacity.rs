//! Checks capacity and moves from outside a service, by the commands that the service receives and the
//! messages that the broker delivers to it. A service must not exceed its capacity, must take nothing while
//! it may not, must keep what it was not asked to hand over, and must not get an observer back at once that
//! it was told to move.

use super::{Exercised, Verdict, breach, knowledge::Knowledge};
use crate::history::Theme;
use crate::record::Fact;
use everwatch_core::id::{ObserverId, ServiceId};
use everwatch_core::wire::command::{Command, HandOver, ServiceDirectives};
use std::collections::BTreeMap;

/// How long a service takes nothing after it was told to hand over an observer, in ms. After that, it may
/// take any observer for which no other service has a free slot, even the one that it handed over.
const RESTS: u64 = 500;
/// How long a command may wait in the service's loop, in ms.
const TURN: u64 = 50;
/// How long code may take to stop after its service was told to free slots, in ms.
const STOPS_WITHIN: u64 = 20_000;

/// What one incarnation of a service was told.
#[derive(Debug, Clone, Default)]
pub(super) struct Told {
    /// The directives with the highest revision so far.
    directives: ServiceDirectives,
    takes_nothing_until: u64,
    /// The counts to which it was told to reduce, each with the time of the command.
    lowest: Vec<(u64, u32)>,
    /// The highest number of observers that it may hold. This includes what it may still take before the
    /// broker has cancelled its consumers.
    ceiling: u32,
    ceiling_until: u64,
    changing: u32,
    /// When observers left it for other reasons than to free slots. They count because a service chooses
    /// which observers to hand over before those others have stopped.
    left: Vec<u64>,
    /// Observers that it was told to move, each with the time until which it must not come back.
    moving: BTreeMap<ObserverId, u64>,
    moved: BTreeMap<ObserverId, u64>,
}

impl Told {
    fn slots(&self, own: u32) -> u32 {
        self.directives.capacity.unwrap_or(own)
    }
    fn takes(&self, now: u64) -> bool {
        !self.directives.cordoned && !self.directives.draining && now >= self.takes_nothing_until
    }
    fn look(&mut self, own: u32, now: u64) -> u32 {
        let most = if self.takes(now) { self.slots(own) } else { 0 };
        let settles = self.changing > 0 || now < self.ceiling_until;
        self.ceiling = if settles { self.ceiling.max(most) } else { most };
        self.ceiling
    }
    fn on_hand_over(&mut self, asked: &HandOver, now: u64) {
        if let Some(most) = asked.down_to {
            self.lowest.push((now, most));
        }
        if !asked.ids.is_empty() {
            self.takes_nothing_until = self.takes_nothing_until.max(now + RESTS);
            self.moving.extend(asked.ids.iter().map(|id| (*id, now + RESTS)));
        }
    }
}

#[derive(Default)]
pub(super) struct Capacity {
    told: BTreeMap<ServiceId, Told>,
}

impl Capacity {
    /// The slots of a service beyond those that it keeps for a message of the greatest weight, 0 if it may take nothing. The limits of a
    /// rebalance do not count; the pause after a hand-over does.
    pub(super) fn free_slots(&self, now: u64, host: usize, known: &Knowledge) -> u32 {
        let Some(service) = known.service_on.get(&host) else { return 0 };
        let own = known.setup.services[host - 1].capacity;
        let told = self.told.get(service).cloned().unwrap_or_default();
        if !told.takes(now) {
            return 0;
        }
        let held = known.sessions.get(service).map_or(0, |session| known.slots_used(session.conn));
        let kept = held + usize::from(known.setup.services[host - 1].weight_max - 1);
        told.slots(own).saturating_sub(u32::try_from(kept).unwrap_or(u32::MAX))
    }

    pub(super) fn hear(
        &mut self,
        now: u64,
        fact: &Fact,
        known: &Knowledge,
        exercised: &mut Exercised,
    ) -> Verdict {
        match fact {
            Fact::Heard { host, command } => self.on_command(now, *host, command, known),
            Fact::ConsumerChanging { host } => self.change(now, *host, known, |told| told.changing += 1),
            Fact::ConsumerChanged { host } => {
                self.change(now, *host, known, |told| told.changing = told.changing.saturating_sub(1));
            }
            Fact::Acknowledged { host, .. } if known.is_service(*host) => {
                if let Some(service) = known.service_on.get(host) {
                    self.told.entry(*service).or_default().left.push(now);
                }
            }
            Fact::GivesBack { host, id } => return self.on_given_back(now, (*host, *id), known, exercised),
            Fact::Delivered { host, conn, id, .. } if known.is_service(*host) => {
                return self.on_delivered(now, (*host, *conn, *id), known, exercised);
            }
            _ => {}
        }
        Ok(())
    }

    fn change(&mut self, now: u64, host: usize, known: &Knowledge, change: impl FnOnce(&mut Told)) {
        let Some(service) = known.service_on.get(&host) else { return };
        let own = known.setup.services[host - 1].capacity;
        let told = self.told.entry(*service).or_default();
        told.look(own, now);
        let before = told.slots(own);
        change(told);
        if told.slots(own) > before {
            // The service may still hand over observers that it told to stop before this order.
            told.lowest.push((now, before));
        }
        told.ceiling_until = now + TURN;
        told.look(own, now);
    }

    fn on_command(&mut self, now: u64, host: usize, command: &Command, known: &Knowledge) {
        let Some(me) = known.service_on.get(&host).copied() else { return };
        let newer = |told: &mut Told, directives: ServiceDirectives| {
            if directives.revision > told.directives.revision {
                told.directives = directives;
            }
        };
        match command {
            Command::Directives { service, directives } if *service == me => {
                self.change(now, host, known, |told| newer(told, *directives));
            }
            Command::Welcome(welcome) if welcome.service == me => {
                if let Some(directives) = welcome.directives {
                    self.change(now, host, known, |told| newer(told, directives));
                }
            }
            Command::HandOver(asked) if asked.service == me => {
                self.change(now, host, known, |told| told.on_hand_over(asked, now));
            }
            _ => {}
        }
    }

    fn on_given_back(
        &mut self,
        now: u64,
        (host, id): (usize, ObserverId),
        known: &Knowledge,
        exercised: &mut Exercised,
    ) -> Verdict {
        let Some(service) = known.service_on.get(&host) else { return Ok(()) };
        let own = known.setup.services[host - 1].capacity;
        let told = self.told.entry(*service).or_default();
        if let Some(until) = told.moving.remove(&id) {
            told.left.push(now);
            if now < until {
                told.moved.insert(id, until);
            }
            return Ok(());
        }
        let row = known.row(id);
        let offered = row.is_some_and(|row| known.setup.services[host - 1].can_run(&row.definition));
        // The service does not know yet that the broker has delivered its messages to another one.
        let knows = known.setup.theme != Theme::GivenAway
            && known.sessions.get(service).is_some_and(|session| session.open);
        if known.hosts[host].stopping || !offered || !knows {
            return Ok(());
        }
        *exercised.entry("hand-overs").or_default() += 1;
        let held = known.sessions.get(service).map_or(0, |session| known.held_by(session.conn));
        let asked = told.lowest.iter().filter(|(at, _)| now - at < STOPS_WITHIN).map(|(_, most)| *most).min();
        let chosen = told.left.iter().filter(|at| now - **at < STOPS_WITHIN).count();
        // The last one that it hands over may weigh more than the surplus that is left.
        let greatest = usize::from(known.setup.services[host - 1].weight_max);
        let held = held + chosen * greatest + greatest - known.weight(id);
        let least = told.slots(own).min(asked.unwrap_or(u32::MAX)) as usize;
        if held.saturating_sub(1) < least {
            let text = format!(
                "{} gives {} back and holds {held}; it may keep {least}",
                known.host_name(host),
                known.name(id)
            );
            return breach("moves", text);
        }
        Ok(())
    }

    fn on_delivered(
        &mut self,
        now: u64,
        (host, conn, id): (usize, usize, ObserverId),
        known: &Knowledge,
        exercised: &mut Exercised,
    ) -> Verdict {
        let session =
            known.service_on.get(&host).and_then(|service| Some((service, known.sessions.get(service)?)));
        let Some((service, _)) = session.filter(|(_, session)| session.conn == conn) else { return Ok(()) };
        if known.hosts[host].stopping {
            return Ok(());
        }
        *exercised.entry("capacity").or_default() += 1;
        let own = known.setup.services[host - 1].capacity;
        let told = self.told.entry(*service).or_default();
        let ceiling = told.look(own, now);
        let moved = told.moved.remove(&id).is_some_and(|until| now < until);
        // A service that cannot run it does not keep it.
        let too_soon =
            moved && known.row(id).is_some_and(|row| known.setup.services[host - 1].can_run(&row.definition));
        let held = known.held_by(conn) + known.weight(id);
        if held > ceiling as usize {
            return breach("capacity", format!("{} holds {held} of {ceiling}", known.host_name(host)));
        }
        if too_soon {
            let text = format!("{} came straight back to {}", known.name(id), known.host_name(host));
            return breach("moves", text);
        }
        Ok(())
    }
}
