//! On a real RabbitMQ.

use crate::service::{Service, Voice};
use crate::stage::{Manager, Stage};
use everwatch_api::Outcomes;
use everwatch_broker::{QueueKind, Topology};
use everwatch_core::id::Pool;
use everwatch_core::record::status::Status;
use everwatch_core::wire::command::Command;
use everwatch_core::wire::message::{BATCH_MAX, decode};
use everwatch_tests::wait::wait_for;
use serde_json::{Value, json};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_delete_of_what_waits_in_a_full_queue_is_carried_out_by_a_sweep() {
    let stage = Stage::new().on_rabbit();
    let manager = stage.ready_manager().await;
    let service = Service::new(&stage, "s", 1).await;
    manager.api.create(json!({"name": "runs", "kind": "ticker", "on_full": "queue"})).await;
    manager.api.until_status("runs", "Processing").await;
    for name in ["w1", "doomed", "w2"] {
        manager.api.create(json!({"name": name, "kind": "ticker", "on_full": "queue"})).await;
    }
    manager.api.until_observer("w2", |it| it.reason.starts_with("waiting for a slot")).await;
    assert_eq!(manager.api.call("DELETE", "/v1/observers/doomed", None).await.0, 202);
    manager.api.until_status("doomed", "Deleted").await;
    // The others keep their places.
    for name in ["w1", "w2"] {
        assert_eq!(manager.api.observer(name).await.status, Status::Created);
    }
    assert_eq!(manager.api.call("DELETE", "/v1/observers/runs?wait=20s", None).await.0, 200);
    manager.api.until_status("w1", "Processing").await;
    assert_eq!(service.history.lock().unwrap().len(), 2);
}

fn create(name: &str) -> Value {
    json!({"op": "create", "observer": {"name": name, "kind": "ticker", "on_full": "queue"}})
}

/// All of these at once, each with this answer.
async fn wish(manager: &Manager, wishes: Vec<Value>, status: u16) {
    let outcomes: Outcomes = manager.api.done("POST", "/v1/observers:batch", Some(wishes.into()), 200).await;
    assert!(outcomes.items.iter().all(|it| it.status == status), "{outcomes:?}");
}

/// More messages wait than a sweep takes at once, and those of deleted observers stand behind most of them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deletes_of_what_waits_in_a_long_queue_are_carried_out_by_sweeps() {
    const WAITING: usize = 1600;
    let stage = Stage::new().on_rabbit();
    let manager = stage.ready_manager().await;
    let service = Service::new(&stage, "s", 1).await;
    manager.api.create(json!({"name": "runs", "kind": "ticker", "on_full": "queue"})).await;
    manager.api.until_status("runs", "Processing").await;
    wish(&manager, (0..WAITING).map(|number| create(&format!("w{number:04}"))).collect(), 201).await;
    let session = stage.broker.connect("onlooker").await.unwrap();
    let queue = Topology::new(&stage.settings.prefix).work(&Pool::default());
    let ready = async |definition: usize| {
        wait_for("the queue to be as long as that", || async {
            let ready = session.depth(&queue).await.unwrap().ready as usize;
            if ready == definition { Ok(()) } else { Err(format!("{ready} ready, not {definition}")) }
        })
        .await;
    };
    ready(WAITING).await;
    for name in ["w0003", "w0777", "w1555"] {
        assert_eq!(manager.api.call("DELETE", &format!("/v1/observers/{name}"), None).await.0, 202);
    }
    for name in ["w0003", "w0777", "w1555"] {
        manager.api.until_status(name, "Deleted").await;
    }
    ready(WAITING - 3).await;
    assert_eq!(service.history.lock().unwrap().len(), 1, "nothing started");
}

/// What services hear: all that is said to every one, and what is said to them alone.
async fn listener(stage: &Stage) -> (Voice, String) {
    let voice = Voice::new(stage.broker.as_ref(), &stage.settings.prefix).await;
    let queue = voice.topology.commands_of(&Pool::default(), voice.id);
    voice.session.declare(&queue, &QueueKind::Exclusive).await.unwrap();
    voice
        .session
        .bind(&queue, &[voice.topology.commands(), voice.topology.commands_to(&Pool::default())])
        .await
        .unwrap();
    (voice, queue)
}

async fn heard(voice: &Voice, queue: &str) -> Vec<Command> {
    let deliveries = voice.session.get(queue, 1000).await.unwrap();
    deliveries.iter().map(|delivery| decode(&delivery.body).unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_newborn_service_is_welcomed_and_no_other_hears_of_it() {
    let stage = Stage::new().on_rabbit();
    let manager = stage.ready_manager().await;
    let (other, others_queue) = listener(&stage).await;
    let most = BATCH_MAX + 20;
    wish(&manager, (0..most).map(|number| create(&format!("o{number}"))).collect(), 201).await;
    let delete = |number| json!({"op": "delete", "id": format!("o{number}")});
    wish(&manager, (0..most).map(delete).collect(), 202).await;
    heard(&other, &others_queue).await;

    let (mut new_service, queue) = listener(&stage).await;
    new_service.registered("s", 1).await;
    let told = std::sync::Mutex::new(Vec::new());
    wait_for("the newborn to be welcomed", || async {
        let more = heard(&new_service, &queue).await;
        told.lock().unwrap().extend(more);
        let welcomed = told.lock().unwrap().iter().any(|it| matches!(it, Command::Welcome(_)));
        if welcomed { Ok(()) } else { Err("not yet".to_owned()) }
    })
    .await;
    let revocations: usize = told.lock().unwrap().iter().map(revocations_in).sum();
    assert!(revocations >= most, "{revocations} of {most} revocations");
    // Whatever is said to all comes after what was said before.
    manager.api.create(json!({"name": "last", "kind": "ticker", "on_full": "queue"})).await;
    assert_eq!(manager.api.call("DELETE", "/v1/observers/last", None).await.0, 202);
    let last = std::sync::Mutex::new(Vec::new());
    wait_for("the other service to hear of the last delete", || async {
        let more = heard(&other, &others_queue).await;
        last.lock().unwrap().extend(more);
        let revocations = last.lock().unwrap().iter().filter(|it| revocations_in(it) == 1).count();
        if revocations > 0 { Ok(()) } else { Err("not yet".to_owned()) }
    })
    .await;
    let welcomes = last.lock().unwrap().iter().filter(|it| matches!(it, Command::Welcome(_))).count();
    assert_eq!(welcomes, 0, "what a newborn must hear reaches all services");
}

fn revocations_in(command: &Command) -> usize {
    match command {
        Command::Revoke(revocations) => revocations.len(),
        Command::Welcome(welcome) => welcome.revocations.len(),
        _ => 0,
    }
}
