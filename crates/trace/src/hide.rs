//! Hides secrets in spans before they leave the process.

use opentelemetry::trace::Status;
use opentelemetry::{Array, KeyValue, StringValue, Value};
use opentelemetry_sdk::trace::SpanData;
use std::borrow::Cow;

/// The same text with its secrets hidden.
pub type Hide = fn(&str) -> Cow<'_, str>;

/// Hides secrets in each text of a span.
pub(crate) fn hide(span: &mut SpanData, hide: Hide) {
    if let Cow::Owned(hidden) = hide(&span.name) {
        span.name = hidden.into();
    }
    hide_values(&mut span.attributes, hide);
    for event in &mut span.events.events {
        if let Cow::Owned(hidden) = hide(&event.name) {
            event.name = hidden.into();
        }
        hide_values(&mut event.attributes, hide);
    }
    if let Status::Error { description } = &mut span.status
        && let Cow::Owned(hidden) = hide(description)
    {
        *description = hidden.into();
    }
}

fn hide_values(values: &mut [KeyValue], hide: Hide) {
    let hide_text = |text: &mut StringValue| {
        if let Cow::Owned(hidden) = hide(text.as_str()) {
            *text = hidden.into();
        }
    };
    for KeyValue { value, .. } in values {
        match value {
            Value::String(text) => hide_text(text),
            Value::Array(Array::String(texts)) => texts.iter_mut().for_each(hide_text),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use opentelemetry::trace::{Event, SpanContext, SpanId, SpanKind};
    use opentelemetry_sdk::trace::{SpanEvents, SpanLinks};
    use std::time::SystemTime;

    #[test]
    fn no_text_of_a_span_keeps_a_secret() {
        let told = || KeyValue::new("told", "a secret text");
        let list = Value::Array(Array::String(vec!["secret".into(), "other".into()]));
        let now = SystemTime::UNIX_EPOCH;
        let mut events = SpanEvents::default();
        events.events.push(Event::new("secret event", now, vec![told()], 0));
        let mut span = SpanData {
            span_context: SpanContext::empty_context(),
            parent_span_id: SpanId::INVALID,
            parent_span_is_remote: false,
            span_kind: SpanKind::Internal,
            name: "secret span".into(),
            start_time: now,
            end_time: now,
            attributes: vec![told(), KeyValue::new("list", list), KeyValue::new("count", 1)],
            dropped_attributes_count: 0,
            events,
            links: SpanLinks::default(),
            status: Status::error("secret error"),
            instrumentation_scope: opentelemetry::InstrumentationScope::default(),
        };
        hide(&mut span, |text| text.replace("secret", "***").into());
        let told = format!("{span:?}");
        assert!(!told.contains("secret"), "{told}");
        for kept in ["*** span", "a *** text", "*** event", "*** error", "other"] {
            assert!(told.contains(kept), "{kept}: {told}");
        }
    }
}
