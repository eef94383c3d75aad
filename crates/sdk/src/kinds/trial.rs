//! What the tests of kinds share: an observer from JSON, with what it stores and announces.

use super::context_ext::Kept;
use crate::Observer;
use crate::testing::{SharedValue, Trial};
use serde_json::Value;
use std::any::{Any, TypeId};
use std::sync::Arc;
use std::time::Duration;

/// How long a state is waited for.
const PATIENCE: Duration = Duration::from_secs(10);

/// A value for [`crate::Context::shared`].
pub(super) fn shared<T: Any + Send + Sync>(value: T) -> SharedValue {
    (TypeId::of::<T>(), Arc::new(value))
}

/// A spec with further members.
pub(super) fn with(mut spec: Value, more: Value) -> Value {
    let Value::Object(more) = more else { panic!("{more} has no members") };
    spec.as_object_mut().unwrap().extend(more);
    spec
}

/// Starts an observer that keeps its checkpoint and its readiness in `kept`.
pub(super) fn start<O: Observer>(spec: Value, kept: &Arc<Kept>, mut others: Vec<SharedValue>) -> Trial {
    let observer: O = serde_json::from_value(spec).unwrap();
    kept.forget_ready();
    others.push((TypeId::of::<Kept>(), kept.clone()));
    Trial::start_among(observer, others)
}

/// Waits until something holds.
pub(super) async fn until(what: &str, holds: impl Fn() -> bool) {
    let begun = tokio::time::Instant::now();
    while !holds() {
        assert!(begun.elapsed() < PATIENCE, "not within {PATIENCE:?}: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Waits for a line of the log that contains this text.
pub(super) async fn until_logged(trial: &Trial, text: &str) {
    let holds = || trial.logged().iter().any(|line| line.contains(text));
    until(&format!("a line with `{text}`; there are {:?}", trial.logged()), holds).await;
}
