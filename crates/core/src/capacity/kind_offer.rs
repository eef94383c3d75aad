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
    use crate::clock::Timestamp;
    use crate::id::{Name, ServiceId};
    use crate::wire::message::VERSION;
    use crate::wire::report::{KindInfo, Registration};
    use std::collections::BTreeMap;
    use std::sync::Arc;
    use uuid::Uuid;

    fn service(pool: &str, kinds: &[&str]) -> ServiceRow {
        let info = |kind: &&str| KindInfo { name: Kind::new(kind).unwrap(), schema: Arc::default() };
        let registration = Registration {
            name: Name::new("s").unwrap(),
            pool: Pool::new(pool).unwrap(),
            capacity: 1,
            kinds: kinds.iter().map(info).collect(),
            version: String::new(),
            message_version: VERSION,
            host: String::new(),
            labels: BTreeMap::new(),
            predecessor: None,
        };
        ServiceRow::registered(ServiceId(Uuid::from_u128(1)), registration, Timestamp(0), Timestamp(0))
    }

    #[test]
    fn a_kind_is_offered_if_one_service_of_the_pool_runs_it() {
        let living = [service("a", &["ticker"]), service("a", &["http"]), service("b", &["exec"])];
        let offer = |pool, kind| kind_offer(&living, &Pool::new(pool).unwrap(), &Kind::new(kind).unwrap());
        assert_eq!(offer("a", "http"), KindOffer::Offered);
        let there = ["http", "ticker"].map(|kind| Kind::new(kind).unwrap());
        assert_eq!(offer("a", "exec"), KindOffer::NotOffered(there.into()));
        assert_eq!(offer("c", "exec"), KindOffer::NoService, "it may wait for a service");
        let none = [service("d", &[])];
        let offer = kind_offer(&none, &Pool::new("d").unwrap(), &Kind::new("http").unwrap());
        assert_eq!(offer, KindOffer::NotOffered(BTreeSet::new()));
    }
}
