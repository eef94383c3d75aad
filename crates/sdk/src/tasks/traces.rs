//! The trace of each held run. `everwatch_trace` explains why its spans are short.

use everwatch_broker::Delivery;
use everwatch_core::epoch::Epoch;
use everwatch_core::id::ObserverId;
use everwatch_core::wire::report::RunReport;
use everwatch_core::wire::trace::{TRACEPARENT, TRACESTATE, TraceContext};
use everwatch_core::wire::work::Work;
use everwatch_trace::{Kind, Span, Trace};
use std::collections::HashMap;

/// One entry for each held run; the last report of a run removes it.
#[derive(Default)]
pub(crate) struct Traces {
    held: HashMap<(ObserverId, Epoch), Trace>,
    /// The exported spans of runs whose code has not started yet, each from the delivery on.
    starting: HashMap<(ObserverId, Epoch), Span>,
}

impl Traces {
    /// A run begins, in the trace of its message. A redelivered message has the same trace.
    pub(crate) fn taken(&mut self, work: &Work, delivery: &Delivery) {
        let epoch = Epoch::new(work.generation, delivery.acquisitions);
        let parent = TraceContext::read(delivery.text(TRACEPARENT), delivery.text(TRACESTATE));
        let span = Span::begin("run", Kind::Consumer, parent.as_ref());
        describe(&span, work, epoch);
        self.held.insert((work.id, epoch), span.lasting());
        if span.is_exported() {
            self.starting.insert((work.id, epoch), span);
        }
    }

    /// Its code is started.
    pub(crate) fn started(&mut self, id: ObserverId, epoch: Epoch) -> Option<Trace> {
        self.starting.remove(&(id, epoch));
        self.held.get(&(id, epoch)).cloned()
    }

    /// The trace of a report.
    pub(crate) fn of(&mut self, report: &RunReport) -> Option<TraceContext> {
        let key = (report.id, report.epoch);
        let trace = self.held.get(&key)?;
        let context = if trace.is_sampled() { trace.context() } else { None };
        if !report.event.holds() {
            self.held.remove(&key);
            self.starting.remove(&key);
        }
        context
    }
}

/// Sets the attributes that every span of a run has.
pub(crate) fn describe(span: &Span, work: &Work, epoch: Epoch) {
    if !span.is_exported() {
        return;
    }
    span.set("everwatch.observer.id", work.id.to_string());
    span.set("everwatch.observer.name", work.name.to_string());
    span.set("everwatch.observer.kind", work.kind.to_string());
    span.set("everwatch.epoch", i64::try_from(u64::from(epoch)).unwrap_or(i64::MAX));
}
