//! The trace of each held run. `everwatch_trace` explains why its spans are short.

use everwatch_broker::Delivery;
use everwatch_core::epoch::Epoch;
use everwatch_core::id::ObserverId;
use everwatch_core::wire::report::RunReport;
use everwatch_core::wire::trace::{TRACEPARENT, TRACESTATE, TraceContext};
use everwatch_core::wire::work::Work;
use everwatch_trace::{Kind, Span};
use std::collections::HashMap;

/// One entry for each held run; the last report of a run removes it.
#[derive(Default)]
pub(crate) struct Traces(HashMap<(ObserverId, Epoch), Run>);

struct Run {
    trace: TraceContext,
    /// From its delivery to its start.
    starting: Option<Span>,
}

impl Traces {
    /// A run begins, in the trace of its message. A redelivered message has the same trace.
    pub(crate) fn taken(&mut self, work: &Work, delivery: &Delivery) {
        let epoch = Epoch::new(work.generation, delivery.acquisitions);
        let parent = TraceContext::read(delivery.text(TRACEPARENT), delivery.text(TRACESTATE));
        let span = Span::begin("run", Kind::Consumer, parent.as_ref());
        describe(&span, work, epoch);
        self.0.insert((work.id, epoch), Run { trace: span.trace(), starting: Some(span) });
    }

    /// Its code is started.
    pub(crate) fn started(&mut self, id: ObserverId, epoch: Epoch) -> Option<TraceContext> {
        let run = self.0.get_mut(&(id, epoch))?;
        run.starting = None;
        Some(run.trace.clone())
    }

    /// The trace of a report.
    pub(crate) fn of(&mut self, report: &RunReport) -> Option<TraceContext> {
        let key = (report.id, report.epoch);
        let trace = self.0.get(&key)?.trace.clone();
        if !report.event.holds() {
            self.0.remove(&key);
        }
        trace.is_sampled().then_some(trace)
    }
}

/// Sets the attributes that every span of a run has.
pub(crate) fn describe(span: &Span, work: &Work, epoch: Epoch) {
    span.set("everwatch.observer.id", work.id.to_string());
    span.set("everwatch.observer.name", work.name.to_string());
    span.set("everwatch.observer.kind", work.kind.to_string());
    span.set("everwatch.epoch", i64::try_from(u64::from(epoch)).unwrap_or(i64::MAX));
}
