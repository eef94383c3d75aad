//! Whatever comes in by HTTP: an answer that the document knows, never an error of the manager's own.

use super::*;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::TestRunner;
use serde_json::Map;
use std::time::Instant;

/// A request, as a client might send it.
#[derive(Debug, Clone)]
struct Wild {
    method: String,
    uri: String,
    /// With its media type.
    body: Option<(String, String)>,
}

/// These hold an answer back or never end it.
const WAITING: [&str; 2] = ["wait", "follow"];

fn any_text() -> impl Strategy<Value = String> {
    let edges = [
        "",
        "0",
        "1",
        "-1",
        "1000",
        "1001",
        "1e999",
        "true",
        "null",
        "o",
        "s1",
        "ticker",
        "default",
        "Processing",
        "10s",
        "name",
        "a=b",
        "a",
        "*",
        "00000000-0000-0000-0000-000000000000",
        "99999999999999999999",
    ];
    prop_oneof![3 => select(edges.to_vec()).prop_map(str::to_owned), 1 => any::<String>()]
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        any_text().prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 12, 4, |inner| {
        let members = prop::collection::vec((any_text(), inner.clone()), 0..4);
        prop_oneof![
            prop::collection::vec(inner, 0..4).prop_map(Value::from),
            members.prop_map(|members| Value::from(members.into_iter().collect::<Map<_, _>>())),
        ]
    })
}

fn any_cursor() -> impl Strategy<Value = String> {
    prop_oneof![any_json().prop_map(|json| URL_SAFE_NO_PAD.encode(json.to_string())), any_text()]
}

/// The places of all values in it.
fn pointers(value: &Value, at: &str, all: &mut Vec<String>) {
    all.push(at.to_owned());
    let under = |key: &str| format!("{at}/{}", key.replace('~', "~0").replace('/', "~1"));
    match value {
        Value::Object(members) => members.iter().for_each(|(key, it)| pointers(it, &under(key), all)),
        Value::Array(items) => {
            items.iter().enumerate().for_each(|(index, it)| pointers(it, &under(&index.to_string()), all));
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// A good body, or one with a value replaced or a member too many, or anything.
fn any_body(example: &Value) -> impl Strategy<Value = String> + use<> {
    let mut places = Vec::new();
    pointers(example, "", &mut places);
    let example = example.clone();
    let changed =
        (select(places), any_text(), any_json(), any::<bool>()).prop_map(move |(place, key, value, adds)| {
            let mut body = example.clone();
            match body.pointer_mut(&place) {
                Some(Value::Object(members)) if adds => drop(members.insert(key, value)),
                Some(it) => *it = value,
                None => {}
            }
            body.to_string()
        });
    prop_oneof![6 => changed, 2 => any_json().prop_map(|json| json.to_string()), 1 => any::<String>()]
}

fn encoded(text: &str) -> String {
    text.bytes()
        .map(
            |byte| {
                if byte.is_ascii_alphanumeric() {
                    char::from(byte).to_string()
                } else {
                    format!("%{byte:02X}")
                }
            },
        )
        .collect()
}

fn any_uri(path: &str, operation: &Value) -> BoxedStrategy<String> {
    let segments: Vec<BoxedStrategy<String>> = path
        .split('/')
        .map(|part| match part.split_once('{') {
            // `observers:pause` is a part of its own, `{key}` is anything but nothing.
            Some(_) => any_text()
                .prop_filter("a part of a path", |text| !text.is_empty())
                .prop_map(|text| encoded(&text))
                .boxed(),
            None => Just(part.to_owned()).boxed(),
        })
        .collect();
    let known = operation["parameters"].as_array().map(Vec::as_slice).unwrap_or_default();
    let names = known.iter().filter(|it| it["in"] == "query").filter_map(|it| it["name"].as_str());
    let asked: Vec<BoxedStrategy<Option<String>>> = names
        .filter(|name| !WAITING.contains(name))
        .map(|name| {
            let value = if name == "cursor" { any_cursor().boxed() } else { any_text().boxed() };
            let name = name.to_owned();
            prop::option::weighted(0.3, value.prop_map(move |text| format!("{name}={}", encoded(&text))))
                .boxed()
        })
        .collect();
    (segments, asked)
        .prop_map(|(segments, asked)| {
            let asked = asked.into_iter().flatten().collect::<Vec<_>>().join("&");
            let mark = if asked.is_empty() { "" } else { "?" };
            format!("{}{mark}{asked}", segments.join("/"))
        })
        .boxed()
}

/// A request of any operation, beside those that answer with a stream.
fn any_request(contract: &Contract) -> impl Strategy<Value = Wild> + use<> {
    let all: Vec<BoxedStrategy<Wild>> = contract
        .operations()
        .map(|(method, path, operation)| {
            let contents = operation["requestBody"]["content"].as_object().into_iter().flatten();
            let bodies: Vec<BoxedStrategy<Option<(String, String)>>> = contents
                .map(|(media_type, content)| {
                    let media_type = media_type.clone();
                    any_body(&content["example"])
                        .prop_map(move |body| Some((media_type.clone(), body)))
                        .boxed()
                })
                .collect();
            let body = if bodies.is_empty() {
                Just(None).boxed()
            } else {
                prop_oneof![9 => proptest::strategy::Union::new(bodies), 1 => Just(None)].boxed()
            };
            let method = method.to_uppercase();
            (any_uri(path, operation), body)
                .prop_map(move |(uri, body)| Wild { method: method.clone(), uri, body })
                .boxed()
        })
        .collect();
    proptest::strategy::Union::new(all)
}

#[test]
fn whatever_is_asked_is_answered_as_documented() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let (stage, contract) = runtime.block_on(async {
        let stage = Stage::new().await;
        let contract = Contract::new(stage.get("/openapi.json").await.body);
        stage.create(json!({"name": "o", "kind": "ticker", "on_full": "queue"})).await;
        (stage, contract)
    });
    let _service = runtime.block_on(stage.service(1000));
    let config = ProptestConfig {
        cases: 1500,
        failure_persistence: None,
        max_shrink_iters: 300,
        ..Default::default()
    };
    TestRunner::new(config)
        .run(&any_request(&contract), |Wild { method, uri, body }| {
            let mut request = Request::builder().method(&*method).uri(&uri);
            if let Some((media_type, _)) = &body {
                request = request.header(header::CONTENT_TYPE, media_type);
            }
            let request = request.body(body.map_or_else(Body::empty, |(_, text)| Body::from(text))).unwrap();
            let begun = Instant::now();
            let answer = runtime.block_on(async { tokio::time::timeout(SOON, stage.ask(request)).await });
            let answer = answer.map_err(|_| TestCaseError::fail("no answer"))?;
            prop_assert!(
                answer.status != StatusCode::INTERNAL_SERVER_ERROR,
                "{answer:?} after {:?}",
                begun.elapsed()
            );
            Ok(())
        })
        .unwrap();
}
