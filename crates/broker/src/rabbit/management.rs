//! RabbitMQ's own HTTP API, for facts that a session cannot see. Only the doctor uses it, and only to read.

use super::TlsFiles;
use super::declare::arguments;
use crate::port::QueueKind;
use everwatch_core::doctor::{Difference, Management, ManagementSnapshot, NodeFacts, QueueFacts};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use lapin::types::AMQPValue;
use reqwest::{Certificate, Client, StatusCode, Url};
use serde_json::{Map, Value};
use std::time::Duration;

/// The time limit for one request.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(4);
/// The time limit for all requests of one check.
const ALL_TIMEOUT: Duration = Duration::from_secs(8);
/// The size limit of one response. A queue with thousands of consumers lists each of them.
const BODY_MAX: usize = 8 * 1024 * 1024;
/// How many queues are queried at the same time.
const AT_ONCE: usize = 8;
const QUEUES_MAX: usize = 200;

/// Checks that this is a URL that can be queried.
pub(super) fn check(url: &str) -> Result<Url, String> {
    let url: Url = url.parse().map_err(|_| "not a URL".to_owned())?;
    match url.scheme() {
        "http" | "https" => Ok(url),
        other => Err(format!("{other} is neither http nor https")),
    }
}

/// Collects everything that the doctor checks.
pub(super) async fn ask(
    url: &str,
    tls: &TlsFiles,
    (vhost, prefix): (&str, &str),
    queues: &[(String, QueueKind)],
) -> Management {
    let asked = tokio::time::timeout(ALL_TIMEOUT, tell(url, tls, (vhost, prefix), queues)).await;
    match asked {
        Ok(Ok(told)) => Management::ManagementSnapshot(told),
        Ok(Err(why)) => Management::Silent(why),
        Err(_) => Management::Silent(format!("not within {} s", ALL_TIMEOUT.as_secs())),
    }
}

async fn tell(
    url: &str,
    tls: &TlsFiles,
    (vhost, prefix): (&str, &str),
    queues: &[(String, QueueKind)],
) -> Result<ManagementSnapshot, String> {
    let base = check(url)?;
    let mut client = Client::builder().timeout(ANSWER_TIMEOUT);
    if let Some(ca) = tls.authorities().map_err(|error| error.to_string())? {
        let ca = Certificate::from_pem_bundle(&ca).map_err(|error| error.to_string())?;
        client = client.tls_certs_only(ca);
    }
    let client = client.build().map_err(|error| error.to_string())?;
    let nodes = get(&client, &base, &["nodes"]).await?.unwrap_or_default();
    let nodes = nodes.as_array().into_iter().flatten().map(node).collect();
    let mut kept = queues.to_vec();
    kept.retain(|(_, kind)| matches!(kind, QueueKind::Durable { .. } | QueueKind::SingleActive));
    kept.truncate(QUEUES_MAX);
    let told = kept.into_iter().map(|(name, kind)| {
        let (client, base) = (&client, &base);
        async move {
            let found = get(client, base, &["queues", vhost, &name]).await?;
            Ok::<_, String>(found.map(|found| queue(&found, prefix, (&name, &kind))))
        }
    });
    let queues: Vec<Option<QueueFacts>> = stream::iter(told).buffered(AT_ONCE).try_collect().await?;
    Ok(ManagementSnapshot { nodes, queues: queues.into_iter().flatten().collect() })
}

/// Sends one request. `None` if the object does not exist.
async fn get(client: &Client, base: &Url, path: &[&str]) -> Result<Option<Value>, String> {
    let mut url = base.clone();
    let segments = url.path_segments_mut().map_err(|()| "not a URL of a host".to_owned());
    segments?.pop_if_empty().push("api").extend(path);
    // The error text contains the URL, including the password.
    let silent = |error: reqwest::Error| root(&error.without_url());
    let mut answer = client.get(url).send().await.map_err(silent)?;
    match answer.status() {
        StatusCode::NOT_FOUND => return Ok(None),
        status if !status.is_success() => {
            return Err(format!("it answers {status} to /api/{}", path.join("/")));
        }
        _ => {}
    }
    let mut body = Vec::new();
    while let Some(chunk) = answer.chunk().await.map_err(silent)? {
        body.extend_from_slice(&chunk);
        if body.len() > BODY_MAX {
            return Err(format!("its answer to /api/{} is longer than {BODY_MAX} bytes", path.join("/")));
        }
    }
    serde_json::from_slice(&body).map(Some).map_err(|error| format!("its answer is not JSON: {error}"))
}

fn root(error: &(dyn std::error::Error + 'static)) -> String {
    let last = std::iter::successors(Some(error), |cause| cause.source()).last();
    last.map(ToString::to_string).unwrap_or_default()
}

fn node(told: &Value) -> NodeFacts {
    let is = |member: &str| told[member].as_bool().unwrap_or(false);
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    NodeFacts {
        name: text(&told["name"]),
        running: is("running"),
        memory_alarm: is("mem_alarm"),
        disk_alarm: is("disk_free_alarm"),
        partitions: told["partitions"].as_array().into_iter().flatten().map(text).collect(),
    }
}

fn queue(told: &Value, prefix: &str, (name, kind): (&str, &QueueKind)) -> QueueFacts {
    let text = |member: &str| told[member].as_str().filter(|text| !text.is_empty()).map(str::to_owned);
    let none = Map::new();
    let theirs = told["arguments"].as_object().unwrap_or(&none);
    let timeouts = told["consumer_details"].as_array().into_iter().flatten();
    QueueFacts {
        name: name.to_owned(),
        differs: differences(theirs, prefix, (name, kind)),
        policy: text("policy"),
        operator_policy: text("operator_policy"),
        // Some versions send an empty list if there is no policy.
        definition: told["effective_policy_definition"].as_object().cloned().unwrap_or_default(),
        consumer_timeout_ms: timeouts.filter_map(|consumer| consumer["consumer_timeout"].as_u64()).min(),
    }
}

/// The arguments that differ: ours with another value or missing on the broker, and arguments of the broker
/// that we do not set.
fn differences(
    theirs: &Map<String, Value>,
    prefix: &str,
    (name, kind): (&str, &QueueKind),
) -> Vec<Difference> {
    let ours: Map<String, Value> = arguments(prefix, name, kind)
        .into_iter()
        .map(|(key, value)| (key.to_string(), json(value)))
        .collect();
    let names = ours.keys().chain(theirs.keys().filter(|key| !ours.contains_key(*key)));
    let value = |of: &Map<String, Value>, key: &str| of.get(key).cloned().unwrap_or_default();
    names
        .map(|key| Difference { argument: key.clone(), ours: value(&ours, key), theirs: value(theirs, key) })
        .filter(|it| it.ours != it.theirs)
        .collect()
}

fn json(value: &AMQPValue) -> Value {
    match value {
        AMQPValue::LongInt(number) => Value::from(*number),
        AMQPValue::LongLongInt(number) => Value::from(*number),
        AMQPValue::Boolean(is) => Value::from(*is),
        AMQPValue::LongString(text) => Value::from(text.to_string()),
        _ => Value::Null,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const OURS: QueueKind = QueueKind::Durable { max_length: None };

    fn ours() -> Value {
        json!({"x-queue-type": "quorum", "x-delivery-limit": 1_000_000_000, "x-consumer-timeout": 315_360_000_000_u64,
            "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "p.parked", "x-overflow": "reject-publish",
            "x-consumer-disconnected-timeout": 15_000})
    }

    #[test]
    fn a_queue_as_we_declare_it_does_not_differ() {
        let told = json!({"arguments": ours(), "policy": null, "effective_policy_definition": []});
        let name = "p.work.default";
        let plain = QueueFacts { name: name.to_owned(), ..QueueFacts::default() };
        assert_eq!(queue(&told, "p.", (name, &OURS)), plain);
    }

    #[test]
    fn what_differs_is_named_either_way() {
        let mut arguments = ours();
        arguments["x-overflow"] = Value::Null;
        arguments.as_object_mut().unwrap().remove("x-overflow");
        arguments["x-max-length"] = json!(5);
        let told = json!({"arguments": arguments, "policy": "p1", "operator_policy": "",
            "effective_policy_definition": {"delivery-limit": 20},
            "consumer_details": [{"consumer_timeout": 60_000}, {"consumer_timeout": 50_000}, {}]});
        let found = queue(&told, "p.", ("p.work.default", &OURS));
        let named: Vec<&str> = found.differs.iter().map(|it| it.argument.as_str()).collect();
        assert_eq!(named, ["x-overflow", "x-max-length"]);
        assert_eq!((found.policy.as_deref(), found.operator_policy), (Some("p1"), None));
        assert_eq!(
            (found.consumer_timeout_ms, &found.definition["delivery-limit"]),
            (Some(50_000), &json!(20))
        );
    }

    #[test]
    fn only_a_url_of_http_is_taken() {
        assert!(check("http://guest:guest@h:15672").is_ok());
        assert!(check("amqp://h").unwrap_err().contains("neither http"));
        assert!(check("h:15672/x").is_err());
    }
}
