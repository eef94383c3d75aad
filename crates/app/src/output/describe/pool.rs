//! The text of `describe` for a pool.

use super::{aligned, listed};
use crate::item::Item;
use crate::output::cells::{health, in_words, used_beside};
use crate::output::{SERVICES, TerminalStyle};
use everwatch_api::{Pool, Service};
use everwatch_core::clock::Timestamp;
use everwatch_core::wording::counted;

fn slots(it: &Pool) -> String {
    let Pool { held, capacity, free, .. } = it;
    if *held <= *capacity && capacity - held == *free {
        return format!("{held} of {capacity} used, {free} free");
    }
    used_beside((*held).into(), ((*free).into(), (*capacity).into()))
}

/// A pool, with its living services.
pub(crate) fn pool(it: &Pool, services: &[Item<Service>], on: (TerminalStyle, Timestamp)) -> String {
    let tolerance =
        it.failure_tolerance.map(|count| format!("{count} of {}", counted(it.services, "service")));
    let mut facts = vec![
        ("Name", it.name.clone()),
        ("Admission", if it.paused { "paused" } else { "open" }.to_owned()),
        ("Single", if it.single { "yes: one service runs all its observers" } else { "" }.to_owned()),
        ("Slots", slots(it)),
        ("Needed", format!("{} for all its observers", counted(it.needed, "slot"))),
        ("Failure tolerance", tolerance.unwrap_or_default()),
        ("Health", in_words(health(it).into_iter().map(|(health, count)| (count, health)))),
        ("Statuses", in_words(it.observers.iter().map(|(status, count)| (*count, status)))),
    ];
    facts.retain(|(_, told)| !told.is_empty());
    [aligned(&facts), listed("Services", &SERVICES, services, on)].join("\n\n")
}
