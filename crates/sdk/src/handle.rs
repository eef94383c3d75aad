//! Control of a running service by the program around it.

use crate::freeze::FreezeProof;
use crate::host_info::Machine;
use everwatch_core::id::ServiceId;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio_util::sync::CancellationToken;

/// Stops, kills and watches one service.
///
/// ```
/// let handle = everwatch::Handle::default();
/// assert!(!handle.is_ready(), "it watches no service yet");
/// handle.stop.cancel();
/// ```
#[derive(Debug, Clone, Default)]
pub struct Handle {
    /// Hand everything over, unregister, end.
    pub stop: CancellationToken,
    /// End at once: requeue everything without waiting for the code.
    pub hard_stop: CancellationToken,
    /// Ends it like a killed process, and it restarts (to try out failover).
    kill: Arc<Mutex<Option<(ServiceId, CancellationToken)>>>,
    /// Freezes it as SIGSTOP does (to try out failover). The runtime of the control loop must have one thread.
    pub frost: FreezeProof,
    /// The machine under it.
    pub machine: Machine,
    ready: Arc<AtomicBool>,
}

impl Handle {
    /// Whether the service takes all that it may, and has its session with the broker.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.ready.load(Ordering::Relaxed)
    }
    /// Ends the service like a killed process; it restarts after a pause. `false` if it does not live now,
    /// as in that pause: the call then has no effect, not even on the next incarnation.
    #[must_use]
    pub fn kill(&self) -> bool {
        self.kill_after(|_| {})
    }
    /// As [`Handle::kill`]; tells `told` which incarnation dies, before it does.
    pub(crate) fn kill_after(&self, told: impl FnOnce(ServiceId)) -> bool {
        match self.lock_kill().take() {
            Some((incarnation, life)) => {
                told(incarnation);
                life.cancel();
                true
            }
            None => false,
        }
    }
    /// An incarnation lives from now on: cancelled once it is to die.
    pub(crate) fn registered(&self, incarnation: ServiceId) -> CancellationToken {
        let life = CancellationToken::new();
        *self.lock_kill() = Some((incarnation, life.clone()));
        life
    }
    /// The incarnation that lives; none while the service does not run.
    #[cfg(feature = "dev")]
    pub(crate) fn incarnation(&self) -> Option<ServiceId> {
        self.lock_kill().as_ref().map(|(incarnation, _)| *incarnation)
    }
    /// No incarnation lives.
    pub(crate) fn dead(&self) {
        *self.lock_kill() = None;
    }
    fn lock_kill(&self) -> MutexGuard<'_, Option<(ServiceId, CancellationToken)>> {
        self.kill.lock().unwrap_or_else(PoisonError::into_inner)
    }
    pub(crate) fn set_ready(&self, ready: bool) {
        self.ready.store(ready, Ordering::Relaxed);
    }
}
