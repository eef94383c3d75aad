//! Lines of observers: asked of the service that runs them, followed from one to the next.

use crate::service::Service;
use crate::stage::Stage;
use everwatch_api::sse::Message;
use everwatch_api::{LogNote, Logs, ProblemBody};
use everwatch_tests::http::{Api, Stream};
use everwatch_tests::wait::wait_for;
use serde_json::json;
use std::time::Duration;

const PATH: &str = "/v1/observers/o/logs";

fn texts(logs: &Logs) -> Vec<&str> {
    logs.items.iter().map(|line| line.text.as_str()).collect()
}

async fn one_runs_on(stage: &Stage, api: &Api, name: &str) -> Service {
    let service = Service::new(stage, name, 1).await;
    api.until_total("/v1/services", 1).await;
    api.create(json!({"name": "o", "kind": "ticker"})).await;
    api.until_status("o", "Processing").await;
    service
}

/// A stream of server-sent events, read one by one.
struct Events {
    stream: Stream,
}

impl Events {
    async fn of(api: &Api, path: &str) -> Self {
        Self { stream: api.follow(path).await }
    }

    /// The next event: its word, its id and what it says; `None` at the end.
    async fn next(&mut self) -> Option<(String, String, String)> {
        let next = tokio::time::timeout(Duration::from_secs(30), self.stream.next());
        let Message { event, id, data } = next.await.expect("an event comes")?;
        // A line has this member too.
        let LogNote { text } = serde_json::from_str(&data).unwrap();
        Some((event, id.unwrap_or_default(), text))
    }
    async fn expect(&mut self, word: &str, text: &str) -> String {
        let (heard, id, said) = self.next().await.expect("it goes on");
        assert_eq!((&*heard, &*said), (word, text));
        id
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_newest_lines_are_read_and_those_after_one() {
    let stage = Stage::new();
    let manager = stage.ready_manager().await;
    let api = &manager.api;
    let problem = api.refused("GET", PATH, None).await;
    assert_eq!((problem.status, problem.code.as_str()), (404, "not-found"));
    let service = one_runs_on(&stage, api, "a").await;
    let silent: Logs = api.read(PATH).await;
    assert_eq!((texts(&silent), silent.reason.as_str()), (vec![], "it has said nothing yet on service a"));
    service.say(&["one", "two", "three"]);
    let logs: Logs = api.read(&format!("{PATH}?tail=2")).await;
    assert_eq!((texts(&logs), logs.reason.as_str()), (vec!["two", "three"], ""));
    assert_eq!((logs.items[0].id.as_str(), logs.items[0].stream.as_str()), ("1.0.2", "stdout"));
    assert_eq!(logs.service.unwrap().name, "a");
    let later: Logs = api.read(&format!("{PATH}?after=1.0.1")).await;
    assert_eq!((texts(&later), later.missed), (vec!["two", "three"], 0));
    let plain = api.follow_as(PATH, "text/plain").await.text().await.unwrap();
    assert!(plain.ends_with("stdout three\n") && plain.lines().count() == 3, "{plain}");
    for wrong in ["tail=0", "tail=1001", "after=7", "follow=perhaps", "lines=3"] {
        let problem = api.refused("GET", &format!("{PATH}?{wrong}"), None).await;
        let word = wrong.split('=').next().unwrap();
        assert_eq!((problem.status, problem.code.as_str()), (400, "bad-query"));
        assert!(problem.detail.contains(word), "{problem:?}");
    }
    let (status, _) = api.call("POST", "/v1/observers/o/pause", None).await;
    assert_eq!(status, 202);
    api.until_status("o", "Paused").await;
    let paused: Logs = api.read(PATH).await;
    assert_eq!(paused.items.len(), 3);
    assert!(paused.reason.starts_with("the observer is paused"), "{paused:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_that_does_not_answer_is_not_waited_for_long() {
    let stage = Stage::new();
    let manager = stage.ready_manager().await;
    let service = one_runs_on(&stage, &manager.api, "a").await;
    service.said.lock().unwrap().is_silent = true;
    let problem = manager.api.refused("GET", PATH, None).await;
    assert_eq!((problem.status, problem.code.as_str()), (503, "service-silent"), "{problem:?}");
    assert!(problem.detail.contains("service a has not answered within 5 s"), "{problem:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_follower_goes_on_where_the_observer_goes_on() {
    follow_a_move(&Stage::new()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_follower_goes_on_where_the_observer_goes_on_with_rabbitmq() {
    follow_a_move(&Stage::new().on_rabbit()).await;
}

async fn follow_a_move(stage: &Stage) {
    let manager = stage.ready_manager().await;
    let api = &manager.api;
    let a = one_runs_on(stage, api, "a").await;
    a.say(&["one", "two", "three"]);
    let mut events = Events::of(api, &format!("{PATH}?follow&tail=2")).await;
    events.expect("line", "two").await;
    let third = events.expect("line", "three").await;
    a.say(&["four"]);
    events.expect("line", "four").await;
    let b = Service::new(stage, "b", 1).await;
    drop(a);
    wait_for("b to run it", || async {
        if b.running.lock().unwrap().is_empty() { Err("nothing runs".to_owned()) } else { Ok(()) }
    })
    .await;
    b.say(&["five"]);
    let (word, _, mut said) = events.next().await.unwrap();
    assert_eq!(word, "note");
    if said.starts_with("service a is gone") {
        said = events.next().await.unwrap().2;
    }
    assert_eq!(said, "moved to b (epoch 1.1)");
    assert_eq!(events.expect("line", "five").await, "1.1.1");
    // One who was away meanwhile.
    let mut resumed = Events::of(api, &format!("{PATH}?follow=true&after={third}")).await;
    resumed.expect("note", "moved to b (epoch 1.1)").await;
    resumed.expect("line", "five").await;
    api.call("POST", "/v1/observers/o/restart", None).await;
    wait_for("it to run again", || async {
        let runs: Vec<_> = b.running.lock().unwrap().values().copied().collect();
        if runs.iter().any(|epoch| epoch.generation() == 2) { Ok(()) } else { Err(format!("{runs:?}")) }
    })
    .await;
    b.say(&["six"]);
    let mut notes = Vec::new();
    loop {
        match events.next().await.unwrap() {
            (word, _, text) if word == "note" => notes.push(text),
            (_, id, text) => break assert_eq!((&*id, &*text), ("2.0.1", "six")),
        }
    }
    assert_eq!(notes.last().unwrap(), "runs again on b (epoch 2.0)");
    api.call("DELETE", "/v1/observers/o?wait=10s", None).await;
    loop {
        let (word, _, text) = events.next().await.unwrap();
        if word == "end" {
            break assert_eq!(text, "the observer is deleted and does not run");
        }
    }
    assert_eq!(events.next().await, None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_of_two_managers_hears_the_answers_to_its_own_questions() {
    let stage = Stage::new().on_postgres().await;
    let (one, two) = (stage.ready_manager().await, stage.ready_manager().await);
    let service = one_runs_on(&stage, &one.api, "a").await;
    let lines: Vec<String> = (0..50).map(|number| number.to_string()).collect();
    service.say(&lines.iter().map(String::as_str).collect::<Vec<_>>());
    for tail in 1..=50 {
        let of = |api: &Api| {
            let api = api.clone();
            async move { api.read::<Logs>(&format!("{PATH}?tail={tail}")).await.items.len() }
        };
        assert_eq!(tokio::join!(of(&one.api), of(&two.api), of(&one.api)), (tail, tail, tail));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_so_many_may_follow_at_once() {
    let stage = Stage::new();
    let manager = stage.ready_manager().await;
    let _service = one_runs_on(&stage, &manager.api, "a").await;
    let mut streams = Vec::new();
    for _ in 0..100 {
        streams.push(manager.api.follow(&format!("{PATH}?follow")).await);
    }
    let refused = manager.api.follow_as(&format!("{PATH}?follow"), "*/*").await;
    assert_eq!(refused.status().as_u16(), 429);
    let problem: ProblemBody = serde_json::from_str(&refused.text().await.unwrap()).unwrap();
    assert_eq!(problem.code, "too-many-streams");
    streams.pop();
    wait_for("room for another", || async {
        let status = manager.api.follow_as(&format!("{PATH}?follow"), "*/*").await.status().as_u16();
        if status == 200 { Ok(()) } else { Err(status.to_string()) }
    })
    .await;
}
