//! The whole protocol on the real core in a simulated world: broker, database, people, hosts and links
//! that fail, from one seed. `EVERWATCH_SIM_SEEDS=N` plays more histories, `EVERWATCH_SIM_SEED=S` one.
#![expect(clippy::unwrap_used, reason = "a simulated world that does not fit together is a failed test")]

mod broker;
mod check;
mod code;
mod converge;
mod database;
mod dice;
mod faults;
mod fencing;
mod history;
mod hold;
mod intake;
mod loss;
mod manager;
mod mutations;
mod net;
mod onlooker;
mod operators;
mod orphans;
mod outbox;
mod overlap;
mod play;
mod quarantine;
mod reconcile;
mod reporting;
mod rules;
mod service;
mod shrink;
mod standing;
mod sweeping;
mod taking;
mod truth;
mod users;
mod world;

use history::History;
use play::play;

/// Histories of an ordinary run.
const SEEDS: u64 = 2000;

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|text| text.parse().unwrap())
}

#[test]
fn the_protocol_holds_in_every_history() {
    let seeds = match number("EVERWATCH_SIM_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("EVERWATCH_SIM_SEEDS").unwrap_or(SEEDS),
    };
    for seed in seeds {
        let history = History::of(seed);
        if let Err(breach) = play(&history, None) {
            panic!("{}", shrink::account(&history, &breach));
        }
    }
}
