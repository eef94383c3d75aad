//! Injects faults into real processes, one after another from a seeded schedule, while users create and
//! delete observers. Every run writes beacons, which the test checks at the end.
//!
//! EVERWATCH_CHAOS_SECS: how long faults are injected (default 150). EVERWATCH_CHAOS_SEED: the seed of the
//! schedule (default 1). EVERWATCH_CHAOS_STORE: `sqlite` for one manager on SQLite, otherwise two managers on
//! a private PostgreSQL server. EVERWATCH_CHAOS_BROKER: URLs of nodes to use, comma-separated, instead of a
//! private one. EVERWATCH_CHAOS_NODE: a shell command that controls these nodes; it gets the arguments `kill
//! K` or `start K`, K the number of a node, or `eval K ERLANG`.

#![expect(clippy::unwrap_used, reason = "a failing test says so by panicking")]

mod broker;
mod faults;
mod judgement;
mod log;
mod users;
mod world;

use faults::Fault;
use judgement::Window;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;
use rand::{Rng as _, SeedableRng as _};
use std::time::{Duration, Instant};
use world::World;

/// From this duration on, a campaign includes faults that last a minute.
const LONG_CAMPAIGN: Duration = Duration::from_secs(600);

fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).map_or(default, |text| text.parse().unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[expect(clippy::print_stdout, reason = "the seed and the figures are the point")]
async fn nothing_is_lost_doubled_or_resurrected_under_any_fault() {
    let seed = number("EVERWATCH_CHAOS_SEED", 1);
    let limit = Duration::from_secs(number("EVERWATCH_CHAOS_SECS", 150));
    println!("EVERWATCH_CHAOS_SEED={seed} EVERWATCH_CHAOS_SECS={}", limit.as_secs());
    let mut dice = StdRng::seed_from_u64(seed);
    let mut world = World::start().await;
    let begun = Instant::now();
    let mut windows: Vec<Window> = Vec::new();
    // Injects each fault once in random order, then faults at random.
    let can_make = |fault: &Fault| world.can_make(*fault) && (!fault.is_long() || limit >= LONG_CAMPAIGN);
    let all: Vec<Fault> = Fault::ALL.into_iter().filter(can_make).collect();
    let mut first = all.clone();
    while begun.elapsed() < limit || !first.is_empty() {
        let fault = if first.is_empty() {
            *all.choose(&mut dice).unwrap()
        } else {
            first.swap_remove(dice.random_range(0..first.len()))
        };
        let from = world::now();
        let (touched, undo) = world.users_act(&mut dice).await;
        println!("{:>6.1} s: {fault:?}; users: {touched:?} {undo:?}", begun.elapsed().as_secs_f64());
        if fault.leaves_no_manager() {
            world.until_managers_are_done().await;
        }
        fault.strike(&mut world, &mut dice).await;
        world.until_all_run(fault).await;
        world.take_back(undo).await;
        windows.push(Window { fault, from, until: world::now(), touched });
    }
    world.check_end().await;
    judgement::judge(&world, &windows);
}
