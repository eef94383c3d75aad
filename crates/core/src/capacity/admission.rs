//! Admission from the backlog: which of the observers that wait for a slot get one. The databases supply the counts of a
//! pool in the transaction that saves the admitted rows; this module decides.
//!
//! The obvious way publishes every observer at once and lets it wait in the work queue. But a queue delivers in the order
//! of arrival: it knows neither a priority nor a time, and what was published cannot be taken back without a search.

use crate::capacity::limits::{self, KeyCounts};
use crate::capacity::supply::{Load, Supply};
use crate::clock::Timestamp;
use crate::id::{Kind, LimitKey, Pool};
use crate::observer::definition::WEIGHT_MAX;
use crate::record::row::Row;
use crate::record::row_policy::RowPolicy;
use crate::record::service::ServiceRow;
use crate::record::taking::taking;
use crate::wire::message::VERSION;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::time::Duration;

/// While the first candidate that does not fit waits, free slots are kept for it in every other of these times.
const KEEPS: Duration = Duration::from_secs(60);
/// The lightest observer.
const LIGHTEST: Load = Load { number: 1, weight: 1 };

/// The observers of one kind in a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct KindCount {
    /// Those that use a slot, apart from those on services that are cordoned: their slots are not for others.
    pub admitted: Load,
    /// Those that wait in the backlog.
    pub waiting: Load,
}

/// The slots of a pool at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PoolCount {
    /// The slots of the pool's active services.
    pub supply: Supply,
    /// Observers that may be published beyond the free slots.
    pub ahead: u64,
    pub kinds: BTreeMap<Kind, KindCount>,
}

/// The slots of the active services of a pool that offer a kind, by their `weight_max`: a service never takes an observer
/// that is heavier.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct KindSupply(BTreeMap<u16, Supply>);

impl KindSupply {
    fn add(&mut self, service: &ServiceRow) {
        let weight_max = service.registration.weight_max;
        let known = self.0.entry(weight_max).or_default();
        *known = known.and(Supply::of(service.capacity(), weight_max));
    }
    /// The greatest weight that one of the services takes.
    fn weight_max(&self) -> u16 {
        self.0.last_key_value().map_or(1, |(weight_max, _)| *weight_max)
    }
    /// The slots of the services that take this weight.
    #[must_use]
    pub fn for_weight(&self, weight: u16) -> Supply {
        self.0.range(weight..).fold(Supply::default(), |sum, (_, supply)| sum.and(*supply))
    }
}

impl From<Supply> for KindSupply {
    fn from(supply: Supply) -> Self {
        Self([(1, supply)].into())
    }
}

/// What the active services of a pool offer for each kind.
pub type Offers = BTreeMap<Kind, KindSupply>;

/// The offers of each pool that has an active service.
pub type PoolOffers = BTreeMap<Pool, Offers>;

/// Candidates to read from the database: the first ones of a kind, by rank, whose weight is in a range.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selection {
    pub kind: Kind,
    pub weights: RangeInclusive<u16>,
    pub most: u64,
}

impl Selection {
    /// The first candidates of this kind, whatever they weigh.
    #[must_use]
    pub fn of_any_weight(kind: Kind, most: u64) -> Self {
        Self { kind, weights: 1..=WEIGHT_MAX, most }
    }
    #[must_use]
    pub fn contains(&self, row: &Row) -> bool {
        row.definition.kind == self.kind && self.weights.contains(&row.definition.weight)
    }
}

/// The decision about a candidate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Choice {
    Admit,
    /// This limit has no free place for it.
    WaitBehind(LimitKey),
}

impl PoolCount {
    /// The admitted observers.
    #[must_use]
    pub fn admitted(&self) -> Load {
        self.kinds.values().fold(Load::default(), |sum, it| sum.and(it.admitted))
    }

    /// Slots for observers of weight 1; below zero while the services have no certain room for all admitted ones.
    #[must_use]
    pub fn free(&self) -> i64 {
        self.supply.room_beside(self.admitted())
    }

    /// Free slots, and what may be published beyond them.
    #[must_use]
    pub fn open(&self) -> i64 {
        self.free().saturating_add_unsigned(self.ahead)
    }

    /// The observers that wait in the backlog.
    #[must_use]
    pub fn waiting(&self) -> u64 {
        self.kinds.values().map(|it| it.waiting.number).sum()
    }

    /// Which candidates to read: of each kind the first ones that fit now, as many as would fit if all weighed 1; and the
    /// first one that does not fit, because free slots may be kept for it. Further ones that are as heavy change nothing,
    /// and no service takes those that are heavier than its `weight_max`.
    #[must_use]
    pub fn selections(&self, offers: &Offers, most: u64) -> Vec<Selection> {
        let open = u64::try_from(self.open()).unwrap_or(0).min(most);
        let mut selections = Vec::new();
        for (kind, count) in &self.kinds {
            let most = open.min(self.left(kind, offers)).min(count.waiting.number);
            if most == 0 {
                continue;
            }
            let mut add = |weights, most| selections.push(Selection { kind: kind.clone(), weights, most });
            if count.waiting.weight == count.waiting.number {
                add(1..=WEIGHT_MAX, most);
                continue;
            }
            let heaviest = self.heaviest(kind, offers);
            add(1..=heaviest, most);
            let taken = offers.get(kind).map_or(WEIGHT_MAX, KindSupply::weight_max);
            if heaviest < taken {
                add(heaviest + 1..=taken, 1);
            }
        }
        selections
    }

    /// The weight of the heaviest observer of this kind that fits.
    fn heaviest(&self, kind: &Kind, offers: &Offers) -> u16 {
        let taken = Taken::of(self, offers);
        let fits = |weight: &u16| matches!(taken.fit(kind, *weight), Fit::Fits);
        (1..=WEIGHT_MAX).rev().find(fits).unwrap_or(1)
    }

    fn of_kind(&self, kind: &Kind) -> KindCount {
        self.kinds.get(kind).copied().unwrap_or_default()
    }

    /// How many more observers of this kind and weight 1 the services that offer it can have, and what may be published
    /// beyond.
    fn left(&self, kind: &Kind, offers: &Offers) -> u64 {
        let supply = self.offered(kind, 1, offers, self.ahead).unwrap_or_default();
        u64::try_from(supply.room_beside(self.of_kind(kind).admitted)).unwrap_or(0)
    }

    /// Slots for observers of this kind and weight 1 on the services that offer it; below zero while they have no certain
    /// room for all admitted ones.
    pub(crate) fn free_for(&self, kind: &Kind, offers: &Offers) -> i64 {
        let supply = self.offered(kind, 1, offers, 0).unwrap_or_default();
        supply.room_beside(self.of_kind(kind).admitted)
    }

    /// The slots for observers of this kind and weight, and `ahead` more. `None` if services offer the kind, but all of them
    /// refuse the weight.
    pub(crate) fn offered(&self, kind: &Kind, weight: u16, offers: &Offers, ahead: u64) -> Option<Supply> {
        let supply = offers.get(kind).map(|kinds| kinds.for_weight(weight)).unwrap_or_default();
        let is_refused = supply == Supply::default() && weight > 1 && offers.contains_key(kind);
        (!is_refused).then(|| supply.and_ahead(ahead))
    }

    /// What the waiting observers whose kind has room can take: free slots go to them first.
    pub(crate) fn claims(&self, offers: &Offers) -> Load {
        let claims = self.kinds.iter().map(|(kind, count)| {
            let supply = self.offered(kind, 1, offers, self.ahead).unwrap_or_default();
            let number = supply.certain_messages.saturating_sub(count.admitted.number);
            let weight = supply.certain_slots.saturating_sub(count.admitted.weight);
            Load { number: count.waiting.number.min(number), weight: count.waiting.weight.min(weight) }
        });
        claims.fold(Load::default(), Load::and)
    }

    /// The kinds that observers wait for and no living service offers, unless the pool has no service at all.
    #[must_use]
    pub fn unoffered(&self, offered: &BTreeSet<Kind>) -> Vec<Kind> {
        if offered.is_empty() {
            return Vec::new();
        }
        let waiting = self.kinds.iter().filter(|(_, count)| count.waiting.number > 0);
        waiting.map(|(kind, _)| kind).filter(|kind| !offered.contains(*kind)).cloned().collect()
    }

    /// Decides about the candidates of [`Self::selections`]. An observer whose limits have no free place leaves its slot to
    /// the next one.
    ///
    /// The first candidate that does not fit into the free slots has them kept for it in every other minute of its wait:
    /// those behind it wait as well. In the minutes between, lighter ones behind it pass. If they always passed, a heavy
    /// one could wait forever beside many short light ones; if they never did, light ones could wait forever behind it.
    /// Only the first such candidate counts: several would keep the slots in turn, and no minute would remain.
    #[must_use]
    pub fn choose(
        &self,
        mut candidates: Vec<Row>,
        mut keys: KeyCounts,
        (offers, now): (&Offers, Timestamp),
        policy: &RowPolicy,
    ) -> Vec<(Row, Choice)> {
        candidates.retain(Row::is_waiting);
        candidates.sort_by_cached_key(|row| (row.rank(policy), row.id));
        let mut taken = Taken::of(self, offers);
        // The kinds whose first candidate did not fit, and whether it keeps the slots.
        let mut kept: BTreeMap<Kind, bool> = BTreeMap::new();
        let mut passed_over = false;
        let mut chosen = Vec::new();
        for row in candidates {
            if !taken.has_room() {
                break;
            }
            if let Some(key) = limits::obstacle(&row, &keys, policy) {
                chosen.push((row, Choice::WaitBehind(key)));
                continue;
            }
            match taken.fit(&row.definition.kind, row.definition.weight) {
                Fit::Fits if kept.get(&row.definition.kind) == Some(&true) => {}
                Fit::Fits => {
                    limits::take(&row, &mut keys);
                    taken.take(&row);
                    chosen.push((row, Choice::Admit));
                }
                Fit::TooHeavy => {}
                Fit::NotBesideItsKind => {
                    let kind = row.definition.kind.clone();
                    kept.entry(kind).or_insert_with(|| keeps_slots(&row, now));
                }
                Fit::NotBesideOthers if !passed_over && keeps_slots(&row, now) => break,
                Fit::NotBesideOthers => passed_over = true,
            }
        }
        chosen
    }
}

/// Whether free slots are kept for this candidate, which does not fit into them.
fn keeps_slots(row: &Row, now: Timestamp) -> bool {
    let waited = row.waiting.map_or(Duration::ZERO, |waiting| now.since(waiting.since));
    (waited.as_secs() / KEEPS.as_secs()).is_multiple_of(2)
}

/// Whether a candidate fits.
enum Fit {
    Fits,
    /// All slots that services of its pool have left are too few for it.
    NotBesideOthers,
    /// The services that offer its kind and take its weight have too few slots left.
    NotBesideItsKind,
    /// No service that offers its kind takes its weight.
    TooHeavy,
}

/// The slots in use while candidates are chosen.
struct Taken<'a> {
    count: &'a PoolCount,
    offers: &'a Offers,
    admitted: Load,
    of_kinds: BTreeMap<Kind, Load>,
}

impl<'a> Taken<'a> {
    fn of(count: &'a PoolCount, offers: &'a Offers) -> Self {
        Self { count, offers, admitted: count.admitted(), of_kinds: BTreeMap::new() }
    }
    fn supply(&self) -> Supply {
        self.count.supply.and_ahead(self.count.ahead)
    }
    fn has_room(&self) -> bool {
        self.supply().holds(self.admitted.and(LIGHTEST))
    }
    fn fit(&self, kind: &Kind, weight: u16) -> Fit {
        let own = Load::one(weight);
        let Some(offered) = self.count.offered(kind, weight, self.offers, self.count.ahead) else {
            return Fit::TooHeavy;
        };
        let of_kind = self.of_kinds.get(kind).copied().unwrap_or_else(|| self.count.of_kind(kind).admitted);
        if !offered.holds(of_kind.and(own)) {
            Fit::NotBesideItsKind
        } else if !self.supply().holds(self.admitted.and(own)) {
            Fit::NotBesideOthers
        } else {
            Fit::Fits
        }
    }
    fn take(&mut self, row: &Row) {
        let (kind, own) = (row.definition.kind.clone(), Load::of(row));
        self.admitted = self.admitted.and(own);
        let of_kind = self.of_kinds.entry(kind).or_insert_with_key(|kind| self.count.of_kind(kind).admitted);
        *of_kind = of_kind.and(own);
    }
}

/// What the active services of each pool offer.
#[must_use]
pub fn offers(services: &[ServiceRow]) -> PoolOffers {
    let mut pools = PoolOffers::new();
    for service in taking(services) {
        // In an upgrade, older services may not be able to read what a manager publishes.
        let reads = service.registration.message_version >= VERSION;
        if reads {
            let offers = pools.entry(service.registration.pool.clone()).or_default();
            for info in &service.registration.kinds {
                offers.entry(info.name.clone()).or_default().add(service);
            }
        }
    }
    pools
}

#[cfg(test)]
#[path = "admission_tests.rs"]
mod tests;
