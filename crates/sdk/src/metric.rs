//! Every metric of a service: name, unit and help in one table. No label is an observer's id.

use everwatch_core::wire::heartbeat::Heartbeat;
use everwatch_trace::metric::{Metric, describe_counters, describe_gauges, rows};
use metrics::Unit;

const CAPACITY: &str = "everwatch_service_capacity_slots";
const HELD: &str = "everwatch_service_held_slots";
const LOOP_LAG: &str = "everwatch_service_loop_lag_seconds";
const RESIDENT: &str = "everwatch_service_resident_bytes";
pub(crate) const BLOCKED: &str = "everwatch_service_blocked_threads";

pub(crate) const SESSIONS: &str = "everwatch_service_sessions_total";
pub(crate) const STARTS: &str = "everwatch_service_starts_total";
pub(crate) const FENCED: &str = "everwatch_service_fenced_observers_total";
pub(crate) const STALLS: &str = "everwatch_service_stalls_total";
/// Of the code of observers.
pub(crate) const COUNTED: &str = "everwatch_observer_counted_total";
pub(crate) const GAUGED: &str = "everwatch_observer_gauged";
pub(crate) const UNREADABLE: &str = "everwatch_service_unreadable_commands_total";
/// The message is work or a command.
pub(crate) const REFUSED: &str = "everwatch_service_refused_messages_total";

const GAUGES: [Metric; 6] = [
    (CAPACITY, Unit::Count, &[], "slots of this service"),
    (HELD, Unit::Count, &[], "slots in use"),
    (LOOP_LAG, Unit::Seconds, &[], "by how much the control loop woke late before the newest heartbeat"),
    (RESIDENT, Unit::Bytes, &[], "resident memory of the process"),
    (BLOCKED, Unit::Count, &[], "observers whose code blocks a thread, for a second or more"),
    (
        GAUGED,
        Unit::Count,
        &["kind", "name"],
        "sum of a gauge over the running observers of a kind, by kind and name",
    ),
];

const COUNTERS: [Metric; 9] = [
    (everwatch_trace::LOST, Unit::Count, &[], "spans dropped because no collector accepted them"),
    (everwatch_trace::LOST_LOG_LINES, Unit::Count, &[], "lines of the log that standard error did not take"),
    (SESSIONS, Unit::Count, &[], "sessions with the broker that began; more than one: sessions were lost"),
    (STARTS, Unit::Count, &[], "starts of the code of observers, including those after an error"),
    (FENCED, Unit::Count, &[], "observers that were ended because the broker could not be heard"),
    (STALLS, Unit::Count, &[], "stalls: code of an observer that blocked a thread for a second or more"),
    (UNREADABLE, Unit::Count, &[], "commands that could not be read"),
    (
        COUNTED,
        Unit::Count,
        &["kind", "name"],
        "what the code of all observers of a kind has counted, by kind and name",
    ),
    (
        REFUSED,
        Unit::Count,
        &["message", "reason"],
        "messages refused because no manager signed them, by message and reason",
    ),
];

/// Every metric of a service: name, type, unit, labels and meaning.
#[must_use]
pub fn described_metrics() -> Vec<[String; 5]> {
    rows("gauge", GAUGES).chain(rows("counter", COUNTERS)).collect()
}

/// Describes everything to the recorder of this process.
pub(crate) fn describe() {
    describe_gauges(GAUGES);
    describe_counters(COUNTERS);
}

/// What is told to managers is told here too.
pub(crate) fn heartbeat(heartbeat: &Heartbeat) {
    metrics::gauge!(CAPACITY).set(heartbeat.capacity);
    metrics::gauge!(HELD).set(heartbeat.held);
    metrics::gauge!(LOOP_LAG).set(f64::from(heartbeat.loop_lag_ms) / 1000.0);
    #[expect(clippy::cast_precision_loss, reason = "exact below 2^53")]
    metrics::gauge!(RESIDENT).set(heartbeat.rss_bytes as f64);
}
