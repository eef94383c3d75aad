//! Which trace a work message belongs to: that of the latest request for it.

use crate::service::Voice;
use crate::stage::{Manager, Stage};
use everwatch_broker::{Delivery, Settle};
use everwatch_core::epoch::Epoch;
use everwatch_core::id::Pool;
use everwatch_core::wire::report::RunEvent;
use everwatch_core::wire::trace::{TRACEPARENT, TRACESTATE, TraceContext};
use everwatch_core::wire::work::{DecodedWork, Work};
use everwatch_tests::wait::wait_for;
use serde_json::json;

const A: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
const B: &str = "00-0bf7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

/// Asks with these headers; nothing is exported here, so a context goes on as it came.
async fn ask(manager: &Manager, path: &str, headers: &[(&str, &str)], body: serde_json::Value) {
    let mut request = reqwest::Client::new().post(format!("{}{path}", manager.api.url)).json(&body);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let answer = request.send().await.unwrap();
    assert!(answer.status().is_success(), "{path}: {}", answer.text().await.unwrap());
}

/// The next work message, which is over then.
async fn next(voice: &Voice) -> (Work, Delivery) {
    let queue = voice.topology.work(&Pool::default());
    let delivery = wait_for("a work message", || async {
        voice.session.get(&queue, 1).await.unwrap().pop().ok_or_else(|| "none".to_owned())
    })
    .await;
    assert_eq!(voice.session.ack(delivery.receipt).await, Settle::Done);
    let DecodedWork::Ours(work) = Work::read(&delivery.body).unwrap() else { panic!("foreign") };
    (*work, delivery)
}

#[tokio::test]
async fn a_message_has_the_trace_of_its_request_or_begins_one() {
    let stage = Stage::new();
    let manager = stage.ready_manager().await;
    let voice = Voice::new(stage.broker.as_ref(), &stage.settings.prefix).await;
    let later = format!("{}-more", A.replacen("00", "01", 1));
    for (sent, state) in [
        (vec![(TRACEPARENT, A), (TRACESTATE, "a=1"), (TRACESTATE, "b=2")], Some("a=1,b=2")),
        (vec![(TRACEPARENT, &*later), (TRACESTATE, "no state")], None),
    ] {
        ask(&manager, "/v1/observers", &sent, json!({"kind": "ticker", "on_full": "queue"})).await;
        let (_, delivery) = next(&voice).await;
        assert_eq!((delivery.text(TRACEPARENT), delivery.text(TRACESTATE)), (Some(A), state));
    }
    let malformed = A.to_uppercase();
    for sent in [
        vec![],
        vec![(TRACEPARENT, &*malformed), (TRACESTATE, "a=1")],
        vec![(TRACEPARENT, A), (TRACEPARENT, B)],
    ] {
        ask(&manager, "/v1/observers", &sent, json!({"kind": "ticker", "on_full": "queue"})).await;
        let (_, delivery) = next(&voice).await;
        let begun = TraceContext::read(delivery.text(TRACEPARENT), None).unwrap();
        assert!(!begun.is_sampled() && !A.contains(&begun.trace_id()) && !B.contains(&begun.trace_id()));
        assert_eq!(delivery.text(TRACESTATE), None);
    }
}

#[tokio::test]
async fn what_is_published_again_has_the_trace_of_the_newest_request() {
    let stage = Stage::new();
    let manager = stage.ready_manager().await;
    let mut voice = Voice::new(stage.broker.as_ref(), &stage.settings.prefix).await;
    let body = json!({"name": "o", "kind": "ticker", "on_full": "queue", "desired": "paused"});
    ask(&manager, "/v1/observers", &[(TRACEPARENT, B)], body).await;
    ask(&manager, "/v1/observers/o/resume", &[(TRACEPARENT, A)], json!(null)).await;
    let (work, delivery) = next(&voice).await;
    assert_eq!((work.generation, delivery.text(TRACEPARENT)), (1, Some(A)));
    // No user requested this: the manager republishes what stopped by itself.
    voice.event(work.id, Epoch::first_of(1), RunEvent::Stopped).await;
    let (work, delivery) = next(&voice).await;
    assert_eq!((work.generation, delivery.text(TRACEPARENT)), (2, Some(A)));
    ask(&manager, "/v1/observers/o/restart", &[(TRACEPARENT, B)], json!(null)).await;
    voice.event(work.id, Epoch::first_of(2), RunEvent::Stopped).await;
    let (work, delivery) = next(&voice).await;
    assert_eq!((work.generation, delivery.text(TRACEPARENT)), (3, Some(B)));
}
