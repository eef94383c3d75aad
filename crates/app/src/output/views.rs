//! Which columns each sort of thing has.

use super::cells::{cause, epoch, labels, name_of, second, since, text};
use super::table::{Column, View};
use serde_json::Value;

pub(crate) const OBSERVERS: View = View {
    noun: "observers",
    name: "name",
    columns: &[
        Column::new("NAME", |it, _| text(it, "name")).least(16),
        Column::new("KIND", |it, _| text(it, "kind")).least(8),
        Column::new("STATUS", |it, _| text(it, "status")).toned(),
        Column::new("SERVICE", |it, _| or_dash(name_of(it, "service"))).least(8),
        Column::new("HEALTH", |it, _| or_dash(text(it, "health"))).toned(),
        Column::new("RESTARTS", |it, _| or_dash(text(it, "restarts"))).right(),
        Column::new("EPOCH", |it, _| epoch(it)).wide(),
        Column::new("AGE", |it, now| since(it, "created_at", now)).right().moving(),
        Column::new("POOL", |it, _| text(it, "pool")).wide(),
        Column::new("RUNS FOR", |it, now| or_dash(running_for(it, now))).right().moving().wide(),
        Column::new("LABELS", |it, _| or_dash(labels(it))).least(8).wide(),
        Column::new("ID", |it, _| text(it, "id")).least(9).wide(),
        Column::new("CODE", |it, _| or_dash(text(it, "reason_code"))).wide(),
        Column::new("REASON", |it, _| reason(it)).least(22),
    ],
};

pub(crate) const SERVICES: View = View {
    noun: "services",
    name: "name",
    columns: &[
        Column::new("NAME", |it, _| text(it, "name")).least(16),
        Column::new("STATE", |it, _| text(it, "state")).toned(),
        Column::new("POOL", |it, _| text(it, "pool")).least(8),
        Column::new("HELD", |it, _| text(it, "held")).right(),
        Column::new("CAPACITY", |it, _| text(it, "capacity")).right(),
        Column::new("HEARTBEAT", |it, now| since(it, "last_heartbeat_at", now)).right().moving(),
        Column::new("AGE", |it, now| since(it, "created_at", now)).right().moving(),
        Column::new("HOST", |it, _| text(it, "host")).least(6),
        Column::new("VERSION", |it, _| text(it, "version")).wide(),
        Column::new("KINDS", |it, _| kinds(it)).least(8).wide(),
        Column::new("LABELS", |it, _| or_dash(labels(it))).least(8).wide(),
        Column::new("ID", |it, _| text(it, "id")).least(9).wide(),
        Column::new("NOTE", |it, _| note(it)).least(14),
    ],
};

pub(crate) const POOLS: View = View {
    noun: "pools",
    name: "name",
    columns: &[
        Column::new("NAME", |it, _| text(it, "name")).least(16),
        Column::new("SERVICES", |it, _| text(it, "services")).right(),
        Column::new("HELD", |it, _| text(it, "held")).right(),
        Column::new("CAPACITY", |it, _| text(it, "capacity")).right(),
        Column::new("FREE", |it, _| text(it, "free")).right(),
        Column::new("RUNNING", |it, _| healthy(it, "running")).right(),
        Column::new("RESTARTING", |it, _| healthy(it, "restarting")).right(),
        Column::new("WAITING", |it, _| healthy(it, "waiting")).right(),
        Column::new("FAILED", |it, _| counted(it, "Failed")).right(),
        Column::new("MOVING", |it, _| healthy(it, "moving")).right().wide(),
        Column::new("STOPPING", |it, _| healthy(it, "stopping")).right().wide(),
        Column::new("PAUSED", |it, _| counted(it, "Paused")).right().wide(),
        Column::new("COMPLETED", |it, _| counted(it, "Completed")).right().wide(),
    ],
};

pub(crate) const PARKED: View = View {
    noun: "parked messages",
    name: "id",
    columns: &[
        Column::new("ID", |it, _| text(it, "id")),
        Column::new("AGE", |it, now| since(it, "at", now)).right().moving(),
        Column::new("QUEUE", |it, _| text(it, "queue")).least(12),
        Column::new("SIZE", |it, _| text(it, "size")).right(),
        Column::new("REASON", |it, _| text(it, "reason")).least(10),
        Column::new("BEGINS", |it, _| beginning(it)).least(10).wide(),
    ],
};

pub(crate) const EVENTS: View = View {
    noun: "events",
    name: "id",
    columns: &[
        Column::new("ID", |it, _| text(it, "id")).right().wide(),
        Column::new("AT", |it, _| second(it, "at")),
        Column::new("EVENT", |it, _| text(it, "type")).toned(),
        Column::new("OBSERVER", |it, _| or_dash(name_of(it, "observer"))).least(10),
        Column::new("SERVICE", |it, _| or_dash(name_of(it, "service"))).least(8),
        Column::new("EPOCH", |it, _| or_dash(epoch(it))).wide(),
        Column::new("CAUSE", |it, _| cause(it)).least(20),
    ],
};

pub(crate) const REBALANCE: View = View {
    noun: "changes: all services are evenly used",
    name: "name",
    columns: &[
        Column::new("POOL", |it, _| text(it, "pool")).least(8),
        Column::new("SERVICE", |it, _| text(it, "name")).least(16),
        Column::new("HELD", |it, _| text(it, "held")).right(),
        Column::new("TARGET", |it, _| text(it, "target")).right(),
        Column::new("CAPACITY", |it, _| text(it, "capacity")).right(),
        Column::new("CHANGE", |it, _| text(it, "reason")).least(10),
    ],
};

fn or_dash(text: String) -> String {
    if text.is_empty() { "-".to_owned() } else { text }
}

fn running_for(it: &Value, now: everwatch_core::clock::Timestamp) -> String {
    if it["status"] == "Processing" { since(it, "started_at", now) } else { String::new() }
}

/// Why it stands there, else what it says of itself.
fn reason(it: &Value) -> String {
    let reason = text(it, "reason");
    if reason.is_empty() { text(it, "progress") } else { reason }
}

fn kinds(it: &Value) -> String {
    let names = it["kinds"].as_array().into_iter().flatten().filter_map(Value::as_str);
    names.collect::<Vec<_>>().join(",")
}

fn counted(pool: &Value, status: &str) -> String {
    pool["observers"][status].as_u64().unwrap_or(0).to_string()
}

fn healthy(pool: &Value, health: &str) -> String {
    pool["health"][health].as_u64().unwrap_or(0).to_string()
}

/// What a person has ordered there.
pub(super) fn note(it: &Value) -> String {
    let drain = &it["drain"];
    let mut told = Vec::new();
    if drain.is_object() {
        told.push(format!("{} of {} moved", drain["moved"], drain["of"]));
        told.extend(drain["waits"].as_str().map(str::to_owned));
    } else if it["cordoned"] == true && it["unconfirmed"].is_null() {
        told.push("cordoned by hand".to_owned());
    }
    told.extend(it["unconfirmed"].as_str().map(str::to_owned));
    if let Some(capacity) = it["capacity_set"].as_u64() {
        told.push(format!("capacity {capacity} set by hand"));
    }
    told.join("; ")
}

fn beginning(it: &Value) -> String {
    it["text"].as_str().map_or_else(|| "(not text)".to_owned(), |text| text.chars().take(200).collect())
}
