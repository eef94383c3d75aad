//! What every decoder and parser promises about any input: it returns, it does not panic, and what it accepts survives being
//! written and read again. `./tests/run --long fuzz` searches for inputs that break a promise; the tests here repeat the
//! inputs of `corpus`, with random changes.

use everwatch_core::access::{Presented, Role};
use everwatch_core::capacity::rate::Rate;
use everwatch_core::clock::parse_duration;
use everwatch_core::id::{
    BatchRef, Kind, LimitKey, Name, Namespace, ObserverId, ObserverRef, Pool, RateKey, RolloutRef,
};
use everwatch_core::observer::definition::ObserverDefinition;
use everwatch_core::observer::labels::Selector;
use everwatch_core::observer::secret::{self, SecretRef};
use everwatch_core::redact::redacted;
use everwatch_core::wire::batch::BatchMessage;
use everwatch_core::wire::command::Command;
use everwatch_core::wire::heartbeat::HeartbeatMessage;
use everwatch_core::wire::logs::{Answer, LogCursor};
use everwatch_core::wire::message::{decode, encode};
use everwatch_core::wire::permits::RatesMessage;
use everwatch_core::wire::report::StateMessage;
use everwatch_core::wire::trace::TraceContext;
use everwatch_core::wire::work::{DecodedWork, Work};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::fmt::{Debug, Display};
use std::str::FromStr;
use uuid::Uuid;

/// One kind of input.
#[derive(Debug, Clone, Copy)]
pub struct Target {
    /// Its folder in `corpus`.
    pub name: &'static str,
    pub check: fn(&[u8]),
}

pub const TARGETS: [Target; 3] = [
    Target { name: "messages", check: messages },
    Target { name: "definitions", check: definitions },
    Target { name: "texts", check: texts },
];

/// The body of a message from any queue.
///
/// # Panics
/// If a decoder breaks its promise.
pub fn messages(bytes: &[u8]) {
    survives::<StateMessage>(bytes);
    survives::<HeartbeatMessage>(bytes);
    survives::<Command>(bytes);
    survives::<Answer>(bytes);
    survives::<RatesMessage>(bytes);
    survives::<BatchMessage>(bytes);
    if let Ok(DecodedWork::Ours(work)) = Work::read(bytes) {
        same_work(&work);
    }
}

fn survives<T: DeserializeOwned + Serialize + Debug>(bytes: &[u8]) {
    let rewritten = |message: &T| {
        let written = encode(message).expect("what was read can be written");
        decode::<T>(&written).expect("what was written can be read")
    };
    let Ok(message) = decode::<T>(bytes) else { return };
    // A message with a member twice is read as one of a newer version, and written with each member once.
    let message = rewritten(&message);
    assert_eq!(format!("{:?}", rewritten(&message)), format!("{message:?}"));
}

fn same_work(work: &Work) {
    let written = serde_json::to_vec(work).expect("what was read can be written");
    let read = match Work::read(&written).expect("what was written can be read") {
        DecodedWork::Ours(read) => format!("{read:?}"),
        DecodedWork::Foreign(header, why) => format!("{header:?}: {why}"),
    };
    assert_eq!(read, format!("{work:?}"));
}

/// The body of a request that creates an observer, a role or a rate.
///
/// # Panics
/// If a parser breaks its promise.
pub fn definitions(bytes: &[u8]) {
    let Ok(body) = serde_json::from_slice::<Value>(bytes) else { return };
    let name = Name::new("made-up").expect("a name");
    let told = |errors: Vec<everwatch_core::observer::definition::FieldError>| {
        assert!(!errors.is_empty() && errors.iter().all(|it| !it.detail.is_empty()), "{errors:?}");
    };
    let _rate = Rate::parse(body.clone()).map_err(told);
    let _role = Role::parse(name.clone(), body.clone()).map_err(told);
    match ObserverDefinition::parse(body, &name) {
        Err(errors) => told(errors),
        Ok(definition) => {
            let stored = serde_json::to_string(&definition).expect("a definition can be written");
            let read: ObserverDefinition = serde_json::from_str(&stored).expect("and read");
            assert_eq!(read, definition);
            same_work(&Work::of(ObserverId(Uuid::nil()), 1, &definition).expect("a definition is a message"));
            resolves(&definition.spec);
        }
    }
}

/// The references of a valid definition can be resolved, and none is left.
fn resolves(spec: &Value) {
    let mut resolved = spec.clone();
    secret::resolve(&mut resolved, |reference| Ok(reference.to_string())).expect("every reference is valid");
    assert!(secret::with_placeholders(&resolved).is_none(), "{resolved}");
}

/// A text from a URL, a header, a configuration or a command line.
///
/// # Panics
/// If a parser breaks its promise.
pub fn texts(bytes: &[u8]) {
    let Ok(text) = str::from_utf8(bytes) else { return };
    same_text::<Name>(text);
    same_text::<Kind>(text);
    same_text::<Pool>(text);
    same_text::<LimitKey>(text);
    same_text::<RateKey>(text);
    same_text::<LogCursor>(text);
    same_text::<SecretRef>(text);
    same_text::<Selector>(text);
    let _parsed = (
        parse_duration(text).is_ok(),
        Presented::parse(text).is_ok(),
        ObserverRef::parse(text, &Namespace::default()).is_ok(),
        BatchRef::parse(text, &Namespace::default()).is_ok(),
        text.parse::<RolloutRef>().is_ok(),
        secret::may_contain(text),
        redacted(text),
    );
    let (parent, state) = text.split_once('\n').unwrap_or((text, ""));
    if let Some(context) = TraceContext::read(Some(parent), Some(state)) {
        let headers: Vec<(&str, String)> = context.headers().collect();
        let header = |name: &str| headers.iter().find(|(it, _)| *it == name).map(|(_, text)| text.as_str());
        assert_eq!(TraceContext::read(header("traceparent"), header("tracestate")), Some(context));
    }
}

fn same_text<T: FromStr + Display + PartialEq + Debug>(text: &str) {
    let Ok(value) = text.parse::<T>() else { return };
    assert!(value.to_string().parse::<T>().is_ok_and(|again| again == value), "{value:?}");
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::path::Path;

    fn corpus(target: Target) -> Vec<Vec<u8>> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target.name);
        let files = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path());
        let inputs: Vec<_> = files.map(|file| std::fs::read(file).unwrap()).collect();
        assert!(!inputs.is_empty(), "{folder:?} is empty");
        inputs
    }

    #[test]
    fn inputs_that_were_kept_break_no_promise() {
        for target in TARGETS {
            corpus(target).iter().for_each(|input| (target.check)(input));
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, cases: 2000, ..ProptestConfig::default() })]

        #[test]
        fn changed_inputs_break_no_promise(
            which in 0..TARGETS.len(),
            input in any::<prop::sample::Index>(),
            changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0..3_u8), 1..4),
        ) {
            let corpus = corpus(TARGETS[which]);
            let mut bytes = input.get(&corpus).clone();
            for (place, byte, change) in changes {
                let place = place.index(bytes.len() + 1);
                match change {
                    0 => bytes.insert(place, byte),
                    1 if place < bytes.len() => bytes[place] = byte,
                    _ => bytes.truncate(place),
                }
            }
            (TARGETS[which].check)(&bytes);
        }
    }
}
