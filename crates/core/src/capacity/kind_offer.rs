//! Whether the services of a pool can run the kind of a new or changed observer.

use crate::id::{Kind, Pool};
use crate::record::service::ServiceRow;
use std::collections::BTreeSet;

/// What the living services of a pool offer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KindOffer {
    /// A service of the pool can run the kind.
    Offered,
    /// No service of the pool lives, so nothing is known about its kinds: the observer may wait for one.
    NoService,
    /// The services of the pool can run only these kinds.
    NotOffered(BTreeSet<Kind>),
}

/// The kinds that the living services of a pool offer.
#[must_use]
pub fn offered_kinds(living: &[ServiceRow], pool: &Pool) -> BTreeSet<Kind> {
    let of_pool = living.iter().filter(|it| it.registration.pool == *pool && it.end.is_none());
    of_pool.flat_map(|it| &it.registration.kinds).map(|info| info.name.clone()).collect()
}

/// Decides from the living services.
#[must_use]
pub fn kind_offer(living: &[ServiceRow], pool: &Pool, kind: &Kind) -> KindOffer {
    let offered = offered_kinds(living, pool);
    if offered.contains(kind) {
        KindOffer::Offered
    } else if !living.iter().any(|it| it.registration.pool == *pool) {
        KindOffer::NoService
    } else {
        KindOffer::NotOffered(offered)
    }
}

/// The greatest weight that the living services of the pool which offer the kind take, if this weight is above it.
/// `None` also if no living service offers the kind: then nothing is known about its weights.
#[must_use]
pub fn too_heavy(living: &[ServiceRow], pool: &Pool, kind: &Kind, weight: u16) -> Option<u16> {
    let of_pool = living.iter().filter(|it| it.registration.pool == *pool && it.end.is_none());
    let offering = of_pool.filter(|it| it.registration.kinds.iter().any(|info| info.name == *kind));
    offering.map(|it| it.registration.weight_max).max().filter(|most| weight > *most)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::test_services::service;

    #[test]
    fn the_strongest_service_that_offers_the_kind_decides_about_a_weight() {
        let strong = |pool, weight_max, kind| {
            let mut row = service(pool, 12, &[kind]);
            row.registration.weight_max = weight_max;
            row
        };
        let living = [strong("a", 2, "ticker"), strong("a", 4, "ticker"), strong("a", 8, "http")];
        let most = |pool, kind, weight| {
            too_heavy(&living, &Pool::new(pool).unwrap(), &Kind::new(kind).unwrap(), weight)
        };
        assert_eq!((most("a", "ticker", 4), most("a", "ticker", 5)), (None, Some(4)));
        assert_eq!((most("b", "ticker", 9), most("a", "exec", 9)), (None, None));
    }

    #[test]
    fn a_kind_is_offered_if_one_service_of_the_pool_runs_it() {
        let living = [service("a", 1, &["ticker"]), service("a", 1, &["http"]), service("b", 1, &["exec"])];
        let offer = |pool, kind| kind_offer(&living, &Pool::new(pool).unwrap(), &Kind::new(kind).unwrap());
        assert_eq!(offer("a", "http"), KindOffer::Offered);
        let there = ["http", "ticker"].map(|kind| Kind::new(kind).unwrap());
        assert_eq!(offer("a", "exec"), KindOffer::NotOffered(there.into()));
        assert_eq!(offer("c", "exec"), KindOffer::NoService, "it may wait for a service");
        let none = [service("d", 1, &[])];
        let offer = kind_offer(&none, &Pool::new("d").unwrap(), &Kind::new("http").unwrap());
        assert_eq!(offer, KindOffer::NotOffered(BTreeSet::new()));
    }
}
