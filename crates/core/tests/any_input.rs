//! Arbitrary input from queues and users: the reader answers and never panics; accepted input round-trips.

use everwatch_core::clock::parse_duration;
use everwatch_core::id::{Kind, Name, ObserverId, Pool};
use everwatch_core::observer::definition::ObserverDefinition;
use everwatch_core::wire::command::Command;
use everwatch_core::wire::heartbeat::HeartbeatMessage;
use everwatch_core::wire::logs::{Answer, LogCursor};
use everwatch_core::wire::message::decode;
use everwatch_core::wire::report::StateMessage;
use everwatch_core::wire::work::{DecodedWork, Work};
use proptest::prelude::*;
use serde_json::{Map, Value, json};
use uuid::Uuid;

/// JSON of any shape, with words from real messages among its keys and texts.
fn any_json() -> impl Strategy<Value = Value> {
    let word = prop_oneof![
        any::<String>(),
        prop::sample::select(vec![
            "v",
            "body",
            "id",
            "generation",
            "kind",
            "name",
            "spec",
            "retry",
            "grace",
            "reports",
            "heartbeat",
            "tick",
            "revocations",
            "logs",
            "lines",
            "welcome",
            "service",
            "entries",
            "attempts",
            "every",
            "delays",
            "exponential",
            "fixed",
            "intervals",
            "1s",
            "pool",
            "labels",
            "overlap",
            "forbid",
            "on_full",
            "queue",
            "00000000-0000-0000-0000-000000000001",
        ])
        .prop_map(str::to_owned),
    ];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        (0_u8..3).prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        word.clone().prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 40, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::vec((word.clone(), inner), 0..6)
                .prop_map(|members| Value::from(members.into_iter().collect::<Map<_, _>>())),
        ]
    })
}

fn read_as_everything(bytes: &[u8]) {
    let _answers = (
        Work::read(bytes).is_ok(),
        decode::<StateMessage>(bytes).is_ok(),
        decode::<HeartbeatMessage>(bytes).is_ok(),
        decode::<Command>(bytes).is_ok(),
        decode::<Answer>(bytes).is_ok(),
    );
}

/// A valid body with one member replaced by an arbitrary value.
fn nearly_right() -> impl Strategy<Value = Value> {
    let members = ["name", "kind", "spec", "pool", "labels", "retry", "overlap", "grace", "on_full", "other"];
    (prop::sample::select(members.to_vec()), any_json()).prop_map(|(member, value)| {
        let mut body = json!({"name": "o", "kind": "ticker", "spec": {"every": "1s"}, "labels": {"a": "b"},
            "retry": {"kind": "fixed", "every": "1s", "attempts": 3}, "grace": "3s"});
        body[member] = value;
        body
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 1000, ..ProptestConfig::default() })]

    #[test]
    fn bytes(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        read_as_everything(&bytes);
    }

    #[test]
    fn json_of_any_shape(value in any_json()) {
        read_as_everything(value.to_string().as_bytes());
        read_as_everything(json!({"v": 1, "body": value}).to_string().as_bytes());
    }

    #[test]
    fn every_valid_definition_is_a_work_message_services_can_read(body in prop_oneof![any_json(), nearly_right()]) {
        match ObserverDefinition::parse(body, &Name::new("made-up").unwrap()) {
            Err(errors) => prop_assert!(!errors.is_empty() && errors.iter().all(|it| !it.detail.is_empty())),
            Ok(definition) => {
                let work = Work::of(ObserverId(Uuid::nil()), 1, &definition).unwrap();
                let bytes = serde_json::to_vec(&work).unwrap();
                let DecodedWork::Ours(read) = Work::read(&bytes).unwrap() else { panic!("foreign: {work:?}") };
                prop_assert_eq!(format!("{read:?}"), format!("{work:?}"));
                let stored = serde_json::to_string(&definition).unwrap();
                prop_assert_eq!(serde_json::from_str::<ObserverDefinition>(&stored).unwrap(), definition);
            }
        }
    }

    #[test]
    fn words(text in any::<String>()) {
        let _answers = (
            Name::new(&text).is_ok(), Kind::new(&text).is_ok(), Pool::new(&text).is_ok(),
            parse_duration(&text).is_ok(), text.parse::<LogCursor>().is_ok(),
        );
    }
}
