//! Plays one history to its end: first faults, then calm, in which everything must converge and stay at rest.

use crate::history::{History, Theme};
use crate::judge::{Breach, Exercised, MISSED_WITHIN, Quiet};
use crate::machine;
use crate::record::{Fact, note};
use crate::world::{Power, World};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// How long no manager runs, in ms, in a history that demands it.
const MANAGERS_LEAVE: u64 = 45_000;
/// How long convergence may take, in ms. `RESTS_FOR`: how long it must then last.
const CONVERGES_WITHIN: u64 = 300_000;
/// The same for histories with observers that end their services: managers find these one by one and start
/// each of them alone.
const CONVERGES_WITHIN_DEADLY: u64 = 900_000;
/// The same after the loss of a work queue. The process that re-creates the queue reports this, and managers
/// republish its observers at once.
const CONVERGES_WITHIN_REFILL: u64 = 30_000;
/// The same if the broker loses messages, which managers notice only after some time.
const CONVERGES_WITHIN_FORGETFUL: u64 = MISSED_WITHIN + CONVERGES_WITHIN;
const RESTS_FOR: u64 = 3000;
const LOOK_EVERY: u64 = 500;

/// The result of a history.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Outcome {
    pub(crate) seed: u64,
    pub(crate) breach: Option<Breach>,
    /// A digest of all frames and all starts of code.
    pub(crate) digest: String,
    pub(crate) simulated_ms: u64,
    /// From the last fault until everything was at rest.
    pub(crate) converged_after_ms: u64,
    pub(crate) frames: u64,
    pub(crate) steps: u64,
    pub(crate) exercised: BTreeMap<String, u64>,
    pub(crate) faults: BTreeMap<String, u64>,
    pub(crate) answers: BTreeMap<String, u64>,
}

/// Plays a history on this thread, which from then on simulates.
pub(crate) fn play(history: &History, tells: bool) -> Outcome {
    machine::enter(history.setup.seed);
    let mut world = World::new(history, tells);
    world.schedule(history);
    world.run_until(history.calm_at);
    if history.setup.managers_leave {
        for host in world.managers() {
            world.kill(host, Power::On);
        }
        world.tell(|_| "no manager is left".to_owned());
    }
    world.calm(!history.setup.managers_leave);
    if history.setup.managers_leave {
        world.run_until(history.calm_at + MANAGERS_LEAVE);
        if let Err(text) = world.judge.runs_without_managers(world.now) {
            world.judge.fail("without managers", text);
        }
        for host in world.managers() {
            world.boot(host);
        }
    }
    converge(&mut world, history);
    let converged_after_ms = world.now - history.calm_at;
    if world.judge.breach.is_none() && world.has_orders() {
        world.clear_orders();
        world.run_until(world.now + 2 * RESTS_FOR);
        converge(&mut world, history);
    }
    be_quiet(&mut world, history.setup.quiet_minutes);
    outcome(&world, history, converged_after_ms)
}

fn outcome(world: &World, history: &History, converged_after_ms: u64) -> Outcome {
    let text =
        |exercised: &Exercised| exercised.iter().map(|(rule, count)| ((*rule).to_owned(), *count)).collect();
    Outcome {
        seed: history.setup.seed,
        breach: world.judge.breach.clone(),
        digest: format!("{:016x}", world.digest()),
        simulated_ms: world.now,
        converged_after_ms,
        frames: world.frames,
        steps: world.steps,
        exercised: text(&world.judge.exercised),
        faults: world.judge.faults_met.clone(),
        answers: world
            .users
            .answers
            .iter()
            .map(|((method, status), count)| (format!("{method} {status}"), *count))
            .collect(),
    }
}

fn converge(world: &mut World, history: &History) {
    let within = match history {
        // Observers with windows may have to wait for the next one.
        _ if history.setup.theme == Theme::Refill && !history.has_windows() => CONVERGES_WITHIN_REFILL,
        _ if history.forgets() => CONVERGES_WITHIN_FORGETFUL,
        _ if history.has_deadly_code() => CONVERGES_WITHIN_DEADLY,
        _ => CONVERGES_WITHIN,
    };
    // Some actions of a history come after its faults.
    let last = history.actions.last().map_or(0, |(at, _)| *at);
    let deadline = world.now.max(last) + within;
    let mut since = None;
    while world.judge.breach.is_none() {
        world.run_until(world.now + LOOK_EVERY);
        if world.now < last {
            continue;
        }
        match world.judge.has_converged(&world.users) {
            Ok(()) => {
                let since = *since.get_or_insert(world.now);
                if world.now - since >= RESTS_FOR {
                    return;
                }
            }
            Err(text) if world.now >= deadline => {
                world.judge.fail("convergence", format!("{} s after the last fault: {text}", within / 1000));
            }
            Err(_) => since = None,
        }
    }
}

fn be_quiet(world: &mut World, minutes: u64) {
    // Lets the repeats and time limits of the last requests expire.
    world.run_until(world.now + 15_000);
    if world.judge.breach.is_some() || minutes == 0 || world.judge.knowledge.is_skewed() {
        return;
    }
    let mut quiet = Quiet::begin(world.now, &world.judge.knowledge);
    world.judge.is_quiet = true;
    for _ in 0..minutes {
        world.run_until(world.now + 60_000);
        quiet.pass(world.now);
    }
    world.judge.is_quiet = false;
    if world.judge.breach.is_none() {
        let now = world.now;
        let judge = &mut world.judge;
        if let Err(broken) = quiet.end(now, &judge.knowledge, &mut judge.exercised) {
            judge.breach = Some(broken);
        }
    }
}

impl World {
    /// Notes what was recovered with a restart of the broker.
    pub(crate) fn recover_abandoned(&mut self) {
        self.broker.recover_abandoned();
        note(Fact::Recovered);
    }
}
