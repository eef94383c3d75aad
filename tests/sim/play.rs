//! Plays one history to its end: faults, then calm, then everything must come to rest.

use crate::check::Breach;
use crate::history::{CALM, History};
use crate::mutations::Bug;
use crate::rules::Rules;
use crate::world::{Tell, World, seconds};

/// How long no manager lives where a history says so.
const ALONE: u64 = 45_000;
/// How long it may take until everything is as it should be, and how long that must last.
const REST_WITHIN: u64 = 300_000;
/// Who ends its services is suspected first, and suspects start one at a time.
const POISON_WITHIN: u64 = 900_000;
const REST_LASTS: u64 = 3000;
const LOOK_EVERY: u64 = 500;

/// # Errors
/// The first rule that did not hold.
pub(crate) fn play(history: &History, bug: Option<Bug>) -> Result<(), Breach> {
    run(history, bug, Tell::Nothing).0
}

/// The same, with a transcript.
pub(crate) fn tell(history: &History, bug: Option<Bug>) -> (Result<(), Breach>, Vec<String>) {
    let (outcome, world) = run(history, bug, Tell::All);
    (outcome, world.story.unwrap_or_default())
}

fn run(history: &History, bug: Option<Bug>, tell: Tell) -> (Result<(), Breach>, World) {
    let mut world = World::new(history, Rules::of(bug), tell);
    world.schedule(history);
    world.run_until(CALM);
    if history.setup.alone {
        world.stop_managers();
    }
    world.calm();
    if history.setup.alone {
        world.run_until(CALM + ALONE);
        if let Err(text) = world.runs_without_managers() {
            world.check.fail("I8", text);
        }
        world.start_managers();
    }
    rest(&mut world, history);
    if world.check.breach.is_none() && world.has_orders() {
        world.clear_orders();
        world.run_until(world.now + 2 * REST_LASTS);
        rest(&mut world, history);
    }
    let outcome = world.check.breach.clone().map_or(Ok(()), Err);
    (outcome, world)
}

fn rest(world: &mut World, history: &History) {
    let within = if history.has_poison() { POISON_WITHIN } else { REST_WITHIN };
    let deadline = world.now.max(history.held_until()) + within;
    let mut since = None;
    while world.check.breach.is_none() {
        world.run_until(world.now + LOOK_EVERY);
        match world.settled_down() {
            Ok(()) => {
                let since = *since.get_or_insert(world.now);
                if world.now - since >= REST_LASTS {
                    return;
                }
            }
            Err(text) if world.now >= deadline => {
                let after = seconds(within);
                world.check.fail("I3", format!("{after} s after the last fault: {text}"));
            }
            Err(_) => since = None,
        }
    }
}
