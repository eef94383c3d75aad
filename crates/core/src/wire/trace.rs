//! Trace contexts in the header format of W3C Trace Context. This module depends on no tracer and no exporter.

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt::{Display, Formatter};
use std::num::{NonZeroU64, NonZeroU128};

/// The names of the headers.
pub const TRACEPARENT: &str = "traceparent";
pub const TRACESTATE: &str = "tracestate";

/// The supported flags: sampled, and random trace id.
const SAMPLED: u8 = 1;
const KNOWN: u8 = 3;
/// The longest `tracestate` that is passed on, and its most members.
const STATE_MAX: usize = 512;
const MEMBERS_MAX: usize = 32;

/// A position in a trace: the parent span of the next span. Displayed as a `traceparent`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceContext {
    pub trace: NonZeroU128,
    pub span: NonZeroU64,
    flags: u8,
    state: Option<Box<str>>,
}

impl TraceContext {
    #[must_use]
    pub fn new(trace: NonZeroU128, span: NonZeroU64, flags: u8) -> Self {
        Self { trace, span, flags: flags & KNOWN, state: None }
    }

    /// Parses the two headers. An invalid `traceparent` means no trace and raises no error, as W3C requires. An invalid
    /// `tracestate` is dropped.
    #[must_use]
    pub fn read(parent: Option<&str>, state: Option<&str>) -> Option<Self> {
        let it = parse(parent?.trim())?;
        Some(it.with_state(state.unwrap_or_default()))
    }

    /// Adds the vendors' `tracestate`, if it is valid.
    #[must_use]
    pub fn with_state(mut self, state: &str) -> Self {
        let state = state.trim();
        self.state = is_state(state).then(|| state.into());
        self
    }

    #[must_use]
    pub fn state(&self) -> Option<&str> {
        self.state.as_deref()
    }
    #[must_use]
    pub fn flags(&self) -> u8 {
        self.flags
    }
    /// Whether its spans are exported, as the originator of the trace decided.
    #[must_use]
    pub fn is_sampled(&self) -> bool {
        self.flags & SAMPLED != 0
    }
    /// The trace id in its usual text form.
    #[must_use]
    pub fn trace_id(&self) -> String {
        format!("{:032x}", self.trace)
    }

    /// The headers that carry it.
    pub fn headers(&self) -> impl Iterator<Item = (&'static str, String)> {
        let state = self.state.as_ref().map(|state| (TRACESTATE, state.to_string()));
        [(TRACEPARENT, self.to_string())].into_iter().chain(state)
    }
}

impl Display for TraceContext {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        write!(f, "00-{:032x}-{:016x}-{:02x}", self.trace, self.span, self.flags)
    }
}

/// A version above 00 may append fields to those of 00; `ff` is invalid.
fn parse(text: &str) -> Option<TraceContext> {
    let (head, rest) = text.split_at_checked(55)?;
    let mut parts = head.split('-');
    let (version, trace, span, flags) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    if parts.next().is_some() || (version.len(), trace.len(), span.len()) != (2, 32, 16) {
        return None;
    }
    let lower = |part: &str| part.bytes().all(|c| matches!(c, b'0'..=b'9' | b'a'..=b'f'));
    if version == "ff" || ![version, trace, span, flags].into_iter().all(lower) {
        return None;
    }
    if !rest.is_empty() && (version == "00" || !rest.starts_with('-')) {
        return None;
    }
    let trace = NonZeroU128::new(u128::from_str_radix(trace, 16).ok()?)?;
    let span = NonZeroU64::new(u64::from_str_radix(span, 16).ok()?)?;
    Some(TraceContext::new(trace, span, u8::from_str_radix(flags, 16).ok()?))
}

fn is_state(text: &str) -> bool {
    let mut keys: Vec<&str> = Vec::new();
    let members = text.split(',').map(str::trim).filter(|member| !member.is_empty());
    let all = members.map(|member| {
        let (key, value) = member.split_once('=')?;
        let again = keys.contains(&key);
        keys.push(key);
        (!again && is_key(key) && is_value(value)).then_some(())
    });
    let count = all.collect::<Option<Vec<()>>>().map_or(0, |all| all.len());
    text.len() <= STATE_MAX && (1..=MEMBERS_MAX).contains(&count)
}

fn is_key(key: &str) -> bool {
    let legal = |c: u8| matches!(c, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-' | b'*' | b'/' | b'@');
    let first = key.bytes().next().is_some_and(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
    first && key.bytes().all(legal)
}

fn is_value(value: &str) -> bool {
    let legal = |c: u8| matches!(c, b' '..=b'~') && c != b',' && c != b'=';
    !value.is_empty() && value.bytes().all(legal)
}

/// As rows and reports carry it: two members named like the headers.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct TraceHeaders {
    traceparent: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tracestate: Option<String>,
}

/// For `#[serde(with)]`: an invalid trace reads as no trace, and never makes a row or a report unreadable.
pub mod carried {
    use super::{Deserialize, Deserializer, Serialize, Serializer, TraceContext, TraceHeaders};

    /// # Errors
    /// The serializer's own.
    pub fn serialize<S: Serializer>(trace: &Option<TraceContext>, serializer: S) -> Result<S::Ok, S::Error> {
        let carried = trace.as_ref().map(|trace| TraceHeaders {
            traceparent: trace.to_string(),
            tracestate: trace.state().map(str::to_owned),
        });
        carried.serialize(serializer)
    }

    /// # Errors
    /// If the value is not an object of strings.
    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<TraceContext>, D::Error> {
        let carried = Option::<TraceHeaders>::deserialize(from)?;
        Ok(carried.and_then(|it| TraceContext::read(Some(&it.traceparent), it.tracestate.as_deref())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    fn read(parent: &str) -> Option<TraceContext> {
        TraceContext::read(Some(parent), None)
    }
    fn state(text: &str) -> Option<String> {
        TraceContext::read(Some(PARENT), Some(text)).unwrap().state().map(str::to_owned)
    }

    #[test]
    fn a_traceparent_round_trips() {
        let it = read(PARENT).unwrap();
        assert_eq!((it.to_string().as_str(), it.is_sampled()), (PARENT, true));
        assert_eq!(it.trace_id(), "0af7651916cd43dd8448eb211c80319c");
        assert!(!read(&PARENT.replace("-01", "-00")).unwrap().is_sampled());
        // A later version is parsed as version 00, and unknown flags are not passed on.
        let later = read(&format!("{}-more", PARENT.replacen("00", "cc", 1).replace("-01", "-fd"))).unwrap();
        assert_eq!(later.to_string(), PARENT);
    }

    #[test]
    fn an_invalid_traceparent_is_no_trace() {
        let zeros = |part: &str| PARENT.replace(part, &"0".repeat(part.len()));
        for wrong in [
            "",
            "00",
            &PARENT[..54],
            &format!("{PARENT}-more"),
            &format!("{PARENT}0"),
            &PARENT.replacen("00", "ff", 1),
            &format!("{}x", PARENT.replacen("00", "01", 1)),
            &PARENT.to_uppercase(),
            &PARENT.replace('-', "_"),
            &PARENT.replace("0af7", "0ag7"),
            &PARENT.replace("0af7", "+af7"),
            &zeros("0af7651916cd43dd8448eb211c80319c"),
            &zeros("b7ad6b7169203331"),
            "00-é0af7651916cd43dd8448eb211c80319-b7ad6b7169203331-01",
        ] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
        assert_eq!(TraceContext::read(None, Some("a=b")), None);
    }

    #[test]
    fn a_valid_tracestate_is_passed_on() {
        for right in ["rojo=00f067aa0ba902b7,congo=t61rcWkgMzE", "t@v=x", "a=1, b=2,", &many(32)] {
            assert_eq!(state(right), Some(right.to_owned()));
        }
        let long = format!("a={}", "x".repeat(511));
        for wrong in ["", ",", "a", "a=", "=b", "A=b", "a=b=c", "a=1,a=2", "a=\u{e9}", &many(33), &long] {
            assert_eq!(state(wrong), None, "{wrong}");
        }
    }

    fn many(count: usize) -> String {
        (0..count).map(|number| format!("a{number}=b")).collect::<Vec<_>>().join(",")
    }

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Holds {
        #[serde(default, with = "carried", skip_serializing_if = "Option::is_none")]
        trace: Option<TraceContext>,
    }

    #[test]
    fn an_invalid_trace_never_makes_its_carrier_unreadable() {
        for text in ["{}", r#"{"trace":null}"#, r#"{"trace":{"traceparent":"no"}}"#] {
            assert_eq!(serde_json::from_str::<Holds>(text).unwrap(), Holds { trace: None });
        }
        assert_eq!(serde_json::to_string(&Holds { trace: None }).unwrap(), "{}");
    }

    proptest! {
        #[test]
        fn any_context_round_trips_through_headers_and_json(
            trace in 1_u128.., span in 1_u64.., flags: u8, state in "[a-z][a-z0-9_@/*-]{0,9}=[!-+.-<>-~]{1,40}"
        ) {
            let it = TraceContext::new(NonZeroU128::new(trace).unwrap(), NonZeroU64::new(span).unwrap(), flags);
            let it = it.with_state(&state);
            let headers: Vec<_> = it.headers().collect();
            prop_assert_eq!(TraceContext::read(Some(&headers[0].1), Some(&headers[1].1)), Some(it.clone()));
            let holds = Holds { trace: Some(it) };
            prop_assert_eq!(serde_json::from_str::<Holds>(&serde_json::to_string(&holds).unwrap()).unwrap(), holds);
        }

        #[test]
        fn arbitrary_headers_are_read_without_a_panic_and_written_validly(
            parent in "(00|01|ff|\\PC{2})-[0-9a-fA-F]{31,33}-[0-9a-f]{15,17}-[0-9a-f]{1,3}|\\PC{0,80}", state in "\\PC*"
        ) {
            if let Some(it) = TraceContext::read(Some(&parent), Some(&state)) {
                prop_assert_eq!(it.to_string().len(), 55);
                prop_assert_eq!(read(&it.to_string()).map(|again| again.to_string()), Some(it.to_string()));
                prop_assert!(it.state().is_none_or(|state| state.len() <= STATE_MAX && state.is_ascii()));
            }
        }
    }
}
