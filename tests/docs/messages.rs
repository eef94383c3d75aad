//! The message reference: an AsyncAPI document, generated from the types that the code reads and writes, with
//! the golden files as examples.

use super::{keep, root};
use everwatch_broker::Topology;
use everwatch_core::id::{Pool, RepliesId, ServiceId};
use everwatch_core::wire::batch::BatchMessage;
use everwatch_core::wire::command::Command;
use everwatch_core::wire::heartbeat::HeartbeatMessage;
use everwatch_core::wire::logs::Answer;
use everwatch_core::wire::message::VERSION;
use everwatch_core::wire::permits::RatesMessage;
use everwatch_core::wire::report::StateMessage;
use everwatch_core::wire::work::Work;
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, SchemaGenerator};
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;

/// One channel with its one message: the channel's name, address, sender and receiver.
struct Channel {
    name: &'static str,
    address: String,
    what: &'static str,
    title: &'static str,
    /// The AsyncAPI action, from the view of a service.
    action: &'static str,
    payload: Value,
    headers: Value,
    golden: &'static [&'static str],
}

const STATE: [&str; 13] = [
    "reports",
    "registration-single",
    "registration-weight",
    "messages-refused",
    "checkpoints",
    "finished",
    "handed_over_for",
    "released",
    "held-messages",
    "inventory-digest",
    "inventory-range",
    "report-traced",
    "state-watermark",
];
const HEARTBEATS: [&str; 4] = ["heartbeat", "heartbeat-sent-at", "heartbeat-stalled", "probe"];
const COMMANDS: [&str; 17] = [
    "revoke",
    "revoke-cause",
    "welcome",
    "welcome-crash-looping",
    "welcome-directed",
    "welcome-time",
    "time",
    "directives",
    "hand_over",
    "describe",
    "list-held",
    "crash-looping",
    "logs",
    "logs-newest",
    "checkpoint-answers",
    "permits",
    "permits-none",
];
const ANSWERS: [&str; 2] = ["reply-logs", "reply-logs-none"];

/// `{"v": 1, "body": …}`
fn enveloped<T: JsonSchema>(schemas: &mut SchemaGenerator) -> Value {
    let body = schemas.subschema_for::<T>();
    json!({"type": "object", "required": ["v", "body"], "properties": {"v": {"const": VERSION}, "body": body}})
}

fn names() -> Topology {
    Topology::new("everwatch.")
}

/// Replaces `part` of the address with `{parameter}`.
fn place(address: &str, part: &str, parameter: &str) -> String {
    address.replace(part, &format!("{{{parameter}}}"))
}

fn observer() -> Value {
    json!({"type": "string", "format": "uuid", "description": "The observer's id."})
}

fn trace(what: &str) -> Value {
    json!({"type": "string", "description": what})
}

/// The messages that a service receives.
fn heard(schemas: &mut SchemaGenerator) -> Vec<Channel> {
    let any = uuid::Uuid::nil();
    vec![
        Channel {
            name: "work",
            address: place(&names().work(&Pool::default()), "default", "pool"),
            what: "Durable quorum queue: one message for each live observer, unacknowledged while it runs.",
            title: "What one observer is",
            action: "receive",
            payload: serde_json::to_value(schemas.subschema_for::<Work>()).unwrap(),
            headers: json!({"type": "object", "properties": {"everwatch-observer": observer(),
                "traceparent": trace("Whoever sent this, as W3C Trace Context writes it."),
                "tracestate": trace("What vendors keep beside it.")}}),
            golden: &["work", "work-times", "work-windows", "work-schedule", "work-weight", "work-namespace"],
        },
        Channel {
            name: "commands",
            address: names().commands().name().to_owned(),
            what: "Durable fan-out exchange: managers announce the time, ask unknown services to register, and list \
                   crash-looping observers.",
            title: "A command",
            action: "receive",
            payload: enveloped::<Command>(schemas),
            headers: Value::Null,
            golden: &COMMANDS,
        },
        Channel {
            name: "commandsOfPool",
            address: place(names().commands_to(&Pool::default()).name(), "default", "pool"),
            what: "Durable direct exchange: managers tell all services of a pool, with the key `all`.",
            title: "A command",
            action: "receive",
            payload: enveloped::<Command>(schemas),
            headers: Value::Null,
            golden: &[],
        },
        Channel {
            name: "commandsOfOne",
            address: place(
                &place(&names().commands_of(&Pool::default(), ServiceId(any)), &any.to_string(), "service"),
                "default",
                "pool",
            ),
            what: "Exclusive queue of one service, bound to both exchanges of commands: to that of its pool with the keys \
                   `all` and the name of the queue, which is the key of a command for it alone.",
            title: "A command",
            action: "receive",
            payload: enveloped::<Command>(schemas),
            headers: Value::Null,
            golden: &[],
        },
    ]
}

/// What a service says.
fn said(schemas: &mut SchemaGenerator) -> Vec<Channel> {
    let any = uuid::Uuid::nil();
    let epoch = json!({"type": "integer", "description": "The epoch of the run that emitted it."});
    vec![
        Channel {
            name: "state",
            address: names().state(),
            what: "Durable quorum queue: services report, managers compete for it and send themselves watermarks. If \
                   `broker.state_queues` exceeds 1, there are also `everwatch.state.1` and so on; all \
                   reports about one observer are in one queue, which a hash of the observer's id selects.",
            title: "Reports of a service, or a manager's mark",
            action: "send",
            payload: enveloped::<StateMessage>(schemas),
            headers: Value::Null,
            golden: &STATE,
        },
        Channel {
            name: "heartbeats",
            address: names().heartbeats(),
            what: "Quorum queue of the newest 15 seconds: signs of life.",
            title: "A sign of life",
            action: "send",
            payload: enveloped::<HeartbeatMessage>(schemas),
            headers: Value::Null,
            golden: &HEARTBEATS,
        },
        Channel {
            name: "rates",
            address: names().rates(),
            what: "Quorum queue of the newest 2 seconds: requests for permits of rates.",
            title: "A request for permits",
            action: "send",
            payload: enveloped::<RatesMessage>(schemas),
            headers: Value::Null,
            golden: &["acquire"],
        },
        Channel {
            name: "replies",
            address: place(&names().replies(RepliesId(any)), &any.to_string(), "session"),
            what: "Exclusive queue of one session of one manager: what it asked of one service.",
            title: "A reply",
            action: "send",
            payload: enveloped::<Answer>(schemas),
            headers: Value::Null,
            golden: &ANSWERS,
        },
        Channel {
            name: "output",
            address: names().output(),
            what: "Durable topic exchange, routing key `<kind>.<name>`: what observers emit, for your programs.",
            title: "What an observer emitted: any JSON",
            action: "send",
            payload: json!({"description": "Any JSON."}),
            headers: json!({"type": "object", "required": ["everwatch-observer", "everwatch-epoch"],
                "properties": {"everwatch-observer": observer(), "everwatch-epoch": epoch,
                    "everwatch-namespace": {"type": "string", "default": "default"}}}),
            golden: &[],
        },
        Channel {
            name: "batches",
            address: names().output(),
            what: "The same exchange, routing key `batch.completed`: managers tell your programs, at least once, that \
                   each member of a batch has ended.",
            title: "A batch has completed",
            action: "send",
            payload: enveloped::<BatchMessage>(schemas),
            headers: json!({"type": "object", "required": ["everwatch-batch"],
                "properties": {"everwatch-batch": trace("The batch's id.")}}),
            golden: &["batch-completed", "batch-completed-namespace"],
        },
    ]
}

fn golden(name: &str) -> Value {
    let path = root().join(format!("crates/core/tests/golden/v1/{name}.json"));
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

fn document() -> Value {
    let mut settings = SchemaSettings::draft07();
    settings.definitions_path = "/components/schemas".into();
    let mut schemas = settings.into_generator();
    let (mut places, mut operations, mut messages) = (Map::new(), Map::new(), Map::new());
    let mut channels = heard(&mut schemas);
    channels.extend(said(&mut schemas));
    for channel in channels {
        let Channel { name, address, what, title, action, payload, headers, golden: files } = channel;
        let parameters: Map<String, Value> = address
            .split('{')
            .skip(1)
            .filter_map(|part| part.split_once('}'))
            .map(|(parameter, _)| (parameter.to_owned(), json!({})))
            .collect();
        let mut place = json!({"address": address, "description": what,
            "messages": {name: {"$ref": format!("#/components/messages/{name}")}}});
        if !parameters.is_empty() {
            place["parameters"] = parameters.into();
        }
        places.insert(name.to_owned(), place);
        let operation = json!({"action": action, "channel": {"$ref": format!("#/channels/{name}")}});
        operations.insert(format!("{action}{}{}", name[..1].to_uppercase(), &name[1..]), operation);
        let mut message = json!({"title": title, "payload": payload});
        if !headers.is_null() {
            message["headers"] = headers;
        }
        let examples: Vec<Value> =
            files.iter().map(|file| json!({"name": file, "payload": golden(file)})).collect();
        if !examples.is_empty() {
            message["examples"] = examples.into();
        }
        messages.insert(name.to_owned(), message);
    }
    json!({
        "asyncapi": "3.0.0",
        "info": {
            "title": "Everwatch",
            "version": VERSION.to_string(),
            "description": "What travels between managers and services, as a service sees it. `everwatch.` is the \
                prefix of the configuration. Readers pass over members and words that they do not know.",
        },
        "defaultContentType": "application/json",
        "channels": places,
        "operations": operations,
        "components": {"messages": messages, "schemas": schemas.take_definitions(true)},
    })
}

/// Forbids members that the document does not name, so that the check is as strict as possible.
fn close(schema: &mut Value) {
    match schema {
        Value::Object(members) => {
            if members.get("properties").is_some_and(Value::is_object) {
                members.entry("additionalProperties").or_insert(Value::Bool(false));
            }
            members.values_mut().for_each(close);
        }
        Value::Array(items) => items.iter_mut().for_each(close),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn validator(document: &Value, message: &str) -> jsonschema::Validator {
    let payload = &document["components"]["messages"][message]["payload"];
    let mut schema =
        json!({"allOf": [payload], "components": {"schemas": document["components"]["schemas"]}});
    schema["$schema"] = json!("http://json-schema.org/draft-07/schema#");
    close(&mut schema);
    jsonschema::validator_for(&schema).unwrap()
}

#[test]
fn the_reference_of_the_messages_is_as_the_code_reads_and_writes_them() {
    // Links to code become plain text in the document.
    let text = serde_json::to_string_pretty(&document()).unwrap().replace("[`", "`").replace("`]", "`");
    keep("docs/asyncapi.json", &format!("{text}\n"));
}

#[test]
fn every_golden_message_keeps_to_the_reference() {
    let document = document();
    let mut seen = BTreeSet::new();
    for (name, message) in document["components"]["messages"].as_object().unwrap() {
        let validator = validator(&document, name);
        for example in message["examples"].as_array().into_iter().flatten() {
            let (file, payload) = (example["name"].as_str().unwrap(), &example["payload"]);
            let errors: Vec<String> =
                validator.iter_errors(payload).map(|it| format!("{it} at {}", it.instance_path())).collect();
            assert!(errors.is_empty(), "{file}: {errors:?}");
            seen.insert(format!("{file}.json"));
        }
    }
    let files = std::fs::read_dir(root().join("crates/core/tests/golden/v1")).unwrap();
    let there: BTreeSet<String> = files.map(|it| it.unwrap().file_name().into_string().unwrap()).collect();
    assert_eq!(seen, there, "every golden file is an example of one message");
}

#[test]
fn what_is_no_such_message_does_not_keep_to_the_reference() {
    let document = document();
    let broken = [
        ("work", "/generation", json!("3")),
        ("state", "/body/reports/entries/1/report/run/event", json!("dances")),
        ("heartbeats", "/body/heartbeat/state", json!("asleep")),
        ("commands", "/body/revoke/0/below", Value::Null),
        ("replies", "/v", json!(2)),
    ];
    for (name, pointer, wrong) in broken {
        let mut payload = document["components"]["messages"][name]["examples"][0]["payload"].clone();
        let validator = validator(&document, name);
        assert!(validator.is_valid(&payload), "{name}");
        *payload.pointer_mut(pointer).unwrap() = wrong;
        assert!(!validator.is_valid(&payload), "{name}{pointer}: {payload}");
    }
}

#[test]
fn the_chapter_names_every_channel_and_every_word() {
    let chapter = std::fs::read_to_string(root().join("docs/messages.md")).unwrap();
    let document = document();
    for (name, channel) in document["channels"].as_object().unwrap() {
        let address = channel["address"].as_str().unwrap();
        assert!(chapter.contains(&format!("`{address}`")), "{name}: {address}");
    }
    for schema in
        ["StateMessage", "HeartbeatMessage", "RatesMessage", "Report", "RunEvent", "Command", "Answer"]
    {
        let schema = &document["components"]["schemas"][schema];
        let variants = schema["oneOf"].as_array().or(schema["anyOf"].as_array()).unwrap();
        for variant in variants {
            let named = variant["required"][0].as_str().or(variant["const"].as_str());
            let words =
                variant["enum"].as_array().into_iter().flatten().filter_map(Value::as_str).chain(named);
            for word in words {
                assert!(chapter.contains(&format!("`{word}`")), "{word} of {schema}");
            }
        }
    }
}
