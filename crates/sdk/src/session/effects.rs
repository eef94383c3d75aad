//! Carries out the effects of the machine.

use super::ServiceSession;
use crate::session::reporter::Say;
use everwatch_broker::{Consume, Receipt, Settle};
use everwatch_core::capacity::blocks::BlockEffect;
use everwatch_core::run::machine::{Effect, Input};
use everwatch_core::wire::report::{RunEvent, RunReport};

impl ServiceSession {
    /// Feeds one input to the machine and carries out its effects.
    pub(super) async fn step(&mut self, input: Input<Receipt>) {
        // A fenced service reports nothing and starts nothing: its messages are no longer its own.
        if self.fence.reason().is_some() {
            return;
        }
        for effect in self.machine.step(input, self.now()) {
            // This loop may run before the thread of the fence does, for example after a freeze. If a settlement were
            // skipped while the fence stands, its message would be held for ever.
            if matches!(effect, Effect::Start { .. } | Effect::Settle(_)) && !self.fence.stands() {
                return self.fence.trip("the broker has not answered in time");
            }
            self.carry_out(effect).await;
        }
    }

    async fn carry_out(&mut self, effect: Effect<Receipt>) {
        match effect {
            Effect::Start { epoch, attempt, work } => {
                self.starts.increment(1);
                let trace = self.traces.started(work.id, epoch);
                self.units.start(work, epoch, attempt, trace);
            }
            Effect::Cancel { id, reason } => self.units.cancel(id, reason),
            Effect::Abort { id } => self.units.abort(id),
            Effect::Report(report) => {
                if let RunEvent::Refused { why } = &report.event {
                    tracing::warn!(observer = %report.id, why, "refused: handed over to another service");
                }
                let trace = self.end_logs(&report);
                self.reporter.say(Say::Run(report, trace)).await;
            }
            Effect::Settle(report) => {
                let trace = self.end_logs(&report);
                self.reporter.say(Say::Settle(report, trace)).await;
            }
            Effect::Announce(report) => {
                tracing::info!(
                    observer = %report.id, epoch = %report.epoch, "suspected of ending its services: it starts alone"
                );
                let trace = self.end_logs(&report);
                self.reporter.say(Say::Settle(report, trace)).await;
            }
            Effect::Ack(receipt) => self.on_settle(self.me.session.ack(receipt).await),
            // The work queue of a single pool refuses the proof. Managers free the place without the report, later.
            Effect::Release(receipt, _) if self.me.settings.pool_single => {
                self.on_settle(self.me.session.ack(receipt).await);
            }
            Effect::Release(receipt, report) => self.release(receipt, report),
            Effect::Requeue(receipt) => self.on_settle(self.me.session.requeue(receipt).await),
            Effect::Lost { id, epoch } => {
                self.fence.trip(&format!("observer {id}, held as {epoch}, was handed out again"));
            }
            Effect::Block(effect) => self.follow_block(&effect),
            Effect::Ready => self.me.handle.set_ready(true),
            Effect::Directed { directives, capacity } => {
                let (cordoned, draining) = (directives.cordoned, directives.draining);
                tracing::info!(cordoned, draining, capacity, "directives changed");
                self.heartbeat();
            }
            Effect::Describe(ids) => self.describe(&ids).await,
            Effect::List(ranges) => self.list(&ranges).await,
            Effect::AnswerLogs(asked) => self.tell_logs(asked),
            Effect::Checkpoints(answers) => self.checkpoints.on_answers(answers),
            Effect::Permits(answers) => self.emitter.permits.on_answers(&answers),
        }
    }

    /// Acknowledges a message that counts towards limits, and reports that once the queue has accepted it.
    fn release(&self, receipt: Receipt, report: RunReport) {
        let (session, fence) = (self.me.session.clone(), self.fence.clone());
        let reporter = self.reporter.clone();
        let released = async move {
            match session.ack_accepted(receipt).await {
                Settle::Done => reporter.say(Say::Run(report, None)).await,
                Settle::NotOurs => fence.trip("a message is no longer ours"),
            }
        };
        self.helpers.spawn(self.releases.track_future(released));
    }

    /// Closes the logs and checkpoints of a run that this service no longer holds; returns the trace of the run.
    fn end_logs(&mut self, report: &RunReport) -> Option<everwatch_core::wire::trace::TraceContext> {
        if !report.event.holds() {
            self.me.logs.close(report.id, report.epoch);
            self.checkpoints.end((report.id, report.epoch));
        }
        self.traces.of(report)
    }

    fn follow_block(&mut self, effect: &BlockEffect) {
        match *effect {
            BlockEffect::Open { block, channel, prefetch, priority } => {
                let queue = self.topology.work(&self.me.settings.pool);
                self.open(channel, block, Consume { queue, prefetch, priority });
            }
            BlockEffect::Cancel { channel } => self.cancel_block(channel),
            BlockEffect::Close { channel } => drop(self.channels.remove(&channel)),
        }
    }
}
