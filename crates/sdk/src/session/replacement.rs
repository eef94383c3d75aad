//! Watches what the code of observers does to its process, once a second: it may block threads or use too much memory.
//! `core::run::stall` decides which code stalls and when only a new process helps.

use super::ServiceSession;
use crate::boot_clock::boottime;
use crate::metric;
use everwatch_core::clock::show;
use everwatch_core::run::stall::{Stall, StallPass};
use everwatch_core::wire::command::Cause;
use everwatch_core::wire::heartbeat::{STALLED_MAX, StalledObserver};
use std::fmt;
use std::time::Duration;

/// Why a process must be replaced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Replacement {
    /// The code of an observer has held a thread for too long.
    Stall { observer: String, lasted: Duration },
    /// The process uses more memory than it may, in bytes.
    Memory { resident: u64, limit: u64 },
}

impl Replacement {
    /// The cause that the handovers are reported with.
    pub(super) fn cause(&self) -> Cause {
        match self {
            Self::Stall { .. } => Cause::Stall,
            Self::Memory { .. } => Cause::Memory,
        }
    }
}

impl fmt::Display for Replacement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stall { observer, lasted } => write!(
                f,
                "the code of observer {observer} has blocked a thread for {}; service.stall_limit replaces the \
                 process: move blocking calls to tokio::task::spawn_blocking, or pause the observer",
                show(Duration::from_secs(lasted.as_secs()))
            ),
            Self::Memory { resident, limit } => write!(
                f,
                "the process uses {resident} bytes of memory; service.memory_limit ({limit} bytes) replaces it: find \
                 the observer that leaks, or raise the limit"
            ),
        }
    }
}

impl ServiceSession {
    /// Logs, counts and reports the code that blocks a thread; returns why the process must be replaced, if it must.
    pub(super) fn watch_process(&mut self) -> Option<Replacement> {
        let pass = self.look_for_stalls();
        if let Some(stall) = pass.beyond_limit.first() {
            let observer =
                self.units.work(stall.id).map_or_else(|| stall.id.to_string(), |it| it.name.to_string());
            return Some(Replacement::Stall { observer, lasted: stall.lasted });
        }
        let limit = self.me.settings.memory_limit?;
        let resident = (self.me.handle.machine.resident_bytes)();
        (resident > limit).then_some(Replacement::Memory { resident, limit })
    }

    pub(super) fn look_for_stalls(&mut self) -> StallPass {
        let pass = self.stalls.pass(&self.units.held_threads(), boottime());
        metrics::gauge!(metric::BLOCKED).set(u32::try_from(pass.stalls.len()).unwrap_or(u32::MAX));
        metrics::counter!(metric::STALLS).increment(pass.began);
        for stall in &pass.news {
            self.log_stall(stall);
        }
        let named = pass.stalls.iter().filter_map(|stall| {
            let name = self.units.work(stall.id)?.name.clone();
            let stalled_ms = u64::try_from(stall.lasted.as_millis()).unwrap_or(u64::MAX);
            Some(StalledObserver { id: stall.id, name, stalled_ms })
        });
        self.pulse.stalled = named.take(STALLED_MAX).collect();
        if pass.is_change() {
            self.heartbeat();
        }
        pass
    }

    fn log_stall(&self, stall: &Stall) {
        let Some(work) = self.units.work(stall.id) else { return };
        tracing::warn!(
            observer = work.name.as_str(), id = %work.id, kind = work.kind.as_str(), stalled = ?stall.lasted,
            "stalled: its code blocks a thread, and others may have to wait; move blocking calls to \
             tokio::task::spawn_blocking"
        );
    }
}
