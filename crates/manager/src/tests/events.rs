//! What happened, as a list, as a stream, and as runs.

use super::*;
use axum::extract::ConnectInfo;
use futures::StreamExt as _;
use std::net::SocketAddr;

type Lines = std::pin::Pin<Box<dyn futures::Stream<Item = String> + Send>>;

impl Stage {
    async fn words(&self, path: &str) -> Vec<String> {
        let body = self.get(path).await.body;
        let word = |event: &Value| event["type"].as_str().unwrap().to_owned();
        body["items"].as_array().unwrap().iter().map(word).collect()
    }

    async fn follow(&self, path: &str, last: Option<&str>) -> Result<Lines, Answer> {
        let mut request = Request::get(path).header(header::ACCEPT, "text/event-stream");
        if let Some(last) = last {
            request = request.header("last-event-id", last);
        }
        let response = self.app.clone().oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
        if response.status() != StatusCode::OK {
            let (parts, body) = response.into_parts();
            let body = serde_json::from_slice(&to_bytes(body, usize::MAX).await.unwrap()).unwrap();
            return Err(Answer { status: parts.status, headers: parts.headers, body });
        }
        assert_eq!(response.headers()[header::CONTENT_TYPE], "text/event-stream");
        let chunks = response.into_body().into_data_stream();
        Ok(Box::pin(chunks.map(|chunk| String::from_utf8(chunk.unwrap().to_vec()).unwrap())))
    }
}

/// The next event's number and body.
async fn next(lines: &mut Lines) -> (String, Value) {
    let text = tokio::time::timeout(SOON, lines.next()).await.expect("an event comes").unwrap();
    let field = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        line.unwrap_or_else(|| panic!("no {name} in {text}")).trim().to_owned()
    };
    let body: Value = serde_json::from_str(&field("data:")).unwrap();
    assert_eq!(body["type"], field("event:"));
    (field("id:"), body)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_life_is_listed_and_its_runs_are_told() {
    let stage = Stage::new().await;
    let mut first = stage.service(1).await;
    stage.create(json!({"kind": "ticker", "name": "a"})).await;
    let (delivery, work, epoch) = first.take().await;
    first.run_event(&work, epoch, RunEvent::Started { attempt: 1, started_at: clock::now() }).await;
    first.run_event(&work, epoch, RunEvent::HandedOver).await;
    let mut second = stage.service(1).await;
    first.session.requeue(delivery.receipt).await;
    drop(first);
    let (_, _, epoch) = second.take().await;
    second.run_event(&work, epoch, RunEvent::Started { attempt: 1, started_at: clock::now() }).await;
    let path = "/v1/observers/a/events";
    stage.until(path, |answer| answer.body["items"][0]["gap_ms"].is_number()).await;
    assert_eq!(stage.words(path).await, ["started", "handed_over", "started", "created"]);
    assert_eq!(stage.words("/v1/events?type=handed_over,created&limit=1").await, ["handed_over"]);
    let page = stage.get("/v1/events?limit=2&type=started,created").await.body;
    assert_eq!(page["total"], 3);
    let rest = format!("/v1/events?type=started,created&cursor={}", page["next_cursor"].as_str().unwrap());
    assert_eq!(stage.words(&rest).await, ["created"]);
    let of_service = format!("/v1/events?service={}", second.id);
    assert_eq!(stage.words(&of_service).await, ["started", "service_registered"]);
    let moved = &stage.get(path).await.body["items"][0];
    assert_eq!((&moved["service"]["name"], &moved["overlap_ms"]), (&json!("s1"), &json!(0)));
    assert!(moved["gap_ms"].as_u64().unwrap() < 10_000, "{moved}");
    let runs = stage.get("/v1/observers/a/runs").await.body;
    assert_eq!((&runs["total"], &runs["items"][0]["ended"]), (&json!(2), &Value::Null));
    assert_eq!(
        (&runs["items"][1]["ended"], &runs["items"][1]["acquisitions"]),
        (&json!("handed_over"), &json!(0))
    );
    assert_eq!(stage.get("/v1/events?type=moved").await.body["code"], "bad-query");
    assert_eq!(stage.get("/v1/observers/none/runs").await.status, StatusCode::NOT_FOUND);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_are_followed_resumed_and_end_with_the_manager() {
    let stage = Stage::new().await;
    let create = async |name: &str| {
        stage.create(json!({"kind": "ticker", "name": name, "on_full": "queue"})).await;
    };
    create("before").await;
    stage.until("/v1/events?type=created", |answer| answer.body["total"] == 1).await;
    let mut live = stage.follow("/v1/events", None).await.unwrap();
    let mut paused = stage.follow("/v1/events?type=pause_requested", None).await.unwrap();
    create("a").await;
    let (id, event) = next(&mut live).await;
    assert_eq!((&event["type"], &event["observer"]["name"]), (&json!("created"), &json!("a")));
    assert_eq!(event["id"].to_string(), id);
    stage.send("POST", "/v1/observers/a/pause", None).await;
    assert_eq!(next(&mut live).await.1["type"], "pause_requested");
    assert_eq!(next(&mut paused).await.1["type"], "pause_requested");
    drop(live);
    create("b").await;
    let mut resumed = stage.follow("/v1/events", Some(&id)).await.unwrap();
    assert_eq!(next(&mut resumed).await.1["type"], "pause_requested");
    assert_eq!(next(&mut resumed).await.1["observer"]["name"], "b");

    stage.manager.records.store.forget_events(Timestamp(i64::MAX), 0).await.unwrap();
    for last in ["0", "999999"] {
        let gone = stage.follow("/v1/events", Some(last)).await.err().unwrap();
        assert_eq!((gone.status.as_u16(), &gone.body["code"]), (410, &json!("events-gone")), "{last}");
    }
    let wrong = stage.follow("/v1/events", Some("x")).await.err().unwrap();
    assert_eq!((wrong.status.as_u16(), &wrong.body["code"]), (400, &json!("bad-header")));
    stage.manager.stop.cancel();
    let end = tokio::time::timeout(SOON, resumed.next()).await.expect("the stream ends");
    assert_eq!(end, None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_somebody_asks_for_is_recorded_with_who_asked() {
    let stage = Stage::new().await;
    let ask = async |method: &str, path: &str, who: &str, body: Value| {
        let request = Request::builder().method(method).uri(path).header("everwatch-actor", who);
        let request = request
            .header(header::USER_AGENT, "a tool/1")
            .header(header::CONTENT_TYPE, "application/json")
            .extension(ConnectInfo(SocketAddr::from(([10, 0, 0, 7], 9))))
            .body(Body::from(body.to_string()));
        let status = stage.app.clone().oneshot(request.unwrap()).await.unwrap().status();
        assert!(status.is_success(), "{status}");
    };
    let draft = json!({"kind": "ticker", "name": "a", "on_full": "queue"});
    ask("POST", "/v1/observers", "ada@laptop", draft).await;
    ask("POST", "/v1/observers:pause?kind=ticker&expect=1", " ", json!(null)).await;
    ask("PUT", "/v1/safe-mode", &"o".repeat(200), json!({"on": true, "reason": "a test"})).await;
    let answer = stage
        .until("/v1/events?type=safe_mode&type=created&type=pause_requested", |it| it.body["total"] == 3);
    let items = answer.await.body["items"].clone();
    let by = |who: Value| json!({"who": who, "from": "10.0.0.7", "with": "a tool/1"});
    assert_eq!(items[0]["by"], by(json!("o".repeat(128))), "{items}");
    assert_eq!(items[1]["by"], by(Value::Null), "{items}");
    assert_eq!(items[2]["by"], by(json!("ada@laptop")), "{items}");
    // What a service reports is nobody's request.
    let mut service = stage.service(4).await;
    stage.send("POST", "/v1/observers/a/resume", None).await;
    let (_kept, work, epoch) = service.take().await;
    service.run_event(&work, epoch, started()).await;
    let begun = stage.until("/v1/events?type=started", |it| it.body["total"] == 1).await;
    assert_eq!(begun.body["items"][0]["by"], Value::Null, "{begun:?}");
}
