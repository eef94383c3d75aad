//! The text of `describe` for a pool.

use super::{aligned, listed};
use crate::item::Item;
use crate::output::cells::{in_words, slots};
use crate::output::{SERVICES, TerminalStyle};
use everwatch_api::{Pool, Service};
use everwatch_core::clock::Timestamp;
use everwatch_core::record::status::Status;
use everwatch_core::wording::counted;

/// A pool, with its living services.
pub(crate) fn pool(it: &Pool, services: &[Item<Service>], on: (TerminalStyle, Timestamp)) -> String {
    let tolerance = it.failure_tolerance.map(|count| counted(count, "service"));
    // The history of those that are gone takes no slots.
    let statuses = it.observers.iter().filter(|(status, _)| *status != Status::Deleted.as_str());
    let mut facts = vec![
        ("Name", it.name.clone()),
        ("Admission", if it.paused { "paused" } else { "open" }.to_owned()),
        ("Single", if it.single { "yes: one service runs all its observers" } else { "" }.to_owned()),
        ("Slots", slots(it.held.into(), (it.free.into(), it.capacity.into()))),
        ("Needed", format!("{} for all its observers", counted(it.needed, "slot"))),
        ("Failure tolerance", tolerance.unwrap_or_default()),
        ("Health", in_words(it.health.iter().map(|(health, count)| (*count, health)))),
        ("Statuses", in_words(statuses.map(|(status, count)| (*count, status)))),
    ];
    facts.retain(|(_, told)| !told.is_empty());
    [aligned(&facts), listed("Services", &SERVICES, services, on)].join("\n\n")
}
