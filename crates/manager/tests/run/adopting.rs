//! What a manager makes of observers and services that its database does not know.

use crate::service::{Service, Voice, started};
use crate::stage::Stage;
use everwatch_api::{Event, Observer, Rate, SafeMode};
use everwatch_broker::{Consume, QueueKind, Settle};
use everwatch_core::epoch::Epoch;
use everwatch_core::id::{ObserverId, Pool};
use everwatch_core::record::status::Status;
use everwatch_core::wire::command::Command;
use everwatch_core::wire::message::decode;
use everwatch_tests::wait::wait_for;
use serde_json::json;
use std::time::Duration;

/// As `everwatch migrate --restored` does.
async fn prepare(stage: &Stage, observers: u64) {
    let store = everwatch_store::open(&stage.store_url, stage.settings.row.clone()).await.unwrap();
    assert_eq!(everwatch_manager::restored(store.as_ref()).await.unwrap().observers, observers);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_buckets_of_rates_begin_empty() {
    let stage = Stage::new();
    let manager = stage.ready_manager().await;
    let settings = json!({"permits": 1, "per": "24h", "burst": 31});
    let rate: Rate = manager.api.done("PUT", "/v1/rates/a", Some(settings), 200).await;
    assert_eq!(rate.available, 30);
    manager.stop().await.unwrap();
    prepare(&stage, 0).await;
    let manager = stage.ready_manager().await;
    let rate: Rate = manager.api.read("/v1/rates/a").await;
    assert_eq!((rate.available, rate.at_once), (0, 30));
    manager.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_runs_and_is_not_in_the_database_is_adopted_under_a_name_that_is_free() {
    let stage = Stage::new();
    let manager = stage.ready_manager().await;
    manager.api.create(json!({"name": "shared", "kind": "ticker", "on_full": "queue"})).await;
    manager.api.until_observer("shared", |it| it.reason == "no service in pool default").await;
    manager.stop().await.unwrap();
    let backup = stage.backup().await;

    // Another observer gets the name, and a service registers; the backup knows neither.
    let manager = stage.ready_manager().await;
    let service = Service::new(&stage, "s", 5).await;
    manager.api.until_status("shared", "Processing").await;
    assert_eq!(manager.api.call("DELETE", "/v1/observers/shared?wait=20s", None).await.0, 200);
    let spec = json!({"big": 12_345_678_901_234_567_890_u64, "exact": 0.1});
    let body = json!({"kind": "ticker", "spec": spec, "labels": {"app": "x"}});
    let mut made = Vec::new();
    for name in ["shared", "new"] {
        let mut body = body.clone();
        body["name"] = json!(name);
        made.push(manager.api.create(body).await);
        manager.api.until_status(name, "Processing").await;
    }
    let runs = service.running.lock().unwrap().clone();
    manager.stop().await.unwrap();
    stage.restore(&backup).await;
    prepare(&stage, 1).await;

    let manager = stage.ready_manager().await;
    for (it, name) in made.iter().zip(["shared-", "new"]) {
        let key = it.id;
        // Its service registers in its own time.
        let runs = |it: &Observer| it.status == Status::Processing && it.service.is_some();
        let adopted = manager.api.until_observer(&key.to_string(), runs).await;
        assert!(adopted.name.starts_with(name), "{adopted:?}");
        assert_eq!((&adopted.spec, json!(adopted.labels)), (&spec, body["labels"].clone()));
        assert!(adopted.service.is_some_and(|service| service.name == "s"));
        let path = format!("/v1/observers/{key}/events?type=adopted");
        manager.api.until_total(&path, 1).await;
        let events: Vec<Event> = manager.api.list(&path).await;
        assert!(events[0].text.contains("database"), "{events:?}");
    }
    assert_eq!(manager.api.service("s").await.capacity, 5);
    assert_eq!(*service.running.lock().unwrap(), runs, "whatever ran runs on");
    assert_eq!(manager.api.call("DELETE", "/v1/observers/new?wait=20s", None).await.0, 200);
}

/// Its row was forgotten, and a service that was away still holds it: it is ended, not adopted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leftover_of_one_that_was_forgotten_is_ended() {
    let mut stage = Stage::new();
    stage.settings.row.retention_deleted = Duration::from_millis(1);
    let manager = stage.ready_manager().await;
    let service = Service::new(&stage, "s", 5).await;
    let made = manager.api.create(json!({"name": "a", "kind": "ticker", "on_full": "queue"})).await;
    manager.api.until_status("a", "Processing").await;
    manager.api.call("DELETE", "/v1/observers/a?wait=20s", None).await;
    manager.api.until("/v1/observers/a", |status, _| status == 404).await;
    assert!(service.running.lock().unwrap().is_empty());

    let mut voice = Voice::new(stage.broker.as_ref(), &stage.settings.prefix).await;
    let queue = voice.topology.commands_of(&Pool::default(), voice.id);
    voice.session.declare(&queue, &QueueKind::Exclusive).await.unwrap();
    voice
        .session
        .bind(&queue, &[voice.topology.commands(), voice.topology.commands_to(&Pool::default())])
        .await
        .unwrap();
    let mut commands = voice.session.consume(&Consume { queue, prefetch: 100, priority: 0 }).await.unwrap();
    let id = ObserverId(made.id);
    // Managers send commands to services whose pool they know.
    voice.registered("voice", 5).await;
    voice.event(id, Epoch::new(1, 4), started()).await;
    let heard = async {
        loop {
            let command = commands.next().await.unwrap();
            assert_eq!(voice.session.ack(command.receipt).await, Settle::Done);
            match decode(&command.body).unwrap() {
                Command::Revoke(revocations) if revocations.iter().any(|revocation| revocation.id == id) => {
                    return revocations;
                }
                Command::Describe { service, .. } => assert_ne!(service, voice.id, "no service is asked"),
                _ => {}
            }
        }
    };
    let revocations = tokio::time::timeout(Duration::from_secs(20), heard).await.expect("a revocation");
    assert_eq!(revocations[0].below, Epoch::after_generation(1));
    wait_for("nothing to be adopted", || async {
        let all = manager.api.observers().await;
        if all.is_empty() { Ok(()) } else { Err(format!("{all:?}")) }
    })
    .await;
}

/// No service holds an observer that was deleted or paused since the backup, as the inventory of its service shows. The
/// API shows it as such, and a manager republishes it only once safe mode is off.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_restore_what_no_service_holds_is_shown_and_waits_for_the_end_of_safe_mode() {
    let stage = Stage::new();
    let manager = stage.ready_manager().await;
    let service = Service::new(&stage, "s", 9).await;
    for name in ["kept", "deleted", "paused", "again"] {
        manager.api.create(json!({"name": name, "kind": "ticker", "on_full": "queue"})).await;
        manager.api.until_status(name, "Processing").await;
    }
    manager.stop().await.unwrap();
    let backup = stage.backup().await;
    let manager = stage.ready_manager().await;
    assert_eq!(manager.api.call("DELETE", "/v1/observers/deleted?wait=20s", None).await.0, 200);
    assert_eq!(manager.api.call("POST", "/v1/observers/paused/pause", None).await.0, 202);
    manager.api.until_status("paused", "Paused").await;
    for generation in 2..5 {
        assert_eq!(manager.api.call("POST", "/v1/observers/again/restart", None).await.0, 202);
        let again = |it: &Observer| it.generation == generation && it.reason.is_empty();
        manager.api.until_observer("again", again).await;
    }
    let before = service.history.lock().unwrap().len();
    manager.stop().await.unwrap();
    stage.restore(&backup).await;
    prepare(&stage, 4).await;

    let manager = stage.ready_manager().await;
    assert!(manager.api.safe_mode().await.on);
    for name in ["deleted", "paused"] {
        let lost = manager.api.until_observer(name, |it| it.service.is_none()).await;
        assert!(lost.reason.contains("does not have it any more"), "{lost:?}");
    }
    let again = manager.api.until_observer("again", |it| it.generation == 4).await;
    assert!(again.service.is_some_and(|service| service.name == "s"));
    assert_eq!(again.status, Status::Processing);
    everwatch_tests::wait::throughout(stage.settings.orphan_after * 2, || async {
        let now = service.history.lock().unwrap().len();
        if now == before { Ok(()) } else { Err(format!("{} runs began in safe mode", now - before)) }
    })
    .await;
    assert_eq!(manager.api.call("DELETE", "/v1/observers/deleted", None).await.0, 202);
    let off = json!({"on": false, "reason": "looked at"});
    assert_eq!(manager.api.call("PUT", "/v1/safe-mode", Some(off)).await.0, 200);
    manager.api.until_status("deleted", "Deleted").await;
    let paused = manager.api.until_observer("paused", |it| it.reason.is_empty()).await;
    assert_eq!((paused.status, paused.generation), (Status::Processing, 1002));
    assert_eq!(service.history.lock().unwrap().len(), before + 1);
    assert_eq!(manager.api.observer("kept").await.generation, 1);
    assert!(!manager.api.safe_mode().await.on, "nothing was unexpected");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_report_that_is_ahead_of_the_database_switches_safe_mode_on() {
    let stage = Stage::new();
    let manager = stage.ready_manager().await;
    Service::new(&stage, "s", 9).await;
    let made = manager.api.create(json!({"name": "a", "kind": "ticker", "on_full": "queue"})).await;
    let mut voice = Voice::new(stage.broker.as_ref(), &stage.settings.prefix).await;
    voice.registered("other", 3).await;
    voice.event(ObserverId(made.id), Epoch::new(3, 1), started()).await;
    let reason = manager.api.until_read("/v1/safe-mode", |safe_mode: &SafeMode| safe_mode.on).await.reason;
    assert!(reason.contains("observer a runs in generation 3") && reason.contains("--restored"), "{reason}");
    // Safe mode is on before the row is saved.
    manager.api.until_observer("a", |it| it.generation == 3).await;
}
