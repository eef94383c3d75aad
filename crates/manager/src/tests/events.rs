//! What happened, as a list, as a stream, and as runs.

use super::*;
use axum::extract::ConnectInfo;
use everwatch_api::{Event, LogRequester, Run};
use everwatch_core::record::events::EventKind;
use futures::StreamExt as _;
use std::net::SocketAddr;

type Lines = std::pin::Pin<Box<dyn futures::Stream<Item = String> + Send>>;

impl Stage {
    async fn words(&self, path: &str) -> Vec<String> {
        let events: Listed<Event> = self.read(path).await;
        events.items.iter().map(|event| event.kind.as_str().to_owned()).collect()
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

/// The next event.
async fn next(lines: &mut Lines) -> Event {
    let text = tokio::time::timeout(SOON, lines.next()).await.expect("an event comes").unwrap();
    let field = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        line.unwrap_or_else(|| panic!("no {name} in {text}")).trim().to_owned()
    };
    let event: Event = serde_json::from_str(&field("data:")).unwrap();
    assert_eq!((event.kind.as_str(), event.id.to_string()), (field("event:").as_str(), field("id:")));
    event
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
    let has_gap = |events: &Listed<Event>| events.items.first().is_some_and(|newest| newest.gap_ms.is_some());
    stage.until_read(path, has_gap).await;
    assert_eq!(stage.words(path).await, ["started", "handed_over", "started", "created"]);
    assert_eq!(stage.words("/v1/events?type=handed_over,created&limit=1").await, ["handed_over"]);
    let page: Listed<Event> = stage.read("/v1/events?limit=2&type=started,created").await;
    assert_eq!(page.total, 3);
    let rest = format!("/v1/events?type=started,created&cursor={}", page.next_cursor.unwrap());
    assert_eq!(stage.words(&rest).await, ["created"]);
    let of_service = format!("/v1/events?service={}", second.id);
    assert_eq!(stage.words(&of_service).await, ["started", "service_registered"]);
    let moved = stage.read::<Listed<Event>>(path).await.items.remove(0);
    assert!(moved.gap_ms.unwrap() < 10_000, "{moved:?}");
    assert_eq!((moved.service.as_ref().unwrap().name.as_str(), moved.overlap_ms), ("s1", Some(0)));
    let runs: Listed<Run> = stage.read("/v1/observers/a/runs").await;
    assert_eq!((runs.total, &runs.items[0].ended), (2, &None));
    assert_eq!((runs.items[1].ended.as_deref(), runs.items[1].acquisitions), (Some("handed_over"), 0));
    let at = moved.at;
    let of_time = async |query: &str| stage.words(&format!("/v1/events?{query}")).await;
    assert_eq!(of_time(&format!("type=started,created&since={at}")).await, ["started"]);
    assert_eq!(
        of_time(&format!("type=handed_over,created&until={at}&since=1h")).await,
        ["handed_over", "created"]
    );
    assert_eq!(of_time("until=2020-01-01T00:00:00Z").await, [""; 0]);
    assert_eq!(of_time("since=2100-01-01T00:00:00Z").await, [""; 0]);
    for wrong in [
        "since=soon",
        "since=2030-01-01T00:00:00Z&until=2029-01-01T00:00:00Z",
        "until=15m",
        "since=1h&since=2h",
    ] {
        stage.get(&format!("/v1/events?{wrong}")).await.refused(400, "bad-query");
    }
    stage.get("/v1/events?type=moved").await.refused(400, "bad-query");
    assert_eq!(stage.get("/v1/observers/none/runs").await.status, StatusCode::NOT_FOUND);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_are_followed_resumed_and_end_with_the_manager() {
    let stage = Stage::new().await;
    let create = async |name: &str| {
        stage.create(json!({"kind": "ticker", "name": name, "on_full": "queue"})).await;
    };
    create("before").await;
    stage.until_read("/v1/events?type=created", |events: &Listed<Event>| events.total == 1).await;
    let mut live = stage.follow("/v1/events", None).await.unwrap();
    let mut paused = stage.follow("/v1/events?type=pause_requested", None).await.unwrap();
    create("a").await;
    let event = next(&mut live).await;
    assert_eq!((event.kind, event.observer.unwrap().name.as_str()), (EventKind::Created, "a"));
    assert_eq!(next(&mut live).await.kind, EventKind::Waiting);
    stage.send("POST", "/v1/observers/a/pause", None).await;
    assert_eq!(next(&mut live).await.kind, EventKind::PauseRequested);
    assert_eq!(next(&mut paused).await.kind, EventKind::PauseRequested);
    drop(live);
    create("b").await;
    let mut resumed = stage.follow("/v1/events", Some(&event.id.to_string())).await.unwrap();
    assert_eq!(next(&mut resumed).await.kind, EventKind::Waiting);
    assert_eq!(next(&mut resumed).await.kind, EventKind::PauseRequested);
    for kind in [EventKind::Created, EventKind::Waiting] {
        let event = next(&mut resumed).await;
        assert_eq!((event.kind, event.observer.unwrap().name.as_str()), (kind, "b"));
    }

    stage.manager.records.store.forget_events(Timestamp(i64::MAX), 0).await.unwrap();
    for last in ["0", "999999"] {
        let gone = stage.follow("/v1/events", Some(last)).await.err().unwrap();
        gone.refused(410, "events-gone");
    }
    let wrong = stage.follow("/v1/events", Some("x")).await.err().unwrap();
    wrong.refused(400, "bad-header");
    stage.manager.stop.cancel();
    let end = tokio::time::timeout(SOON, resumed.next()).await.expect("the stream ends");
    assert_eq!(end, None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_records_who_sent_the_request() {
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
    let path = "/v1/events?type=safe_mode&type=created&type=pause_requested";
    let events = stage.until_read(path, |events: &Listed<Event>| events.total == 3).await.items;
    let by = |who: Option<String>| {
        let [from, with] = ["10.0.0.7", "a tool/1"].map(|it| Some(it.to_owned()));
        Some(LogRequester { who, from, with })
    };
    assert_eq!(events[0].by, by(Some("o".repeat(128))), "{events:?}");
    assert_eq!(events[1].by, by(None), "{events:?}");
    assert_eq!(events[2].by, by(Some("ada@laptop".to_owned())), "{events:?}");
    // What a service reports has no request.
    let mut service = stage.service(4).await;
    stage.send("POST", "/v1/observers/a/resume", None).await;
    let (_kept, work, epoch) = service.take().await;
    service.run_event(&work, epoch, started()).await;
    let is_one = |events: &Listed<Event>| events.total == 1;
    let begun = stage.until_read("/v1/events?type=started", is_one).await;
    assert_eq!(begun.items[0].by, None, "{begun:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_summary_stands_for_most_of_many_similar_events() {
    let stage = Stage::new().await;
    let mut live = stage.follow("/v1/events?type=created", None).await.unwrap();
    let mut detailed = stage.follow("/v1/events?type=created&details=true", None).await.unwrap();
    let draft = |number: i32| json!({"op": "create", "observer": {"kind": "ticker", "name": format!("o-{number}"), "on_full": "queue"}});
    let batch: Vec<Value> = (0..250).map(draft).collect();
    stage.send("POST", "/v1/observers:batch", Some(&json!(batch).to_string())).await;
    let has_summary = |events: &Listed<Event>| events.total == 101;
    let events = stage.until_read("/v1/events?type=created&limit=500", has_summary).await.items;
    let burst = events[0].burst.as_ref().expect("a summary");
    assert_eq!((burst.count, burst.gap_ms_max, &events[0].observer), (150, None, &None), "{:?}", events[0]);
    assert!(events[0].text.starts_with("150 more within "), "{:?}", events[0]);
    assert!(events[1..].iter().all(|event| event.observer.is_some() && event.burst.is_none()));
    assert_eq!(stage.total("/v1/events?type=created&details=true").await, 251);
    stage.get("/v1/events?details=yes").await.refused(400, "bad-query");
    for number in [0, 249] {
        assert_eq!(stage.words(&format!("/v1/observers/o-{number}/events")).await, ["waiting", "created"]);
    }
    let mut told = Vec::new();
    for _ in 0..101 {
        told.push(next(&mut live).await);
    }
    assert_eq!(told.last(), events.first(), "the summary");
    for _ in 0..251 {
        told.push(next(&mut detailed).await);
    }
    assert_eq!(told.last(), events.first(), "the summary comes after its events");
}
