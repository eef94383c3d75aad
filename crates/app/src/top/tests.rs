//! Tests of the screen as a transcript: inputs, the effects of the model, and the drawn text.

mod answered;
mod drawing;
mod losses;
mod pictures;
mod steering;
mod viewing;

use super::model::{Effect, Input, Model, Trouble};
use super::query::{Query, Sort};
use super::seen::{Named, Observer, Page, Pool, SafeMode, Seen, Service, Stats};
use super::target::{Focus, Target};
use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use everwatch_core::clock::Timestamp;
use std::collections::BTreeMap;

const NOW: Timestamp = Timestamp(1_800_000_000_000);

fn ago(secs: i64) -> Timestamp {
    Timestamp(NOW.0 - secs * 1000)
}

fn service(name: &str, state: &str, held: u32, heartbeat: i64) -> Service {
    Service {
        id: format!("id-of-{name}"),
        name: name.to_owned(),
        pool: "default".to_owned(),
        kinds: vec!["ticker".to_owned()],
        state: state.to_owned(),
        held,
        capacity: 10,
        last_heartbeat_at: ago(heartbeat),
        modified_at: ago(heartbeat),
        cordoned: state == "cordoned",
        capacity_set: None,
        drain: None,
        unconfirmed: None,
        stalled: Vec::new(),
        frozen: false,
    }
}

fn observer(name: &str, status: &str, reason: &str) -> Observer {
    let health = match status {
        "Processing" => Some("running"),
        "Created" => Some("waiting"),
        _ => None,
    };
    Observer {
        id: format!("id-of-{name}"),
        name: name.to_owned(),
        kind: "ticker".to_owned(),
        pool: "default".to_owned(),
        weight: 1,
        status: status.to_owned(),
        health: health.map(str::to_owned),
        restarts: 0,
        reason: reason.to_owned(),
        reason_code: None,
        last_error: None,
        progress: Some("in sync".to_owned()),
        service: (status == "Processing").then(|| Named { name: "amber".to_owned() }),
        generation: 3,
        acquisitions: 1,
        created_at: ago(4000),
        started_at: Some(ago(130)),
    }
}

/// A screen with these observers of 50,000.
fn seen(observers: Vec<Observer>, next: Option<&str>) -> Seen {
    let counts = BTreeMap::from([("Processing", 12_u64), ("Created", 1), ("Failed", 2), ("Paused", 0)]);
    let counts: BTreeMap<String, u64> =
        counts.into_iter().map(|(word, count)| (word.to_owned(), count)).collect();
    Seen {
        stats: Stats {
            observers: counts,
            health: [("running".to_owned(), 11), ("restarting".to_owned(), 1), ("waiting".to_owned(), 1)]
                .into(),
            services: BTreeMap::from([("active".to_owned(), 3), ("suspect".to_owned(), 1)]),
            capacity: 30,
            held: 13,
            broker: true,
        },
        pools: vec![Pool {
            name: "default".to_owned(),
            needed: 13,
            failure_tolerance: Some(1),
            ..Pool::default()
        }],
        services: vec![
            service("amber", "active", 10, 2),
            service("basalt", "active", 3, 4),
            service("chalk", "active", 0, 1),
            service("dolomite", "suspect", 0, 17),
        ],
        observers: Page { items: observers, next_cursor: next.map(str::to_owned), total: 50_000 },
        safe_mode: SafeMode::default(),
        unknown_label: None,
    }
}

fn some() -> Vec<Observer> {
    vec![
        Observer {
            health: Some("restarting".to_owned()),
            restarts: 8,
            ..observer("feed-1", "Processing", "")
        },
        observer("feed-2", "Created", "waiting for a slot in pool default"),
        observer(
            "feed-3",
            "Failed",
            "gave up after 10 starts: connection refused by the far side of the far side",
        ),
    ]
}

/// A model that has just been shown `seen`, for a role that may not read incidents.
fn showing(seen: Seen) -> Model {
    let mut model = Model::new("http://127.0.0.1:7700", NOW);
    let effects = model.on(Input::Rows(20));
    assert_eq!(effects.len(), 1, "{effects:?}");
    loaded(&mut model, seen);
    model.on(Input::Incidents(None));
    model
}

/// The answer to what the model wants to see now.
fn loaded(model: &mut Model, seen: Seen) -> Vec<Effect> {
    let query = model.query.clone();
    model.on(Input::Loaded(query, Ok(Box::new(seen))))
}

fn press(model: &mut Model, code: KeyCode) -> Vec<Effect> {
    model.on(Input::Key(KeyEvent::new(code, KeyModifiers::NONE)))
}

fn types(model: &mut Model, text: &str) -> Vec<Effect> {
    text.chars().flat_map(|letter| press(model, KeyCode::Char(letter))).collect()
}

fn target(what: Focus, name: &str) -> Target {
    Target { what, id: format!("id-of-{name}"), name: name.to_owned() }
}
