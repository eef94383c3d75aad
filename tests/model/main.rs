//! Checks every interleaving of the ownership protocol (deliver, start, report, cut, fence, redeliver,
//! delete, republish) for a few services, managers, observers and faults. `EVERWATCH_MODEL_FAULTS=3` allows
//! more faults than an ordinary run.

mod properties;
mod protocol;
mod steps;

use protocol::Protocol;
use stateright::{Checker as _, Model as _};
use steps::Step;

fn check(protocol: Protocol) -> usize {
    let checker = protocol.checker().threads(2).spawn_bfs().join();
    checker.assert_properties();
    checker.unique_state_count()
}

#[test]
fn one_observer_survives_several_faults() {
    let faults = std::env::var("EVERWATCH_MODEL_FAULTS").map_or(2, |text| text.parse().unwrap());
    let states = check(Protocol { observers: 1, faults, fenced: true });
    println!("{states} states");
}

#[test]
fn two_observers_survive_a_fault() {
    let states = check(Protocol { observers: 2, faults: 1, fenced: true });
    println!("{states} states");
}

#[test]
fn without_a_fence_a_cut_link_lets_an_observer_run_twice() {
    let checker = Protocol { observers: 1, faults: 1, fenced: false }.checker().spawn_bfs().join();
    let path = checker.discovery(properties::OVERLAP).unwrap();
    let last = path.last_state().clone();
    assert_eq!(last.running().count(), 2, "{last:?}");
    let steps = path.into_actions();
    assert!(steps.iter().any(|step| matches!(step, Step::Cut(_))), "{steps:?}");
    assert!(!steps.iter().any(|step| matches!(step, Step::Fence(_) | Step::Reset(_))), "{steps:?}");
}
