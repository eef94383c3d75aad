//! How many observers each service hands over so that the services of a pool are evenly used. A plan only lowers the
//! skew, so that two successive plans never move the same observers back and forth.

use crate::clock::Timestamp;
use crate::id::{Kind, Name, Pool, ServiceId};
use crate::record::service::{ServiceRow, ServiceState};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// A service and its load.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Load {
    pub id: ServiceId,
    pub name: Name,
    pub held: u32,
    pub capacity: u32,
}

/// The target load of a service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Share {
    pub load: Load,
    pub target: u32,
}

/// The targets of the services of one pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolPlan {
    pub pool: Pool,
    /// Sorted by name.
    pub shares: Vec<Share>,
}

impl PoolPlan {
    /// The number of slots whose observers move.
    #[must_use]
    pub fn moves(&self) -> u32 {
        self.shares.iter().map(|share| share.load.held.saturating_sub(share.target)).sum()
    }
    /// The current difference between the fullest and the emptiest service.
    #[must_use]
    pub fn skew_before(&self) -> u32 {
        skew(self.shares.iter().map(|share| share.load.held))
    }
    /// The difference after the plan.
    #[must_use]
    pub fn skew_after(&self) -> u32 {
        skew(self.shares.iter().map(|share| share.target))
    }
    /// Whether the plan is worth an automatic rebalance: at least 2 observers and 5 % of those held.
    fn is_worth_it(&self) -> bool {
        let held: u32 = self.shares.iter().map(|share| share.load.held).sum();
        self.moves() >= 2 && u64::from(self.moves()) * 20 >= u64::from(held)
    }
}

fn skew(counts: impl Iterator<Item = u32> + Clone) -> u32 {
    counts.clone().max().unwrap_or(0) - counts.min().unwrap_or(0)
}

/// Plans that level every pool, moving at most `budget` observers of each. Only active services that are not suspect
/// count; pools that are level already are omitted, and single pools, which have nothing to level.
///
/// The obvious plan levels all services of a pool. But a service would hand over an observer whose kind only some of
/// them offer, the others would refuse it, and it would not run until the first one takes it back. Instead, a plan
/// levels services that can run the same kinds.
#[must_use]
pub fn plan_pools(services: &[ServiceRow], budget: u32) -> Vec<PoolPlan> {
    // The version of messages and the weight that they take, and their kinds.
    type Alike = ((u16, u16), BTreeSet<Kind>);
    let mut groups: BTreeMap<(Pool, Alike), Vec<Load>> = BTreeMap::new();
    let level = |it: &&ServiceRow| it.state() == ServiceState::Active && !it.registration.pool_single;
    for service in services.iter().filter(level) {
        let (registration, capacity) = (&service.registration, service.capacity());
        let load = Load { id: service.id, name: registration.name.clone(), held: service.held(), capacity };
        let kinds = registration.kinds.iter().map(|info| info.name.clone()).collect();
        let takes = (registration.message_version, registration.weight_max);
        groups.entry((registration.pool.clone(), (takes, kinds))).or_default().push(load);
    }
    let mut plans: Vec<PoolPlan> = Vec::new();
    for ((pool, ((_, weight_max), _)), loads) in groups {
        let known = plans.last().filter(|plan| plan.pool == pool).map_or(0, PoolPlan::moves);
        let plan = PoolPlan { shares: even(loads, budget - known, weight_max), pool };
        match plans.last_mut().filter(|it| it.pool == plan.pool) {
            _ if plan.moves() == 0 => {}
            Some(it) => it.shares.extend(plan.shares),
            None => plans.push(plan),
        }
    }
    for plan in &mut plans {
        plan.shares.sort_by(|a, b| (&a.load.name, a.load.id).cmp(&(&b.load.name, b.load.id)));
    }
    plans
}

/// The plans for an automatic rebalance, in pools without a living service younger than `min_age`: a new service has
/// not taken its share by itself yet.
#[must_use]
pub fn plan_unasked(
    services: &[ServiceRow],
    budget: u32,
    min_age: Duration,
    now: Timestamp,
) -> Vec<PoolPlan> {
    let young = |pool: &Pool| {
        let of_pool = |it: &&ServiceRow| it.registration.pool == *pool && !it.state().is_over();
        services.iter().filter(of_pool).any(|it| now.since(it.registered_at) < min_age)
    };
    let mut plans = plan_pools(services, budget);
    plans.retain(|plan| plan.is_worth_it() && !young(&plan.pool));
    plans
}

/// Moves one observer of the greatest weight at a time from the fullest service to the emptiest one with room, as long as that lowers the
/// skew: a service cannot hand over a part of an observer. The fullest service is the one that uses the largest part of its capacity.
fn even(mut loads: Vec<Load>, budget: u32, weight_max: u16) -> Vec<Share> {
    let step = u32::from(weight_max.max(1));
    loads.sort_by(|a, b| (&a.name, a.id).cmp(&(&b.name, b.id)));
    let mut shares: Vec<Share> = loads.into_iter().map(|load| Share { target: load.held, load }).collect();
    for _ in 0..budget / step {
        let Some((from, to)) = next_move(&shares, step) else { break };
        shares[from].target -= step;
        shares[to].target += step;
    }
    shares
}

/// Compares `a/b` with `c/d` without rounding; a capacity of zero counts as full.
fn compare((a, b): (u32, u32), (c, d): (u32, u32)) -> std::cmp::Ordering {
    (u64::from(a) * u64::from(d)).cmp(&(u64::from(c) * u64::from(b)))
}

fn next_move(shares: &[Share], step: u32) -> Option<(usize, usize)> {
    let used = |share: &Share| (share.target, share.load.capacity.max(1));
    let after = |share: &Share| (share.target + step, share.load.capacity.max(1));
    let by_use = |a: &(usize, &Share), b: &(usize, &Share)| compare(used(a.1), used(b.1)).then(b.0.cmp(&a.0));
    let (from, giver) = shares.iter().enumerate().filter(|(_, it)| it.target >= step).max_by(by_use)?;
    let has_room = |it: &&(usize, &Share)| it.1.target + step <= it.1.load.capacity && it.0 != from;
    // The service that would be the least used with one more.
    let (to, taker) = shares
        .iter()
        .enumerate()
        .filter(|it| has_room(&it))
        .min_by(|a, b| compare(after(a.1), after(b.1)).then(a.0.cmp(&b.0)))?;
    // Otherwise equal shares would swap forever: the receiver must stay below the former use of the giver.
    (compare(after(taker), used(giver)).is_lt()).then_some((from, to))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::report::Registration;
    use proptest::prelude::*;
    use uuid::Uuid;

    fn loads(all: &[(u32, u32)]) -> Vec<Load> {
        let load = |(number, (held, capacity)): (u128, &(u32, u32))| Load {
            id: ServiceId(Uuid::from_u128(number)),
            name: Name::new(&format!("s{number}")).unwrap(),
            held: *held,
            capacity: *capacity,
        };
        (1..).zip(all).map(load).collect()
    }
    fn targets(all: &[(u32, u32)], budget: u32) -> Vec<u32> {
        even(loads(all), budget, 1).iter().map(|share| share.target).collect()
    }

    #[test]
    fn a_third_service_gets_its_share() {
        assert_eq!(targets(&[(15, 20), (15, 20), (0, 20)], 100), [10, 10, 10]);
        assert_eq!(targets(&[(16, 20), (15, 20), (0, 20)], 100), [10, 11, 10]);
    }
    #[test]
    fn a_level_pool_needs_no_plan() {
        assert_eq!(targets(&[(6, 10), (5, 10), (5, 10)], 100), [6, 5, 5]);
        assert_eq!(targets(&[(5, 10)], 100), [5]);
        assert_eq!(targets(&[], 100), [0; 0]);
    }
    #[test]
    fn larger_services_take_more() {
        assert_eq!(targets(&[(30, 100), (0, 200)], 100), [10, 20]);
    }
    #[test]
    fn no_service_gets_more_than_fits_or_the_budget_allows() {
        assert_eq!(targets(&[(30, 40), (0, 3)], 100), [28, 2]);
        assert_eq!(targets(&[(40, 40), (40, 40), (0, 3)], 100), [39, 39, 2]);
        assert_eq!(targets(&[(30, 40), (0, 40)], 4), [26, 4]);
    }
    #[test]
    fn slots_move_in_steps_of_the_greatest_weight() {
        let targets = |all: &[(u32, u32)], budget| {
            even(loads(all), budget, 4).iter().map(|share| share.target).collect::<Vec<_>>()
        };
        assert_eq!(targets(&[(12, 12), (0, 12)], 100), [8, 4]);
        assert_eq!(targets(&[(8, 12), (4, 12)], 100), [8, 4], "a move would only swap them");
        assert_eq!(targets(&[(12, 12), (0, 12)], 3), [12, 0]);
        assert_eq!(targets(&[(12, 12), (0, 3)], 100), [12, 0], "it has no room for one");
    }
    #[test]
    fn a_service_above_its_reduced_capacity_hands_over() {
        assert_eq!(targets(&[(8, 4), (0, 10)], 100), [2, 6]);
    }

    fn service(number: u32, held: u32, registered: i64) -> ServiceRow {
        let id = ServiceId(Uuid::from_u128(number.into()));
        let registration = Registration {
            name: Name::new(&format!("s{number}")).unwrap(),
            pool: Pool::default(),
            capacity: 100,
            kinds: Vec::new(),
            version: String::new(),
            weight_max: 1,
            message_version: crate::wire::message::VERSION,
            host: String::new(),
            labels: BTreeMap::new(),
            pool_single: false,
            predecessor: None,
        };
        let registered = Timestamp(registered * 1000);
        let mut row = ServiceRow::registered(id, registration, registered, registered);
        let heartbeat = serde_json::json!({"service": id, "seq": 1, "state": "active", "capacity": 100,
            "held": held, "loop_lag_ms": 0, "rss_bytes": 0});
        assert!(row.on_heartbeat(&serde_json::from_value(heartbeat).unwrap(), registered));
        row
    }
    #[test]
    fn observers_of_a_kind_stay_among_services_that_offer_it() {
        let of = |number: u32, held: u32, kinds: &[&str]| {
            let mut row = service(number, held, 0);
            row.registration.kinds =
                serde_json::from_value(kinds.iter().map(|kind| serde_json::json!({"name": kind})).collect())
                    .unwrap();
            row
        };
        let targets = |services: &[ServiceRow], budget: u32| -> Vec<(String, u32)> {
            let plans = plan_pools(services, budget);
            assert!(plans.len() <= 1, "one plan for a pool");
            let shares = plans.iter().flat_map(|plan| &plan.shares);
            shares.map(|share| (share.load.name.to_string(), share.target)).collect()
        };
        let named = |all: &[(&str, u32)]| -> Vec<(String, u32)> {
            all.iter().map(|(name, target)| ((*name).to_owned(), *target)).collect()
        };
        assert_eq!(targets(&[of(1, 30, &["a", "b"]), of(2, 0, &["a"])], 100), []);
        let mixed = [of(1, 30, &["a", "b"]), of(2, 0, &["a"]), of(3, 10, &["b", "a"]), of(4, 8, &["a"])];
        let all = [("s1", 20), ("s2", 4), ("s3", 20), ("s4", 4)];
        assert_eq!(targets(&mixed, 100), named(&all));
        let moves: u32 = plan_pools(&mixed, 12).iter().map(PoolPlan::moves).sum();
        assert_eq!(moves, 12, "the budget is that of the pool");
        let mut older = mixed[2].clone();
        older.registration.message_version = 0;
        assert_eq!(targets(&[mixed[0].clone(), older], 100), [], "it cannot read the messages");
    }
    fn unasked(services: &[ServiceRow]) -> u32 {
        let plans = plan_unasked(services, 50, Duration::from_secs(60), Timestamp(100_000));
        plans.iter().map(PoolPlan::moves).sum()
    }

    #[test]
    fn small_skews_and_young_services_need_an_explicit_request() {
        assert_eq!(unasked(&[service(1, 30, 0), service(2, 10, 0)]), 10);
        assert_eq!(unasked(&[service(1, 30, 0), service(2, 10, 41)]), 0, "59 s old");
        assert_eq!(unasked(&[service(1, 30, 0), service(2, 10, 40)]), 10, "60 s old");
        assert_eq!(unasked(&[service(1, 3, 0), service(2, 1, 0)]), 0, "one observer");
        assert_eq!(unasked(&[service(1, 64, 0), service(2, 56, 0)]), 0, "4 of 120");
        assert_eq!(unasked(&[service(1, 46, 0), service(2, 34, 0)]), 6, "6 of 80");
    }

    /// The used part of each capacity, largest first: a useful move makes this list smaller.
    fn use_of(all: &[(u32, u32)]) -> Vec<f64> {
        let mut list: Vec<_> = all.iter().map(|(held, slots)| f64::from(*held) / f64::from(*slots)).collect();
        list.sort_by(|a, b| b.total_cmp(a));
        list
    }

    proptest! {
        #[test]
        fn every_plan_is_fair_and_final_and_keeps_all(
            all in prop::collection::vec((0_u32..60, 1_u32..60), 0..8), budget in 0_u32..500,
        ) {
            let all: Vec<_> = all.into_iter().map(|(held, capacity)| (held.min(capacity), capacity)).collect();
            let plan = PoolPlan { pool: Pool::default(), shares: even(loads(&all), budget, 1) };
            let after: Vec<_> = plan.shares.iter().map(|it| (it.target, it.load.capacity)).collect();
            prop_assert_eq!(after.iter().map(|it| it.0).sum::<u32>(), all.iter().map(|it| it.0).sum::<u32>());
            prop_assert!(after.iter().all(|(held, capacity)| held <= capacity));
            prop_assert!(plan.moves() <= budget);
            let (before, then) = (use_of(&all), use_of(&after));
            prop_assert!(plan.moves() == 0 || then < before, "{before:?} -> {then:?}");
            if plan.moves() < budget {
                let again = even(loads(&after), 500, 1);
                prop_assert!(again.iter().all(|it| it.target == it.load.held), "no second plan");
            }
        }

        #[test]
        fn equal_services_differ_by_at_most_one(held in prop::collection::vec(0_u32..50, 1..8)) {
            let all: Vec<_> = held.iter().map(|held| (*held, 50)).collect();
            let targets = targets(&all, 1000);
            prop_assert!(skew(targets.iter().copied()) <= 1, "{targets:?}");
        }
    }
}
