//! The ends of an incarnation: in order, by the fence, or like a killed process.

use super::{End, ServiceSession};
use everwatch_core::run::machine::Input;
use everwatch_core::wire::report::Report;
use std::time::Duration;
use tokio::time::Instant;

/// The longest wait without an input.
const LOOKS_AGAIN: Duration = Duration::from_secs(60);

impl ServiceSession {
    /// Hands everything over and unregisters.
    pub(super) async fn drain(mut self) -> End {
        let (hard, limit) = (self.me.handle.hard_stop.clone(), self.me.settings.drain_timeout);
        tracing::info!(service = %self.me.id, observers = self.machine.observers(), "stopping: handing over all observers");
        self.closing.cancel();
        self.step(Input::Drain).await;
        self.heartbeat();
        let deadline = Instant::now() + limit.mul_f64(0.8);
        let mut forced = false;
        while !self.machine.is_empty() {
            if self.fence.reason().is_some() {
                self.fence.tripped.cancelled().await;
                return End::Stopped;
            }
            let wake = self.next_deadline();
            tokio::select! {
                biased;
                () = self.fence.tripped.cancelled() => return End::Stopped,
                input = self.inboxes.next() => self.on_input(input).await,
                () = tokio::time::sleep_until(wake) => self.step(Input::Wake).await,
                () = hard.cancelled(), if !forced => {
                    forced = true;
                    self.step(Input::AbortAll).await;
                }
                () = tokio::time::sleep_until(deadline), if !forced => {
                    forced = true;
                    tracing::warn!(observers = self.machine.observers(), "drain timeout exceeded; aborting");
                    self.step(Input::AbortAll).await;
                }
                () = tokio::time::sleep_until(deadline + limit.mul_f64(0.1)), if forced => break,
            }
        }
        let goodbye = self.reporter.confirmed(Report::ServiceGone);
        let said = tokio::time::timeout(Duration::from_secs(2), goodbye).await;
        tracing::info!(service = %self.me.id, goodbye = said.unwrap_or(false), "stopped");
        self.fence.close();
        End::Stopped
    }

    /// Ends like a killed process: sends nothing and stops everything.
    pub(super) async fn die(self) -> End {
        self.me.handle.dead();
        self.units.cancel_all(Duration::ZERO);
        self.units.abort_all();
        self.fence.close();
        self.me.session.close().await;
        End::Killed
    }

    pub(super) async fn tripped(&self) -> End {
        // What this service can no longer start must not wait here for its end.
        self.closing.cancel();
        self.fence.tripped.cancelled().await;
        End::Lost(self.fence.reason().unwrap_or_default())
    }

    /// When the machine must step without an input.
    pub(super) fn next_deadline(&self) -> Instant {
        let soonest = self.machine.next_deadline(self.started.elapsed());
        soonest.map_or_else(|| Instant::now() + LOOKS_AGAIN, |at| self.started + at)
    }
}
