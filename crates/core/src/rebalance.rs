//! Who gives how many observers away so that the services of a pool are evenly used. A plan only ever
//! lowers the skew, so that two plans after each other never move the same observers to and fro.

use crate::clock::Timestamp;
use crate::id::{Kind, Name, Pool, ServiceId};
use crate::service::{ServiceRow, ServiceState};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// A service with what it holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Load {
    pub id: ServiceId,
    pub name: Name,
    pub held: u32,
    pub capacity: u32,
}

/// What a service is to come to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Share {
    pub load: Load,
    pub target: u32,
}

/// How the services of one pool are to stand.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolPlan {
    pub pool: Pool,
    /// In the order of names.
    pub shares: Vec<Share>,
}

impl PoolPlan {
    /// Observers that move.
    #[must_use]
    pub fn moves(&self) -> u32 {
        self.shares.iter().map(|share| share.load.held.saturating_sub(share.target)).sum()
    }
    /// The difference between the fullest and the emptiest now.
    #[must_use]
    pub fn skew_before(&self) -> u32 {
        skew(self.shares.iter().map(|share| share.load.held))
    }
    /// The same afterwards.
    #[must_use]
    pub fn skew_after(&self) -> u32 {
        skew(self.shares.iter().map(|share| share.target))
    }
    /// Whether it is worth doing without being asked: at least 2 observers and 5 % of what is held.
    fn is_worth_it(&self) -> bool {
        let held: u32 = self.shares.iter().map(|share| share.load.held).sum();
        self.moves() >= 2 && u64::from(self.moves()) * 20 >= u64::from(held)
    }
}

fn skew(counts: impl Iterator<Item = u32> + Clone) -> u32 {
    counts.clone().max().unwrap_or(0) - counts.min().unwrap_or(0)
}

/// What would make every pool even, moving at most `budget` observers of each. Only services that take
/// and are heard of count; pools that are even already are left out.
///
/// The obvious plan evens all services of a pool. But an observer whose kind only some of them offer would be given away
/// and refused by the others, and would stand still until the first one takes it back. So those are evened that can
/// run the same.
#[must_use]
pub fn plan_pools(services: &[ServiceRow], budget: u32) -> Vec<PoolPlan> {
    let mut groups: BTreeMap<(Pool, u16, BTreeSet<Kind>), Vec<Load>> = BTreeMap::new();
    for service in services.iter().filter(|service| service.state() == ServiceState::Active) {
        let (birth, capacity) = (&service.birth, service.capacity());
        let load = Load { id: service.id, name: birth.name.clone(), held: service.held(), capacity };
        let kinds = birth.kinds.iter().map(|info| info.name.clone()).collect();
        groups.entry((birth.pool.clone(), birth.message_version, kinds)).or_default().push(load);
    }
    let mut plans: Vec<PoolPlan> = Vec::new();
    for ((pool, ..), loads) in groups {
        let known = plans.last().filter(|plan| plan.pool == pool).map_or(0, PoolPlan::moves);
        let plan = PoolPlan { shares: even(loads, budget - known), pool };
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

/// The plans that are worth doing without being asked, where no living service of the pool is younger than
/// `min_age`: one that has just come has not taken its share by itself yet.
#[must_use]
pub fn plan_unasked(
    services: &[ServiceRow],
    budget: u32,
    min_age: Duration,
    now: Timestamp,
) -> Vec<PoolPlan> {
    let young = |pool: &Pool| {
        let of_pool = |it: &&ServiceRow| it.birth.pool == *pool && !it.state().is_over();
        services.iter().filter(of_pool).any(|it| now.since(it.born_at) < min_age)
    };
    let mut plans = plan_pools(services, budget);
    plans.retain(|plan| plan.is_worth_it() && !young(&plan.pool));
    plans
}

/// One at a time from the fullest to the emptiest that has room, as long as that makes them more alike.
/// Full are those that use the most of their capacity.
fn even(mut loads: Vec<Load>, budget: u32) -> Vec<Share> {
    loads.sort_by(|a, b| (&a.name, a.id).cmp(&(&b.name, b.id)));
    let mut shares: Vec<Share> = loads.into_iter().map(|load| Share { target: load.held, load }).collect();
    for _ in 0..budget {
        let Some((from, to)) = next_move(&shares) else { break };
        shares[from].target -= 1;
        shares[to].target += 1;
    }
    shares
}

/// `a/b` against `c/d` without rounding; an empty capacity is full.
fn compare((a, b): (u32, u32), (c, d): (u32, u32)) -> std::cmp::Ordering {
    (u64::from(a) * u64::from(d)).cmp(&(u64::from(c) * u64::from(b)))
}

fn next_move(shares: &[Share]) -> Option<(usize, usize)> {
    let used = |share: &Share| (share.target, share.load.capacity.max(1));
    let after = |share: &Share| (share.target + 1, share.load.capacity.max(1));
    let by_use = |a: &(usize, &Share), b: &(usize, &Share)| compare(used(a.1), used(b.1)).then(b.0.cmp(&a.0));
    let (from, giver) = shares.iter().enumerate().filter(|(_, it)| it.target > 0).max_by(by_use)?;
    let has_room = |it: &&(usize, &Share)| it.1.target < it.1.load.capacity && it.0 != from;
    // Whoever would be the least used with one more.
    let (to, taker) = shares
        .iter()
        .enumerate()
        .filter(|it| has_room(&it))
        .min_by(|a, b| compare(after(a.1), after(b.1)).then(a.0.cmp(&b.0)))?;
    // Naively, equal shares change places for ever: the taker must stay below where the giver was.
    (compare(after(taker), used(giver)).is_lt()).then_some((from, to))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::Birth;
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
        even(loads(all), budget).iter().map(|share| share.target).collect()
    }

    #[test]
    fn a_third_service_gets_its_share() {
        assert_eq!(targets(&[(15, 20), (15, 20), (0, 20)], 100), [10, 10, 10]);
        assert_eq!(targets(&[(16, 20), (15, 20), (0, 20)], 100), [10, 11, 10]);
    }
    #[test]
    fn what_is_even_stays() {
        assert_eq!(targets(&[(6, 10), (5, 10), (5, 10)], 100), [6, 5, 5]);
        assert_eq!(targets(&[(5, 10)], 100), [5]);
        assert_eq!(targets(&[], 100), [0; 0]);
    }
    #[test]
    fn larger_services_take_more() {
        assert_eq!(targets(&[(30, 100), (0, 200)], 100), [10, 20]);
    }
    #[test]
    fn nobody_gets_more_than_fits_and_the_budget_is_kept() {
        assert_eq!(targets(&[(30, 40), (0, 3)], 100), [28, 2]);
        assert_eq!(targets(&[(40, 40), (40, 40), (0, 3)], 100), [39, 39, 2]);
        assert_eq!(targets(&[(30, 40), (0, 40)], 4), [26, 4]);
    }
    #[test]
    fn one_that_shrank_under_what_it_holds_gives() {
        assert_eq!(targets(&[(8, 4), (0, 10)], 100), [2, 6]);
    }

    fn service(number: u32, held: u32, born: i64) -> ServiceRow {
        let id = ServiceId(Uuid::from_u128(number.into()));
        let birth = Birth {
            name: Name::new(&format!("s{number}")).unwrap(),
            pool: Pool::default(),
            capacity: 100,
            kinds: Vec::new(),
            version: String::new(),
            message_version: crate::message::VERSION,
            host: String::new(),
            labels: BTreeMap::new(),
            predecessor: None,
        };
        let born = Timestamp(born * 1000);
        let mut row = ServiceRow::born(id, birth, born, born);
        let beat = serde_json::json!({"service": id, "seq": 1, "state": "active", "capacity": 100,
            "held": held, "loop_lag_ms": 0, "rss_bytes": 0});
        assert!(row.on_beat(&serde_json::from_value(beat).unwrap(), born));
        row
    }
    #[test]
    fn what_only_some_services_can_run_stays_among_them() {
        let of = |number: u32, held: u32, kinds: &[&str]| {
            let mut row = service(number, held, 0);
            row.birth.kinds =
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
        older.birth.message_version = 0;
        assert_eq!(targets(&[mixed[0].clone(), older], 100), [], "it cannot read the messages");
    }
    fn unasked(services: &[ServiceRow]) -> u32 {
        let plans = plan_unasked(services, 50, Duration::from_secs(60), Timestamp(100_000));
        plans.iter().map(PoolPlan::moves).sum()
    }

    #[test]
    fn what_is_small_or_young_is_left_alone_unless_asked() {
        assert_eq!(unasked(&[service(1, 30, 0), service(2, 10, 0)]), 10);
        assert_eq!(unasked(&[service(1, 30, 0), service(2, 10, 41)]), 0, "59 s old");
        assert_eq!(unasked(&[service(1, 30, 0), service(2, 10, 40)]), 10, "60 s old");
        assert_eq!(unasked(&[service(1, 3, 0), service(2, 1, 0)]), 0, "one observer");
        assert_eq!(unasked(&[service(1, 64, 0), service(2, 56, 0)]), 0, "4 of 120");
        assert_eq!(unasked(&[service(1, 46, 0), service(2, 34, 0)]), 6, "6 of 80");
    }

    /// What each uses of its capacity, the most used first: a move that helps makes this list smaller.
    fn use_of(all: &[(u32, u32)]) -> Vec<f64> {
        let mut list: Vec<_> = all.iter().map(|(held, slots)| f64::from(*held) / f64::from(*slots)).collect();
        list.sort_by(|a, b| b.total_cmp(a));
        list
    }

    proptest! {
        #[test]
        fn every_plan_is_fair_final_and_loses_nothing(
            all in prop::collection::vec((0_u32..60, 1_u32..60), 0..8), budget in 0_u32..500,
        ) {
            let all: Vec<_> = all.into_iter().map(|(held, capacity)| (held.min(capacity), capacity)).collect();
            let plan = PoolPlan { pool: Pool::default(), shares: even(loads(&all), budget) };
            let after: Vec<_> = plan.shares.iter().map(|it| (it.target, it.load.capacity)).collect();
            prop_assert_eq!(after.iter().map(|it| it.0).sum::<u32>(), all.iter().map(|it| it.0).sum::<u32>());
            prop_assert!(after.iter().all(|(held, capacity)| held <= capacity));
            prop_assert!(plan.moves() <= budget);
            let (before, then) = (use_of(&all), use_of(&after));
            prop_assert!(plan.moves() == 0 || then < before, "{before:?} -> {then:?}");
            if plan.moves() < budget {
                let again = even(loads(&after), 500);
                prop_assert!(again.iter().all(|it| it.target == it.load.held), "no second plan");
            }
        }

        #[test]
        fn equal_services_end_within_one_of_even(held in prop::collection::vec(0_u32..50, 1..8)) {
            let all: Vec<_> = held.iter().map(|held| (*held, 50)).collect();
            let targets = targets(&all, 1000);
            prop_assert!(skew(targets.iter().copied()) <= 1, "{targets:?}");
        }
    }
}
