//! Observers that end their services: whose deaths are blamed on whom, who is suspected, who is failed.
//! Only a process's death counts. A cut network is no death: the same process comes back and says so.

use crate::clock::Timestamp;
use crate::epoch::Epoch;
use crate::id::{Name, ObserverId, ServiceId};
use crate::row::{Desired, Repeat, Row, doubled};
use crate::seen::{Key, Settlement, Told, WAITED_MAX};
use crate::service::{Ended, ServiceRow};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// A death this soon after a start may be the started one's doing.
pub const BLAME_WITHIN: Duration = Duration::from_secs(60);
/// A service died up to so much later than it was last heard of; suspects start [`BLAME_WITHIN`] apart, and a
/// death after the second one's start must not seem to be before it.
const HEARD_BEFORE: Duration = Duration::from_secs(10);
/// Deaths that are counted together.
pub const WINDOW: Duration = Duration::from_secs(600);
/// How long a service that lost its session has to come back.
pub const REBORN_WITHIN: Duration = Duration::from_secs(60);
/// So many deaths are held against an observer.
pub const SUSPECT_AFTER: usize = 2;
/// More of them than this within [`WINDOW`] are weather, not poison.
pub const AT_ONCE_MAX: usize = 10;
/// Charges that are kept: more are weather in any case.
const CHARGES_MAX: usize = 50;
/// The others of a bad moment are heard of within this time.
const GATHER: Duration = Duration::from_secs(3);
const LOOK_FIRST: Duration = Duration::from_secs(2);
/// Every one that is watched is due within this time.
pub const LOOK_MAX: Duration = Duration::from_secs(30);
/// Over two minutes: longer than it takes to notice a death and to wait for a rebirth.
const LOOKS: u32 = 9;

/// A service whose process has died.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Killed {
    pub name: Name,
    /// When it was last heard of.
    pub at: Timestamp,
}

/// The death of a service that an observer may be blamed for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Death {
    pub name: Name,
    /// When it was last heard of.
    pub at: Timestamp,
    /// The run that it cut short: of one observer's deaths the order of these is sure, that of times is not.
    pub run: Epoch,
}

pub type Deaths = BTreeMap<ServiceId, Death>;

/// Those whose process has died: their session is gone without a goodbye, and nobody comes back as them,
/// be it that time is over or that a new process has taken the name.
#[must_use]
pub fn killed(services: &[ServiceRow], now: Timestamp) -> BTreeMap<ServiceId, Killed> {
    let reborn: BTreeSet<ServiceId> =
        services.iter().filter_map(|it| it.birth.predecessor.as_ref()).map(|it| it.service).collect();
    let mut fresh: BTreeMap<&Name, Timestamp> = BTreeMap::new();
    for it in services.iter().filter(|it| it.birth.predecessor.is_none()) {
        let newest = fresh.entry(&it.birth.name).or_insert(it.born_at);
        *newest = it.born_at.max(*newest);
    }
    let dead = services.iter().filter(|it| {
        let Some(end) = it.end.filter(|end| end.how == Ended::Lost) else { return false };
        let replaced = fresh.get(&it.birth.name).is_some_and(|born| *born > it.born_at);
        !reborn.contains(&it.id) && (replaced || now.since(end.at) >= REBORN_WITHIN)
    });
    dead.map(|it| (it.id, Killed { name: it.birth.name.clone(), at: it.heard_at })).collect()
}

impl Row {
    /// It was handed out again: is that the third service within the window, or one more?
    pub(crate) fn watch_deaths(&mut self, now: Timestamp) {
        let current = self.seen.acquisitions();
        let earlier = self.seen.tenures.iter().filter(|it| it.acquisitions < current && !it.over);
        let recent = earlier.filter_map(|it| it.started.as_ref());
        if recent.filter(|started| now.since(started.value) <= WINDOW).count() >= SUSPECT_AFTER {
            // One that kills faster than it is looked at must not put the look off.
            let soon = now.plus(LOOK_FIRST);
            let next_at = self.watch.map_or(soon, |watch| watch.next_at.min(soon));
            self.watch = Some(Repeat { last_at: now, next_at, times: 0 });
        }
    }

    /// Whether it is due to be looked at.
    #[must_use]
    pub fn is_watched(&self, now: Timestamp) -> bool {
        self.watch.is_some_and(|watch| watch.next_at <= now)
    }

    /// The services that died shortly after it had started there.
    #[must_use]
    pub fn deaths(&self, killed: &BTreeMap<ServiceId, Killed>, now: Timestamp) -> Deaths {
        let before = self.generation.saturating_sub(1);
        let former = self.former.iter().map(|tenure| (before, tenure));
        let runs = former.chain(self.seen.tenures.iter().map(|tenure| (self.generation, tenure)));
        let blamed = runs.filter(|(_, tenure)| !tenure.over).filter_map(|(generation, tenure)| {
            let (started, killed) = (tenure.started.as_ref()?.value, killed.get(&tenure.service)?);
            let soon = killed.at.since(started) + HEARD_BEFORE <= BLAME_WITHIN;
            let soon = soon && now.since(started) <= WINDOW;
            let run = Epoch::new(generation, tenure.acquisitions);
            soon.then(|| (tenure.service, Death { name: killed.name.clone(), at: killed.at, run }))
        });
        blamed.collect()
    }

    /// The runs of this generation about which no report arrived, from the first reported run on. A service that dies
    /// while the broker blocks publishers never sends its last reports, so each of these runs may have ended in a crash.
    /// A run that was refused, or that reported that it waits as a suspect, is not among them.
    #[must_use]
    pub fn unheard_runs(&self) -> BTreeSet<Epoch> {
        let started: BTreeSet<u32> = self.seen.tenures.iter().map(|it| it.acquisitions).collect();
        let first = started.first().copied().unwrap_or(u32::MAX);
        let all = (first..self.seen.acquisitions()).rev().take(WAITED_MAX);
        let unheard = all.filter(|it| !started.contains(it) && !self.seen.waited.contains(it));
        unheard.map(|it| Epoch::new(self.generation, it)).collect()
    }

    /// It was looked at: when is the next time?
    pub fn looked(&mut self, sentence: Sentence, now: Timestamp) {
        let times = self.watch.map_or(0, |watch| watch.times).saturating_add(1);
        let pause = match sentence {
            Sentence::Wait => GATHER,
            _ => doubled(LOOK_FIRST, times, LOOK_MAX),
        };
        let next = Repeat { last_at: now, next_at: now.plus(pause), times };
        self.watch = (times < LOOKS || sentence == Sentence::Wait).then_some(next);
    }

    /// It has ended too many services: it failed. Answers whether it still could.
    pub fn quarantine(&mut self, deaths: &Deaths, now: Timestamp) -> bool {
        if self.seen.settled.is_some() || self.desired != Desired::Running {
            return false;
        }
        let mut in_order: Vec<&Death> = deaths.values().collect();
        in_order.sort_unstable_by_key(|death| death.run);
        let names = in_order.iter().map(|death| death.name.as_str()).collect::<Vec<_>>().join(", ");
        let error = format!(
            "quarantined: {} services died within {} s of its start: {names}",
            deaths.len(),
            BLAME_WITHIN.as_secs()
        );
        let attempts = u32::try_from(deaths.len()).unwrap_or(u32::MAX);
        let told = Key { acquisitions: self.epoch().acquisitions(), seq: u64::MAX };
        self.seen.last_error = Some(Told { key: told, value: error.clone() });
        // It runs at this moment, and will be stopped: that word must not count more.
        let first = Key { acquisitions: 0, seq: 0 };
        self.settle_at(first, Settlement::Failed { error, attempts }, now);
        true
    }
}

/// What follows from one look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sentence {
    /// Nothing yet.
    None,
    /// It is blamed for too few to be failed.
    Suspect,
    /// It is to be failed, if it turns out to be one of few.
    Wait,
    /// It is to be failed now.
    Quarantine,
    /// It would be, with so many others that it is not the cause.
    Weather,
}

/// All who are blamed at present, as managers share it.
///
/// The number of deaths alone does not tell which observer ended the services: an observer that runs beside the culprit
/// shares its deaths, and a row remembers only its newest runs. So once one blamed observer is one death short of
/// failing, all blamed observers start one at a time: only one of them can then have caused the next death.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Docket {
    charges: BTreeMap<ObserverId, Charge>,
    /// One was failed then: what died before counts against nobody else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    explained_at: Option<Timestamp>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
struct Charge {
    deaths: Deaths,
    /// The runs about which no report arrived: each may have ended in a crash of its service.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    unheard: BTreeSet<Epoch>,
    /// Since when there are enough deaths to fail it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    enough_at: Option<Timestamp>,
}

impl Charge {
    /// How many it has since the newest that it shares with `other`, and how many it may have; `None` if it shares none.
    fn alone(&self, other: &Self) -> Option<(usize, usize)> {
        let shared = self.deaths.iter().filter(|(service, _)| other.deaths.contains_key(service));
        let newest = shared.map(|(_, death)| death.run).max()?;
        let known = self.deaths.values().filter(|death| death.run > newest).count();
        Some((known, known + self.unheard.iter().filter(|run| **run > newest).count()))
    }
    /// Whether the deaths that it is blamed for may as well, or rather, be `other`'s: that one has died as often
    /// since they were last together, or goes on dying while this one no longer does.
    fn may_be_of(&self, other: &Self) -> bool {
        match (self.alone(other), other.alone(self)) {
            (Some((mine, _)), Some((_, its))) => mine <= its,
            _ => {
                let newest = self.deaths.values().map(|death| death.at).max();
                other.deaths.values().all(|death| Some(death.at) > newest)
            }
        }
    }
}

impl Docket {
    /// Drops what is older than the window.
    pub fn forget(&mut self, now: Timestamp) {
        for charge in self.charges.values_mut() {
            charge.deaths.retain(|_, death| now.since(death.at) < WINDOW);
        }
        self.charges.retain(|_, charge| charge.deaths.len() >= SUSPECT_AFTER);
    }

    /// Enters an observer with its deaths, beside those that are known of an earlier generation.
    pub fn enter(&mut self, row: &Row, deaths: &Deaths, quarantine_after: usize, now: Timestamp) {
        self.charge(row.id, deaths, quarantine_after, now);
        if let Some(charge) = self.charges.get_mut(&row.id) {
            charge.unheard = row.unheard_runs();
        }
    }

    fn charge(&mut self, id: ObserverId, deaths: &Deaths, quarantine_after: usize, now: Timestamp) {
        let mut charge = self.charges.remove(&id).unwrap_or_default();
        let counts = |death: &Death| self.explained_at.is_none_or(|explained| death.at > explained);
        let fresh = deaths.iter().filter(|(_, death)| counts(death));
        charge.deaths.extend(fresh.map(|(service, death)| (*service, death.clone())));
        if charge.deaths.len() < SUSPECT_AFTER || self.charges.len() >= CHARGES_MAX {
            return;
        }
        let since = charge.enough_at.unwrap_or(now);
        charge.enough_at = (charge.deaths.len() >= quarantine_after).then_some(since);
        self.charges.insert(id, charge);
    }

    /// What is to become of one, once all of this look are entered.
    #[must_use]
    pub fn sentence(&self, id: ObserverId, now: Timestamp) -> Sentence {
        let Some(charge) = self.charges.get(&id) else { return Sentence::None };
        let Some(enough_at) = charge.enough_at else { return Sentence::Suspect };
        let others = || self.charges.iter().filter(|(other, _)| **other != id).map(|(_, it)| it);
        if others().filter(|it| it.enough_at.is_some()).count() >= AT_ONCE_MAX {
            return Sentence::Weather;
        }
        let as_likely = others().any(|it| charge.may_be_of(it));
        if as_likely || now.since(enough_at) < GATHER { Sentence::Wait } else { Sentence::Quarantine }
    }

    /// One is failed: what died until now counts against nobody else.
    pub fn explain(&mut self, now: Timestamp) {
        self.charges.clear();
        self.explained_at = Some(now);
    }

    /// All who are charged: who judges one looks at all of them.
    pub fn charged(&self) -> impl Iterator<Item = ObserverId> {
        self.charges.keys().copied()
    }

    #[must_use]
    pub fn has_charged(&self, id: ObserverId) -> bool {
        self.charges.contains_key(&id)
    }

    /// Those that start one at a time, from when the next death may have to tell who is failed.
    ///
    /// Two deaths are not enough for that: two services that are killed within minutes would make suspects of all observers
    /// that moved between them, and the last of ten would wait for nine minutes. If more than [`AT_ONCE_MAX`] are blamed,
    /// the cause is the environment, and none of them waits.
    #[must_use]
    pub fn suspects(&self, quarantine_after: usize) -> Vec<ObserverId> {
        let nearly = quarantine_after.saturating_sub(1).max(SUSPECT_AFTER);
        let decisive = self.charges.values().any(|charge| charge.deaths.len() >= nearly);
        if !decisive || self.charges.len() > AT_ONCE_MAX {
            return Vec::new();
        }
        self.charges.keys().copied().collect()
    }
}

#[cfg(test)]
#[path = "quarantine_tests.rs"]
mod tests;
