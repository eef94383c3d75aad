//! The ends of an incarnation: in order, by the fence, or like a killed process.

use super::{End, Life};
use crate::unit::Ended;
use everwatch_core::message::{Intent, Report};
use everwatch_core::slots::Input;
use std::time::Duration;
use tokio::time::Instant;

impl Life {
    /// Hands everything over, says goodbye.
    pub(super) async fn drain(mut self) -> End {
        let (hard, limit) = (self.me.handle.hard_stop.clone(), self.me.settings.drain_timeout);
        tracing::info!(service = %self.me.id, observers = self.slots.held(), "stopping: handing everything over");
        self.closing.cancel();
        self.step(Input::Drain).await;
        self.beat(Intent::Draining);
        let deadline = Instant::now() + limit.mul_f64(0.8);
        let mut forced = false;
        while self.slots.held() > 0 {
            if self.fence.reason().is_some() {
                self.fence.fallen.cancelled().await;
                return End::Stopped;
            }
            let wake = self.next_deadline();
            tokio::select! {
                biased;
                () = self.fence.fallen.cancelled() => return End::Stopped,
                Some(report) = self.settled.recv() => self.on_confirmed(report).await,
                Some(Ended { id, epoch, outcome }) = self.ended.recv() => {
                    self.step(Input::Ended { id, epoch, outcome }).await;
                }
                Some(incoming) = self.incoming.recv() => self.on_incoming(incoming).await,
                () = tokio::time::sleep_until(wake) => self.step(Input::Wake).await,
                () = hard.cancelled(), if !forced => {
                    forced = true;
                    self.step(Input::AbortAll).await;
                }
                () = tokio::time::sleep_until(deadline), if !forced => {
                    forced = true;
                    tracing::warn!(observers = self.slots.held(), "the time for an orderly stop is over: aborting");
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

    /// Ends like a killed process: nothing is said, everything stops.
    pub(super) async fn die(self) -> End {
        self.me.handle.dead();
        self.units.cancel_all();
        self.units.abort_all();
        self.fence.close();
        self.me.session.close().await;
        End::Killed
    }

    pub(super) async fn fallen(&self) -> End {
        self.fence.fallen.cancelled().await;
        End::Lost(self.fence.reason().unwrap_or_default())
    }
}
