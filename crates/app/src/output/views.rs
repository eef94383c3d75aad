//! The columns of each kind of list.

use super::cells::{
    bytes, cause, epoch, in_words, labels, millis, observers, or_dash, reason_or_error, second, since,
    time_of_day, without_millis,
};
use super::incident::{cause_of, destinations, gap_of_moves, longest_gap, main_destination};
use super::table::{Column, View};
use crate::error_wording::path_of;
use everwatch_api::{
    AuditEntry, Batch, BatchMember, DefinitionVersion, Event, Incident, Kind, Limit, Namespace, Observer,
    ParkedMessage, Pool, Rate, Role, RoleGrant, Rollout, RolloutMember, Service, ServiceBalance, Token,
};
use everwatch_core::clock::{Timestamp, show};
use everwatch_core::record::health::Health;
use everwatch_core::record::reason::ReasonCode;
use everwatch_core::record::status::Status;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

pub(crate) const OBSERVERS: View<Observer> = View {
    noun: "observers",
    name: |it| it.name.clone(),
    key: |it| it.id.to_string(),
    columns: &[
        Column::<Observer>::new("NAME", |it, _| it.name.clone()).least_of_name(16),
        Column::<Observer>::new("KIND", |it, _| it.kind.clone()).least_of_name(8),
        Column::<Observer>::new("STATUS", |it, _| it.status.as_str().to_owned()).toned(),
        Column::<Observer>::new("SERVICE", |it, _| or_dash(it.service.as_ref().map(|it| &it.name)))
            .least_of_name(8),
        Column::<Observer>::new("HEALTH", |it, _| or_dash(it.health.map(Health::as_str))).toned(),
        Column::<Observer>::new("RESTARTS", |it, _| it.restarts.to_string()).right(),
        Column::<Observer>::new("EPOCH", |it, _| epoch(it.epoch)).wide(),
        Column::<Observer>::new("AGE", |it, now| since(it.created_at, now)).right().moving(),
        Column::<Observer>::new("WEIGHT", |it, _| it.weight.to_string()).right().wide(),
        Column::<Observer>::new("POOL", |it, _| it.pool.clone()).wide(),
        Column::<Observer>::new("RUNS FOR", |it, now| or_dash(running_for(it, now))).right().moving().wide(),
        Column::<Observer>::new("LABELS", |it, _| or_dash(Some(labels(&it.labels)))).least(8).wide(),
        Column::<Observer>::new("ID", |it, _| it.id.to_string()).least(9).wide(),
        Column::<Observer>::new("CODE", |it, _| or_dash(it.reason_code.map(ReasonCode::as_str)))
            .least(10)
            .wide(),
        // Behind the columns that are always shown, so that those keep their places for scripts.
        Column::<Observer>::new("NAMESPACE", |it, _| it.namespace.clone()).varied(),
        Column::<Observer>::new("REASON", |it, _| reason(it)).least(22),
    ],
};

pub(crate) const SERVICES: View<Service> = View {
    noun: "services",
    name: |it| it.name.clone(),
    key: |it| it.id.to_string(),
    columns: &[
        Column::<Service>::new("NAME", |it, _| it.name.clone()).least_of_name(16),
        Column::<Service>::new("STATE", |it, _| it.state.as_str().to_owned()).toned(),
        Column::<Service>::new("POOL", |it, _| it.pool.clone()).least_of_name(8),
        Column::<Service>::new("HELD", |it, _| it.held.to_string()).right(),
        Column::<Service>::new("CAPACITY", |it, _| it.capacity.to_string()).right(),
        Column::<Service>::new("HEARTBEAT", |it, now| since(it.last_heartbeat_at, now)).right().moving(),
        Column::<Service>::new("AGE", |it, now| since(it.created_at, now)).right().moving(),
        Column::<Service>::new("HOST", |it, _| it.host.clone()).least(6),
        Column::<Service>::new("MEMORY", |it, _| or_dash(it.resident_bytes.map(bytes))).right().wide(),
        Column::<Service>::new("LOOP LAG", |it, _| or_dash(it.loop_lag_ms.map(|ms| millis(ms.into()))))
            .right()
            .wide(),
        Column::<Service>::new("VERSION", |it, _| it.version.clone()).wide(),
        Column::<Service>::new("KINDS", |it, _| it.kinds.join(",")).least(8).wide(),
        Column::<Service>::new("LABELS", |it, _| or_dash(Some(labels(&it.labels)))).least(8).wide(),
        Column::<Service>::new("ID", |it, _| it.id.to_string()).least(9).wide(),
        Column::<Service>::new("NOTE", |it, _| note(it)).least(14),
    ],
};

/// The first paragraph of the description.
fn about(it: &Kind) -> String {
    let text = it.schema["description"].as_str().unwrap_or_default();
    text.split("\n\n").next().unwrap_or_default().to_owned()
}

pub(crate) const KINDS: View<Kind> = View {
    noun: "kinds",
    name: |it| it.name.clone(),
    key: |it| it.name.clone(),
    columns: &[
        Column::<Kind>::new("NAME", |it, _| it.name.clone()).least_of_name(16),
        Column::<Kind>::new("SERVICES", |it, _| it.services.to_string()).right(),
        Column::<Kind>::new("POOLS", |it, _| it.pools.join(" ")).least(12),
        Column::<Kind>::new("ABOUT", |it, _| about(it)).least(20),
    ],
};

pub(crate) const POOLS: View<Pool> = View {
    noun: "pools",
    name: |it| it.name.clone(),
    key: |it| it.name.clone(),
    columns: &[
        Column::<Pool>::new("NAME", |it, _| it.name.clone()).least_of_name(16),
        Column::<Pool>::new("ADMISSION", |it, _| if it.paused { "paused" } else { "open" }.to_owned()),
        Column::<Pool>::new("SERVICES", |it, _| it.services.to_string()).right(),
        Column::<Pool>::new("HELD", |it, _| it.held.to_string()).right(),
        Column::<Pool>::new("CAPACITY", |it, _| it.capacity.to_string()).right(),
        Column::<Pool>::new("FREE", |it, _| it.free.to_string()).right(),
        Column::<Pool>::new("RUNNING", |it, _| count(&it.health, "running")).right(),
        Column::<Pool>::new("RESTARTING", |it, _| count(&it.health, "restarting")).right(),
        Column::<Pool>::new("WAITING", |it, _| count(&it.health, "waiting")).right(),
        Column::<Pool>::new("FAILED", |it, _| count(&it.observers, "Failed")).right(),
        Column::<Pool>::new("TOLERANCE", |it, _| or_dash(it.failure_tolerance)).right().wide(),
        Column::<Pool>::new("SINGLE", |it, _| if it.single { "yes" } else { "no" }.to_owned()).wide(),
        Column::<Pool>::new("MOVING", |it, _| count(&it.health, "moving")).right().wide(),
        Column::<Pool>::new("STOPPING", |it, _| count(&it.health, "stopping")).right().wide(),
        Column::<Pool>::new("SCHEDULED", |it, _| count(&it.observers, "Scheduled")).right().wide(),
        Column::<Pool>::new("PAUSED", |it, _| count(&it.observers, "Paused")).right().wide(),
        Column::<Pool>::new("COMPLETED", |it, _| count(&it.observers, "Completed")).right().wide(),
    ],
};

pub(crate) const NAMESPACES: View<Namespace> = View {
    noun: "namespaces",
    name: |it| it.name.clone(),
    key: |it| it.name.clone(),
    columns: &[
        Column::<Namespace>::new("NAME", |it, _| it.name.clone()).least_of_name(16),
        Column::<Namespace>::new("OBSERVERS", |it, _| of_quota(Some(it.observers), it.quotas.observers))
            .right(),
        Column::<Namespace>::new("RUNNING", |it, _| of_quota(it.running, it.quotas.running)).right(),
        Column::<Namespace>::new("CREATES LEFT", |it, _| {
            of_quota(it.creates_left, it.quotas.creates_per_minute)
        })
        .right(),
        Column::<Namespace>::new("POOLS", |it, _| or_dash(it.pools.as_ref().map(|pools| pools.join(" "))))
            .least(8),
    ],
};

fn of_quota(used: Option<u64>, quota: Option<u32>) -> String {
    match (used, quota) {
        (Some(used), Some(quota)) => format!("{used}/{quota}"),
        (used, _) => or_dash(used.map(|used| used.to_string())),
    }
}

pub(crate) const LIMITS: View<Limit> = View {
    noun: "limits",
    name: |it| it.key.clone(),
    key: |it| it.key.clone(),
    columns: &[
        Column::<Limit>::new("KEY", |it, _| it.key.clone()).least_of_name(16),
        Column::<Limit>::new("USED", |it, _| it.used.to_string()).right(),
        Column::<Limit>::new("MAX", |it, _| {
            if it.key.ends_with('*') { format!("{} each", it.max) } else { it.max.to_string() }
        })
        .right(),
        Column::<Limit>::new("WAITING", |it, _| it.waiting.to_string()).right(),
        Column::<Limit>::new("ENFORCED", |it, _| if it.enforce { "yes" } else { "no" }.to_owned()).wide(),
    ],
};

pub(crate) const RATES: View<Rate> = View {
    noun: "rates",
    name: |it| it.key.clone(),
    key: |it| it.key.clone(),
    columns: &[
        Column::<Rate>::new("KEY", |it, _| it.key.clone()).least_of_name(16),
        Column::<Rate>::new("PERMITS", |it, _| it.permits.to_string()).right(),
        Column::<Rate>::new("PER", |it, _| it.per.clone()),
        Column::<Rate>::new("BURST", |it, _| it.burst.to_string()).right(),
        Column::<Rate>::new("AT ONCE", |it, _| it.at_once.to_string()).right(),
        Column::<Rate>::new("AVAILABLE", |it, _| it.available.to_string()).right(),
        Column::<Rate>::new("WAITING", |it, _| it.waiting.to_string()).right(),
    ],
};

pub(crate) const TOKENS: View<Token> = View {
    noun: "tokens",
    name: |it| it.name.clone(),
    key: |it| it.id.clone(),
    columns: &[
        Column::<Token>::new("NAME", |it, _| it.name.clone()).least_of_name(16),
        Column::<Token>::new("ID", |it, _| it.id.clone()).least(10),
        Column::<Token>::new("ROLE", |it, _| it.role.clone()).least(8),
        Column::<Token>::new("NAMESPACE", |it, _| or_dash(it.namespace.clone())).least(8),
        Column::<Token>::new("STATE", |it, _| token_state(it).to_owned()),
        Column::<Token>::new("AGE", |it, now| since(it.created_at, now)).right().moving(),
        Column::<Token>::new("EXPIRES", |it, _| second(it.expires_at)),
        Column::<Token>::new("CREATED BY", |it, _| it.created_by.clone()).least(8),
        Column::<Token>::new("ORIGIN", |it, _| it.origin.clone()).wide(),
    ],
};

fn token_state(it: &Token) -> &'static str {
    match (it.valid, it.revoked_at, it.previous_until) {
        (true, _, Some(_)) => "rotating",
        (true, _, None) => "valid",
        (false, Some(_), _) => "revoked",
        (false, None, _) => "expired",
    }
}

pub(crate) const ROLES: View<Role> = View {
    noun: "roles",
    name: |it| it.name.clone(),
    key: |it| it.name.clone(),
    columns: &[
        Column::<Role>::new("NAME", |it, _| it.name.clone()).least_of_name(16),
        Column::<Role>::new("BUILT IN", |it, _| if it.built_in { "yes" } else { "no" }.to_owned()),
        Column::<Role>::new("GRANTS", |it, _| it.grants.len().to_string()).right(),
        Column::<Role>::new("NAMESPACES", |it, _| or_dash(some_of(it, |grant| grant.namespaces.as_deref())))
            .least(8),
        Column::<Role>::new("POOLS", |it, _| or_dash(some_of(it, |grant| grant.pools.as_deref()))).least(8),
        Column::<Role>::new("KINDS", |it, _| or_dash(some_of(it, |grant| grant.kinds.as_deref()))).least(8),
        Column::<Role>::new("VERBS", |it, _| verbs(it).len().to_string()).right(),
        Column::<Role>::new("VERB NAMES", |it, _| verbs(it).join(",")).least(16).wide(),
    ],
};

fn verbs(role: &Role) -> Vec<&str> {
    let all: BTreeSet<&str> =
        role.grants.iter().flat_map(|grant| grant.verbs.iter().map(String::as_str)).collect();
    all.into_iter().collect()
}

/// The namespaces, pools or kinds that the grants of a role name; none if a grant is for all.
fn some_of(role: &Role, of: impl Fn(&RoleGrant) -> Option<&[String]>) -> Option<String> {
    let all = role.grants.iter().map(of).collect::<Option<Vec<_>>>()?;
    let all: std::collections::BTreeSet<&str> = all.into_iter().flatten().map(String::as_str).collect();
    Some(all.into_iter().collect::<Vec<_>>().join(","))
}

pub(crate) const AUDIT: View<AuditEntry> = View {
    noun: "audit entries",
    name: |it| it.id.to_string(),
    key: |it| it.id.to_string(),
    columns: &[
        Column::<AuditEntry>::new("AT", |it, _| second(it.at)),
        Column::<AuditEntry>::new("PRINCIPAL", |it, _| or_dash(it.principal.as_ref())).least(8),
        Column::<AuditEntry>::new("STATUS", |it, _| or_dash(it.status.map(|status| status.to_string())))
            .right(),
        Column::<AuditEntry>::new("VERB", |it, _| or_dash(it.verb.as_ref())),
        Column::<AuditEntry>::new("REQUEST", |it, _| format!("{} {}", it.method, it.path)).least(22),
        Column::<AuditEntry>::new("FROM", |it, _| or_dash(it.from.as_ref())),
        Column::<AuditEntry>::new("ACTOR", |it, _| or_dash(it.actor.as_ref())).wide(),
        Column::<AuditEntry>::new("CREATED", |it, _| or_dash(it.created.as_ref())).wide(),
    ],
};

pub(crate) const VERSIONS: View<DefinitionVersion> = View {
    noun: "versions",
    name: |it| it.version.to_string(),
    key: |it| it.version.to_string(),
    columns: &[
        Column::<DefinitionVersion>::new("VERSION", |it, _| it.version.to_string()).right(),
        Column::<DefinitionVersion>::new("AGE", |it, now| since(it.at, now)).right().moving(),
        Column::<DefinitionVersion>::new("BY", |it, _| or_dash(it.by.as_ref())),
        Column::<DefinitionVersion>::new("CHANGES", |it, _| changes(it)).least(16),
    ],
};

fn changes(it: &DefinitionVersion) -> String {
    let paths = it.changes.iter().flatten().filter_map(|it| path_of(&it.pointer));
    or_dash(Some(paths.collect::<Vec<_>>().join(", ")))
}

pub(crate) const BATCHES: View<Batch> = View {
    noun: "batches",
    name: |it| it.name.clone(),
    key: |it| it.id.to_string(),
    columns: &[
        Column::<Batch>::new("NAME", |it, _| it.name.clone()).least_of_name(16),
        Column::<Batch>::new("STATE", |it, _| it.state.as_str().to_owned()).toned(),
        Column::<Batch>::new("SETTLED", |it, _| format!("{} of {}", it.settled, it.members)).right(),
        Column::<Batch>::new("COUNTS", |it, _| batch_counts(it)).least(12),
        Column::<Batch>::new("PER MINUTE", |it, _| or_dash(it.rate_per_minute)).right(),
        Column::<Batch>::new("TIME LEFT", |it, _| or_dash(it.time_left.map(show))).right(),
        Column::<Batch>::new("AGE", |it, now| since(it.created_at, now)).right().moving(),
        Column::<Batch>::new("BY", |it, _| or_dash(it.by.as_ref())).least(6).wide(),
        Column::<Batch>::new("ID", |it, _| it.id.to_string()).least(9).wide(),
        Column::<Batch>::new("NAMESPACE", |it, _| it.namespace.clone()).varied(),
        Column::<Batch>::new("REASON", |it, _| it.reason.clone()).least(20),
    ],
};

/// The members by status, without the statuses that have none.
pub(super) fn batch_counts(it: &Batch) -> String {
    let told = it.counts.iter().filter(|(_, count)| **count > 0);
    told.map(|(status, count)| format!("{count} {status}")).collect::<Vec<_>>().join(", ")
}

pub(crate) const BATCH_MEMBERS: View<BatchMember> = View {
    noun: "observers",
    name: |it| it.name.clone(),
    key: |it| it.id.to_string(),
    columns: &[
        Column::<BatchMember>::new("PLACE", |it, _| it.place.to_string()).right(),
        Column::<BatchMember>::new("NAME", |it, _| it.name.clone()).least_of_name(16),
        Column::<BatchMember>::new("STATUS", |it, _| it.status.as_str().to_owned()).toned(),
        Column::<BatchMember>::new("RESULT", |it, _| or_dash(it.result.as_ref())).least(12),
        Column::<BatchMember>::new("ID", |it, _| it.id.to_string()).least(9).wide(),
        Column::<BatchMember>::new("ERROR", |it, _| it.error.clone()).least(20),
    ],
};

pub(crate) const ROLLOUTS: View<Rollout> = View {
    noun: "rollouts",
    name: |it| it.name.clone(),
    key: |it| it.id.to_string(),
    columns: &[
        Column::<Rollout>::new("NAME", |it, _| it.name.clone()).least_of_name(16),
        Column::<Rollout>::new("STATE", |it, _| it.state.as_str().to_owned()).toned(),
        Column::<Rollout>::new("MEMBERS", |it, _| it.members.to_string()).right(),
        Column::<Rollout>::new("PROGRESS", |it, _| counts(it)).least(12),
        Column::<Rollout>::new("AGE", |it, now| since(it.created_at, now)).right().moving(),
        Column::<Rollout>::new("BY", |it, _| or_dash(it.by.as_ref())).least(6).wide(),
        Column::<Rollout>::new("ID", |it, _| it.id.to_string()).least(9).wide(),
        Column::<Rollout>::new("REASON", |it, _| it.reason.clone()).least(20),
    ],
};

pub(crate) const MEMBERS: View<RolloutMember> = View {
    noun: "members",
    name: |it| it.name.clone(),
    key: |it| it.id.to_string(),
    columns: &[
        Column::<RolloutMember>::new("NAME", |it, _| it.name.clone()).least_of_name(16),
        Column::<RolloutMember>::new("STATE", |it, _| it.state.as_str().to_owned()).toned(),
        Column::<RolloutMember>::new("VERSION", |it, _| it.version.to_string()).right(),
        Column::<RolloutMember>::new("CHANGED TO", |it, _| or_dash(it.changed_to)).right(),
        Column::<RolloutMember>::new("RUNS FOR", |it, now| or_dash(it.runs_since.map(|at| since(at, now))))
            .right()
            .moving(),
        Column::<RolloutMember>::new("ID", |it, _| it.id.to_string()).least(9).wide(),
        Column::<RolloutMember>::new("REASON", |it, _| it.reason.clone()).least(20),
    ],
};

/// The members by state, without the states that have none.
pub(super) fn counts(it: &Rollout) -> String {
    in_words(it.counts.iter().map(|(state, count)| (u64::from(*count), state)))
}

pub(crate) const PARKED: View<ParkedMessage> = View {
    noun: "parked messages",
    name: |it| it.id.to_string(),
    key: |it| it.id.to_string(),
    columns: &[
        Column::<ParkedMessage>::new("ID", |it, _| it.id.to_string()),
        Column::<ParkedMessage>::new("AGE", |it, now| since(it.at, now)).right().moving(),
        Column::<ParkedMessage>::new("QUEUE", |it, _| it.queue.clone()).least(12),
        Column::<ParkedMessage>::new("SIZE", |it, _| it.size.to_string()).right(),
        Column::<ParkedMessage>::new("REASON", |it, _| it.reason.clone()).least(10),
        Column::<ParkedMessage>::new("BEGINS", |it, _| beginning(it)).least(10).wide(),
    ],
};

pub(crate) const EVENTS: View<Event> = View {
    noun: "events",
    name: |it| it.id.to_string(),
    key: |it| it.id.to_string(),
    columns: &[
        Column::<Event>::new("ID", |it, _| it.id.to_string()).right().wide(),
        Column::<Event>::new("AT", |it, _| second(it.at)),
        Column::<Event>::new("EVENT", |it, _| it.kind.as_str().to_owned()).toned(),
        Column::<Event>::new("OBSERVER", |it, _| or_dash(observers(it))).least_of_name(10),
        Column::<Event>::new("SERVICE", |it, _| or_dash(it.service.as_ref().map(|it| &it.name)))
            .least_of_name(8),
        Column::<Event>::new("EPOCH", |it, _| or_dash(it.epoch.map(epoch))).wide(),
        Column::<Event>::new("CAUSE", |it, _| cause(it)).least(20),
    ],
};

pub(crate) const INCIDENTS: View<Incident> = View {
    noun: "incidents",
    name: |it| it.from.clone(),
    key: |it| format!("{} {}", it.from, it.since),
    columns: &[
        Column::<Incident>::new("AT", |it, _| second(it.since)),
        FROM,
        CAUSE,
        MOVED,
        WAITING,
        GAP_P50,
        GAP_P99,
        GAP_MAX,
        OVERLAP,
        TO,
    ],
};

/// The width from which incidents are shown with all columns.
pub(crate) const INCIDENTS_WIDTH: usize = 98;

/// Incidents of the last 24 hours.
pub(crate) const INCIDENTS_OF_DAY: View<Incident> = View {
    columns: &[TIME, FROM, CAUSE, MOVED, WAITING, GAP_P50, GAP_P99, GAP_MAX, OVERLAP, TO],
    ..INCIDENTS
};

/// Incidents of the last 24 hours, for 76 columns.
pub(crate) const INCIDENTS_SHORT: View<Incident> = View {
    columns: &[
        TIME,
        FROM,
        CAUSE,
        MOVED,
        WAITING,
        Column::<Incident>::new("MAX GAP", |it, _| longest_gap(it)).right(),
        Column::<Incident>::new("TO", |it, _| main_destination(it)).least(10),
    ],
    ..INCIDENTS
};

const TIME: Column<Incident> = Column::<Incident>::new("AT", |it, now| time_of_day(it.since, now));
const FROM: Column<Incident> = Column::<Incident>::new("FROM", |it, _| it.from.clone()).least_of_name(8);
const CAUSE: Column<Incident> = Column::<Incident>::new("CAUSE", |it, _| cause_of(it));
const MOVED: Column<Incident> = Column::<Incident>::new("MOVED", |it, _| it.moved.to_string()).right();
const WAITING: Column<Incident> = Column::<Incident>::new("WAITING", |it, _| it.waiting.to_string()).right();
const GAP_P50: Column<Incident> =
    Column::<Incident>::new("GAP p50", |it, _| gap_of_moves(it, it.gap_ms_median)).right();
const GAP_P99: Column<Incident> =
    Column::<Incident>::new("p99", |it, _| gap_of_moves(it, it.gap_ms_p99)).right();
const GAP_MAX: Column<Incident> = Column::<Incident>::new("MAX", |it, _| longest_gap(it)).right();
const OVERLAP: Column<Incident> =
    Column::<Incident>::new("OVERLAP", |it, _| millis(it.overlap_ms_max)).right();
const TO: Column<Incident> = Column::<Incident>::new("TO", |it, _| destinations(it)).least(10);

/// A service of a plan, with its pool.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Change {
    pub(crate) pool: String,
    #[serde(flatten)]
    pub(crate) service: ServiceBalance,
}

pub(crate) const REBALANCE: View<Change> = View {
    noun: "moves needed: the services are balanced",
    name: |it| it.service.name.clone(),
    key: |it| it.service.id.to_string(),
    columns: &[
        Column::<Change>::new("POOL", |it, _| it.pool.clone()).least_of_name(8),
        Column::<Change>::new("SERVICE", |it, _| it.service.name.clone()).least_of_name(16),
        Column::<Change>::new("HELD", |it, _| it.service.held.to_string()).right(),
        Column::<Change>::new("TARGET", |it, _| it.service.target.to_string()).right(),
        Column::<Change>::new("CAPACITY", |it, _| it.service.capacity.to_string()).right(),
        Column::<Change>::new("CHANGE", |it, _| it.service.reason.clone()).least(10),
    ],
};

fn running_for(it: &Observer, now: Timestamp) -> Option<String> {
    let waits = it.status != Status::Processing || it.reason_code == Some(ReasonCode::BackingOff);
    it.started_at.filter(|_| !waits && it.service.is_some()).map(|then| since(then, now))
}

/// The reason for its status, otherwise its own progress text.
fn reason(it: &Observer) -> String {
    let why = reason_or_error(&it.reason, it.last_error.as_deref(), it.health == Some(Health::Restarting));
    if why.is_empty() {
        return it.progress.clone().unwrap_or_default();
    }
    // The key is what a narrow column must not lose.
    match why.strip_prefix("waiting for a place of ") {
        Some(limit) => without_millis(&format!("waits for {limit}")),
        None => without_millis(&why),
    }
}

fn count(counts: &BTreeMap<String, u64>, word: &str) -> String {
    counts.get(word).copied().unwrap_or(0).to_string()
}

/// The code that blocks its threads, and what operators have set for this service: drain, cordon, capacity.
pub(super) fn note(it: &Service) -> String {
    // The orders for its name are for the next process.
    if it.is_deleted {
        return String::new();
    }
    let mut told = Vec::new();
    told.extend(it.frozen.then(|| "frozen on purpose".to_owned()));
    if let Some(longest) = it.stalled.first() {
        let more = it.stalled.len() - 1;
        let more = if more == 0 { String::new() } else { format!(" and {more} more") };
        told.push(format!("stalled by {} for {}{more}", longest.name, millis(longest.stalled_ms)));
    }
    if let Some(drain) = &it.drain {
        told.push(format!("{} of {} handed over", drain.moved, drain.of));
        told.extend(drain.waits.clone());
    } else if it.cordoned && it.unconfirmed.is_none() {
        let what = if it.held == 0 { "cordoned by hand; holds no observer" } else { "cordoned by hand" };
        told.push(what.to_owned());
    }
    told.extend(it.unconfirmed.clone());
    if let Some(capacity) = it.capacity_set {
        told.push(format!("capacity {capacity} set by hand"));
    }
    told.join("; ")
}

fn beginning(it: &ParkedMessage) -> String {
    it.text.as_ref().map_or_else(|| "(not text)".to_owned(), |text| text.chars().take(200).collect())
}
