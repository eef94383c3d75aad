//! What a manager makes of several state queues.

use crate::service::{Voice, started};
use crate::stage::Stage;
use everwatch_broker::{Consume, Session, Settle, Topology};
use everwatch_core::clock::Timestamp;
use everwatch_core::epoch::Epoch;
use everwatch_core::id::ObserverId;
use everwatch_core::record::health::Health;
use everwatch_core::record::service::ServiceState;
use everwatch_core::wire::heartbeat::HeartbeatMessage;
use everwatch_core::wire::message::{decode, encode};
use everwatch_core::wire::report::{
    InventoryChunk, InventoryRange, Report, Reports, RunEvent, RunReport, SequencedReport, StateMessage,
};
use everwatch_tests::wait::wait_for;
use serde_json::json;
use std::time::Duration;

fn stage(state_queues: u16) -> Stage {
    let mut stage = Stage::new();
    stage.settings.state_queues = state_queues;
    stage
}

fn topology(stage: &Stage, state_queues: u16) -> Topology {
    Topology::new(&stage.settings.prefix).with_state_queues(state_queues)
}

/// Declares the state queues as another manager with this number would.
async fn declare(topology: &Topology, session: &dyn Session) {
    for (queue, kind) in topology.durable_queues() {
        session.declare(&queue, &kind).await.unwrap();
    }
}

/// Sends reports of one service to one state queue.
async fn report(voice: &Voice, queue: String, reports: impl IntoIterator<Item = (u64, Report)>) {
    let at = everwatch_core::clock::now();
    let entries = reports.into_iter().map(|(seq, report)| SequencedReport::new(seq, at, report)).collect();
    voice
        .publish(queue, encode(&StateMessage::Reports(Reports { service: voice.id, entries })).unwrap())
        .await;
}

fn run(id: ObserverId, event: RunEvent) -> Report {
    Report::Run(RunReport { id, epoch: Epoch::new(1, 0), event })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_parked_report_names_its_queue_and_is_sent_back_there() {
    let stage = stage(4);
    let manager = stage.ready_manager().await;
    let voice = Voice::new(stage.broker.as_ref(), &stage.settings.prefix).await;
    let topology = topology(&stage, 4);
    let queues: Vec<String> = (0..4).map(|index| topology.state_queue(index)).collect();
    for queue in &queues {
        voice.publish(queue.clone(), b"?!".to_vec()).await;
    }
    manager.api.until_total("/v1/parked", 4).await;
    let mut parked = manager.api.parked().await;
    parked.sort_by(|a, b| a.queue.cmp(&b.queue));
    assert_eq!(parked.iter().map(|it| &it.queue).collect::<Vec<_>>(), queues.iter().collect::<Vec<_>>());
    let retry = format!("/v1/parked/{}/retry", parked[3].id);
    assert_eq!(manager.api.call("POST", &retry, None).await.0, 202);
    wait_for("it to be parked again under the name of its queue", || async {
        let again = manager.api.parked().await;
        let is_back = |it: &everwatch_api::ParkedMessage| it.queue == queues[3] && it.id != parked[3].id;
        if again.iter().any(is_back) { Ok(()) } else { Err(format!("{again:?}")) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_manager_is_not_ready_until_it_has_read_every_state_queue() {
    let stage = stage(3);
    let topology = topology(&stage, 3);
    let thief = stage.broker.connect("thief").await.unwrap();
    declare(&topology, thief.as_ref()).await;
    // The broker prefers this consumer, so no watermark of the third queue reaches the manager.
    let consume = Consume { queue: topology.state_queue(2), prefetch: 1000, priority: 1 };
    let consumer = thief.consume(&consume).await.unwrap();
    let manager = stage.manager().await;
    wait_for("the manager to wait for the third queue alone", || async {
        let depth = thief.depth(&topology.state_queue(1)).await.unwrap();
        let (status, problem) = manager.api.call("GET", "/readyz", None).await;
        let waits = status == 503 && problem.to_string().contains("state queue");
        if waits && depth.consumers == 1 { Ok(()) } else { Err(format!("{status} {problem} {depth:?}")) }
    })
    .await;
    drop(consumer);
    thief.close().await;
    manager.api.until_ready().await;
}

/// The number was 3 and is 1 now, and a service still uses the third queue.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_manager_reads_the_state_queues_that_remain() {
    let stage = stage(1);
    let topology = topology(&stage, 3);
    let voice = Voice::new(stage.broker.as_ref(), &stage.settings.prefix).await;
    declare(&topology, voice.session.as_ref()).await;
    let manager = stage.ready_manager().await;
    let made = manager.api.create(json!({"name": "a", "kind": "ticker", "on_full": "queue"})).await;
    report(&voice, topology.state_queue(2), [(1, run(ObserverId(made.id), started()))]).await;
    manager.api.until_status("a", "Processing").await;
}

/// The queues are independent: here, each pair of reports is read in the other order than it was sent.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_order_between_queues_does_not_matter() {
    let mut stage = stage(2);
    // The service sends no heartbeats.
    (stage.settings.lost_after, stage.settings.orphan_after) =
        (Duration::from_secs(600), Duration::from_secs(600));
    let manager = stage.ready_manager().await;
    let mut voice = Voice::new(stage.broker.as_ref(), &stage.settings.prefix).await;
    let topology = topology(&stage, 2);
    let mut ids = Vec::new();
    for name in ["ends", "stays", "moves"] {
        let made = manager.api.create(json!({"name": name, "kind": "ticker", "on_full": "queue"})).await;
        ids.push(ObserverId(made.id));
    }
    let [ends, stays, moves] = ids[..] else { panic!("{ids:?}") };
    let queue = |id| topology.state_queue(topology.state_of(id));
    // Runs before the registration of their service.
    for (id, seq) in [(ends, 2), (stays, 3), (moves, 4)] {
        report(&voice, queue(id), [(seq, run(id, started()))]).await;
    }
    for name in ["ends", "stays", "moves"] {
        manager.api.until_status(name, "Processing").await;
    }
    voice.registered("s", 5).await;
    manager.api.until_service("s", |it| it.state == ServiceState::Active).await;

    // An inventory before an older event: `ends` is not in it, because it had completed before. `moves` started its
    // second attempt after the inventory, and that report is read first.
    let again = RunEvent::Started { attempt: 2, started_at: everwatch_core::clock::now() };
    report(&voice, queue(moves), [(12, run(moves, again))]).await;
    manager.api.until_observer("moves", |it| it.attempt == 2).await;
    let held = [stays, moves].map(|id| RunReport { id, epoch: Epoch::new(1, 0), event: started() });
    let chunk = InventoryChunk::within(1, &[InventoryRange::ALL], held.to_vec()).remove(0);
    report(&voice, topology.state(), [(11, Report::Inventory(chunk))]).await;
    manager.api.until_observer("ends", |it| it.health == Some(Health::Waiting)).await;
    report(&voice, queue(ends), [(10, run(ends, RunEvent::Completed))]).await;
    manager.api.until_status("ends", "Completed").await;
    assert_eq!(manager.api.observer("moves").await.attempt, 2, "the later report wins");

    // The end of the service before the last reports of its runs.
    report(&voice, topology.state(), [(15, Report::ServiceGone)]).await;
    wait_for("the service to be gone", || async {
        let services = manager.api.services().await;
        if services.iter().all(|it| it.state == ServiceState::Gone) {
            Ok(())
        } else {
            Err(format!("{services:?}"))
        }
    })
    .await;
    report(&voice, queue(stays), [(13, run(stays, RunEvent::Completed))]).await;
    report(&voice, queue(moves), [(14, run(moves, RunEvent::HandedOver))]).await;
    manager.api.until_status("stays", "Completed").await;
    let moved = manager.api.until_observer("moves", |it| it.service.is_none()).await;
    assert_eq!(moved.generation, 1, "it was not republished");
}

/// A watermark counts as current for two heartbeat intervals, and the manager needs time to read it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watermarks_are_sent_at_a_heartbeat_interval_below_a_second() {
    let stage = Stage::new();
    let _manager = stage.ready_manager().await;
    let session = stage.broker.connect("onlooker").await.unwrap();
    // Before the manager's own consumer.
    let consume = Consume { queue: topology(&stage, 1).heartbeats(), prefetch: 9, priority: 1 };
    let mut deliveries = session.consume(&consume).await.unwrap();
    let read = async {
        let mut sent_at = Vec::new();
        while sent_at.len() < 5 {
            let delivery = deliveries.next().await.unwrap();
            assert_eq!(session.ack(delivery.receipt).await, Settle::Done);
            if let HeartbeatMessage::Watermark(watermark) = decode(&delivery.body).unwrap() {
                sent_at.push(watermark.sent_at);
            }
        }
        sent_at
    };
    let sent_at: Vec<Timestamp> = tokio::time::timeout(Duration::from_secs(20), read).await.unwrap();
    let shortest = sent_at.windows(2).map(|pair| pair[1].since(pair[0])).min().unwrap();
    assert!(shortest < stage.settings.heartbeat_interval * 2, "{sent_at:?}");
}
