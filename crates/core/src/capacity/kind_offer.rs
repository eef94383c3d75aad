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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::test_services::service;

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
