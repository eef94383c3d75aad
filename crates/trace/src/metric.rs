//! Descriptions of metrics, for the recorder of a process and for the reference.

use metrics::Unit;

/// A name, a unit, the labels and a help.
pub type Metric = (&'static str, Unit, &'static [&'static str], &'static str);

/// Rows of the reference: name, type, unit, labels and meaning.
pub fn rows(kind: &str, metrics: impl IntoIterator<Item = Metric>) -> impl Iterator<Item = [String; 5]> {
    metrics.into_iter().map(move |(name, unit, labels, help)| {
        [name, kind, unit.as_str(), &labels.join(", "), help].map(str::to_owned)
    })
}

/// Describes gauges to the recorder of this process.
pub fn describe_gauges(gauges: impl IntoIterator<Item = Metric>) {
    for (name, unit, _, help) in gauges {
        metrics::describe_gauge!(name, unit, help);
    }
}

/// Describes counters to the recorder of this process, and shows those without labels as zero: otherwise, a counter would
/// appear with its first step, and alerts would miss that step. A counter with labels appears with its first value,
/// because the values of its labels are not known before.
pub fn describe_counters(counters: impl IntoIterator<Item = Metric>) {
    for (name, unit, labels, help) in counters {
        metrics::describe_counter!(name, unit, help);
        if labels.is_empty() {
            metrics::counter!(name).absolute(0);
        }
    }
}
