//! A move of one observer to a service that the user names.
//!
//! The broker chooses who gets a message, so a manager cannot hand it to a service. Instead, all other services of the pool
//! step back for a moment, and the named one is the first that the queue serves. If it has no room by then, another one takes
//! the observer: it never waits for the named one.

use crate::id::{Kind, Name, Pool, ServiceId};
use crate::record::service::{ServiceRow, ServiceState};
use crate::wire::message::VERSION;
use thiserror::Error;

/// The observer that moves.
#[derive(Debug, Clone, Copy)]
pub struct Mover<'a> {
    pub pool: &'a Pool,
    pub kind: &'a Kind,
    pub weight: u16,
    /// The service that holds it, if one does.
    pub holder: Option<ServiceId>,
}

/// Why an observer cannot move to a service.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Obstacle {
    #[error("no service with the name `{0}` is alive; see `everwatch service list`")]
    NoService(Name),
    #[error("service {0} belongs to pool {1}; run `everwatch observer move NAME --pool {1}` first")]
    OtherPool(Name, Pool),
    #[error(
        "pool {0} is a single pool, so one service runs all its observers; to move them all, drain that service"
    )]
    SinglePool(Pool),
    #[error("service {0} does not offer kind {1}; `everwatch kind describe {1}` lists the services that do")]
    NotOffered(Name, Kind),
    #[error("service {0} takes observers up to weight {1} (service.weight_max), and this one has weight {2}")]
    TooHeavy(Name, u16, u16),
    #[error(
        "service {0} has an older version, which cannot read the messages of this manager; upgrade it first"
    )]
    TooOld(Name),
    #[error("service {name} is {}, so it takes no observers; {}", state.as_str(), cure(name, *state))]
    NotTaking { name: Name, state: ServiceState },
    #[error(
        "service {name} has no room: it uses {held} of its {capacity} slots{}, and takes another observer while \
         {weight_max} or more are free; choose another service, or raise its capacity", on_the_way(*coming)
    )]
    Full { name: Name, held: u32, coming: u32, capacity: u32, weight_max: u16 },
}

impl Obstacle {
    /// Whether it may pass without a change of the request.
    #[must_use]
    pub fn may_pass(&self) -> bool {
        matches!(self, Self::NotTaking { .. } | Self::Full { .. })
    }
}

fn on_the_way(coming: u32) -> String {
    if coming == 0 { String::new() } else { format!(", observers that move to it will use {coming} more") }
}

fn cure(name: &Name, state: ServiceState) -> String {
    match state {
        ServiceState::Cordoned | ServiceState::Draining => {
            format!("run `everwatch service uncordon {name}`, or choose another service")
        }
        _ => "choose another service, or retry once it is active".to_owned(),
    }
}

/// The living service of this name.
///
/// # Errors
/// If there is none.
pub fn receiver<'a>(to: &Name, living: &'a [ServiceRow]) -> Result<&'a ServiceRow, Obstacle> {
    let named = living.iter().filter(|it| it.registration.name == *to && !it.state().is_over());
    // For a moment after a restart, the former service of the name is suspect.
    let receiver = named.max_by_key(|it| (it.suspect_since.is_none(), it.registered_at));
    receiver.ok_or_else(|| Obstacle::NoService(to.clone()))
}

/// The services that step back so that this service gets the observer; `None` if it holds the observer already. The observers that move
/// to it already will use `coming` slots.
///
/// # Errors
/// If that service cannot take the observer now.
pub fn step_back(
    mover: Mover<'_>,
    (receiver, coming): (&ServiceRow, u32),
    living: &[ServiceRow],
) -> Result<Option<Vec<ServiceId>>, Obstacle> {
    if Some(receiver.id) == mover.holder {
        return Ok(None);
    }
    check(mover, receiver, coming)?;
    let others = living.iter().filter(|it| it.registration.pool == *mover.pool && !it.state().is_over());
    let steps_back = |id: &ServiceId| *id != receiver.id && Some(*id) != mover.holder;
    Ok(Some(others.map(|it| it.id).filter(steps_back).collect()))
}

/// Why another service took an observer that was to move to `receiver`.
#[must_use]
pub fn went_elsewhere(mover: Mover<'_>, to: &Name, taker: &Name, living: &[ServiceRow]) -> String {
    let now = receiver(to, living).and_then(|it| check(mover, it, 0));
    match now {
        Ok(()) => format!("to service {taker}, which took it before service {to} did"),
        Err(obstacle) => format!("to service {taker}: {obstacle}"),
    }
}

/// Why a pool has no service to which an observer can move.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Nowhere {
    #[error(
        "pool {0} has no other service; add one, choose another pool, or restart the observer to start it again where it runs"
    )]
    Alone(Pool),
    #[error(
        "pool {0} is a single pool, so one service runs all its observers; to move them all, drain that service"
    )]
    SinglePool(Pool),
    #[error(
        "no other service of pool {0} has room, so the observer would come back; add a service, raise the capacity of one, or \
         restart the observer to start it again where it runs"
    )]
    Full(Pool),
    #[error(
        "none of the other services of pool {0} can take the observer now, so it would return to its service; check their states \
         with `everwatch service list` and their kinds with `everwatch kind list`"
    )]
    NotTaken(Pool),
}

/// Checks that another service of the pool can take the observer, so that it does not return to its holder.
///
/// # Errors
/// Why none can.
pub fn check_others(mover: Mover<'_>, living: &[ServiceRow]) -> Result<(), Nowhere> {
    let is_other = |it: &&ServiceRow| {
        it.registration.pool == *mover.pool && !it.state().is_over() && Some(it.id) != mover.holder
    };
    let mut obstacles = Vec::new();
    for other in living.iter().filter(is_other) {
        match check(mover, other, 0) {
            Ok(()) => return Ok(()),
            Err(obstacle) => obstacles.push(obstacle),
        }
    }
    let pool = mover.pool.clone();
    Err(match obstacles.first() {
        None => Nowhere::Alone(pool),
        Some(Obstacle::SinglePool(_)) => Nowhere::SinglePool(pool),
        Some(_) if obstacles.iter().any(|it| matches!(it, Obstacle::Full { .. })) => Nowhere::Full(pool),
        Some(_) => Nowhere::NotTaken(pool),
    })
}

fn check(mover: Mover<'_>, receiver: &ServiceRow, coming: u32) -> Result<(), Obstacle> {
    let Mover { pool, kind, weight, .. } = mover;
    let (registration, name) = (&receiver.registration, receiver.registration.name.clone());
    if registration.pool != *pool {
        return Err(Obstacle::OtherPool(name, registration.pool.clone()));
    }
    if registration.pool_single {
        return Err(Obstacle::SinglePool(pool.clone()));
    }
    if !registration.kinds.iter().any(|info| info.name == *kind) {
        return Err(Obstacle::NotOffered(name, kind.clone()));
    }
    if weight > registration.weight_max {
        return Err(Obstacle::TooHeavy(name, registration.weight_max, weight));
    }
    if registration.message_version < VERSION {
        return Err(Obstacle::TooOld(name));
    }
    if receiver.state() != ServiceState::Active {
        return Err(Obstacle::NotTaking { name, state: receiver.state() });
    }
    // With room for one, it takes an observer of any weight up to its greatest.
    let (held, capacity, weight_max) = (receiver.held(), receiver.capacity(), registration.weight_max);
    if receiver.room_beside(held.saturating_add(coming)) == 0 {
        return Err(Obstacle::Full { name, held, coming, capacity, weight_max });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Timestamp;
    use crate::record::test_services::{holding, service};
    use uuid::Uuid;

    fn named(number: u128, pool: &str) -> ServiceRow {
        let mut row = holding(service(pool, 10, &["ticker"]), 4);
        row.id = ServiceId(Uuid::from_u128(number));
        row.registration.name = Name::new(&format!("s{number}")).unwrap();
        row
    }
    fn ids(numbers: &[u128]) -> Vec<ServiceId> {
        numbers.iter().map(|number| ServiceId(Uuid::from_u128(*number))).collect()
    }
    /// The observer is of the kind `kind` and on s1.
    fn moved(
        kind: &str,
        weight: u16,
        to: &str,
        living: &[ServiceRow],
    ) -> Result<Option<Vec<ServiceId>>, String> {
        let (pool, kind) = (Pool::new("a").unwrap(), Kind::new(kind).unwrap());
        let mover = Mover { pool: &pool, kind: &kind, weight, holder: Some(ids(&[1])[0]) };
        let moved =
            receiver(&Name::new(to).unwrap(), living).and_then(|it| step_back(mover, (it, 0), living));
        moved.map_err(|obstacle| obstacle.to_string())
    }

    #[test]
    fn observers_on_their_way_use_the_room_of_the_service() {
        let (pool, kind) = (Pool::new("a").unwrap(), Kind::new("ticker").unwrap());
        let mover = Mover { pool: &pool, kind: &kind, weight: 1, holder: Some(ids(&[1])[0]) };
        let all = [named(1, "a"), named(2, "a")];
        assert_eq!(step_back(mover, (&all[1], 5), &all), Ok(Some(Vec::new())));
        let told = step_back(mover, (&all[1], 6), &all).unwrap_err().to_string();
        let expected =
            "it uses 4 of its 10 slots, observers that move to it will use 6 more, and takes another";
        assert!(told.contains(expected), "{told}");
    }

    #[test]
    fn all_services_of_the_pool_but_both_step_back() {
        let mut restarted = named(7, "a");
        restarted.registration.name = Name::new("s2").unwrap();
        restarted.suspect(Timestamp(1));
        let mut cordoned = named(4, "a");
        cordoned.suspect(Timestamp(1));
        let all = [named(1, "a"), named(2, "a"), named(3, "a"), cordoned, named(5, "b"), restarted];
        assert_eq!(moved("ticker", 1, "s2", &all), Ok(Some(ids(&[3, 4, 7]))));
        assert_eq!(moved("ticker", 1, "s1", &all), Ok(None), "it is there");
        assert_eq!(moved("ticker", 1, "s3", &all[..3]), Ok(Some(ids(&[2]))));
    }

    #[test]
    fn a_move_needs_another_service_that_takes_the_observer() {
        let (pool, kind) = (Pool::new("a").unwrap(), Kind::new("ticker").unwrap());
        let check = |others: &[ServiceRow]| {
            let mover = Mover { pool: &pool, kind: &kind, weight: 1, holder: Some(ids(&[1])[0]) };
            let living = [&[named(1, "a"), named(6, "b")], others].concat();
            check_others(mover, &living)
        };
        let (full, mut single, mut silent) = (holding(named(2, "a"), 10), named(3, "a"), named(4, "a"));
        single.registration.pool_single = true;
        silent.suspect(Timestamp(1));
        assert_eq!(check(&[]), Err(Nowhere::Alone(pool.clone())));
        assert_eq!(check(&[full.clone(), silent.clone()]), Err(Nowhere::Full(pool.clone())));
        assert_eq!(check(&[silent.clone()]), Err(Nowhere::NotTaken(pool.clone())));
        assert_eq!(check(&[single]), Err(Nowhere::SinglePool(pool.clone())));
        assert_eq!(check(&[full, silent, named(5, "a")]), Ok(()));
    }

    #[test]
    fn a_service_that_cannot_take_it_is_refused_with_the_reason() {
        let (mut single, mut silent, mut old) = (named(2, "a"), named(3, "a"), named(5, "a"));
        single.registration.pool_single = true;
        silent.suspect(Timestamp(1));
        old.registration.message_version = VERSION - 1;
        let full = holding(named(4, "a"), 10);
        let all = [named(1, "a"), single, silent, full, old, named(6, "b"), named(7, "a")];
        for (kind, weight, to, told) in [
            (
                "ticker",
                1,
                "nobody",
                "no service with the name `nobody` is alive; see `everwatch service list`",
            ),
            (
                "ticker",
                1,
                "s6",
                "service s6 belongs to pool b; run `everwatch observer move NAME --pool b` first",
            ),
            (
                "ticker",
                1,
                "s2",
                "pool a is a single pool, so one service runs all its observers; to move them all, drain that service",
            ),
            (
                "http",
                1,
                "s7",
                "service s7 does not offer kind http; `everwatch kind describe http` lists the services that do",
            ),
            (
                "ticker",
                2,
                "s7",
                "service s7 takes observers up to weight 1 (service.weight_max), and this one has weight 2",
            ),
            (
                "ticker",
                1,
                "s5",
                "service s5 has an older version, which cannot read the messages of this manager; upgrade it first",
            ),
            (
                "ticker",
                1,
                "s3",
                "service s3 is suspect, so it takes no observers; choose another service, or retry once it is active",
            ),
            (
                "ticker",
                1,
                "s4",
                "service s4 has no room: it uses 10 of its 10 slots, and takes another observer while 1 or more are free; choose another service, or raise its capacity",
            ),
        ] {
            assert_eq!(moved(kind, weight, to, &all), Err(told.to_owned()));
        }
    }

    #[test]
    fn an_observer_that_went_elsewhere_has_the_reason() {
        let (pool, kind) = (Pool::new("a").unwrap(), Kind::new("ticker").unwrap());
        let mover = Mover { pool: &pool, kind: &kind, weight: 1, holder: Some(ids(&[1])[0]) };
        let told = |receiver: ServiceRow| {
            let names = [Name::new("s2").unwrap(), Name::new("s1").unwrap()];
            went_elsewhere(mover, &names[0], &names[1], &[named(1, "a"), receiver])
        };
        let mut silent = named(2, "a");
        silent.suspect(Timestamp(1));
        assert_eq!(
            told(silent),
            "to service s1: service s2 is suspect, so it takes no observers; choose another service, or retry once it is active"
        );
        assert_eq!(told(named(2, "a")), "to service s1, which took it before service s2 did");
        assert!(told(named(3, "a")).starts_with("to service s1: no service with the name `s2` is alive"));
    }
}
