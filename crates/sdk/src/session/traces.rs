//! Which trace each run that is held belongs to. Why its spans are short: `everwatch_trace`.

use everwatch_broker::Delivery;
use everwatch_core::epoch::Epoch;
use everwatch_core::id::ObserverId;
use everwatch_core::message::{RunReport, Work};
use everwatch_core::trace::{TRACEPARENT, TRACESTATE, TraceContext};
use everwatch_trace::{Kind, Span};
use std::collections::HashMap;

/// As many as are held: a run leaves with the report that says so.
#[derive(Default)]
pub(super) struct Traces(HashMap<(ObserverId, Epoch), Run>);

struct Run {
    trace: TraceContext,
    /// From its delivery to its start.
    starting: Option<Span>,
}

impl Traces {
    /// A run begins, in the trace of its message. A redelivery has the same, whoever had it before.
    pub(super) fn taken(&mut self, work: &Work, delivery: &Delivery) {
        let epoch = Epoch::new(work.generation, delivery.acquisitions);
        let parent = TraceContext::read(delivery.text(TRACEPARENT), delivery.text(TRACESTATE));
        let span = Span::begin("run", Kind::Consumer, parent.as_ref());
        describe(&span, work, epoch);
        self.0.insert((work.id, epoch), Run { trace: span.trace(), starting: Some(span) });
    }

    /// Its code is started.
    pub(super) fn started(&mut self, id: ObserverId, epoch: Epoch) -> Option<TraceContext> {
        let run = self.0.get_mut(&(id, epoch))?;
        run.starting = None;
        Some(run.trace.clone())
    }

    /// The trace that a report is sent with.
    pub(super) fn of(&mut self, report: &RunReport) -> Option<TraceContext> {
        let key = (report.id, report.epoch);
        let trace = self.0.get(&key)?.trace.clone();
        if !report.event.holds() {
            self.0.remove(&key);
        }
        trace.is_sampled().then_some(trace)
    }
}

/// What every span of a run says of it.
pub(crate) fn describe(span: &Span, work: &Work, epoch: Epoch) {
    span.set("everwatch.observer.id", work.id.to_string());
    span.set("everwatch.observer.name", work.name.to_string());
    span.set("everwatch.observer.kind", work.kind.to_string());
    span.set("everwatch.epoch", i64::try_from(u64::from(epoch)).unwrap_or(i64::MAX));
}
