//! Spans, and the trace that running code belongs to. The only crate that names OpenTelemetry: nobody else
//! knows whether spans leave the process. Where they do not, a context is passed on as it came.
//!
//! A span is exported when it ends, and only then; an observer may run for years. A span over its whole run
//! would never be seen, a killed service would take it along, and whatever hangs below it would hang below
//! nothing (so it went where workflow engines tried it). Spans are therefore short, one for each thing that
//! happens to a run: `run` lasts from its delivery to its start, and its context is the run's from then on, so
//! that the code's own spans, the reports and `attempt ended` hang below a span that is exported already.

mod lost;
mod otlp;

pub use lost::{LOST, LOST_LOG_LINES};
pub use otlp::{Export, ExportError, Exporting};

use everwatch_core::wire::trace::TraceContext;
use opentelemetry::trace::{
    FutureExt as _, SpanContext, SpanId, SpanKind, Status, TraceContextExt as _, TraceFlags, TraceId,
    TraceState, Tracer as _, WithContext,
};
use opentelemetry::{Context, KeyValue, Value, global};
use std::borrow::Cow;
use std::num::{NonZeroU64, NonZeroU128};
use std::str::FromStr as _;

/// What all spans come from.
const SCOPE: &str = "everwatch";

/// What a span does for its trace.
#[derive(Debug, Clone, Copy)]
pub enum Kind {
    /// Answers a request.
    Server,
    /// Sends a message.
    Producer,
    /// Handles a message.
    Consumer,
    Internal,
}

impl From<Kind> for SpanKind {
    fn from(kind: Kind) -> Self {
        match kind {
            Kind::Server => Self::Server,
            Kind::Producer => Self::Producer,
            Kind::Consumer => Self::Consumer,
            Kind::Internal => Self::Internal,
        }
    }
}

/// Something that is going on; it ends when this is dropped.
#[derive(Debug)]
pub struct Span(Context);

impl Span {
    /// Begins now, under `parent`; without one a new trace begins. Names are few: ids are attributes.
    pub fn begin(name: impl Into<Cow<'static, str>>, kind: Kind, parent: Option<&TraceContext>) -> Self {
        let parent = parent.map_or_else(Context::new, context_of);
        let tracer = global::tracer(SCOPE);
        let builder = tracer.span_builder(name).with_kind(kind.into());
        let context = parent.with_span(tracer.build_with_context(builder, &parent));
        match (context.span().span_context().is_valid(), parent.span().span_context().is_valid()) {
            (true, _) => Self(context),
            // Nothing is exported (any more).
            (false, true) => Self(parent),
            (false, false) => Self(context_of(&unsampled())),
        }
    }

    /// What comes next is a child of this.
    #[must_use]
    pub fn trace(&self) -> TraceContext {
        trace_of(self.0.span().span_context()).unwrap_or_else(unsampled)
    }
    pub fn set(&self, key: &'static str, value: impl Into<Value>) {
        self.0.span().set_attribute(KeyValue::new(key, value));
    }
    /// It failed; says why.
    pub fn fail(&self, why: impl Into<Cow<'static, str>>) {
        self.0.span().set_status(Status::error(why));
    }
    /// The future, with this as what is going on: its spans are children of this.
    pub fn around<F: Future>(&self, future: F) -> WithContext<F> {
        future.with_context(self.0.clone())
    }
}

impl Drop for Span {
    fn drop(&mut self) {
        self.0.span().end();
    }
}

/// What is going on where this is called.
#[must_use]
pub fn current() -> Option<TraceContext> {
    Context::map_current(|context| trace_of(context.span().span_context()))
}

/// The future, as a part of a trace whose span has ended or goes on elsewhere.
pub fn within<F: Future>(trace: &TraceContext, future: F) -> WithContext<F> {
    future.with_context(context_of(trace))
}

/// A new trace that is not exported.
fn unsampled() -> TraceContext {
    let trace = NonZeroU128::new(rand::random()).unwrap_or(NonZeroU128::MIN);
    let span = NonZeroU64::new(rand::random()).unwrap_or(NonZeroU64::MIN);
    TraceContext::new(trace, span, 0)
}

fn context_of(trace: &TraceContext) -> Context {
    let state = trace.state().and_then(|state| TraceState::from_str(state).ok()).unwrap_or_default();
    Context::new().with_remote_span_context(SpanContext::new(
        TraceId::from_bytes(trace.trace.get().to_be_bytes()),
        SpanId::from_bytes(trace.span.get().to_be_bytes()),
        TraceFlags::new(trace.flags()),
        true,
        state,
    ))
}

fn trace_of(span: &SpanContext) -> Option<TraceContext> {
    let trace = NonZeroU128::new(u128::from_be_bytes(span.trace_id().to_bytes()))?;
    let id = NonZeroU64::new(u64::from_be_bytes(span.span_id().to_bytes()))?;
    let context = TraceContext::new(trace, id, span.trace_flags().to_u8());
    Some(context.with_state(&span.trace_state().header()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    #[tokio::test]
    async fn where_nothing_is_exported_a_context_is_passed_on_as_it_came() {
        let parent = TraceContext::read(Some(PARENT), Some("a=1,b=2"));
        let span = Span::begin("x", Kind::Consumer, parent.as_ref());
        span.set("key", "value");
        assert_eq!(Some(span.trace()), parent);
        assert_eq!(current(), None);
        assert_eq!(span.around(async { current() }).await, parent);
        assert_eq!(within(&span.trace(), async { current() }).await, parent);
    }

    #[test]
    fn without_a_parent_a_new_trace_begins_that_nobody_exports() {
        let (one, other) = (Span::begin("x", Kind::Server, None), Span::begin("x", Kind::Server, None));
        assert_ne!(one.trace().trace, other.trace().trace);
        assert!(!one.trace().is_sampled());
    }
}
