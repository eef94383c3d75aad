//! Every metric of a manager: name, unit and help in one table. No label is an observer's id.

use everwatch_trace::metric::{Metric, describe_counters, describe_gauges, rows};
use metrics::Unit;
use metrics_exporter_prometheus::{BuildError, Matcher, PrometheusBuilder, PrometheusHandle};

pub(crate) const OBSERVERS: &str = "everwatch_observers";
pub(crate) const OBSERVER_HEALTH: &str = "everwatch_observer_health";
pub(crate) const SERVICES: &str = "everwatch_services";
pub(crate) const CAPACITY: &str = "everwatch_capacity_slots";
pub(crate) const HELD: &str = "everwatch_held_slots";
pub(crate) const FREE: &str = "everwatch_free_slots";
pub(crate) const READY: &str = "everwatch_ready_messages";
pub(crate) const WAITING: &str = "everwatch_waiting_observers";
pub(crate) const LIMIT_USED: &str = "everwatch_limit_used";
pub(crate) const LIMIT_MAX: &str = "everwatch_limit_max";
pub(crate) const LIMIT_WAITING: &str = "everwatch_limit_waiting";
pub(crate) const PERMITS_WAITING: &str = "everwatch_permits_waiting";
pub(crate) const ROLLOUTS: &str = "everwatch_rollouts";
pub(crate) const BATCHES: &str = "everwatch_batches";
pub(crate) const PARKED: &str = "everwatch_parked_messages";
pub(crate) const UNREADABLE_ROWS: &str = "everwatch_unreadable_rows";
pub(crate) const STATE_LAG: &str = "everwatch_state_queue_lag_seconds";
pub(crate) const OUTBOX: &str = "everwatch_outbox_publishes";
pub(crate) const CONNECTED: &str = "everwatch_broker_connected";

pub(crate) const PUBLISHES: &str = "everwatch_publishes_total";
pub(crate) const ADMISSIONS: &str = "everwatch_admissions_total";
pub(crate) const PREEMPTIONS: &str = "everwatch_preemptions_total";
pub(crate) const PERMITS_GRANTED: &str = "everwatch_permits_granted_total";
pub(crate) const REPUBLISHES: &str = "everwatch_republishes_total";
pub(crate) const REPORTS: &str = "everwatch_reports_total";
pub(crate) const STALE_REPORTS: &str = "everwatch_stale_reports_total";
pub(crate) const UNKNOWN_REPORTS: &str = "everwatch_unknown_reports_total";
pub(crate) const UNAUTHENTICATED: &str = "everwatch_unauthenticated_requests_total";
pub(crate) const UNKNOWN_OBSERVERS: &str = "everwatch_unknown_observers_total";
pub(crate) const UNREADABLE: &str = "everwatch_unreadable_total";
pub(crate) const HEARTBEATS: &str = "everwatch_heartbeats_total";
pub(crate) const PROBES: &str = "everwatch_probes_total";
pub(crate) const LOST_EVENTS: &str = "everwatch_lost_events_total";
pub(crate) const PASSED_OVER: &str = "everwatch_passed_over_reports_total";
pub(crate) const RANGES_REQUESTED: &str = "everwatch_inventory_ranges_requested_total";
pub(crate) const FAILED_PASSES: &str = "everwatch_failed_passes_total";

pub(crate) const INTAKE_BATCH: &str = "everwatch_intake_batch_reports";
pub(crate) const PASS: &str = "everwatch_reconcile_pass_seconds";
pub(crate) const CREATE_TO_RUNNING: &str = "everwatch_create_to_running_seconds";
pub(crate) const DELETE_TO_DELETED: &str = "everwatch_delete_to_deleted_seconds";
pub(crate) const WAITED: &str = "everwatch_waited_seconds";
pub(crate) const GAP: &str = "everwatch_failover_gap_seconds";
pub(crate) const OVERLAP: &str = "everwatch_run_overlap_seconds";

const GAUGES: [Metric; 19] = [
    (OBSERVERS, Unit::Count, &["pool", "status"], "observers by pool and status"),
    (
        OBSERVER_HEALTH,
        Unit::Count,
        &["pool", "health"],
        "observers that should be running, by pool and health",
    ),
    (SERVICES, Unit::Count, &["state"], "living services by state"),
    (
        CAPACITY,
        Unit::Count,
        &["pool"],
        "slots of active services, and those that cordoned services use, by pool",
    ),
    (HELD, Unit::Count, &["pool"], "slots in use, by pool"),
    (FREE, Unit::Count, &["pool"], "slots of active services that are free, by pool"),
    (READY, Unit::Count, &["pool"], "messages in the work queue of a pool that no service has taken"),
    (WAITING, Unit::Count, &["pool"], "observers that wait in the backlog of a pool until they have a slot"),
    (
        LIMIT_USED,
        Unit::Count,
        &["key"],
        "places of a limit in use, by key; a limit for a beginning of keys is not shown",
    ),
    (LIMIT_MAX, Unit::Count, &["key"], "observers of a limit that may run at once, by key"),
    (LIMIT_WAITING, Unit::Count, &["key"], "observers that wait for a place of a limit, by key"),
    (PERMITS_WAITING, Unit::Count, &["rate"], "permits of a rate for which code waits, by rate"),
    (ROLLOUTS, Unit::Count, &["state"], "unfinished rollouts, by state"),
    (BATCHES, Unit::Count, &["state"], "unfinished batches, by state"),
    (
        PARKED,
        Unit::Count,
        &[],
        "messages that managers could not read or apply, or that no manager has signed",
    ),
    (
        UNREADABLE_ROWS,
        Unit::Count,
        &["table"],
        "stored rows that this manager has met and cannot read, by table",
    ),
    (
        STATE_LAG,
        Unit::Seconds,
        &[],
        "age of the newest watermark that this manager has read from the state queue that lags most",
    ),
    (OUTBOX, Unit::Count, &[], "publishes under way or waiting for their turn"),
    (CONNECTED, Unit::Count, &[], "1 if this manager has a session with the broker"),
];

const COUNTERS: [Metric; 19] = [
    (everwatch_trace::LOST, Unit::Count, &[], "spans dropped because no collector accepted them"),
    (everwatch_trace::LOST_LOG_LINES, Unit::Count, &[], "lines of the log that standard error did not take"),
    (LOST_EVENTS, Unit::Count, &[], "events lost because they arrived faster than the database stored them"),
    (PUBLISHES, Unit::Count, &[], "work messages that the broker has confirmed"),
    (ADMISSIONS, Unit::Count, &[], "observers admitted after waiting for a slot"),
    (PREEMPTIONS, Unit::Count, &[], "runs that were ended for observers of a higher priority"),
    (PERMITS_GRANTED, Unit::Count, &["rate"], "permits that this manager has granted, by rate"),
    (REPUBLISHES, Unit::Count, &[], "work messages published again as the next generation"),
    (REPORTS, Unit::Count, &[], "reports read from the state queues"),
    (STALE_REPORTS, Unit::Count, &[], "reports of a generation that is over"),
    (UNKNOWN_REPORTS, Unit::Count, &[], "reports of a kind that this version does not know"),
    (UNAUTHENTICATED, Unit::Count, &[], "requests without a valid token, where one is needed"),
    (UNKNOWN_OBSERVERS, Unit::Count, &[], "reports of observers that the database does not know"),
    (UNREADABLE, Unit::Count, &["queue"], "messages that could not be read, by queue"),
    (HEARTBEATS, Unit::Count, &[], "heartbeats read"),
    (PROBES, Unit::Count, &[], "probes read"),
    (PASSED_OVER, Unit::Count, &[], "reports about rows that cannot be read"),
    (RANGES_REQUESTED, Unit::Count, &[], "ranges of inventories that differed from the database"),
    (FAILED_PASSES, Unit::Count, &[], "passes of the reconciler that failed"),
];

/// Upper ends of buckets, in seconds: from a redelivery within one broker to a cut-off host.
const SECONDS: [f64; 15] =
    [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 15.0, 30.0, 60.0, 300.0];
const SIZES: [f64; 9] = [1.0, 2.0, 5.0, 10.0, 25.0, 50.0, 100.0, 250.0, 500.0];

const HISTOGRAMS: [(&str, Unit, &[f64], &str); 7] = [
    (INTAKE_BATCH, Unit::Count, &SIZES, "reports applied in one transaction"),
    (PASS, Unit::Seconds, &SECONDS, "how long one pass of the reconciler takes"),
    (CREATE_TO_RUNNING, Unit::Seconds, &SECONDS, "from a create to the first start of its code"),
    (WAITED, Unit::Seconds, &SECONDS, "how long admitted observers waited for a slot"),
    (DELETE_TO_DELETED, Unit::Seconds, &SECONDS, "from a delete to the end of its code"),
    (
        GAP,
        Unit::Seconds,
        &SECONDS,
        "time without a run when an observer moves: from the last report of the previous run to the next start",
    ),
    (OVERLAP, Unit::Seconds, &SECONDS, "time in which two runs of one observer were reported at once"),
];

/// Every metric of a manager: name, type, unit, labels and meaning.
#[must_use]
pub fn described_metrics() -> Vec<[String; 5]> {
    // Histograms have no labels.
    let histograms = HISTOGRAMS.map(|(name, unit, _, help)| (name, unit, [].as_slice(), help));
    rows("gauge", GAUGES).chain(rows("counter", COUNTERS)).chain(rows("histogram", histograms)).collect()
}

/// The recorder of this process, with every metric described.
pub(crate) fn recorder() -> Result<PrometheusHandle, BuildError> {
    let mut builder = PrometheusBuilder::new();
    for (name, _, buckets, _) in HISTOGRAMS {
        builder = builder.set_buckets_for_metric(Matcher::Full(name.to_owned()), buckets)?;
    }
    let recorder = builder.install_recorder()?;
    describe_gauges(GAUGES);
    describe_counters(COUNTERS);
    for (name, unit, _, help) in HISTOGRAMS {
        metrics::describe_histogram!(name, unit, help);
    }
    Ok(recorder)
}
