//! What the tests of kinds share: an observer from JSON, with what it stores and announces.

use crate::Observer;
use crate::testing::{Seen, Trial};
use serde_json::Value;
use std::any::{Any, TypeId};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How long a state is waited for.
const PATIENCE: Duration = Duration::from_secs(10);

type SharedValue = (TypeId, Arc<dyn Any + Send + Sync>);

/// The readiness and the checkpoint of an observer, over several trials.
#[derive(Default)]
pub(super) struct Kept(Arc<Mutex<Seen>>);

impl Kept {
    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
    pub(super) fn is_ready(&self) -> bool {
        self.seen().is_ready
    }
    pub(super) fn forget_ready(&self) {
        self.seen().is_ready = false;
    }
    pub(super) fn value(&self) -> Option<Value> {
        self.seen().checkpoint.as_ref().map(|saved| serde_json::from_str(&saved.value).unwrap())
    }
}

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
pub(super) fn start<O: Observer>(spec: Value, kept: &Kept, others: Vec<SharedValue>) -> Trial {
    let observer: O = serde_json::from_value(spec).unwrap();
    kept.forget_ready();
    Trial::builder(observer).keep_in(Arc::clone(&kept.0)).share_all(others).start()
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
