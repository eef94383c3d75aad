//! Traces as a collector receives them: across HTTP, messages, services and reports, and across a failover.

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::post;
use everwatch_tests::cluster::{Cluster, brokers};
use everwatch_tests::wait::wait_for;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::{KeyValue, any_value::Value as Any};
use prost::Message as _;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const CALLER: &str = "b7ad6b7169203331";

/// One span, ids in hex.
#[derive(Debug, Clone)]
struct Seen {
    /// `service.name` and `service.instance.id`.
    process: (String, String),
    name: String,
    trace: String,
    id: String,
    parent: String,
    failed: bool,
    attributes: BTreeMap<String, String>,
}

/// A collector inside the test.
struct Collector {
    url: String,
    spans: Arc<Mutex<Vec<Seen>>>,
    _server: JoinSet<()>,
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn map(attributes: Vec<KeyValue>) -> BTreeMap<String, String> {
    let text = |value: Any| match value {
        Any::StringValue(text) => text,
        Any::IntValue(number) => number.to_string(),
        other => format!("{other:?}"),
    };
    attributes.into_iter().filter_map(|it| Some((it.key, text(it.value?.value?)))).collect()
}

async fn take(State(spans): State<Arc<Mutex<Vec<Seen>>>>, body: Bytes) -> StatusCode {
    let Ok(request) = ExportTraceServiceRequest::decode(body) else { return StatusCode::BAD_REQUEST };
    let mut spans = spans.lock().unwrap();
    for of_process in request.resource_spans {
        let resource = map(of_process.resource.unwrap().attributes);
        let process = (resource["service.name"].clone(), resource["service.instance.id"].clone());
        spans.extend(of_process.scope_spans.into_iter().flat_map(|it| it.spans).map(|span| Seen {
            process: process.clone(),
            name: span.name,
            trace: hex(&span.trace_id),
            id: hex(&span.span_id),
            parent: hex(&span.parent_span_id),
            failed: span.status.is_some_and(|status| status.code == 2),
            attributes: map(span.attributes),
        }));
    }
    StatusCode::OK
}

impl Collector {
    async fn start() -> Self {
        let spans = Arc::<Mutex<Vec<Seen>>>::default();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let app = Router::new().route("/v1/traces", post(take)).with_state(spans.clone());
        let mut server = JoinSet::new();
        server.spawn(async move { axum::serve(listener, app).await.unwrap() });
        Self { url, spans, _server: server }
    }

    /// Waits for a span of this trace, name and parent, with these attributes.
    async fn find(&self, trace: &str, name: &str, parent: &str, attributes: &[(&str, &str)]) -> Seen {
        wait_for(&format!("{name} {attributes:?} under {parent}"), || async {
            let spans = self.spans.lock().unwrap();
            let fits = |it: &&Seen| {
                let has = |(key, value): &(&str, &str)| it.attributes.get(*key).is_some_and(|it| it == value);
                it.name == name && it.parent == parent && attributes.iter().all(has)
            };
            let of_trace = || spans.iter().filter(|it| it.trace == trace);
            of_trace().find(fits).cloned().ok_or_else(|| format!("{:#?}", of_trace().collect::<Vec<_>>()))
        })
        .await
    }
}

fn traced(name: &str, url: &str) -> Cluster {
    let mut cluster = Cluster::new(name).with_test_kinds();
    let own = [("EVERWATCH_TELEMETRY__OTLP_ENDPOINT", url), ("EVERWATCH_LOG__FORMAT", "json")];
    cluster.extra.extend(own.map(|(key, value)| (key.to_owned(), value.to_owned())));
    cluster
}

async fn ask(cluster: &Cluster, path: &str, trace: &str, body: Option<Value>) -> (u16, Value) {
    let headers = [("traceparent", format!("00-{trace}-{CALLER}-01")), ("tracestate", "a=1".to_owned())];
    cluster.api.call_with("POST", path, &headers, body).await
}

/// The lines of a log that hold `words`, as JSON.
fn lines(log: &str, words: &str) -> Vec<Value> {
    log.lines().filter(|line| line.contains(words)).map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[tokio::test]
async fn a_request_is_seen_in_manager_service_and_report_and_a_failover_in_its_trace() {
    for (version, url) in brokers() {
        let collector = Collector::start().await;
        let cluster = traced("traces", &collector.url).on(&url);
        through_all(&version, cluster, &collector).await;
    }
}

async fn through_all(version: &str, mut cluster: Cluster, collector: &Collector) {
    cluster.manager().await;
    cluster.service("a", 10).await;
    cluster.service("b", 10).await;
    let file = cluster.folder("said").join("context");
    let script =
        format!("echo \"$TRACEPARENT $TRACESTATE\" >>{}; echo here; exec sleep 1000", file.display());
    let body = json!({"name": "o", "kind": "exec", "spec": {"argv": ["/bin/sh", "-c", script]}});
    let (status, made) = ask(&cluster, "/v1/observers", TRACE, Some(body)).await;
    assert_eq!(status, 201, "{version}: {made}");

    let route = [("http.route", "/v1/observers"), ("http.response.status_code", "201")];
    let request = collector.find(TRACE, "POST /v1/observers", CALLER, &route).await;
    assert_eq!(request.process.0, "everwatch-manager");
    let sent = collector.find(TRACE, "send work", &request.id, &[("everwatch.generation", "1")]).await;
    let run = collector.find(TRACE, "run", &sent.id, &[("everwatch.observer.name", "o")]).await;
    assert_eq!(run.process.0, "everwatch-service");
    let report = collector.find(TRACE, "report", &run.id, &[("everwatch.report", "started")]).await;
    assert_eq!(report.process, request.process);
    let first = run.process.1;
    let child = format!("00-{TRACE}-{}-01 a=1\n", run.id);
    wait_for("the child to see its context", || async {
        let said = std::fs::read_to_string(&file).unwrap_or_default();
        if said == child { Ok(()) } else { Err(said) }
    })
    .await;
    for (process, words) in [("manager", "observer created"), (&first, "\"here\"")] {
        let said = lines(&cluster.full_log(process), words);
        assert!(!said.is_empty() && said.iter().all(|line| line["trace_id"] == TRACE), "{said:?}");
    }

    cluster.kill(&first);
    let second = if first == "a" { "b" } else { "a" };
    wait_for("the run on the other service to be seen", || async {
        let spans = collector.spans.lock().unwrap();
        let runs: Vec<_> = spans.iter().filter(|it| it.name == "run" && it.trace == TRACE).collect();
        let again = runs.iter().find(|it| it.process.1 == second && it.parent == sent.id);
        again.map(|it| it.id.clone()).ok_or_else(|| format!("{runs:#?}"))
    })
    .await;
    cluster.api.until_status("o", "Processing").await;

    // A restart starts a generation in the trace of its request. The end of the old run belongs to the trace
    // in which it ran.
    let other = TRACE.replace("0af7", "0af8");
    let (status, _) = ask(&cluster, "/v1/observers/o/restart", &other, None).await;
    assert_eq!(status, 202);
    let request = collector.find(&other, "POST /v1/observers/{key}/restart", CALLER, &[]).await;
    let sent = collector.find(&other, "send work", &request.id, &[("everwatch.generation", "2")]).await;
    let run = collector.find(&other, "run", &sent.id, &[]).await;
    assert_eq!(run.process.1, second);
    collector.find(&other, "report", &run.id, &[("everwatch.report", "started")]).await;
    assert_eq!(cluster.api.call("DELETE", "/v1/observers/o?wait=20s", None).await.0, 200);
    let ended = collector.find(&other, "attempt ended", &run.id, &[("everwatch.attempt", "1")]).await;
    assert!(!ended.failed, "{ended:?}");
    collector.find(&other, "report", &run.id, &[("everwatch.report", "stopped")]).await;

    // The processes export their last spans before they exit.
    let begun = Instant::now();
    assert_eq!((cluster.terminate(second), cluster.terminate("manager")), (Some(0), Some(0)), "{version}");
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
}

#[tokio::test]
async fn spans_of_the_code_are_in_the_trace_of_its_run() {
    let collector = Collector::start().await;
    let mut cluster = traced("own-spans", &collector.url);
    cluster.manager().await;
    cluster.service("a", 10).await;
    // The request contains no trace context, so a new trace starts here.
    cluster.api.create(json!({"name": "o", "kind": "looker", "spec": {}})).await;
    let run = wait_for("the run to be seen", || async {
        let spans = collector.spans.lock().unwrap();
        spans.iter().find(|it| it.name == "run").cloned().ok_or_else(|| format!("{spans:#?}"))
    })
    .await;
    let look = collector.find(&run.trace, "look", &run.id, &[]).await;
    collector.find(&run.trace, "closer", &look.id, &[]).await;
    let failed = collector.find(&run.trace, "attempt ended", &run.id, &[("everwatch.attempt", "1")]).await;
    assert!(failed.failed, "{failed:?}");
    let said = lines(&cluster.full_log("a"), "looked");
    assert!(!said.is_empty() && said.iter().all(|line| line["trace_id"] == run.trace), "{said:?}");
    let spans = collector.spans.lock().unwrap();
    assert!(spans.iter().all(|it| !it.name.starts_with("GET")), "who only reads begins no trace: {spans:?}");
}

/// Creates observers and ends everything; how long that took.
async fn started(mut cluster: Cluster) -> Cluster {
    cluster.manager().await;
    cluster.service("a", 400).await;
    cluster
}

async fn a_while(cluster: &Cluster, turn: &str) -> Duration {
    let begun = Instant::now();
    for number in 0..50 {
        cluster.api.create(json!({"name": format!("{turn}-{number}"), "kind": "ticker"})).await;
    }
    cluster.api.until_status(&format!("{turn}-49"), "Processing").await;
    let first = format!("/v1/observers/{turn}-0?wait=20s");
    assert_eq!(cluster.api.call("DELETE", &first, None).await.0, 200);
    begun.elapsed()
}

#[tokio::test]
async fn a_dead_or_silent_collector_is_reported_once_and_slows_nothing() {
    let plain = started(Cluster::new("no-traces").with_test_kinds()).await;
    // One collector refuses connections; the other accepts them and never answers.
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let silent = format!("http://{}", silent.local_addr().unwrap());
    let refusing = format!("http://{}", everwatch_tests::cluster::free_address());
    for (collector, url) in [("refusing", refusing), ("silent", silent)] {
        let mut cluster = started(traced("no-collector", &url)).await;
        // Something else may need the processor meanwhile: a collector that slows something down does so in each pair.
        let mut pairs = Vec::new();
        while pairs.len() < 3 {
            let turn = format!("{collector}-{}", pairs.len());
            let (took, usual) = (a_while(&cluster, &turn).await, a_while(&plain, &turn).await);
            if took < usual + Duration::from_secs(2) {
                break;
            }
            pairs.push((took, usual));
        }
        assert!(pairs.len() < 3, "with and without {url}: {pairs:?}");
        wait_for("the loss to be told", || async {
            let told = lines(&cluster.full_log("manager"), "spans dropped");
            if told.is_empty() { Err(cluster.log("manager")) } else { Ok(()) }
        })
        .await;
        for process in ["a", "manager"] {
            let begun = Instant::now();
            assert_eq!(cluster.terminate(process), Some(0));
            assert!(begun.elapsed() < Duration::from_secs(15), "{process}: {:?}", begun.elapsed());
            let told = lines(&cluster.full_log(process), "spans dropped");
            assert!(told.len() <= 1, "{told:?}");
        }
    }
}
