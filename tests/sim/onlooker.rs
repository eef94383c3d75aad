//! I4 as an onlooker sees it, who hears what a service is told and sees what the broker gives it: it holds
//! no more than it may, takes nothing while it is not to, gives away no more than it was asked for.

use crate::service::Stage;
use crate::taking::{REST_MAX, REST_MIN};
use crate::world::World;
use everwatch_core::id::{ObserverId, ServiceId};
use everwatch_core::message::{HandOver, Terms};
use std::collections::{BTreeMap, BTreeSet};

/// What one incarnation was told.
#[derive(Debug, Clone, Default)]
pub(crate) struct Told {
    /// Its own capacity.
    slots: u32,
    /// Of all that came in, those with the highest revision.
    terms: Terms,
    rests_until: u64,
    limit: (u32, u64),
    /// The most that it may come to hold: what it might take before the broker had its last word counts.
    ceiling: u32,
    /// Its consumers of which the broker has not said yet that they are cancelled.
    cancelling: u32,
    /// Being given away to others, and until when each is not to come back.
    moving: BTreeSet<ObserverId>,
    moved: BTreeMap<ObserverId, u64>,
}

impl Told {
    fn most(&self, now: u64) -> u32 {
        let capacity = self.terms.capacity.unwrap_or(self.slots);
        let (limit, until) = self.limit;
        if now < until { capacity.min(limit) } else { capacity }
    }
    fn takes(&self, now: u64) -> bool {
        !self.terms.cordoned && !self.terms.draining && now >= self.rests_until
    }
    fn look(&mut self, now: u64) -> u32 {
        let most = if self.takes(now) { self.most(now) } else { 0 };
        self.ceiling = if self.cancelling == 0 { most } else { self.ceiling.max(most) };
        self.ceiling
    }
}

impl World {
    fn told(&mut self, s: usize) -> Option<&mut Told> {
        if self.services[s].stage != Stage::Living {
            return None;
        }
        let (id, slots) = (self.services[s].id, self.services[s].setup.capacity);
        Some(self.check.told_to.entry(id).or_insert_with(|| Told { slots, ..Told::default() }))
    }

    pub(crate) fn on_terms(&mut self, s: usize, terms: Terms) {
        if let Some(told) = self.told(s)
            && terms.revision > told.terms.revision
        {
            told.terms = terms;
        }
    }

    pub(crate) fn on_asked(&mut self, s: usize, asked: &HandOver) {
        let rest = asked.rest.clamp(REST_MIN, REST_MAX);
        let until = self.now + u64::try_from(rest.as_millis()).unwrap();
        let Some(told) = self.told(s) else { return };
        if let Some(most) = asked.down_to {
            told.limit = (most, until);
        }
        if !asked.ids.is_empty() {
            told.rests_until = told.rests_until.max(until);
        }
    }

    pub(crate) fn on_cancelling(&mut self, s: usize) {
        if let Some(told) = self.told(s) {
            told.cancelling += 1;
        }
    }
    pub(crate) fn on_cancelled(&mut self, s: usize) {
        if let Some(told) = self.told(s) {
            told.cancelling -= 1;
        }
    }

    /// It has done what follows from what it heard.
    pub(crate) fn onlook(&mut self, s: usize) {
        let now = self.now;
        if let Some(told) = self.told(s) {
            told.look(now);
        }
    }

    /// It begins to give these to others, and does not want them back at once.
    pub(crate) fn on_moving(&mut self, s: usize, id: ObserverId) {
        if let Some(told) = self.told(s) {
            told.moving.insert(id);
        }
    }

    pub(crate) fn on_given_back(&mut self, service: ServiceId, id: ObserverId) {
        let now = self.now;
        if let Some(told) = self.check.told_to.get_mut(&service)
            && told.moving.remove(&id)
            && now < told.rests_until
        {
            told.moved.insert(id, told.rests_until);
        }
    }

    /// The broker gives this to a service, which then holds so many.
    pub(crate) fn judge_taking(&mut self, s: usize, id: ObserverId, held: usize) {
        let (now, service) = (self.now, self.services[s].id);
        let slots = self.services[s].setup.capacity;
        let told = self.check.told_to.entry(service).or_insert_with(|| Told { slots, ..Told::default() });
        let ceiling = told.look(now);
        let too_soon = told.moved.remove(&id).is_some_and(|until| now < until);
        if held > ceiling as usize {
            self.check.fail("I4", format!("{} holds {held} of {ceiling}", self.name(s)));
        }
        if too_soon {
            let text = format!("{} came straight back to {}", self.observer(id), self.name(s));
            self.check.fail("moves", text);
        }
    }

    /// It has decided which ones go.
    pub(crate) fn on_given_away(&mut self, s: usize, before: usize, goes: usize) {
        let now = self.now;
        let Some(most) = self.told(s).map(|told| told.most(now)) else { return };
        if goes > 0 && before - goes < most as usize {
            let text = format!("{} gives {goes} of {before} away and may keep {most}", self.name(s));
            self.check.fail("moves", text);
        }
    }
}
