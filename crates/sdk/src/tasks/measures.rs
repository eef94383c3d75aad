//! Counters and gauges of observers. `/metrics` of the service shows their sums by kind, so that the number of its
//! series does not grow with the number of observers.

use crate::metric::{COUNTED, GAUGED};
use everwatch_core::id::Kind;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The most counters that one attempt may use, the most gauges, and the most names that are exported of one kind.
const NAMES_MAX: usize = 20;
/// The longest name.
const NAME_MAX: usize = 64;

/// A number that only grows: [`crate::Context::counter`]. Cheap to clone and to change.
///
/// ```
/// # everwatch::testing::example(|ctx| async move {
/// let messages = ctx.counter("messages");
/// messages.add(2);
/// assert_eq!(ctx.counter("messages").value(), 2);
/// # Ok(())
/// # });
/// ```
#[derive(Clone)]
pub struct Counter(Arc<CounterCell>);

struct CounterCell {
    value: AtomicU64,
    sum: metrics::Counter,
}

impl Counter {
    /// Adds to it.
    pub fn add(&self, count: u64) {
        self.0.value.fetch_add(count, Ordering::Relaxed);
        self.0.sum.increment(count);
    }
    /// What this attempt has counted.
    #[must_use]
    pub fn value(&self) -> u64 {
        self.0.value.load(Ordering::Relaxed)
    }
}

/// A number that rises and falls: [`crate::Context::gauge`]. Cheap to clone and to change.
///
/// ```
/// # everwatch::testing::example(|ctx| async move {
/// let behind = ctx.gauge("bytes_behind");
/// behind.set(4096.0);
/// assert_eq!(ctx.gauge("bytes_behind").value(), 4096.0);
/// # Ok(())
/// # });
/// ```
#[derive(Clone)]
pub struct Gauge(Arc<GaugeCell>);

struct GaugeCell {
    /// The bits of an `f64`.
    bits: AtomicU64,
    sum: metrics::Gauge,
}

impl Gauge {
    /// Replaces its value. A value that is not finite is ignored, because it would spoil the sum.
    pub fn set(&self, value: f64) {
        if value.is_finite() {
            let former = f64::from_bits(self.0.bits.swap(value.to_bits(), Ordering::Relaxed));
            self.0.sum.increment(value - former);
        }
    }
    /// Its value.
    #[must_use]
    pub fn value(&self) -> f64 {
        f64::from_bits(self.0.bits.load(Ordering::Relaxed))
    }
}

impl Drop for GaugeCell {
    fn drop(&mut self) {
        self.sum.decrement(f64::from_bits(*self.bits.get_mut()));
    }
}

/// The measures of one attempt.
#[derive(Default)]
pub(crate) struct Measures {
    counters: Mutex<BTreeMap<String, Counter>>,
    gauges: Mutex<BTreeMap<String, Gauge>>,
}

/// The names that are exported, by kind.
#[derive(Default)]
pub(crate) struct Exported(Mutex<HashMap<Kind, BTreeSet<String>>>);

impl Exported {
    /// Whether this measure is exported: the first [`NAMES_MAX`] names of a kind are.
    fn admits(&self, kind: &Kind, name: &str) -> bool {
        let mut of = lock(&self.0);
        let names = of.entry(kind.clone()).or_default();
        if names.len() < NAMES_MAX && !names.contains(name) {
            names.insert(name.to_owned());
        }
        names.contains(name)
    }
}

impl Measures {
    /// # Panics
    /// As [`crate::Context::counter`].
    pub(crate) fn counter(&self, name: &str, (kind, exported): (&Kind, &Exported)) -> Counter {
        find(&self.counters, name, || {
            let sum = if exported.admits(kind, name) {
                metrics::counter!(COUNTED, "kind" => kind.to_string(), "name" => name.to_owned())
            } else {
                metrics::Counter::noop()
            };
            Counter(Arc::new(CounterCell { value: AtomicU64::new(0), sum }))
        })
    }
    /// # Panics
    /// As [`crate::Context::gauge`].
    pub(crate) fn gauge(&self, name: &str, (kind, exported): (&Kind, &Exported)) -> Gauge {
        find(&self.gauges, name, || {
            let sum = if exported.admits(kind, name) {
                metrics::gauge!(GAUGED, "kind" => kind.to_string(), "name" => name.to_owned())
            } else {
                metrics::Gauge::noop()
            };
            Gauge(Arc::new(GaugeCell { bits: AtomicU64::new(0), sum }))
        })
    }
    /// The values by name.
    pub(crate) fn counters(&self) -> BTreeMap<String, u64> {
        lock(&self.counters).iter().map(|(name, counter)| (name.clone(), counter.value())).collect()
    }
    /// The values by name.
    pub(crate) fn gauges(&self) -> BTreeMap<String, f64> {
        lock(&self.gauges).iter().map(|(name, gauge)| (name.clone(), gauge.value())).collect()
    }
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

fn find<T: Clone>(among: &Mutex<BTreeMap<String, T>>, name: &str, new: impl FnOnce() -> T) -> T {
    let plain = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_');
    assert!(
        (1..=NAME_MAX).contains(&name.len()) && name.bytes().all(plain),
        "`{name}` is not the name of a counter or gauge: 1 to {NAME_MAX} of a-z 0-9 _"
    );
    let mut among = lock(among);
    if let Some(found) = among.get(name) {
        return found.clone();
    }
    assert!(among.len() < NAMES_MAX, "`{name}` is one name too many: an observer may use {NAMES_MAX}");
    among.entry(name.to_owned()).or_insert_with(new).clone()
}

#[cfg(test)]
mod tests {
    use super::*;
    use metrics_exporter_prometheus::PrometheusBuilder;

    fn kind() -> Kind {
        Kind::new("feed").unwrap()
    }

    #[test]
    fn the_sums_of_a_kind_are_exported_and_a_gauge_goes_with_its_observer() {
        let recorder = PrometheusBuilder::new().build_recorder();
        let (kind, exported) = (kind(), Exported::default());
        let of = (&kind, &exported);
        metrics::with_local_recorder(&recorder, || {
            let (one, other) = (Measures::default(), Measures::default());
            one.counter("messages", of).add(2);
            one.counter("messages", of).add(1);
            other.counter("messages", of).add(4);
            one.gauge("behind", of).set(10.0);
            one.gauge("behind", of).set(2.5);
            one.gauge("behind", of).set(f64::NAN);
            other.gauge("behind", of).set(1.0);
            assert_eq!(one.counters()["messages"], 3);
            assert!((one.gauges()["behind"] - 2.5).abs() < f64::EPSILON);
            let shown = |line: &str| {
                let text = recorder.handle().render();
                assert!(text.lines().any(|it| it == line), "{line} is missing in {text}");
            };
            shown(r#"everwatch_observer_counted_total{kind="feed",name="messages"} 7"#);
            shown(r#"everwatch_observer_gauged{kind="feed",name="behind"} 3.5"#);
            drop(one);
            shown(r#"everwatch_observer_counted_total{kind="feed",name="messages"} 7"#);
            shown(r#"everwatch_observer_gauged{kind="feed",name="behind"} 1"#);
        });
    }

    #[test]
    fn so_many_names_of_a_kind_are_exported() {
        let recorder = PrometheusBuilder::new().build_recorder();
        let (kind, exported) = (kind(), Exported::default());
        metrics::with_local_recorder(&recorder, || {
            let all: Vec<Measures> = (0..=NAMES_MAX).map(|_| Measures::default()).collect();
            for (number, measures) in all.iter().enumerate() {
                measures.counter(&format!("customer_{number}"), (&kind, &exported)).add(1);
                assert_eq!(measures.counters().len(), 1);
            }
        });
        let series = recorder.handle().render().lines().filter(|line| line.starts_with(COUNTED)).count();
        assert_eq!(series, NAMES_MAX);
    }

    #[test]
    fn a_bad_name_and_one_too_many_are_refused_by_name() {
        let refused = |names: &[&str]| {
            let (kind, exported) = (kind(), Exported::default());
            let measures = Measures::default();
            let all = || names.iter().for_each(|name| measures.counter(name, (&kind, &exported)).add(1));
            let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(all)).unwrap_err();
            panic.downcast_ref::<String>().unwrap().clone()
        };
        assert!(refused(&["Messages"]).contains("`Messages`"));
        assert!(refused(&[""]).contains("1 to 64"));
        let many: Vec<String> = (0..=NAMES_MAX).map(|number| format!("n{number}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert!(refused(&many).contains("`n20`"));
    }
}
