//! Spans, trace contexts and descriptions of metrics. This is the only crate that depends on OpenTelemetry: no other crate knows
//! whether the process exports spans. If it does not, a span passes on the context of its parent unchanged.
//!
//! OpenTelemetry exports a span only when it ends, but an observer may run for years. A span that covered a
//! whole run would stay invisible until the run ends, a killed service would lose it, and its children would
//! refer to a parent that does not exist; workflow engines that tried this had that problem. Therefore spans
//! are short, one for each event of a run. The span `run` lasts from the delivery to the start. Its context
//! stays the context of the run, so that the code's own spans, the reports and `attempt ended` are children
//! of a span that is already exported.

mod hide;
mod lost;
pub mod metric;
mod otlp;

pub use hide::Hide;
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

/// The instrumentation scope of all spans.
const SCOPE: &str = "everwatch";

/// The role of a span in its trace.
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

/// A span that is open; dropping it ends the span.
#[derive(Debug)]
pub struct Span(Context);

impl Span {
    /// Starts a span now under `parent`; without a parent, it starts a new trace. Use few names; put ids into
    /// attributes.
    pub fn begin(name: impl Into<Cow<'static, str>>, kind: Kind, parent: Option<&TraceContext>) -> Self {
        if !otlp::exports() {
            return Self(parent.map_or_else(|| context_of(&unsampled()), context_of));
        }
        let parent = parent.map_or_else(Context::new, context_of);
        let tracer = global::tracer(SCOPE);
        let builder = tracer.span_builder(name).with_kind(kind.into());
        let context = parent.with_span(tracer.build_with_context(builder, &parent));
        match (context.span().span_context().is_valid(), parent.span().span_context().is_valid()) {
            (true, _) => Self(context),
            // The process has stopped exporting spans.
            (false, true) => Self(parent),
            (false, false) => Self(context_of(&unsampled())),
        }
    }

    /// The context of this span, for its children.
    #[must_use]
    pub fn trace(&self) -> TraceContext {
        trace_of(self.0.span().span_context()).unwrap_or_else(unsampled)
    }
    /// The same context as [`Span::trace`] in a form that code can run in for long: it does not keep the span.
    #[must_use]
    pub fn lasting(&self) -> Trace {
        let span = self.0.span();
        let context = span.span_context();
        // The context of a parent in another process has no span that would stay in memory.
        Trace(if context.is_remote() { self.0.clone() } else { remote(context.clone()) })
    }
    /// Whether anything that is set on it is exported.
    #[must_use]
    pub fn is_exported(&self) -> bool {
        self.0.span().is_recording()
    }
    pub fn set(&self, key: &'static str, value: impl Into<Value>) {
        self.0.span().set_attribute(KeyValue::new(key, value));
    }
    /// Marks the span as failed with this reason.
    pub fn fail(&self, why: impl Into<Cow<'static, str>>) {
        self.0.span().set_status(Status::error(why));
    }
    /// Runs the future inside this span: spans that the future starts are children of this span.
    pub fn around<F: Future>(&self, future: F) -> WithContext<F> {
        future.with_context(self.0.clone())
    }
}

impl Drop for Span {
    fn drop(&mut self) {
        if otlp::exports() {
            self.0.span().end();
        }
    }
}

/// The context of the span in which the caller runs.
#[must_use]
pub fn current() -> Option<TraceContext> {
    Context::map_current(|context| trace_of(context.span().span_context()))
}

/// A trace whose parent span has ended or continues in another process. Clones share one allocation.
#[derive(Debug, Clone)]
pub struct Trace(Context);

impl Trace {
    /// Whether its spans are exported.
    #[must_use]
    pub fn is_sampled(&self) -> bool {
        self.0.span().span_context().is_sampled()
    }
    /// Its context, for messages and requests.
    #[must_use]
    pub fn context(&self) -> Option<TraceContext> {
        trace_of(self.0.span().span_context())
    }
    /// Runs a piece of code inside the trace: spans that the code starts are children of its parent span.
    pub fn within<T>(&self, code: impl FnOnce() -> T) -> T {
        let _entered = self.0.clone().attach();
        code()
    }
}

/// A new trace that is not exported.
fn unsampled() -> TraceContext {
    let trace = NonZeroU128::new(rand::random()).unwrap_or(NonZeroU128::MIN);
    let span = NonZeroU64::new(rand::random()).unwrap_or(NonZeroU64::MIN);
    TraceContext::new(trace, span, 0)
}

fn context_of(trace: &TraceContext) -> Context {
    let state = trace.state().and_then(|state| TraceState::from_str(state).ok()).unwrap_or_default();
    remote(SpanContext::new(
        TraceId::from_bytes(trace.trace.get().to_be_bytes()),
        SpanId::from_bytes(trace.span.get().to_be_bytes()),
        TraceFlags::new(trace.flags()),
        true,
        state,
    ))
}

fn remote(span: SpanContext) -> Context {
    Context::new().with_remote_span_context(span)
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
        assert_eq!(span.lasting().within(current), parent);
        assert_eq!(span.lasting().context(), parent);
    }

    #[test]
    fn without_a_parent_a_new_trace_begins_that_is_not_exported() {
        let (one, other) = (Span::begin("x", Kind::Server, None), Span::begin("x", Kind::Server, None));
        assert_ne!(one.trace().trace, other.trace().trace);
        assert!(!one.trace().is_sampled());
    }
}
