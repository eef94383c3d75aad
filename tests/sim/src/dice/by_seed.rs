//! Properties of observers that follow from the number of the seed. They need no random value, so the histories of the other
//! seeds stay as they are.

use crate::history::{Theme, WindowSetup};
use everwatch_core::id::LimitKey;
use everwatch_core::observer::schedule::IfRunning;
use std::collections::BTreeSet;

/// The time of every third observer, from the one with the number `first` on.
pub(super) fn time_of(seed: u64, number: u64, first: u64, within: std::ops::Range<i64>) -> Option<i64> {
    let spread = i64::try_from((seed * 7919 + number * 104_729) % 1_000_003).unwrap();
    (number % 3 == first).then(|| within.start + spread % (within.end - within.start))
}

/// The windows of an observer.
pub(super) fn windows_of(seed: u64, number: u64) -> Option<WindowSetup> {
    let setup = if number.is_multiple_of(2) { WindowSetup::Interrupted } else { WindowSetup::Late };
    (seed % 16 == 10).then_some(setup)
}

/// The reaction of an observer with a schedule to a time during a run.
pub(super) fn schedule_of(seed: u64, number: u64) -> Option<IfRunning> {
    let reaction = match number % 3 {
        0 => IfRunning::Queue,
        1 => IfRunning::Restart,
        _ => IfRunning::Skip,
    };
    (seed % 16 == 6).then_some(reaction)
}

/// The limits of an observer.
pub(super) fn limits_of(seed: u64, number: u64) -> BTreeSet<LimitKey> {
    let keys: &[&str] = match (seed % 16, number % 3) {
        (14, 0) => &["a"],
        (14, 1) => &["a", "b"],
        (14, _) => &["b"],
        _ => &[],
    };
    keys.iter().map(|key| LimitKey::new(key).unwrap()).collect()
}

/// Whether observers with limits end on their own, and sessions of services often break between the report of an end and
/// the acknowledgement.
pub(super) fn breaks_at_ends(seed: u64, theme: Theme) -> bool {
    seed % 32 == 30 && matches!(theme, Theme::Faulty | Theme::Interrupted)
}

/// The greatest weight that a service takes.
pub(super) fn weight_max_of(seed: u64, capacity: u32) -> u16 {
    if seed % 16 == 15 { u16::try_from(capacity.clamp(1, 4)).unwrap() } else { 1 }
}

/// The weight of an observer.
pub(super) fn weight_of(number: u64, heaviest: u16) -> u16 {
    u16::try_from(number % u64::from(heaviest)).unwrap() + 1
}

/// The number of state queues. These numbers are of no seed that a test records.
pub(super) fn state_queues_of(seed: u64) -> u16 {
    match seed % 50 {
        11 | 33 => 2,
        22 => 4,
        44 => 3,
        _ => 1,
    }
}

/// How long an observer waits before it gets the slot of one with a lower priority, in ms. Services then have one slot each.
pub(super) fn preempt_after_of(seed: u64) -> Option<u64> {
    (seed % 32 == 8).then_some(2000)
}
