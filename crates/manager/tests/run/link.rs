//! What a manager makes of a broker that is lost, silent or blocked.

use crate::service::Service;
use crate::stage::{Manager, Stage};
use everwatch_api::{Event, Listed, Observer};
use everwatch_core::epoch::Epoch;
use everwatch_core::id::{ObserverId, Pool};
use everwatch_core::record::service::ServiceState;
use everwatch_core::record::status::Status;
use everwatch_tests::wait::{throughout, wait_for};
use serde_json::json;

async fn queued(manager: &Manager, name: &str) -> Observer {
    manager.api.create(json!({"name": name, "kind": "ticker", "on_full": "queue"})).await
}

/// Creates observers that wait in the queue of a pool without services.
async fn queued_in_vain(manager: &Manager, names: [&str; 2]) {
    for name in names {
        queued(manager, name).await;
        manager.api.until_observer(name, |it| it.reason == "no service in pool default").await;
    }
}

/// Takes every message out of the work queue.
async fn lose_messages(stage: &Stage) {
    let session = stage.broker.connect("thief").await.unwrap();
    let queue = everwatch_broker::Topology::new(&stage.settings.prefix).work(&Pool::default());
    for delivery in session.get(&queue, 9).await.unwrap() {
        session.ack(delivery.receipt).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_session_is_told_and_replaced() {
    let stage = Stage::new();
    let manager = stage.ready_manager().await;
    let service = Service::new(&stage, "s", 5).await;
    for round in 0..3 {
        stage.memory.cut("everwatch manager");
        let problem = manager.api.until_not_ready().await;
        assert!(problem.detail.contains("broker"), "{problem:?}");
        assert_eq!(manager.api.call("GET", "/readyz?for=api", None).await.0, 200);
        queued(&manager, &format!("o{round}")).await;
        manager.api.until_ready().await;
        manager.api.until_status(&format!("o{round}"), "Processing").await;
    }
    assert_eq!(service.history.lock().unwrap().len(), 3);
}

/// Stored by the broker, its confirm lost with the session: it may be there twice, but runs once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_publish_without_a_confirm_is_repeated_and_its_late_copy_is_ended() {
    let stage = Stage::new();
    let manager = stage.ready_manager().await;
    stage.memory.lose_next_confirms(usize::MAX);
    let made = queued(&manager, "a").await;
    let session = stage.broker.connect("onlooker").await.unwrap();
    let queue = everwatch_broker::Topology::new(&stage.settings.prefix).work(&Pool::default());
    let ready = async |definition| {
        wait_for("the copies to be in the queue", || async {
            let depth = session.depth(&queue).await.unwrap();
            if depth.ready == definition { Ok(()) } else { Err(format!("{depth:?}")) }
        })
        .await;
    };
    ready(1).await;
    stage.memory.lose_next_confirms(0);
    stage.memory.cut("everwatch manager");
    ready(2).await;
    let service = Service::new(&stage, "s", 5).await;
    let running =
        manager.api.until_observer("a", |it| it.status == Status::Processing && it.generation == 2).await;
    let id = ObserverId(made.id);
    wait_for("only the second copy to run", || async {
        let running = service.running.lock().unwrap().clone();
        let depth = session.depth(&queue).await.unwrap();
        if running.get(&id) == Some(&Epoch::new(2, 0)) && running.len() == 1 && depth.ready == 0 {
            Ok(())
        } else {
            Err(format!("{running:?} {depth:?}"))
        }
    })
    .await;
    assert_eq!(running.acquisitions, 0);
}

/// A broker may take longer to confirm than a lease lasts: as long as its session lives, that is no loss.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_confirm_is_waited_for() {
    let stage = Stage::new();
    let manager = stage.ready_manager().await;
    stage.memory.lose_next_confirms(usize::MAX);
    queued(&manager, "a").await;
    throughout(stage.settings.row.lease * 2, || async {
        let generation = manager.api.observer("a").await.generation;
        if generation == 1 { Ok(()) } else { Err(format!("it was published again, as {generation}")) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn during_an_alarm_creates_are_accepted_and_published_once_after_it() {
    let stage = Stage::new();
    let manager = stage.ready_manager().await;
    let service = Service::new(&stage, "s", 50).await;
    queued(&manager, "before").await;
    manager.api.until_status("before", "Processing").await;
    stage.memory.block(true);
    for number in 0..20 {
        queued(&manager, &format!("o{number}")).await;
    }
    // Longer than a lease, and than a service may be silent: no service loses anything.
    let id = service.id.to_string();
    throughout(stage.settings.row.lease * 2, || async {
        let state = manager.api.service(&id).await.state;
        if state == ServiceState::Active { Ok(()) } else { Err(format!("the service is {state:?}")) }
    })
    .await;
    assert_eq!(service.history.lock().unwrap().len(), 1);
    assert_eq!(manager.api.observer("o0").await.reason, "to be published");
    stage.memory.block(false);
    manager.api.until_total("/v1/observers?status=Processing", 21).await;
    for observer in manager.api.observers().await {
        assert_eq!(observer.generation, 1, "{observer:?}");
    }
    assert_eq!(service.history.lock().unwrap().len(), 21);
    manager.api.until_ready().await;
}

/// The broker lost its data, or an operator deleted a queue: managers republish what was in it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_in_a_queue_that_was_created_again_is_published_again() {
    let stage = Stage::new();
    let manager = stage.ready_manager().await;
    for name in ["a", "b"] {
        queued(&manager, name).await;
        manager.api.until_observer(name, |it| it.reason == "no service in pool default").await;
    }
    // Their messages vanish, and a service that finds no queue makes it and says so.
    let mut voice = crate::service::Voice::new(stage.broker.as_ref(), &stage.settings.prefix).await;
    let queue = voice.topology.work(&Pool::default());
    for delivery in voice.session.get(&queue, 9).await.unwrap() {
        voice.session.ack(delivery.receipt).await;
    }
    voice.report(everwatch_core::wire::report::Report::WorkQueueCreated { pool: Pool::default() }).await;
    let service = Service::new(&stage, "s", 5).await;
    for name in ["a", "b"] {
        assert_eq!(manager.api.until_status(name, "Processing").await.generation, 2);
    }
    assert_eq!(service.history.lock().unwrap().len(), 2);
}

/// No service holds it, and it is in no queue: a manager publishes it again, or settles it if it was to end. In safe
/// mode, the manager does neither.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_that_vanished_is_missed() {
    let stage = Stage::new();
    let manager = stage.ready_manager().await;
    let safe_mode = |on: bool| json!({"on": on, "reason": "a drill"});
    assert_eq!(manager.api.call("PUT", "/v1/safe-mode", Some(safe_mode(true))).await.0, 200);
    assert_eq!(manager.api.get("/v1/safe-mode").await, safe_mode(true));
    queued_in_vain(&manager, ["a", "doomed"]).await;
    lose_messages(&stage).await;
    assert_eq!(manager.api.call("DELETE", "/v1/observers/doomed", None).await.0, 202);
    let service = Service::new(&stage, "s", 5).await;
    throughout(stage.settings.orphan_after * 3, || async {
        let generation = manager.api.observer("a").await.generation;
        if generation == 1 { Ok(()) } else { Err("published again in spite of safe mode".to_owned()) }
    })
    .await;
    assert_eq!(manager.api.call("PUT", "/v1/safe-mode", Some(safe_mode(false))).await.0, 200);
    let running = manager.api.until_status("a", "Processing").await;
    assert_eq!(running.generation, 2);
    manager.api.until_status("doomed", "Deleted").await;
    assert_eq!(service.history.lock().unwrap().len(), 1);
    let why = "its message was not found";
    let is_told = |events: &Listed<Event>| events.items.first().is_some_and(|newest| newest.text == why);
    manager.api.until_read("/v1/observers/a/events?type=republished", is_told).await;
    let wrong = manager.api.refused("PUT", "/v1/safe-mode", Some(json!({"off": true}))).await;
    assert_eq!((wrong.status, wrong.code.as_str()), (422, "invalid"));
}

/// The same in a pool of which no service takes anything: its queue says the same as one of which nothing is known.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_that_vanished_is_missed_where_no_service_takes_any_too() {
    let mut stage = Stage::new();
    stage.settings.orphan_after = stage.settings.lost_after;
    let manager = stage.ready_manager().await;
    queued_in_vain(&manager, ["a", "doomed"]).await;
    lose_messages(&stage).await;
    assert_eq!(manager.api.call("DELETE", "/v1/observers/doomed", None).await.0, 202);
    manager.api.until_status("doomed", "Deleted").await;
    let found = manager.api.until_observer("a", |it| it.generation == 2).await;
    assert_eq!(found.status, Status::Created);
}

/// The same in a queue that is never empty, as its pool is full.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_that_vanished_is_missed_in_a_full_pool_too() {
    let mut stage = Stage::new();
    stage.settings.orphan_after = stage.settings.lost_after;
    let manager = stage.ready_manager().await;
    let service = Service::new(&stage, "s", 1).await;
    queued(&manager, "a").await;
    manager.api.until_status("a", "Processing").await;
    for name in ["b", "c", "d"] {
        queued(&manager, name).await;
        manager.api.until_observer(name, |it| it.reason.starts_with("waiting for a slot")).await;
    }
    let session = stage.broker.connect("thief").await.unwrap();
    let queue = everwatch_broker::Topology::new(&stage.settings.prefix).work(&Pool::default());
    for delivery in session.get(&queue, 9).await.unwrap() {
        if String::from_utf8_lossy(&delivery.body).contains("\"name\":\"c\"") {
            session.ack(delivery.receipt).await;
        } else {
            session.requeue(delivery.receipt).await;
        }
    }
    let found = manager.api.until_observer("c", |it| it.generation == 2).await;
    assert_eq!(found.status, Status::Created);
    for name in ["a", "b", "d"] {
        assert_eq!(manager.api.observer(name).await.generation, 1, "{name}");
    }
    assert_eq!(service.history.lock().unwrap().len(), 1);
    wait_for("all three to be in the queue", || async {
        let depth = session.depth(&queue).await.unwrap();
        if depth.ready == 3 { Ok(()) } else { Err(format!("{depth:?}")) }
    })
    .await;
}
