//! The properties that must hold in every state, and those that must hold in the end.

use crate::protocol::{Event, Link, Message, Phase, Protocol, Row, State};
use stateright::Property;

pub(crate) const OVERLAP: &str = "I6: one run at a time, but where only the broker knows of a loss";

type Rule = fn(&Protocol, &State) -> bool;

pub(crate) fn properties() -> Vec<Property<Protocol>> {
    let always: [(&'static str, Rule); 6] = [
        ("I1: no two messages or runs share an epoch", |_, state| epochs_differ(state)),
        ("I2: a row follows from the set of reports", |_, state| state.rows.iter().all(follows)),
        ("I5: nothing goes on under a revocation that was heard", |_, state| revocations_hold(state)),
        ("I7: only a confirmed settlement precedes an ack", |_, state| state.broken.is_none()),
        (OVERLAP, |_, state| overlaps_are_known(state)),
        ("I3: what has come to rest is as it should be", |protocol, state| {
            !protocol.is_at_rest(state) || is_right(state)
        }),
    ];
    let always = always.into_iter().map(|(name, rule)| Property::always(name, rule));
    let in_the_end: Rule = |_, state| is_right(state);
    // These properties show that the others do not hold only because nothing happens.
    let deleted: Rule = |_, state| state.rows[0].deleted && is_right(state);
    let twice: Rule = |_, state| state.running().any(|one| state.running().any(|it| in_two_places(one, it)));
    let others = [
        Property::eventually("I3: all comes to be as it should be", in_the_end),
        Property::sometimes("an observer is deleted and over", deleted),
        Property::sometimes("a run goes on that only the broker knows to be lost", twice),
    ];
    always.chain(others).collect()
}

fn in_two_places(one: (usize, Message), other: (usize, Message)) -> bool {
    one.0 != other.0 && one.1.observer == other.1.observer
}

fn epochs_differ(state: &State) -> bool {
    let given = state.services.iter().flat_map(|service| &service.given);
    let messages: Vec<_> = state.ready.iter().chain(given).collect();
    let same_publish = |(index, one): (usize, &&Message)| {
        let rest = messages[index + 1..].iter();
        rest.filter(|it| it.observer == one.observer && it.epoch.generation() == one.epoch.generation())
            .count()
            > 0
    };
    let runs: Vec<_> = state.running().collect();
    let same_run =
        runs.iter().enumerate().any(|(index, one)| runs[index + 1..].iter().any(|it| it.1 == one.1));
    !messages.iter().enumerate().any(same_publish) && !same_run
}

fn follows(row: &Row) -> bool {
    let stops =
        row.heard.iter().filter(|(event, _)| *event == Event::Stopped).map(|(_, acquisitions)| *acquisitions);
    row.settled == stops.min()
}

fn revocations_hold(state: &State) -> bool {
    state.services.iter().all(|service| {
        let running = service.held.iter().filter(|(_, phase)| *phase == Phase::Running);
        running.clone().all(|(message, _)| message.epoch >= service.revocations[message.observer])
    })
}

fn overlaps_are_known(state: &State) -> bool {
    let runs: Vec<_> = state.running().collect();
    let fine = |(s, older): &(usize, Message)| {
        let mut later = runs.iter().filter(|(_, it)| it.observer == older.observer && it.epoch > older.epoch);
        // A manager may republish while the outcome of a publish is unknown; both runs may then overlap.
        let in_doubt = |newer: &Message| newer.epoch.generation() > older.epoch.generation();
        later.all(|(_, newer)| state.services[*s].link == Link::Reset || in_doubt(newer))
    };
    runs.iter().all(fine)
}

/// Each live observer has exactly one run, which its row knows; each deleted observer is settled and runs
/// nowhere.
fn is_right(state: &State) -> bool {
    let each = |(observer, row): (usize, &Row)| {
        let runs: Vec<_> = state.running().filter(|(_, message)| message.observer == observer).collect();
        if row.deleted {
            return row.settled.is_some() && runs.is_empty();
        }
        let [(_, run)] = runs[..] else { return false };
        run.epoch.generation() == row.generation && row.settled.is_none() && !row.marked
    };
    state.rows.iter().enumerate().all(each)
}
