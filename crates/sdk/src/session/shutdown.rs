//! The ends of an incarnation: in order, by the fence, or like a killed process.

use super::{End, ServiceSession};
use crate::safety::fence::MUST_BE_REPLACED;
use crate::session::replacement::Replacement;
use everwatch_core::run::machine::Input;
use everwatch_core::run::stall::only_stalled_remain;
use everwatch_core::wire::command::Cause;
use everwatch_core::wire::report::Report;
use std::time::Duration;
use tokio::time::{Instant, interval};

/// The longest wait without an input.
const LOOKS_AGAIN: Duration = Duration::from_secs(60);
/// The pause between two looks for code that blocks a thread.
const LOOKS_FOR_STALLS: Duration = Duration::from_secs(1);
/// How long the last report may take.
const GOODBYE: Duration = Duration::from_secs(2);
/// The same for the last reports of a process that is replaced. Its other observers already run elsewhere, so only the end of
/// the code that blocks a thread waits for this.
const LAST_REPORTS: Duration = Duration::from_secs(10);

/// How handing over all observers ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum HandedOver {
    Everything,
    /// Code did not end in time.
    AllButStuckCode,
    /// The fence has ended everything.
    Fenced,
}

impl ServiceSession {
    /// Hands everything over and unregisters.
    pub(super) async fn drain(mut self) -> End {
        tracing::info!(service = %self.me.id, observers = self.machine.observers(), "stopping: handing over all observers");
        match self.hand_everything_over(None).await {
            HandedOver::Fenced => End::Stopped,
            HandedOver::Everything | HandedOver::AllButStuckCode => self.unregister().await,
        }
    }

    /// Hands over as much as the code allows, and lets the process end. The process ends with code that does not stop,
    /// while it still has its session: until then, the broker gives the messages of that code to no other service.
    pub(super) async fn replace(mut self, why: &Replacement) -> End {
        tracing::error!(
            service = %self.me.id, observers = self.machine.observers(), "handing over all observers and ending: {why}"
        );
        match self.hand_everything_over(Some(why)).await {
            HandedOver::Fenced => End::Replaced(why.to_string()),
            HandedOver::Everything => {
                let _ended = self.unregister().await;
                End::Replaced(why.to_string())
            }
            HandedOver::AllButStuckCode => {
                // It does not unregister: so managers count this against the stalled observers of this heartbeat, which
                // therefore names only those because of which the process is replaced.
                let beyond = self.look_for_stalls().beyond_limit;
                let is_cause = |id| why.cause() == Cause::Stall && beyond.iter().any(|stall| stall.id == id);
                self.pulse.stalled.retain(|stalled| is_cause(stalled.id));
                self.last_heartbeat().await;
                let reports = self.next_digest();
                let said = tokio::time::timeout(LAST_REPORTS, self.reporter.confirmed(reports)).await;
                if said != Ok(true) {
                    tracing::warn!(
                        "the broker did not confirm the last reports in time; managers learn from the next services where                          the observers run, and not why they moved"
                    );
                }
                (self.me.handle.machine.end_process)(MUST_BE_REPLACED.into());
                // A simulated process ends a moment after this call.
                std::future::pending().await
            }
        }
    }

    async fn hand_everything_over(&mut self, why: Option<&Replacement>) -> HandedOver {
        let (hard, limit) = (self.me.handle.hard_stop.clone(), self.me.settings.drain_timeout);
        self.closing.cancel();
        self.step(Input::Drain(why.map(Replacement::cause))).await;
        self.heartbeat();
        let deadline = Instant::now() + limit.mul_f64(0.8);
        let mut looks = interval(LOOKS_FOR_STALLS);
        let mut forced = false;
        while !self.machine.is_empty() {
            if self.fence.reason().is_some() {
                self.fence.tripped.cancelled().await;
                return HandedOver::Fenced;
            }
            let wake = self.next_deadline();
            tokio::select! {
                biased;
                () = self.fence.tripped.cancelled() => return HandedOver::Fenced,
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
                _ = looks.tick() => {
                    let stalls = self.look_for_stalls().stalls;
                    let stall_limit = self.me.settings.stall_limit.filter(|_| why.is_some());
                    if stall_limit.is_some_and(|limit| only_stalled_remain(self.machine.observers(), &stalls, limit)) {
                        break;
                    }
                }
            }
        }
        if self.machine.is_empty() { HandedOver::Everything } else { HandedOver::AllButStuckCode }
    }

    async fn unregister(self) -> End {
        self.releases.close();
        let _in_time = tokio::time::timeout(GOODBYE, self.releases.wait()).await;
        let goodbye = self.reporter.confirmed(Report::ServiceGone);
        let said = tokio::time::timeout(GOODBYE, goodbye).await;
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
        let soonest = self.machine.next_deadline(self.now());
        soonest.map_or_else(|| Instant::now() + LOOKS_AGAIN, |at| self.started + at)
    }
}
