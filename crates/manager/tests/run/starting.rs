//! How a manager starts, stops and becomes ready.

use crate::service::{Service, Voice, started};
use crate::stage::Stage;
use everwatch_api::{Listed, Observer};
use everwatch_core::epoch::Epoch;
use everwatch_core::id::ObserverId;
use everwatch_core::record::service::ServiceState;
use everwatch_core::record::status::Status;
use everwatch_core::wire::report::{Report, RunEvent};
use everwatch_manager::RunError;
use everwatch_tests::http::holder;
use serde_json::json;
use std::net::TcpListener;
use std::sync::Arc;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_occupied_port_is_named_with_its_cure() {
    let mut stage = Stage::new();
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    stage.settings.listen = other.local_addr().unwrap();
    let error = stage.try_manager().await.err().unwrap();
    assert!(matches!(error, RunError::PortOccupied { .. }), "{error}");
    let text = error.to_string();
    assert!(text.contains(&stage.settings.listen.to_string()) && text.contains("[manager] listen"), "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_ends_it_cleanly_even_while_a_client_waits() {
    let stage = Stage::new();
    let manager = stage.ready_manager().await;
    let api = manager.api.clone();
    api.create(json!({"name": "a", "kind": "ticker", "on_full": "queue"})).await;
    let mut stream = api.follow_as("/v1/events", "text/event-stream").await;
    let waiting = api.read::<Observer>("/v1/observers/a?wait_for=status%3DProcessing&wait=60s");
    let (waited, stopped) = tokio::join!(waiting, async {
        // By then the wait has begun: connections are accepted in the order in which they came.
        let mut ticks = tokio::time::interval(std::time::Duration::from_millis(20));
        for _ in 0..15 {
            ticks.tick().await;
            api.get("/livez").await;
        }
        manager.stop().await
    });
    stopped.unwrap();
    assert_eq!(waited.status, Status::Created);
    // What was sent before may still lie in it; then it ends, and is not broken off.
    while let Some(chunk) = stream.chunk().await.unwrap() {
        assert!(chunk.starts_with(b"id: ") || chunk.starts_with(b":"), "{chunk:?}");
    }
    // The port, the session and the file are free again.
    let again = stage.ready_manager().await;
    assert_eq!(again.api.observer("a").await.generation, 1);
    again.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_is_ready_only_after_the_backlog_is_applied() {
    let stage = Stage::new();
    let first = stage.ready_manager().await;
    let mut ids = Vec::new();
    for number in 0..100 {
        let body = json!({"name": format!("o{number}"), "kind": "ticker", "on_full": "queue"});
        ids.push(ObserverId(first.api.create(body).await.id));
    }
    first.stop().await.unwrap();
    let mut voice = Voice::new(stage.broker.as_ref(), &stage.settings.prefix).await;
    voice.registered("s", 100).await;
    for round in 0..20 {
        for id in &ids {
            let event = if round == 0 { started() } else { RunEvent::Progress { text: round.to_string() } };
            voice.event(*id, Epoch::new(1, 0), event).await;
        }
    }
    let second = stage.ready_manager().await;
    let listed: Listed<Observer> = second.api.read("/v1/observers?limit=1000&status=Processing").await;
    assert_eq!(listed.total, 100);
    assert!(listed.items.iter().all(|it| it.progress.as_deref() == Some("19")), "{listed:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reports_may_come_in_any_order() {
    let stage = Stage::new();
    let manager = stage.ready_manager().await;
    let made = manager.api.create(json!({"name": "a", "kind": "ticker", "on_full": "queue"})).await;
    let id = ObserverId(made.id);
    let run = |acquisitions, event| {
        let epoch = Epoch::new(1, acquisitions);
        Report::Run(everwatch_core::wire::report::RunReport { id, epoch, event })
    };
    // A service unregisters before its registration arrives.
    let early = Voice::new(stage.broker.as_ref(), &stage.settings.prefix).await;
    early.report_as(9, Report::ServiceGone).await;
    early.report_as(1, Report::ServiceRegistered(Box::new(crate::service::registration("early", 3)))).await;
    let gone = manager.api.until_service(&early.id.to_string(), |it| it.state == ServiceState::Gone).await;
    assert!(gone.is_deleted);
    // The newer run's start before the older one's last words.
    let older = Voice::new(stage.broker.as_ref(), &stage.settings.prefix).await;
    let newer = Voice::new(stage.broker.as_ref(), &stage.settings.prefix).await;
    for voice in [&older, &newer] {
        let name = if voice.id == older.id { "older" } else { "newer" };
        voice.report_as(1, Report::ServiceRegistered(Box::new(crate::service::registration(name, 3)))).await;
    }
    newer.report_as(3, run(1, started())).await;
    newer.report_as(2, run(1, RunEvent::Held { reason: "new".to_owned(), refuses: false })).await;
    older.report_as(8, run(0, RunEvent::HandedOver)).await;
    older.report_as(7, run(0, started())).await;
    older.report_as(90, run(0, RunEvent::Progress { text: "last words".to_owned() })).await;
    let seen = manager.api.until_observer("a", |it| it.progress.as_deref() == Some("last words")).await;
    assert_eq!((seen.status, holder(&seen)), (Status::Processing, Some("newer")));
    assert_eq!((seen.acquisitions, seen.reason.as_str()), (1, ""));
    // A settlement before what came before it.
    newer.report_as(5, run(1, RunEvent::Completed)).await;
    newer
        .report_as(
            4,
            run(1, RunEvent::Errored { attempt: 1, error: "e".to_owned(), next_at: Default::default() }),
        )
        .await;
    let seen = manager.api.until_observer("a", |it| it.last_error.as_deref() == Some("e")).await;
    assert_eq!(seen.status, Status::Completed);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_observer_runs_once_and_ends_once() {
    let stage = Stage::new();
    let manager = stage.ready_manager().await;
    let service = Service::new(&stage, "s", 2).await;
    manager.api.until(&format!("/v1/services/{}", service.id), |status, _| status == 200).await;
    manager.api.create(json!({"name": "a", "kind": "ticker"})).await;
    manager.api.until_status("a", "Processing").await;
    assert_eq!(manager.api.call("DELETE", "/v1/observers/a?wait=20s", None).await.0, 200);
    assert_eq!(service.history.lock().unwrap().len(), 1);
    assert!(Arc::clone(&service.running).lock().unwrap().is_empty());
}

/// Runs it on both brokers: what a queue that holds one message does is the broker's own affair.
async fn a_manager_with_another_database_is_refused(mut stage: Stage) {
    let first = stage.ready_manager().await;
    first.stop().await.unwrap();
    let again = stage.ready_manager().await;
    again.stop().await.unwrap();
    let own = stage.store_url.clone();
    stage.store_url = format!("{own}.other");
    let other = stage.manager().await;
    let error = other.ended().await.unwrap_err();
    let text = error.to_string();
    assert!(text.contains("--adopt") && text.contains("according to the queue"), "{text}");
    stage.settings.adopt = true;
    let adopting = stage.ready_manager().await;
    adopting.stop().await.unwrap();
    stage.settings.adopt = false;
    stage.ready_manager().await.stop().await.unwrap();
    stage.store_url = own;
    let back = stage.manager().await.ended().await.unwrap_err().to_string();
    let ids = |text: &str| -> Vec<String> {
        let words = text.split(|c: char| !c.is_ascii_hexdigit() && c != '-');
        words.filter(|word| word.len() == 36).map(str::to_owned).collect()
    };
    let (mut before, after) = (ids(&text), ids(&back));
    assert_eq!((before.len(), after.len()), (2, 2), "{text}; {back}");
    before.reverse();
    assert_eq!(before, after, "both errors name both databases");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_database_is_refused_until_it_adopts() {
    a_manager_with_another_database_is_refused(Stage::new()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_database_is_refused_until_it_adopts_on_rabbitmq() {
    a_manager_with_another_database_is_refused(Stage::new().on_rabbit()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn managers_that_start_at_the_same_moment_agree_on_the_owner() {
    let stage = Stage::new().on_rabbit().on_postgres().await;
    let (one, two, three) = tokio::join!(stage.ready_manager(), stage.ready_manager(), stage.ready_manager());
    for manager in [one, two, three] {
        manager.stop().await.unwrap();
    }
}
