//! Observers that end their services: which deaths are attributed to which observer, and which observers are suspected
//! or quarantined. Only the death of a process counts: after a network failure, the same process comes back.

use crate::clock::Timestamp;
use crate::epoch::Epoch;
use crate::id::{Name, ObserverId, ServiceId};
use crate::record::observed::{Key, Settlement, Stamped, WAITED_MAX};
use crate::record::row::{Desired, ResendTimer, Row};
use crate::record::row_policy::doubled;
use crate::record::service::{Ended, ServiceRow};
use crate::wire::heartbeat::Intent;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// A death this soon after a start may be caused by the started observer.
pub const BLAME_WITHIN: Duration = Duration::from_secs(60);
/// A service may die this much later than its last sign of life; suspects start [`BLAME_WITHIN`] apart, and a death
/// after the start of the second suspect must not appear to precede it.
const HEARD_BEFORE: Duration = Duration::from_secs(10);
/// The window in which deaths are counted.
pub const WINDOW: Duration = Duration::from_secs(600);
/// How long a service that lost its session may take to come back.
pub const REBORN_WITHIN: Duration = Duration::from_secs(60);
/// This many deaths quarantine an observer.
pub const SUSPECT_AFTER: usize = 2;
/// More blamed observers than this within [`WINDOW`] indicate a mass failure.
pub const AT_ONCE_MAX: usize = 10;
/// The number of crash records that are kept; more indicate a mass failure in any case.
const CHARGES_MAX: usize = 50;
/// Reports about the other observers of the same incident arrive within this time.
const GATHER: Duration = Duration::from_secs(3);
const LOOK_FIRST: Duration = Duration::from_secs(2);
/// Every watched observer is due for a crash check within this time.
pub const LOOK_MAX: Duration = Duration::from_secs(30);
/// Over two minutes: longer than it takes to detect a death and to wait for a new registration.
const LOOKS: u32 = 9;

/// A service whose process has died.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Killed {
    pub name: Name,
    /// Its last sign of life.
    pub at: Timestamp,
    /// The observers whose code blocked a thread while it handed over all others: nothing but the end of the process
    /// could end that code, whenever it was started.
    pub stalled: BTreeSet<ObserverId>,
}

/// The death of a service that may be attributed to an observer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Death {
    pub name: Name,
    /// Its last sign of life.
    pub at: Timestamp,
    /// The run that it cut short: the order of an observer's runs is certain, the order of times is not.
    pub run: Epoch,
}

pub type Deaths = BTreeMap<ServiceId, Death>;

/// The services whose process has died: the session ended and the service had not unregistered, and the process does
/// not come back, because the time for that is over or because a new process has the name.
#[must_use]
pub fn killed(services: &[ServiceRow], now: Timestamp) -> BTreeMap<ServiceId, Killed> {
    let reborn: BTreeSet<ServiceId> =
        services.iter().filter_map(|it| it.registration.predecessor.as_ref()).map(|it| it.service).collect();
    let mut fresh: BTreeMap<&Name, Timestamp> = BTreeMap::new();
    for it in services.iter().filter(|it| it.registration.predecessor.is_none()) {
        let newest = fresh.entry(&it.registration.name).or_insert(it.registered_at);
        *newest = it.registered_at.max(*newest);
    }
    let dead = services.iter().filter(|it| {
        let Some(end) = it.end.filter(|end| end.how == Ended::Lost) else { return false };
        let replaced =
            fresh.get(&it.registration.name).is_some_and(|registered| *registered > it.registered_at);
        !reborn.contains(&it.id) && (replaced || now.since(end.at) >= REBORN_WITHIN)
    });
    let killed = |it: &ServiceRow| Killed {
        name: it.registration.name.clone(),
        at: it.heard_at,
        stalled: stalled_in_drain(it).collect(),
    };
    dead.map(|it| (it.id, killed(it))).collect()
}

fn stalled_in_drain(service: &ServiceRow) -> impl Iterator<Item = ObserverId> {
    let last = service.heartbeat.as_ref().filter(|heartbeat| heartbeat.state == Intent::Draining);
    last.into_iter().flat_map(|heartbeat| heartbeat.stalled.iter().map(|stalled| stalled.id))
}

impl Row {
    /// The broker redelivered it: schedules a crash check if this is at least the third service within the window.
    pub(crate) fn schedule_crash_check(&mut self, now: Timestamp) {
        let current = self.observed.acquisitions();
        let earlier = self.observed.runs.iter().filter(|it| it.acquisitions < current && !it.over);
        let recent = earlier.filter_map(|it| it.started.as_ref());
        if recent.filter(|started| now.since(started.value) <= WINDOW).count() >= SUSPECT_AFTER {
            // An observer that kills services faster than it is checked must not postpone its check.
            let soon = now.plus(LOOK_FIRST);
            let next_at = self.crash_check.map_or(soon, |watch| watch.next_at.min(soon));
            self.crash_check = Some(ResendTimer { last_at: now, next_at, times: 0 });
        }
    }

    /// Whether its crash check is due.
    #[must_use]
    pub fn is_crash_check_due(&self, now: Timestamp) -> bool {
        self.crash_check.is_some_and(|watch| watch.next_at <= now)
    }

    /// The services that died shortly after it first started there, or that were replaced because its code blocked a
    /// thread. An observer that fails every few seconds has always just restarted, so its later starts tell nothing about
    /// what ended the service.
    #[must_use]
    pub fn deaths(&self, killed: &BTreeMap<ServiceId, Killed>, now: Timestamp) -> Deaths {
        let before = self.generation.saturating_sub(1);
        let former = self.former_runs.iter().map(|run| (before, run));
        let runs = former.chain(self.observed.runs.iter().map(|run| (self.generation, run)));
        let blamed = runs.filter(|(_, run)| !run.over).filter_map(|(generation, run)| {
            let (started, killed) = (run.started.as_ref()?.value, killed.get(&run.service)?);
            let soon = killed.at.since(started) + HEARD_BEFORE <= BLAME_WITHIN;
            let soon = soon && now.since(started) <= WINDOW;
            let stalled = killed.stalled.contains(&self.id) && now.since(killed.at) <= WINDOW;
            let epoch = Epoch::new(generation, run.acquisitions);
            (soon || stalled)
                .then(|| (run.service, Death { name: killed.name.clone(), at: killed.at, run: epoch }))
        });
        blamed.collect()
    }

    /// The runs of this generation without any report, from the first reported run on. A service that dies while the
    /// broker blocks publishers never sends its last reports, so each of these runs may have ended in a crash.
    /// Runs that were refused, or that reported that they wait as suspects, are excluded.
    #[must_use]
    pub fn unheard_runs(&self) -> BTreeSet<Epoch> {
        let started: BTreeSet<u32> = self.observed.runs.iter().map(|it| it.acquisitions).collect();
        let first = started.first().copied().unwrap_or(u32::MAX);
        let all = (first..self.observed.acquisitions()).rev().take(WAITED_MAX);
        let unheard = all.filter(|it| !started.contains(it) && !self.observed.waited.contains(it));
        unheard.map(|it| Epoch::new(self.generation, it)).collect()
    }

    /// Schedules the next crash check. A postponed check does not count: while safe mode is on, deaths are not known
    /// yet, and once they are known, the culprit must still be checked beside the observers that died with it.
    pub fn reschedule_check(&mut self, sentence: CrashVerdict, now: Timestamp) {
        let counts = sentence != CrashVerdict::Wait;
        let times = self.crash_check.map_or(0, |watch| watch.times).saturating_add(u32::from(counts));
        let pause = match sentence {
            CrashVerdict::Wait => GATHER,
            _ => doubled(LOOK_FIRST, times, LOOK_MAX),
        };
        let next = ResendTimer { last_at: now, next_at: now.plus(pause), times };
        self.crash_check = (times < LOOKS).then_some(next);
    }

    /// Fails it because it ended too many services; returns whether it could still fail.
    pub fn quarantine(&mut self, deaths: &Deaths, now: Timestamp) -> bool {
        if self.observed.settled.is_some() || self.desired != Desired::Running {
            return false;
        }
        let mut in_order: Vec<&Death> = deaths.values().collect();
        in_order.sort_unstable_by_key(|death| death.run);
        let names = in_order.iter().map(|death| death.name.as_str()).collect::<Vec<_>>().join(", ");
        let error = format!(
            "quarantined: {} services died, each within {} s after it first started this observer or because this observer stalled: {names}",
            deaths.len(),
            BLAME_WITHIN.as_secs()
        );
        let attempts = u32::try_from(deaths.len()).unwrap_or(u32::MAX);
        let told = Key { acquisitions: self.epoch().acquisitions(), seq: u64::MAX };
        self.observed.last_error = Some(Stamped { key: told, value: error.clone() });
        // It currently runs and will be stopped: the report of that stop must not take precedence.
        let first = Key { acquisitions: 0, seq: 0 };
        self.settle_at(first, Settlement::Failed { error, attempts }, now);
        true
    }
}

/// The result of one crash check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CrashVerdict {
    /// Undecided: check again later.
    None,
    /// Too few deaths are attributed to it.
    Suspect,
    /// Quarantine it unless many others turn out to be blamed as well.
    Wait,
    /// Quarantine it now.
    Quarantine,
    /// A mass failure: so many observers qualify that it is not the cause.
    Weather,
}

/// All observers that are currently blamed, as managers share them.
///
/// The number of deaths alone does not tell which observer ended the services: an observer that runs beside the culprit
/// shares its deaths, and a row remembers only its newest runs. So once one blamed observer is one death short of
/// failing, all blamed observers start one at a time: only one of them can then have caused the next death.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct CrashLedger {
    charges: BTreeMap<ObserverId, CrashRecord>,
    /// When an observer was quarantined, or a blamed one was deleted or paused: earlier deaths count against no other
    /// observer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    explained_at: Option<Timestamp>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
struct CrashRecord {
    deaths: Deaths,
    /// The runs without any report: each may have ended in a crash of its service.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    unheard: BTreeSet<Epoch>,
    /// Since when its deaths suffice to quarantine it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    enough_at: Option<Timestamp>,
    /// Its run when it was first listed as a suspect: only later runs started alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    listed_in: Option<Epoch>,
}

impl CrashRecord {
    /// Its certain and its possible deaths since the newest one that it shares with `other`; `None` if it shares none.
    ///
    /// The obvious way counts all deaths that it does not share. But before the suspects start one at a time, a death
    /// that only one of them reported proves nothing: a row remembers only its newest runs, and a service that dies at
    /// once sends no report. So only runs after the listing count.
    fn alone(&self, other: &Self) -> Option<(usize, usize)> {
        let shared = self.deaths.iter().filter(|(service, _)| other.deaths.contains_key(service));
        let newest = shared.map(|(_, death)| death.run).max()?;
        let newest = self.listed_in.map_or(newest, |listed| listed.max(newest));
        let known = self.deaths.values().filter(|death| death.run > newest).count();
        Some((known, known + self.unheard.iter().filter(|run| **run > newest).count()))
    }
    /// Whether `other` is an equally or more likely cause of its deaths: since they last died together, `other` has had
    /// as many deaths, or still has deaths while this one has none.
    fn may_be_of(&self, other: &Self) -> bool {
        match (self.alone(other), other.alone(self)) {
            (Some((mine, _)), Some((_, its))) => mine <= its,
            // They share no known death. Until a service has died while this observer ran alone, that proves nothing.
            _ if self
                .listed_in
                .is_some_and(|listed| self.deaths.values().all(|death| death.run <= listed)) =>
            {
                true
            }
            _ => {
                let newest = self.deaths.values().map(|death| death.at).max();
                other.deaths.values().all(|death| Some(death.at) > newest)
            }
        }
    }
}

impl CrashLedger {
    /// Drops deaths older than the window.
    pub fn forget(&mut self, now: Timestamp) {
        for charge in self.charges.values_mut() {
            charge.deaths.retain(|_, death| now.since(death.at) < WINDOW);
        }
        self.charges.retain(|_, charge| charge.deaths.len() >= SUSPECT_AFTER);
    }

    /// A user no longer wants this observer to run. If it is blamed, deaths until now count against no observer.
    ///
    /// The obvious way only forgets it. But it can no longer start alone, so nothing tells any more whether the deaths
    /// that others share with it were its own. When a user deletes the culprit and creates it again, the first death
    /// of the new one would quarantine an innocent observer.
    pub fn leave(&mut self, id: ObserverId, now: Timestamp) {
        if self.charges.contains_key(&id) {
            self.explain(now);
        }
    }

    /// Adds an observer with its deaths to those known from an earlier generation.
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

    /// Notes in which run each of these observers became a suspect, once all observers of this check are added.
    pub fn list<'a>(&mut self, rows: impl Iterator<Item = &'a Row>, quarantine_after: usize) {
        let suspects = self.suspects(quarantine_after);
        if suspects.is_empty() {
            self.charges.values_mut().for_each(|charge| charge.listed_in = None);
            return;
        }
        for row in rows {
            if let Some(charge) = self.charges.get_mut(&row.id) {
                charge.listed_in.get_or_insert(row.epoch());
            }
        }
    }

    /// The verdicts about these observers, once all observers of this check are added.
    ///
    /// At most one observer is quarantined at a time, the one with the most deaths: its quarantine explains all
    /// deaths until now, also those that another observer would be quarantined for.
    #[must_use]
    pub fn sentences(
        &self,
        ids: impl Iterator<Item = ObserverId>,
        now: Timestamp,
    ) -> BTreeMap<ObserverId, CrashVerdict> {
        let mut verdicts: BTreeMap<_, _> = ids.map(|id| (id, self.sentence(id, now))).collect();
        let deaths = |id: &ObserverId| self.charges.get(id).map_or(0, |charge| charge.deaths.len());
        let guilty = verdicts.iter().filter(|(_, verdict)| **verdict == CrashVerdict::Quarantine);
        let first = guilty.map(|(id, _)| *id).max_by_key(deaths);
        for (id, verdict) in &mut verdicts {
            if *verdict == CrashVerdict::Quarantine && Some(*id) != first {
                *verdict = CrashVerdict::Wait;
            }
        }
        verdicts
    }

    fn sentence(&self, id: ObserverId, now: Timestamp) -> CrashVerdict {
        let Some(charge) = self.charges.get(&id) else { return CrashVerdict::None };
        let Some(enough_at) = charge.enough_at else { return CrashVerdict::Suspect };
        let others = || self.charges.iter().filter(|(other, _)| **other != id).map(|(_, it)| it);
        if others().filter(|it| it.enough_at.is_some()).count() >= AT_ONCE_MAX {
            return CrashVerdict::Weather;
        }
        let as_likely = others().any(|it| charge.may_be_of(it));
        if as_likely || now.since(enough_at) < GATHER { CrashVerdict::Wait } else { CrashVerdict::Quarantine }
    }

    /// Deaths until now are explained: they count against no other observer.
    pub fn explain(&mut self, now: Timestamp) {
        self.charges.clear();
        self.explained_at = Some(now);
    }

    /// All blamed observers: a verdict about one depends on all of them.
    pub fn charged(&self) -> impl Iterator<Item = ObserverId> {
        self.charges.keys().copied()
    }

    #[must_use]
    pub fn has_charged(&self, id: ObserverId) -> bool {
        self.charges.contains_key(&id)
    }

    /// The observers that start one at a time, once the next death may decide which one is quarantined.
    ///
    /// Two deaths do not suffice: two services killed within minutes would make suspects of all observers that moved
    /// between them, and the last of ten would wait for nine minutes. If more than [`AT_ONCE_MAX`] are blamed,
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
